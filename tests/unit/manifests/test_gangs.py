"""Pods and PodGroups into gangs: every fallback, and every contradiction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec
from tests.unit.manifests.documents import (
    GANG,
    MEMBER,
    Doc,
    a_batch_job,
    a_pod,
    a_podgroup,
    pods,
    reading,
    refusal,
    the_job,
    warned,
)


def the_gang(*documents: Doc, **options: Any) -> tuple[JobSpec, GangSpec]:
    job = the_job(*documents, **options)
    assert isinstance(job.gang, GangSpec)
    return job, job.gang


def a_member(pod: str, /, **annotations: Any) -> Doc:
    """A pod whose gang is declared by annotations only."""
    return a_pod(
        pod, annotations={f"{GANG}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    )


def test_members_become_one_group_of_a_gang():
    job, gang = the_gang(a_podgroup(least=2), *pods(3, "g"))
    assert [(group.name, group.tasks, group.min) for group in job.groups] == [("g", 3, 2)]
    assert gang == GangSpec(wait=600.0, id="default/g")


def test_a_gang_that_needs_all_says_so_plainly():
    job, _ = the_gang(a_podgroup(least=3), *pods(3, "g"))
    assert job.groups[0].min == 0


def test_members_of_a_gang_restart_by_themselves_as_in_kubernetes():
    job, _ = the_gang(a_podgroup(), *pods(1, "g"))
    assert job.restart is not None
    assert job.restart.whole is False


@pytest.mark.parametrize(
    "member",
    [
        {"labels": {MEMBER: "g"}},
        {"labels": {f"{MEMBER}/name": "g"}},
        {"annotations": {f"{GANG}/name": "g"}},
    ],
)
def test_three_ways_to_say_of_which_gang_a_pod_is(member: Doc):
    _, gang = the_gang(a_podgroup(), a_pod(**member))
    assert gang.id == "default/g"


def test_the_first_way_wins():
    pod = a_pod(labels={MEMBER: "g", f"{MEMBER}/name": "other"}, annotations={f"{GANG}/name": "third"})
    _, gang = the_gang(a_podgroup(), pod)
    assert gang.id == "default/g"


def test_a_gang_may_be_declared_by_annotations_alone():
    said = {
        "name": "g", "min_available": "2", "total_number": "3", "mode": "NonStrict", "waiting_time": "90s",
        "match_policy": "waiting-and-running",
    }  # fmt: skip
    job, gang = the_gang(*(a_member(f"p{n}", **said) for n in range(3)))
    assert (job.groups[0].tasks, job.groups[0].min) == (3, 2)
    assert (gang.strict, gang.match, gang.wait) == (False, "waiting-and-running", 90.0)


def test_the_minimum_may_be_a_label():
    job, _ = the_gang(*(a_pod(f"p{n}", gang="g", labels={f"{MEMBER}/min-available": "2"}) for n in range(3)))
    assert job.groups[0].min == 2


def test_annotations_of_pods_win_over_the_podgroup():
    members = [a_pod(f"p{n}", gang="g", annotations={f"{GANG}/min-available": "2"}) for n in range(4)]
    job, _ = the_gang(a_podgroup(least=3), *members)
    assert job.groups[0].min == 2


def test_the_alias_of_the_match_policy():
    group = a_podgroup()
    group["metadata"]["annotations"][f"{MEMBER}/match-policy"] = "only-waiting"
    _, gang = the_gang(group, a_pod(gang="g"))
    assert gang.match == "only-waiting"


def test_the_waiting_time_of_the_object_and_of_the_annotation():
    group = a_podgroup()
    group["spec"]["scheduleTimeoutSeconds"] = 30
    assert the_gang(group, a_pod(gang="g"))[1].wait == 30.0
    group["metadata"]["annotations"][f"{GANG}/waiting-time"] = "2m"
    assert the_gang(group, a_pod(gang="g"))[1].wait == 120.0


@pytest.mark.parametrize(
    ("said", "wait", "match", "strict"),
    [
        ({"waiting_time": "-5s"}, 600.0, "once-satisfied", True),
        ({"waiting_time": "soon"}, 600.0, "once-satisfied", True),
        ({"match_policy": "never"}, 600.0, "once-satisfied", True),
        ({"mode": "strictish"}, 600.0, "once-satisfied", True),
    ],
)
def test_bad_words_fall_back_as_in_koordinator_but_not_in_silence(
    said: Doc, wait: float, match: str, strict: bool
):
    documents = (a_podgroup(**said), a_pod(gang="g"))
    _, gang = the_gang(*documents)
    assert (gang.wait, gang.match, gang.strict) == (wait, match, strict)
    assert str(next(iter(said.values()))) in warned(*documents)


def test_gangs_of_two_namespaces_start_together_as_one_job():
    both = ["b/worker", "a/master"]
    job, gang = the_gang(
        a_podgroup("master", 1, "a", groups=json.dumps(both)),
        a_podgroup("worker", 2, "b", groups=both),
        a_pod("m", gang="master", namespace="a", requests={"cpu": 1}),
        *pods(2, "worker", namespace="b", requests={"cpu": 2}),
    )
    assert gang.id == "a/master,b/worker"
    assert [(group.name, group.tasks, group.cores) for group in job.groups] == [
        ("worker", 2, 2),
        ("master", 1, 1),
    ]


def test_gangs_of_one_name_in_two_namespaces_keep_apart():
    both = ["a/g", "b/g"]
    job, _ = the_gang(
        a_podgroup("g", 1, "a", groups=both), a_podgroup("g", 1, "b", groups=both),
        a_pod("p", gang="g", namespace="a"), a_pod("p", gang="g", namespace="b"),
    )  # fmt: skip
    assert [group.name for group in job.groups] == ["a.g", "b.g"]


def test_members_that_are_not_alike_become_several_groups():
    documents = (
        a_podgroup(least=3),
        *pods(2, "g", requests={"cpu": 1}),
        a_pod("z", gang="g", requests={"cpu": 8}),
    )
    job, _ = the_gang(*documents)
    assert warned(*documents) == ""
    assert [(group.name, group.tasks, group.cores, group.min) for group in job.groups] == [
        ("g-0", 2, 1, 0),
        ("g-1", 1, 8, 0),
    ]


def test_names_of_groups_never_meet():
    both = ["default/g", "default/g-0"]
    job, _ = the_gang(
        a_podgroup("g", 2, groups=both), a_podgroup("g-0", 1, groups=both), a_pod("x", gang="g-0"),
        a_pod("a", gang="g", requests={"cpu": 1}), a_pod("b", gang="g", requests={"cpu": 2}),
    )  # fmt: skip
    assert [group.name for group in job.groups] == ["g-0", "g-1", "g-0-2"]


def test_of_unlike_members_the_first_are_needed():
    documents = (
        a_podgroup(least=3),
        *pods(3, "g", requests={"cpu": 1}),
        *pods(3, "g", "q", requests={"cpu": 8}),
    )
    job, _ = the_gang(*documents)
    assert [(group.min, group.optional) for group in job.groups] == [(0, False), (0, True)]
    assert "by kind 3 of 3, 0 of 3" in warned(*documents)


def test_members_stand_by_index_then_by_number_in_their_name():
    members = [
        a_pod("p10", gang="g"),
        a_pod("p9", gang="g"),
        a_pod("late", gang="g", annotations={f"{GANG}/network-topology-index": "7"}),
        a_pod("first", gang="g", annotations={f"{GANG}/network-topology-index": "2"}),
    ]
    found = reading(a_podgroup(least=4), *members).found[0]
    assert found.names == ("default/first", "default/late", "default/p9", "default/p10")
    assert found.spec.groups[0].indexes == [2, 7, 8, 9]
    assert "come last" in warned(a_podgroup(least=4), *members)


def test_an_index_that_two_members_have_is_refused():
    members = [
        a_pod(f"p{n}", gang="g", annotations={f"{GANG}/network-topology-index": "1"}) for n in range(2)
    ]
    assert "two members have the network-topology-index 1" in refusal(a_podgroup(least=2), *members)


@pytest.mark.parametrize(
    "spec",
    [
        '{"gatherStrategy": [{"layer": "Rack", "strategy": "MustGather", "podCountMultiple": 4}]}',
        {"gatherStrategy": [{"layer": "Rack", "strategy": "MustGather", "podCountMultiple": 4}]},
        [{"layer": "Rack", "strategy": "MustGather", "podCountMultiple": 4}],
    ],
)
def test_a_topology_spec_as_json_or_written_out(spec: Any):
    job, _ = the_gang(a_podgroup(network_topology_spec=spec), a_pod(gang="g"))
    assert job.gather == [GatherSpec("Rack", True, 4)]


def test_an_unknown_field_of_a_topology_spec_is_told():
    spec = '{"gatherStrategy": [], "parallelModel": "PP"}'
    assert "parallelModel" in warned(a_podgroup(network_topology_spec=spec), a_pod(gang="g"))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"groups": "[oops"}, "is not JSON"),
        ({"groups": '["g"]'}, "is not namespace/name"),
        ({"groups": '["default/other"]'}, "but not itself"),
        ({"groups": '["default/g", "default/absent"]'}, "default/absent, which is in none of these files"),
        ({"network_topology_spec": "{"}, "is not JSON"),
        (
            {"network_topology_spec": '{"gatherStrategy": [{"layer": "R", "strategy": "Maybe"}]}'},
            "'Maybe' is unknown",
        ),
        (
            {"network_topology_spec": '{"gatherStrategy": [{"strategy": "MustGather"}]}'},
            "layer: it is missing",
        ),
        ({"network_topology_spec": "7"}, "is not a topology spec"),
        ({"min_available": "many"}, "is not a whole number"),
        ({"min_available": "0"}, "is not a whole number from 1"),
    ],
)
def test_what_cannot_be_a_gang_is_refused(said: Doc, why: str):
    assert why in refusal(a_podgroup(**said), a_pod(gang="g"))


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"mode": "Strict"}, {"mode": "NonStrict"}, "the mode"),
        ({"match_policy": "only-waiting"}, {"match_policy": "once-satisfied"}, "the match policy"),
        ({"waiting_time": "1s"}, {"waiting_time": "2s"}, "the waiting time"),
        (
            {"network_topology_spec": [{"layer": "a", "strategy": "MustGather"}]},
            {"network_topology_spec": [{"layer": "b", "strategy": "MustGather"}]},
            "the network topology spec",
        ),
    ],
)
def test_groups_that_start_together_must_not_contradict_each_other(one: Doc, other: Doc, what: str):
    both = ["default/a", "default/b"]
    groups = (a_podgroup("a", groups=both, **one), a_podgroup("b", groups=both, **other))
    assert f"about {what}" in refusal(*groups, a_pod("x", gang="a"), a_pod("y", gang="b"))


def test_groups_must_name_each_other():
    documents = (
        a_podgroup("a", groups=["default/a", "default/b"]),
        a_podgroup("b"),
        a_pod("x", gang="a"),
        a_pod("y", gang="b"),
    )
    assert "default/a starts together with it, but it names none" in refusal(*documents)


def test_pods_of_a_gang_must_not_contradict_each_other():
    members = [a_member(f"p{n}", name="g", min_available=str(n)) for n in (1, 2)]
    assert "contradict each other about the minimum" in refusal(*members)


def test_too_few_members_are_an_error_to_apply_and_a_reason_in_a_plan():
    documents = (a_podgroup(least=3), *pods(2, "g"))
    assert "gang default/g needs 3 members and has 2" in refusal(*documents)
    (incomplete,) = reading(*documents, for_plan=True).incomplete
    assert (incomplete.reason.code, incomplete.reason.numbers) == (
        "GangIncomplete",
        {"needed": 3, "members": 2},
    )


def test_a_podgroup_without_members_is_not_passed_over():
    assert "gang default/g needs 2 members and has 0" in refusal(a_podgroup(least=2))


def test_a_gang_that_nobody_declares_is_refused():
    assert "has neither a PodGroup nor the annotation" in refusal(a_pod(gang="g"))


def test_members_of_another_namespace_are_told_how_to_join():
    detail = refusal(
        a_podgroup("g", namespace="a"), a_pod(gang="g", namespace="a"), a_pod("q", gang="g", namespace="b")
    )
    assert "only a/g has that name" in detail
    assert "gang.scheduling.koordinator.sh/groups" in detail


@pytest.mark.parametrize("least", [0, -1, 10**9, "two"])
def test_an_absurd_minimum_is_refused(least: Any):
    assert "spec.minMember" in refusal(a_podgroup(least=least), a_pod(gang="g"))


def test_members_that_differ_in_what_a_job_says_once_are_told():
    documents = (a_podgroup(least=2), a_pod("a", gang="g", priority=5), a_pod("b", gang="g", priority=9))
    assert the_job(*documents).priority == 5
    assert "differ in their priority: 5 is taken" in warned(*documents)


def test_a_total_that_is_not_the_number_of_members_is_told():
    assert "total-number is 5, and there are 1" in warned(a_podgroup(total_number="5"), a_pod(gang="g"))


def test_the_mark_of_old_schedulers_needs_no_word():
    assert warned(a_podgroup(timeout="true"), a_pod(gang="g")) == ""


def test_minimal_resources_are_told():
    group = a_podgroup()
    group["spec"]["minResources"] = {"cpu": 4}
    assert "spec.minResources" in warned(group, a_pod(gang="g"))


def test_a_job_whose_template_is_of_a_gang_is_that_gang():
    job = a_batch_job(parallelism=4, completions=4)
    job["spec"]["template"]["metadata"] = {"labels": {MEMBER: "g"}}
    spec, gang = the_gang(a_podgroup(least=3), job)
    assert (gang.id, spec.groups[0].tasks, spec.groups[0].min) == ("default/g", 4, 3)


def test_a_job_with_too_few_at_once_for_its_gang_is_refused():
    job = a_batch_job(parallelism=2, completions=4)
    job["spec"]["template"]["metadata"] = {"labels": {MEMBER: "g"}}
    assert "at_once: 2" in refusal(a_podgroup(least=3), job)
