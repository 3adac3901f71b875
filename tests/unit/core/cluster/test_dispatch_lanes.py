"""Stages that take a moment queue behind others of their kind, and that is a dispatch of its own (decision 202)."""

from __future__ import annotations

import pytest

from phalanx.core.explain.explain import explain
from phalanx.core.model.dispatch import DispatchMode, DispatchPolicy
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.core.model.plan import Policy
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine, a_task

M = {"model": {"source": {"type": "huggingface", "identifier": "org/M"}}}


def queued(policy: DispatchPolicy, **spec: object) -> tuple[DispatchCluster, list[str]]:
    """Six stages on one node with room for two, when it is known that such stages take a moment."""
    cluster = DispatchCluster(policy, {"a": a_machine(2)})
    for _ in range(6):
        cluster.at_once(a_task("sft", **spec))
    stages: list[dict[str, object]] = [
        {"name": f"s{at}", "spec": {"taskType": "sft", **spec}} for at in range(6)
    ]
    flow = cluster.run(a_flow(*stages))
    return cluster, [cluster.stage(flow, f"s{at}") for at in range(6)]


def test_what_queues_has_a_note_and_may_use_what_is_loaded() -> None:
    cluster, jobs = queued(DispatchPolicy(), **M)
    notes = [cluster.note(job) for job in jobs]
    assert [note.strategy for note in notes] == ["best_fit"] * 2 + ["lane"] * 4
    assert [note.reused for note in notes] == [1] * 6
    found = explain(
        cluster.state, cluster.state.jobs[jobs[5]], None, Policy(), cluster.state.snapshot(cluster.now)
    )
    assert found.reasons[-1].code == "Dispatched"
    assert (found.reasons[-1].numbers["strategy"], found.reasons[-1].numbers["reused"]) == ("lane", 1)


@pytest.mark.parametrize(
    ("policy", "strategy"),
    [
        (DispatchPolicy(reuse=False), "best_fit"),
        (DispatchPolicy(mode="static_round_robin"), "static_round_robin"),
    ],
)
def test_nothing_is_reused_where_that_is_not_looked_at(policy: DispatchPolicy, strategy: str) -> None:
    cluster, jobs = queued(policy, **M)
    notes = [cluster.note(job) for job in jobs]
    assert [(note.strategy, note.reused) for note in notes] == [(strategy, 0)] * 2 + [("lane", 0)] * 4


@pytest.mark.parametrize("mode", ["static_worker", "fixed_pipeline"])
def test_what_is_bound_to_a_node_waits_for_it(mode: DispatchMode) -> None:
    cluster, jobs = queued(DispatchPolicy(mode=mode), **M)
    assert [cluster.where(job) for job in jobs] == ["a", "a", "", "", "", ""]


def test_a_task_that_names_its_node_has_none() -> None:
    cluster = DispatchCluster(None, {"a": a_machine(1)})
    cluster.queue("mine", "adaptive")
    cluster.run_job("array", "mine", target="a", array="0-9", cores=1)
    for _ in range(5):
        position, attempt = next(iter(cluster.state.jobs["array"].live.items()))
        assert attempt.note is None, position
        cluster.tell("a", Started(attempt.key, cluster.now))
        cluster.tell("a", Ended(attempt.key, Exit(Why.NONE, 0, cluster.now, cluster.now)))
    live = cluster.state.jobs["array"].live.values()
    assert len(live) > 1
    assert [attempt.note for attempt in live] == [None] * len(live)
