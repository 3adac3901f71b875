"""Cases C18 and C19: tasks that differ only in their data run as one, and end as the one does."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.merging import parent_of
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel
from phalanx.core.explain.explain import explain
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Ended, Exit, Start, Status, Why
from phalanx.core.model.plan import Policy
from phalanx.core.model.task_results import PartResult
from tests.support.dispatch_cluster import SMALL, DispatchCluster, a_flow, a_machine, a_task

ONE_SLOT = {"w1": a_machine(1)}


def six(task_type: str = "inference", **more: object) -> list[dict[str, object]]:
    """Six stages that differ only in their data."""
    return [
        {
            "name": f"s{at}",
            "spec": {"taskType": task_type, "max_attempts": 2, "data": {"items": [at]}, **more},
        }
        for at in range(6)
    ]


def ready(
    policy: DispatchPolicy | None = None, stages: list[dict[str, object]] | None = None
) -> DispatchCluster:
    """Six such stages wait while something else holds the only core."""
    cluster = DispatchCluster(policy, ONE_SLOT)
    cluster.run_job("filler", "default")
    cluster.flow = cluster.run(a_flow(*(stages or six())))
    cluster.finish("filler")
    return cluster


def stage(cluster: DispatchCluster, at: int) -> JobId:
    return cluster.stage(cluster.flow, f"s{at}")


def placed(cluster: DispatchCluster) -> list[tuple[str, int]]:
    """Each placement since the filler's, with the number of those that were merged into it."""
    events = [event for turn in cluster.turns for event in turn.events if isinstance(event, e.TaskPlaced)]
    return [(event.key[0], len(event.merged)) for event in events[1:]]


def answer(cluster: DispatchCluster, parent: JobId) -> str:
    """What a program writes that did the work of all."""
    attempt = cluster.attempt(parent)
    assert attempt is not None
    children = {id: {"of": id} for id in attempt.merged}
    return json.dumps({"result": {"of": parent}, "children": children})


def statuses(cluster: DispatchCluster) -> list[Status]:
    return [cluster.overall(stage(cluster, at)) for at in range(6)]


def test_c18_six_in_two_dispatches() -> None:
    cluster = ready()
    assert placed(cluster) == [(stage(cluster, 0), 3)]
    cluster.finish(stage(cluster, 0), answer(cluster, stage(cluster, 0)))
    assert placed(cluster) == [(stage(cluster, 0), 3), (stage(cluster, 4), 1)]
    assert statuses(cluster)[:4] == [Status.COMPLETED] * 4
    results = [cluster.state.jobs[stage(cluster, at)].results[0] for at in range(4)]
    assert [json.loads(each)["of"] for each in results] == [stage(cluster, at) for at in range(4)]
    cluster.finish(stage(cluster, 4), answer(cluster, stage(cluster, 4)))
    assert statuses(cluster) == [Status.COMPLETED] * 6
    assert len(placed(cluster)) == 2


def test_whose_log_has_the_output_of_a_merged_task() -> None:
    cluster = ready()
    parent, child = stage(cluster, 0), stage(cluster, 1)
    assert parent_of(cluster.state.jobs[child]) == parent
    assert parent_of(cluster.state.jobs[parent]) is None
    cluster.finish(parent, answer(cluster, parent))
    read_back = decode_state(encode_state(cluster.state), cluster.state.rules)
    for state in (cluster.state, read_back):
        assert parent_of(state.jobs[child]) == parent
        assert parent_of(state.jobs[parent]) is None


def test_the_output_of_a_failed_one_is_there_too_and_one_that_runs_alone_has_its_own() -> None:
    cluster = ready()
    parent, child = stage(cluster, 0), stage(cluster, 1)
    cluster.finish(parent, json.dumps({"result": 1, "children": {}}))  # no part for the others
    assert parent_of(cluster.state.jobs[child]) is None
    failing = ready(stages=six(max_attempts=1))
    parent, child = stage(failing, 0), stage(failing, 1)
    failing.finish(parent, code=1)
    assert failing.overall(child) == Status.FAILED
    assert parent_of(failing.state.jobs[child]) == parent


def test_c18_tasks_that_take_a_moment_are_merged_as_well_and_do_not_queue_in_a_lane() -> None:
    cluster = DispatchCluster(None, ONE_SLOT)
    for at in range(8):
        assert cluster.at_once(a_task("inference", max_attempts=2, data={"items": [at]}), "1") == "w1"
    cluster.run_job("filler", "default")
    cluster.flow = cluster.run(a_flow(*six()))
    cluster.finish("filler")
    assert placed(cluster)[8:] == [(stage(cluster, 0), 3)]
    cluster.finish(stage(cluster, 0), answer(cluster, stage(cluster, 0)))
    assert placed(cluster)[8:] == [(stage(cluster, 0), 3), (stage(cluster, 4), 1)]


def test_the_program_is_given_what_the_others_ask_for() -> None:
    cluster = ready()
    start = next(order for _, order in reversed(cluster.orders) if isinstance(order, Start))
    told = json.loads(start.merged)
    assert [each["task_id"] for each in told] == [stage(cluster, at) for at in (1, 2, 3)]
    assert [each["spec"]["data"] for each in told] == [{"items": [at]} for at in (1, 2, 3)]


