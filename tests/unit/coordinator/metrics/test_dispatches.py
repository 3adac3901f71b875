"""What the recorder counts of dispatch modes agrees with what happened."""

from __future__ import annotations

import json

import pytest

from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.task_events import TaskEvents
from phalanx.core.cluster import events as e
from phalanx.core.model.dispatch import DispatchMode, DispatchPolicy
from phalanx.core.model.orders import Status
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine, a_task

M = {"model": {"source": {"identifier": "org/m"}}}


def recorded(cluster: DispatchCluster) -> tuple[Recorder, list[dict[str, object]]]:
    recorder = Recorder(task_events=TaskEvents())
    for turn in cluster.turns:
        recorder.observe(turn, cluster.state)
    assert recorder.task_events is not None
    return recorder, [json.loads(line) for line in recorder.task_events.take()]


@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        ("adaptive", "best_fit"),
        ("static_worker", "static_worker"),
        ("fixed_pipeline", "fixed_pipeline"),
        ("static_round_robin", "static_round_robin"),
    ],
)
def test_choices_are_counted_in_every_mode(mode: DispatchMode, strategy: str) -> None:
    cluster = DispatchCluster(DispatchPolicy(mode=mode), {name: a_machine(8) for name in "abc"})
    for _ in range(5):
        cluster.at_once(a_task("rag", **M))
    recorder, _ = recorded(cluster)
    placed = [event for turn in cluster.turns for event in turn.events if isinstance(event, e.TaskPlaced)]
    assert {name: count for name, count in recorder.dispatches.by_strategy.items() if count} == {strategy: 5}
    assert len(placed) == recorder.ended[Status.COMPLETED] == recorder.submitted == 5
    assert recorder.dispatches.reused == (4 if mode == "adaptive" else 0)
    assert sum(recorder.requeued.values()) == 0


def test_children_of_a_failed_task_name_it() -> None:
    stages: list[dict[str, object]] = [
        {"name": f"s{at}", "spec": {"taskType": "rag", "max_attempts": 1, "data": at}} for at in range(3)
    ]
    cluster = DispatchCluster(None, {"a": a_machine(8)})
    flow = cluster.run(a_flow(*stages))
    parent = cluster.stage(flow, "s0")
    cluster.finish(parent, code=1)
    recorder, lines = recorded(cluster)
    assert (recorder.dispatches.merged, recorder.ended[Status.FAILED]) == (2, 3)
    failed = [line for line in lines if line["type"] == "TASK_FAILED"]
    hints = {line["task_id"]: (line.get("parent_task_id"), line.get("dependency_failure")) for line in failed}
    assert hints == {
        parent: (None, None),
        cluster.stage(flow, "s1"): (parent, parent),
        cluster.stage(flow, "s2"): (parent, parent),
    }
    assert [line.get("is_child_task", False) for line in failed] == [False, True, True]


def test_a_wait_for_a_sticky_node_is_one_requeue_that_costs_nothing() -> None:
    cluster = DispatchCluster(DispatchPolicy(sticky=True), {"w1": a_machine(1)})
    child = {"taskType": "sft", "checkpoint": {"load": "${A.result}"}}
    flow = cluster.run(
        a_flow({"name": "A", "spec": {"taskType": "sft"}}, {"name": "B", "dependsOn": ["A"], "spec": child})
    )
    cluster.join("w2", a_machine(8))
    cluster.run_job("filler", "default", target="w1", priority=5)
    cluster.finish(cluster.stage(flow, "A"), '"weights"')
    job = cluster.stage(flow, "B")
    assert (cluster.where("filler"), cluster.where(job)) == ("w1", "")
    recorder, lines = recorded(cluster)
    assert recorder.requeued == {"sticky_worker_busy": 1}
    [line] = [line for line in lines if line["type"] == "TASK_REQUEUED"]
    assert (line["task_id"], line["reason"], line["worker_id"]) == (job, "sticky_worker_busy", "w1")
    assert cluster.state.jobs[job].charged == {}
