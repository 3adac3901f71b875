"""Deadlines and budgets of workflows: what is stopped when, and what an attempt costs."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster.decide.deadlines import cost_so_far
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Hello, RetryWorkflow, SubmitWorkflow, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.workflow_events import WorkflowStopped
from phalanx.core.model.cost import cost_rate
from phalanx.core.model.orders import Ended, Exit, Started, Status, Stop, Why
from phalanx.core.model.resources import Capacity, Device
from tests.support.builders import Cluster
from tests.support.dispatch_cluster import a_machine
from tests.support.workflow_cluster import WorkflowCluster, a_graph, a_workflow

HOUR_S = 3600.0
CHAIN = a_graph(a="", b="a", other="")


class LimitedCluster(WorkflowCluster):
    """One workflow with limits, on a node of 64 cores that costs 64 an hour: a core costs 1."""

    def __init__(self, text: str = CHAIN, **limits: float) -> None:
        Cluster.__init__(self)
        self.give(Hello("n1", "a", "origin-n1", a_machine(64, cost=64.0), []))
        self.workflow = structs.replace(a_workflow(text), **limits)
        self.answer = self.give(SubmitWorkflow(self.workflow))[0]

    def begin(self, stage: str) -> None:
        self.tell("n1", Started((self.job_of(stage), 0, 1), self.now))

    def end(self, stage: str, began: float, code: int = 0) -> None:
        why = Why.EXITED if code else Why.NONE
        self.tell("n1", Ended((self.job_of(stage), 0, 1), Exit(why, code, began, self.now)))

    def pass_time(self, seconds: float) -> None:
        """What runs goes on."""
        self.now += seconds
        self.beat("n1", *self.state.nodes["n1"].attempts)

    def tick_at(self, now: float) -> None:
        self.pass_time(now - self.now)
        self.give(Tick())

    def stops(self) -> list[str]:
        events = [event for turn in self.turns for event in turn.events]
        return [event.text for event in events if isinstance(event, WorkflowStopped)]


def test_at_its_deadline_what_runs_is_stopped_and_the_rest_never_begins() -> None:
    cluster = LimitedCluster(deadline_at=160.0)
    cluster.begin("a")
    cluster.tick_at(159.0)
    assert cluster.stops() == []
    cluster.tick_at(160.0)
    assert cluster.statuses() == {"a": "Failed", "b": "Failed", "other": "Failed"}
    assert cluster.outcome() == Status.FAILED
    assert cluster.flow.stopped == "the deadline of the workflow has passed"
    assert cluster.flow.notes[0] == cluster.flow.notes[1] == cluster.flow.stopped
    assert cluster.state.attempt((cluster.job_of("a"), 0, 1)) is not None, (
        "held until its runner has stopped it"
    )
    told = {order.key for _, order in cluster.orders if isinstance(order, Stop)}
    assert told == {(cluster.job_of("a"), 0, 1), (cluster.job_of("other"), 0, 1)}
    cluster.tick_at(170.0)
    assert len(cluster.stops()) == 1
    assert check(cluster.state) == []


def test_a_stage_that_has_completed_stays_so() -> None:
    cluster = LimitedCluster(deadline_at=160.0)
    cluster.finish("a")
    cluster.tick_at(160.0)
    assert cluster.statuses() == {"a": "Completed", "b": "Failed", "other": "Failed"}


def test_a_workflow_that_ends_in_time_is_not_stopped() -> None:
    cluster = LimitedCluster(deadline_at=160.0, budget=1.0)
    for stage in ("a", "b", "other"):
        cluster.finish(stage)
    assert cluster.outcome() == Status.COMPLETED
    cluster.tick_at(200.0)
    assert cluster.stops() == []
    assert not cluster.state.limited


def test_it_is_stopped_when_what_ran_and_what_runs_have_cost_its_budget() -> None:
    cluster = LimitedCluster(budget=1.0)
    began = cluster.now
    cluster.begin("a")
    cluster.begin("other")
    cluster.pass_time(900.0)
    cluster.end("a", began)  # a quarter
    assert cluster.flow.spent == pytest.approx(0.25)
    assert cost_so_far(cluster.state, cluster.flow, cluster.now) == pytest.approx(0.5)
    cluster.tick_at(cluster.now + 1799.0)
    assert cluster.stops() == []
    cluster.tick_at(cluster.now + 2.0)
    [told] = cluster.stops()
    assert told.startswith("the budget of the workflow is used up: 1")
    assert cost_so_far(cluster.state, cluster.flow, cluster.now + HOUR_S) >= 2.0, "until it has stopped"
    assert cluster.statuses() == {"a": "Completed", "b": "Failed", "other": "Failed"}


def test_attempts_that_fail_and_ends_that_nobody_saw_cost_something_too() -> None:
    cluster = LimitedCluster(budget=100.0)
    began = cluster.now
    cluster.begin("a")
    cluster.pass_time(HOUR_S)
    cluster.end("a", began, code=1)
    assert cluster.flow.spent == pytest.approx(1.0)
    cluster.begin("other")
    cluster.pass_time(HOUR_S)
    cluster.tell("n1", Ended((cluster.job_of("other"), 0, 1), Exit(Why.LOST, -1)))
    assert cluster.flow.spent == pytest.approx(2.0)


def test_a_restart_remembers_costs_limits_and_why_it_was_stopped() -> None:
    cluster = LimitedCluster(budget=1.0, deadline_at=10_000.0)
    began = cluster.now
    cluster.begin("a")
    cluster.pass_time(1800.0)
    cluster.end("a", began)
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    flow = again.workflows[cluster.workflow.id]
    assert flow.spent == pytest.approx(0.5)
    assert (flow.workflow.budget, flow.workflow.deadline_at) == (1.0, 10_000.0)
    assert list(again.limited) == [cluster.workflow.id]
    cluster.tick_at(10_000.0)
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.workflows[cluster.workflow.id].stopped == cluster.flow.stopped != ""
    assert not again.limited


def test_a_retry_needs_limits_that_are_not_reached_yet() -> None:
    cluster = LimitedCluster(deadline_at=160.0, budget=1.0)
    cluster.flow.spent = 2.0
    cluster.tick_at(160.0)
    flow = cluster.workflow.id
    [late] = cluster.give(RetryWorkflow(flow))
    assert isinstance(late, Refused) and late.reason.code == "DeadlinePassed"
    [poor] = cluster.give(RetryWorkflow(flow, deadline_at=500.0))
    assert isinstance(poor, Refused) and poor.reason.code == "BudgetUsedUp"
    [done] = cluster.give(RetryWorkflow(flow, deadline_at=500.0, budget=3.0))
    assert isinstance(done, Accepted)
    assert (cluster.flow.workflow.deadline_at, cluster.flow.workflow.budget) == (500.0, 3.0)
    assert (cluster.flow.stopped, list(cluster.state.limited)) == ("", [flow])
    cluster.tick_at(499.0)
    assert len(cluster.stops()) == 1
    cluster.tick_at(500.0)
    assert len(cluster.stops()) == 2


MACHINE = Capacity(8, 100, devices=tuple(Device(number, "a100") for number in range(4)), cost_per_hour=HOUR_S)


@pytest.mark.parametrize(
    ("cores", "memory", "devices", "expected"),
    [
        (1, 0, 0, 1 / 8),
        (1, 50, 0, 1 / 2),
        (1, 0, 3, 3 / 4),
        (8, 0, 1, 1.0),
        (0, 0, 0, 0.0),
    ],
)
def test_a_task_costs_the_largest_share_that_it_holds(
    cores: int, memory: int, devices: int, expected: float
) -> None:
    assert cost_rate(MACHINE, cores, memory, devices) == pytest.approx(expected)


def test_a_node_that_runs_one_task_at_a_time_costs_all_of_it_and_one_without_a_price_costs_one() -> None:
    assert cost_rate(structs.replace(MACHINE, slots=1), 1, 0, 0) == pytest.approx(1.0)
    assert cost_rate(Capacity(2, 0), 1, 0, 0) * HOUR_S == pytest.approx(0.5)


def test_limits_that_are_reached_together_are_not_one_long_turn() -> None:
    wide = a_graph(**{f"s{number}": "" for number in range(600)})
    cluster = LimitedCluster(wide, deadline_at=160.0)
    others = [structs.replace(a_workflow(wide), deadline_at=160.0) for _ in range(2)]
    for flow in others:
        cluster.give(SubmitWorkflow(flow))
        while cluster.turns[-1].more:
            cluster.give()
    cluster.tick_at(161.0)
    assert len(cluster.stops()) == 1
    for second in (162.0, 163.0):
        cluster.tick_at(second)
    assert len(cluster.stops()) == 3
    assert all(cluster.state.workflows[flow.id].stopped for flow in others)