@pytest.mark.parametrize(
    "difference", [{"inference": {"max_tokens": 7}}, {"resources": {"hardware": {"memory": "1Gi"}}}]
)
def test_other_differences_keep_tasks_apart(difference: dict[str, object]) -> None:
    stages = six()
    stages[1] = {"name": "s1", "spec": {**stages[1]["spec"], **difference}}  # type: ignore[dict-item]
    cluster = ready(stages=stages)
    attempt = cluster.attempt(stage(cluster, 0))
    assert attempt is not None
    assert attempt.merged == tuple(stage(cluster, at) for at in (2, 3, 4))


def test_a_system_prompt_does_not() -> None:
    stages = six(inference={"max_tokens": 7})
    prompt = {"inference": {"max_tokens": 7, "system_prompt": "be brief"}}
    stages[1] = {"name": "s1", "spec": {**stages[1]["spec"], **prompt}}  # type: ignore[dict-item]
    assert placed(ready(stages=stages))[0][1] == 3


@pytest.mark.parametrize(
    ("policy", "task_type"),
    [
        (DispatchPolicy(), "sft"),
        (DispatchPolicy(merge_max=1), "inference"),
        (DispatchPolicy(merge=False), "inference"),
        (DispatchPolicy(mode="static_round_robin"), "inference"),
    ],
)
def test_who_is_never_merged(policy: DispatchPolicy, task_type: str) -> None:
    cluster = ready(policy, six(task_type))
    assert placed(cluster) == [(stage(cluster, 0), 0)]


def test_c19_all_fail_with_the_one_and_so_does_what_builds_on_them() -> None:
    stages: list[dict[str, object]] = [
        *six(),
        {"name": "after", "dependsOn": ["s2"], "spec": {"taskType": "echo"}},
    ]
    cluster = ready(stages=stages)
    parent = stage(cluster, 0)
    cluster.finish(parent, code=1)
    assert statuses(cluster)[1:4] == [Status.PENDING] * 3, "the parent is retried, so all wait again"
    assert {cluster.state.jobs[stage(cluster, at)].merged_into for at in (4, 5)} == {None}
    assert cluster.attempt(parent) is not None and placed(cluster)[-1] == (parent, 3)
    cluster.finish(parent, code=1)
    assert statuses(cluster)[:4] == [Status.FAILED] * 4
    assert (
        cluster.state.jobs[stage(cluster, 2)].details[0][0] == f"it ran as a part of {parent}, which failed"
    )
    flow = cluster.state.workflows[cluster.flow]
    assert flow.phase(flow.numbers["after"]).name == "FAILED"
    assert cluster.overall(stage(cluster, 4)) == Status.ASSIGNED


def test_a_task_without_a_part_in_the_answer_runs_by_itself() -> None:
    cluster = ready()
    parent, lonely = stage(cluster, 0), stage(cluster, 2)
    children = {stage(cluster, 1): 1, stage(cluster, 3): 3}
    cluster.finish(parent, json.dumps({"result": 0, "children": children}))
    assert statuses(cluster)[:4] == [Status.COMPLETED, Status.COMPLETED, Status.ASSIGNED, Status.COMPLETED]
    assert placed(cluster)[1] == (lonely, 0)


def test_a_program_that_answers_for_all_may_do_so_when_it_runs_alone() -> None:
    cluster = DispatchCluster(nodes={"n1": SMALL})
    job = cluster.stage(cluster.run(a_task("inference", data=1)))
    cluster.finish(job, '{"result": {"of": 1}, "children": {}}')
    assert json.loads(cluster.state.jobs[job].results[0]) == {"of": 1}


@pytest.mark.parametrize("result", ["", "7", '{"children": 3}', "{", '{"result": 1, "children": []}'])
def test_an_answer_in_another_form_is_the_parents_alone(result: str) -> None:
    cluster = ready()
    cluster.finish(stage(cluster, 0), result)
    assert cluster.overall(stage(cluster, 0)) == Status.COMPLETED
    for at in (1, 2, 3):
        cluster.finish(stage(cluster, at), "1")
    assert [count for _, count in placed(cluster)][:4] == [0 if at else 3 for at in range(4)]


def test_a_child_that_is_cancelled_stays_cancelled_and_the_others_go_on() -> None:
    cluster = ready()
    cluster.give(Cancel(stage(cluster, 1)))
    cluster.finish(stage(cluster, 0), answer(cluster, stage(cluster, 0)))
    assert statuses(cluster)[:4] == [Status.COMPLETED, Status.CANCELLED, Status.COMPLETED, Status.COMPLETED]


def test_children_of_a_cancelled_parent_run_as_others_parts() -> None:
    cluster = ready()
    attempt = cluster.attempt(stage(cluster, 0))
    assert attempt is not None
    cluster.give(Cancel(stage(cluster, 0)))
    cluster.ended("w1", attempt.key, code=143)
    assert statuses(cluster)[0] == Status.CANCELLED
    assert placed(cluster)[-1] == (stage(cluster, 1), 3)


