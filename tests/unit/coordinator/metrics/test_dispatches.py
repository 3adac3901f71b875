"""What the recorder counts of dispatch modes agrees with what happened."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.report import metrics_report
from phalanx.coordinator.metrics.task_events import TaskEvents
from phalanx.core.cluster.workflows import StagePhase
from phalanx.core.model.dispatch import DispatchMode, DispatchPolicy
from phalanx.core.model.orders import Start, Status
from phalanx.core.model.workflow import SPEC_VARIABLE
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine, a_task

M = {"model": {"source": {"identifier": "org/m"}}}
OTHER = {"model": {"source": {"identifier": "org/other"}}}


def recorded(cluster: DispatchCluster) -> tuple[Recorder, list[dict[str, Any]]]:
    recorder = Recorder(task_events=TaskEvents())
    for turn in cluster.turns:
        recorder.observe(turn, cluster.state)
    assert recorder.task_events is not None
    return recorder, [json.loads(line) for line in recorder.task_events.take()]


class Runners:
    """Runs whatever is placed, one task after another, and counts what really happens, without a look at the recorder.

    A first attempt fails if its specification says `flaky`, every attempt if it says `broken`.
    """

    def __init__(self, cluster: DispatchCluster) -> None:
        self.cluster = cluster
        self.loaded: dict[str, set[str]] = {}  # by node, the models of what completed there
        self.ran = self.merged = self.reused = self.in_lanes = 0
        self.retried = self.failed = 0  # attempts that failed, and were not the last or were
        self._lanes: set[tuple[str, int]] = set()  # what is in one that was seen before queues there
        self._seen = 0

    def work(self) -> None:
        self._look()
        while live := [each for job in self.cluster.state.jobs.values() for each in job.live.values()]:
            id, _, number = live[0].key
            spec = self._spec(id)
            code = int("broken" in spec or ("flaky" in spec and number == 1))
            if code:
                is_last = number == spec.get("max_attempts", 3)
                self.failed += is_last
                self.retried += not is_last
            else:
                self.loaded.setdefault(live[0].node, set()).add(_model(spec))
            children = dict.fromkeys(live[0].merged, 2)
            self.cluster.finish(id, json.dumps({"result": 1, "children": children}), code)
            self._look()

    def _look(self) -> None:
        """Every order to start that was sent since the last look."""
        for node, order in self.cluster.orders[self._seen :]:
            if isinstance(order, Start):
                self.ran += 1
                self.in_lanes += (node, order.lane) in self._lanes
                self._lanes.add((node, order.lane))
                self.merged += len(json.loads(order.merged)) if order.merged else 0
                self.reused += _model(self._spec(order.key[0])) in self.loaded.get(node, set())
        self._seen = len(self.cluster.orders)

    def _spec(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.cluster.state.jobs[id].job.groups[0].command.env[SPEC_VARIABLE]
        )
        return found


def _model(spec: dict[str, Any]) -> str:
    return str(spec["model"]["source"]["identifier"])


def mixed() -> str:
    """Inferences that can be merged, data, training in a chain, tasks that fail once, and one that always does."""
    stages: list[dict[str, object]] = [
        {"name": f"ask{at}", "spec": {"taskType": "inference", "data": at, **M}} for at in range(9)
    ]
    for at in range(4):
        flaky = {"flaky": at} if at % 2 else {}
        stages.append({"name": f"data{at}", "spec": {"taskType": "data_profiling", **OTHER, **flaky}})
    stages += [
        {"name": "train", "dependsOn": ["data1"], "spec": {"taskType": "sft", **M, "flaky": 1}},
        {"name": "judge", "dependsOn": ["train"], "spec": {"taskType": "rag", **M}},
        {"name": "bad", "spec": {"taskType": "rag", "max_attempts": 2, **OTHER, "broken": 1}},
        {"name": "never", "dependsOn": ["bad"], "spec": {"taskType": "rag", **M}},
    ]
    return a_flow(*stages)


@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        ("adaptive", "best_fit"),
        ("static_worker", "static_worker"),
        ("fixed_pipeline", "fixed_pipeline"),
        ("static_round_robin", "static_round_robin"),
    ],
)
def test_the_counters_are_what_happened_in_every_mode(mode: DispatchMode, strategy: str) -> None:
    """With merging, retries, reuse and a cascade; the numbers are those of the runners and of the workflows."""
    cluster = DispatchCluster(DispatchPolicy(mode=mode), {name: a_machine(2) for name in "abc"})
    flows = [cluster.run(mixed()) for _ in range(3)]
    runners = Runners(cluster)
    runners.work()
    recorder, lines = recorded(cluster)
    tally = recorder.dispatches
    used = {name: count for name, count in tally.by_strategy.items() if count}
    assert used.keys() <= {strategy, "lane"} and used[strategy] > 0
    assert sum(used.values()) == runners.ran
    assert used.get("lane", 0) == runners.in_lanes
    assert recorder.started == runners.ran
    assert (tally.merged, tally.reused) == (
        runners.merged,
        runners.reused if mode == "adaptive" else 0,
    )
    assert (tally.merged > 0) == (tally.reused > 0) == (mode == "adaptive")
    assert recorder.requeued == {"worker_failed": runners.retried}
    phases = [cluster.state.workflows[flow].phase(at) for flow in flows for at in range(17)]
    assert recorder.submitted == len(phases) == 51
    assert recorder.ended[Status.COMPLETED] == phases.count(StagePhase.COMPLETED) == 45
    assert recorder.ended[Status.FAILED] == phases.count(StagePhase.FAILED) == 6
    words = Counter(line["type"] for line in lines)
    assert words == {
        "TASK_SUBMITTED": recorder.submitted,
        "TASK_STARTED": runners.ran,
        "TASK_REQUEUED": runners.retried,
        "TASK_SUCCEEDED": 45,
        "TASK_FAILED": 6,
    }
    counters = metrics_report(recorder, cluster.state, cluster.now, "a", 0).counters
    assert (counters.tasks_submitted, counters.tasks_succeeded, counters.tasks_failed) == (51, 45, 6)
    assert counters.tasks_requeued == runners.retried
    if mode != "adaptive":  # each that has a job ran once, and once more for each retry
        assert (runners.ran, runners.failed) == (48 + runners.retried, len(flows))


def test_c21_three_executions_and_two_requeues() -> None:
    cluster = DispatchCluster(None, {"a": a_machine(8)})
    job = cluster.stage(cluster.run(a_task("rag", max_attempts=3)))
    for _ in range(3):
        cluster.finish(job, code=1)
    recorder, lines = recorded(cluster)
    words = [(line["type"], line.get("reason")) for line in lines if line["type"] != "TASK_STARTED"]
    assert words == [
        ("TASK_SUBMITTED", None),
        ("TASK_REQUEUED", "worker_failed"),
        ("TASK_REQUEUED", "worker_failed"),
        ("TASK_FAILED", "exited"),
    ]
    assert (recorder.started, recorder.requeued) == (3, {"worker_failed": 2})


def test_c21_a_wait_for_a_reference_is_no_requeue_and_costs_nothing() -> None:
    """There is no edge between the two but the reference, and a hundred turns pass while it cannot be resolved."""
    cluster = DispatchCluster(None, {"a": a_machine(8)})
    flow = cluster.run(
        a_flow(
            {"name": "slow", "spec": {"taskType": "rag"}},
            {"name": "user", "spec": {"taskType": "rag", "data": "${slow.result.x}"}},
        )
    )
    slow = cluster.attempt(cluster.stage(flow, "slow"))
    assert slow is not None
    for _ in range(100):
        cluster.now += 1
        cluster.beat("a", slow.key)
    recorder, lines = recorded(cluster)
    assert [line["type"] for line in lines if line["type"] == "TASK_REQUEUED"] == []
    assert metrics_report(recorder, cluster.state, cluster.now, "a", 0).counters.tasks_requeued == 0
    cluster.finish(cluster.stage(flow, "slow"), '{"x": 1}')
    waited = cluster.state.jobs[cluster.stage(flow, "user")]
    assert (waited.attempts[0], waited.charged) == (1, {})
    recorder, _ = recorded(cluster)
    assert recorder.requeued == {}


def test_c19_children_of_a_failed_task_and_what_builds_on_them_name_it() -> None:
    stages: list[dict[str, object]] = [
        {"name": f"s{at}", "spec": {"taskType": "rag", "max_attempts": 1, "data": at}} for at in range(3)
    ]
    cluster = DispatchCluster(None, {"a": a_machine(8)})
    stages.append({"name": "next", "dependsOn": ["s2"], "spec": {"taskType": "rag"}})
    stages.append({"name": "last", "dependsOn": ["next"], "spec": {"taskType": "rag"}})
    flow = cluster.run(a_flow(*stages))
    parent = cluster.stage(flow, "s0")
    cluster.finish(parent, code=1)
    recorder, lines = recorded(cluster)
    assert (recorder.dispatches.merged, recorder.ended[Status.FAILED]) == (2, 5)
    failed = [line for line in lines if line["type"] == "TASK_FAILED"]
    hints = {line["task_id"]: (line.get("parent_task_id"), line.get("dependency_failure")) for line in failed}
    assert hints == {
        parent: (None, None),
        cluster.stage(flow, "s1"): (parent, parent),
        cluster.stage(flow, "s2"): (parent, parent),
        cluster.stage(flow, "next"): (None, cluster.stage(flow, "s2")),
        cluster.stage(flow, "last"): (None, cluster.stage(flow, "next")),
    }
    children = {line["task_id"] for line in failed if line.get("is_child_task")}
    assert children == {cluster.stage(flow, "s1"), cluster.stage(flow, "s2")}
    assert {line["reason"] for line in failed if line["task_id"] not in {parent, *children}} == {"dependency"}


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
