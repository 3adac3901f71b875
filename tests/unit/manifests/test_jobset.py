"""JobSets: groups, the order they start in, and what failures and successes mean."""

from __future__ import annotations

import pytest

from phalanx.api.schema.groupspec import AfterSpec
from phalanx.api.schema.jobspec import NetworkSpec, RestartSpec, RuleSpec, SuccessSpec
from tests.unit.manifests.documents import (
    MEMBER,
    a_jobset,
    a_podgroup,
    a_replicated,
    refusal,
    the_job,
    warned,
)


def test_replicated_jobs_become_groups_of_equal_runs():
    job = the_job(a_jobset(a_replicated("driver"), a_replicated("worker", 4, completions=8, parallelism=2)))
    assert [(g.name, g.tasks, g.replicas, g.at_once) for g in job.groups] == [
        ("driver", 1, 1, 0),
        ("worker", 32, 4, 2),
    ]
    assert not job.gang


def test_without_a_failure_policy_the_first_failure_for_good_fails_the_set():
    job = the_job(a_jobset(a_replicated(replicas=2)))
    assert job.restart == RestartSpec(whole=False, fails_job=True, counts_evictions=True)
    assert job.max_retries == 6


def test_a_failure_policy_restarts_the_whole():
    rules = [
        {"name": "a", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["worker"]},
        {"action": "RestartJob"},
    ]
    job = the_job(
        a_jobset(a_replicated(replicas=2, backoffLimit=0), failurePolicy={"maxRestarts": 3, "rules": rules})
    )
    assert job.max_retries == 0
    assert job.restart == RestartSpec(
        whole=True,
        limit=3,
        counts_evictions=True,
        rules=[
            RuleSpec("fail", ["timeout"]),
            RuleSpec("restart-uncounted", groups=["worker"]),
            RuleSpec("restart-replica"),
        ],
    )


def test_a_rule_about_what_never_happens_here_is_left_out_and_told():
    policy = {"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]}
    jobset = a_jobset(a_replicated(), failurePolicy=policy)
    restart = the_job(jobset).restart
    assert restart is not None
    assert restart.rules == []
    assert "PodFailurePolicy never happens here" in warned(jobset)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"action": "Explode"}, "'Explode' is unknown"),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["nobody"]}, "there is no group 'nobody'"),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["a++"]}, "bad repetition operator"),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}, "not a regular expression"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused(rule: dict[str, object], why: str):
    assert why in refusal(a_jobset(a_replicated(), failurePolicy={"rules": [rule]}))


def test_success_of_any_job_or_of_some_groups():
    jobset = a_jobset(
        a_replicated("a"), a_replicated("b"), successPolicy={"operator": "Any", "targetReplicatedJobs": ["a"]}
    )
    assert the_job(jobset).success == SuccessSpec(True, ["a"])


def test_groups_may_start_in_order():
    jobs = (a_replicated("a"), a_replicated("b"), a_replicated("c"))
    job = the_job(a_jobset(*jobs, startupPolicy={"startupPolicyOrder": "InOrder"}))
    assert [group.after for group in job.groups] == [[], [AfterSpec("a")], [AfterSpec("b")]]


def test_groups_may_wait_for_each_other():
    after = [{"name": "a", "status": "Complete"}]
    job = the_job(a_jobset(a_replicated("a"), a_replicated("b", after=after)))
    assert job.groups[1].after == [AfterSpec("a", "completed")]


def test_groups_that_wait_in_a_circle_are_refused():
    jobs = (a_replicated("a", after=[{"name": "b"}]), a_replicated("b", after=[{"name": "a"}]))
    assert "in a circle" in refusal(a_jobset(*jobs))


def test_a_set_whose_templates_are_of_a_gang_is_that_gang():
    worker = a_replicated("worker", 2, completions=2, parallelism=2)
    worker["template"]["spec"]["template"]["metadata"] = {"labels": {MEMBER: "g"}}
    job = the_job(a_podgroup("g", 3), a_jobset(worker))
    assert job.gang
    assert job.groups[0].min == 3
    assert job.restart is not None
    assert job.restart.whole is False


def test_what_is_not_honoured_is_told():
    told = warned(
        a_jobset(
            a_replicated(),
            annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"},
            suspend=True,
            ttlSecondsAfterFinished=1,
            coordinator={"replicatedJob": "worker"},
            failurePolicy={"restartStrategy": "InPlaceRestart"},
        )
    )
    for field in (
        "exclusive-topology",
        "suspend",
        "ttlSecondsAfterFinished",
        "coordinator",
        "restartStrategy",
    ):
        assert field in told


def test_limits_that_differ_are_told():
    jobset = a_jobset(a_replicated("a", backoffLimit=1), a_replicated("b", backoffLimit=4))
    assert the_job(jobset).max_retries == 4
    assert "backoffLimit differs" in warned(jobset)


def test_a_group_of_nobody_is_left_out():
    assert [group.name for group in the_job(a_jobset(a_replicated("a"), a_replicated("b", 0))).groups] == [
        "a"
    ]
    assert "there is nothing to run" in refusal(a_jobset(a_replicated("b", 0)))


def test_a_gang_that_is_too_large_is_refused_before_it_is_shared_out():
    worker = a_replicated(replicas=2, completions=5001, parallelism=5001)
    worker["template"]["spec"]["template"]["metadata"] = {"labels": {MEMBER: "g"}}
    said = refusal(a_podgroup(least=2), a_jobset(worker))
    assert "PodGroup default/g: 10002 tasks are too many for a gang, at most 10000" in said


def test_members_know_each_other_by_name_as_in_jobset():
    job = the_job(a_jobset(a_replicated(), a_replicated("other"), network={"subdomain": "s"}))
    assert job.names
    assert job.network == NetworkSpec(subdomain="s")
    assert not the_job(a_jobset(a_replicated(), network={"enableDNSHostnames": False})).names


def test_an_annotation_asks_for_addresses():
    job = the_job(a_jobset(a_replicated(), annotations={"phalanx/network": "overlay"}))
    assert job.network == NetworkSpec("overlay")


@pytest.mark.parametrize("count", [1000, 1001])
def test_a_jobset_that_is_too_large_for_names_says_so(count: int):
    document = a_jobset(a_replicated(replicas=count))
    job, said = the_job(document), warned(document)
    assert job.names == (count == 1000)
    assert ("its 1001 tasks do not find each other by host name" in said) == (count > 1000)
    off = a_jobset(a_replicated(replicas=count), network={"enableDNSHostnames": False})
    assert "host name" not in warned(off), "nobody asked for names"