def test_users_are_kept_apart_unless_an_operator_says_otherwise() -> None:
    def merged(across: bool) -> int:
        cluster = DispatchCluster(DispatchPolicy(merge_across_owners=across), ONE_SLOT)
        cluster.run_job("filler", "default")
        for user in ("ada", "bob"):
            cluster.run(a_flow(six()[0]), user)
        cluster.finish("filler")
        return placed(cluster)[0][1]

    assert (merged(False), merged(True)) == (0, 1)


def test_it_survives_a_restart() -> None:
    cluster = ready()
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    parent = cluster.attempt(stage(cluster, 0))
    assert parent is not None
    for at in (1, 2, 3):
        assert again.jobs[stage(cluster, at)].merged_into == parent.key
    assert encode_state(again) == encode_state(cluster.state)


def test_why_says_what_it_is_a_part_of() -> None:
    cluster = ready()
    found = explain(
        cluster.state,
        cluster.state.jobs[stage(cluster, 1)],
        None,
        Policy(),
        cluster.state.snapshot(cluster.now),
    )
    assert found.reasons[0].code == "Merged"
    assert found.reasons[0].numbers == {"parent": stage(cluster, 0), "host": "w1"}


def test_specifications_that_are_too_large_together_are_not_merged() -> None:
    stages = six()
    for each in stages:
        each["spec"] = {**each["spec"], "data": {"items": ["x" * 40_000]}}  # type: ignore[dict-item]
    assert placed(ready(stages=stages))[0][1] == 2


def test_the_event_names_all_of_them() -> None:
    end = d.MergedEnded(at=1.0, key=("p", 0, 1), alone=("c",))
    assert end.jobs == ("p", "c")
    assert structs.asdict(end)["alone"] == ("c",)


def test_an_answer_that_an_older_runner_did_not_take_apart_lets_each_run_by_itself() -> None:
    cluster = ready()
    parent = stage(cluster, 0)
    attempt = cluster.attempt(parent)
    assert attempt is not None
    exit = Exit(Why.NONE, 0, cluster.now, cluster.now, result_bytes=5000, result_sha256="0" * 64)
    cluster.tell("w1", Ended(attempt.key, exit))
    assert statuses(cluster)[:4] == [Status.ASSIGNED, Status.PENDING, Status.PENDING, Status.PENDING]
    assert cluster.state.jobs[parent].charged == {}
    assert not cluster.state.jobs[parent].kept_results
    for at in range(4):
        cluster.finish(stage(cluster, at), "1")
    assert [count for _, count in placed(cluster)][:5] == [3, 0, 0, 0, 0]


def told(cluster: DispatchCluster, job: JobId, exit: Exit) -> None:
    """The attempt of a job has ended so."""
    attempt = cluster.attempt(job)
    assert attempt is not None
    cluster.tell(attempt.node, Ended(attempt.key, exit))


def test_results_that_the_runner_took_apart_are_kept_one_by_one() -> None:
    cluster = ready()
    parent, small, large, none = (stage(cluster, at) for at in range(4))
    parts = (PartResult(small, "7"), PartResult(large, "", 60_000, "b" * 64), PartResult("nobody", "8"))
    told(
        cluster,
        parent,
        Exit(Why.NONE, 0, 1.0, 2.0, result_bytes=9000, result_sha256="a" * 64, is_own=True, parts=parts),
    )
    jobs = cluster.state.jobs
    assert statuses(cluster)[:4] == [Status.COMPLETED] * 3 + [Status.ASSIGNED]
    assert jobs[parent].kept_results == {0: (9000, "a" * 64)}
    assert jobs[small].results == {0: "7"}
    assert jobs[large].kept_results == {0: (60_000, "b" * 64)} and jobs[large].results == {}
    assert cluster.where(none) == "w1"
    ended = [event for turn in cluster.turns for event in turn.events if isinstance(event, e.AttemptEnded)]
    assert ended[-1].exit.parts == (), "they are in the event about the others"


def test_an_answer_for_several_is_its_own_also_after_the_others_ran_by_themselves() -> None:
    cluster = ready()
    cluster.finish(stage(cluster, 0), json.dumps({"result": 0, "children": {}}))
    alone = stage(cluster, 1)
    cluster.finish(alone, '{"result": {"of": 1}, "children": {}}')
    assert json.loads(cluster.state.jobs[alone].results[0]) == {"of": 1}
    own = '{"result":1,"children":{}}'  # a result that only looks like such an answer
    told(cluster, stage(cluster, 2), Exit(Why.NONE, 0, 1.0, 2.0, result=own, is_own=True))
    assert cluster.state.jobs[stage(cluster, 2)].results == {0: own}


def test_a_runner_is_told_whose_program_may_answer_for_several() -> None:
    cluster = DispatchCluster(nodes={"n1": SMALL})
    for task_type, merged in (("inference", "[]"), ("sft", "")):
        cluster.stage(cluster.run(a_task(task_type, data=1)))
        start = next(order for _, order in reversed(cluster.orders) if isinstance(order, Start))
        assert (start.merged, start.has_merged) == (merged, False)
