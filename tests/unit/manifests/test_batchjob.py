"""Batch Jobs: completions, parallelism and what failures cost."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.jobspec import RestartSpec
from tests.unit.manifests.documents import a_batch_job, refusal, the_job, warned


def test_completions_are_tasks_and_parallelism_is_how_many_at_once():
    group = the_job(a_batch_job(completions=10, parallelism=2, completionMode="Indexed")).groups[0]
    assert (group.tasks, group.at_once) == (10, 2)


def test_parallelism_above_completions_holds_nobody_back():
    assert the_job(a_batch_job(completions=2, parallelism=5)).groups[0].at_once == 0


def test_a_plain_job_is_one_task_with_six_retries_that_evictions_use_up():
    job = the_job(a_batch_job())
    assert (job.groups[0].tasks, job.max_retries) == (1, 6)
    assert job.restart == RestartSpec(whole=False, fails_job=True, shared=True, counts_evictions=True)


def test_the_backoff_limit_is_shared_and_the_one_per_index_is_not():
    assert the_job(a_batch_job(backoffLimit=2)).max_retries == 2
    job = the_job(a_batch_job(backoffLimitPerIndex=1, completions=4, parallelism=4))
    assert job.max_retries == 1
    assert job.restart == RestartSpec(whole=False, counts_evictions=True)


def test_a_rule_may_forgive_disruptions():
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    job = a_batch_job(podFailurePolicy={"rules": rules})
    assert the_job(job).restart == RestartSpec(whole=False, fails_job=True, shared=True)
    assert warned(job) == ""


def test_other_rules_are_told():
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    assert "podFailurePolicy.rules[0].onExitCodes" in warned(a_batch_job(podFailurePolicy={"rules": rules}))


def test_one_success_may_be_enough():
    assert the_job(a_batch_job(completions=3, successPolicy={"rules": [{"succeededCount": 1}]})).success.any


def test_a_work_queue_is_told():
    job = a_batch_job(parallelism=3)
    assert the_job(job).groups[0].tasks == 3
    assert "without completions" in warned(job)


def test_what_cannot_be_held_back_or_kept_is_told():
    told = warned(a_batch_job(suspend=True, ttlSecondsAfterFinished=60, activeDeadlineSeconds=9))
    assert "spec.suspend" in told
    assert "spec.ttlSecondsAfterFinished" in told
    assert "limits each attempt" in told
    assert the_job(a_batch_job(activeDeadlineSeconds=9)).time_limit == 9


@pytest.mark.parametrize(
    "spec",
    [
        {"completions": 0},
        {"completions": -1},
        {"parallelism": -1},
        {"completions": 10**9},
        {"parallelism": 10**9},
    ],
)
def test_absurd_counts_are_refused(spec: dict[str, Any]):
    assert "out of range" in refusal(a_batch_job(**spec))


def test_kueue_queue_and_topology():
    job: dict[str, Any] = a_batch_job(completions=2, parallelism=2)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    annotation = {"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/rack"}
    job["spec"]["template"]["metadata"] = {"annotations": annotation}
    spec = the_job(job)
    assert spec.queue == "team-a"
    assert spec.gang
    assert [(options.layer, options.must) for options in spec.gather] == [("cloud.provider.com/rack", True)]
