"""Estimates of workflows: what earlier runs say of the time and the cost, and what follows for limits."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Hello, SubmitWorkflow
from phalanx.core.explain.estimate import Estimate, estimate
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.core.model.resources import Capacity
from phalanx.core.model.run_times import SAMPLES_MIN
from phalanx.core.model.workflow import Workflow
from tests.support.builders import Cluster
from tests.support.dispatch_cluster import a_machine
from tests.support.workflow_cluster import a_workflow

HOUR_S = 3600.0
SLOW, FAST = a_machine(8, cost=8.0), a_machine(16, cost=32.0)  # a core costs 1 and 2 an hour


def a_file(*stages: str, name: str = "nightly", **limits: float) -> str:
    """A graph: each stage is written `name>others`, and takes one core."""
    nodes = []
    for each in stages:
        stage, _, others = each.partition(">")
        spec = {"command": ["make", stage], "max_attempts": 1}
        nodes.append({"name": stage, "dependsOn": others.split(), "spec": spec})
    return json.dumps(
        {
            "apiVersion": "flowmesh/v1",
            "metadata": {"name": name},
            "spec": {"graph": {"nodes": nodes}, **limits},
        }
    )


class History(Cluster):
    """A cluster in which workflows have run before."""

    def __init__(self, **nodes: Capacity) -> None:
        super().__init__()
        for name, capacity in (nodes or {"slow": SLOW}).items():
            self.give(Hello(name, "a", f"origin-{name}", capacity, []))

    def ran(self, text: str, seconds: dict[str, float], times: int = SAMPLES_MIN) -> None:
        """The workflow has run so often, its stages so long each."""
        for _ in range(times):
            flow = a_workflow(text)
            self.give(SubmitWorkflow(flow))
            for name, each in seconds.items():
                state = self.state.workflows[flow.id]
                job = self.state.jobs[state.job_id(state.numbers[name])]
                attempt = job.live[0]
                self.tell(attempt.node, Started(attempt.key, self.now))
                exit = Exit(Why.NONE, 0, self.now, self.now + each)
                self.tell(attempt.node, Ended(attempt.key, exit))
            assert self.state.workflows[flow.id].is_over

    def estimate(self, text: str) -> Estimate:
        return estimate(self.state, a_workflow(text))


def test_the_longest_chain_is_the_time_and_all_stages_are_the_cost() -> None:
    history = History()
    text = a_file("a", "b>a", "c>a", "d>b c")
    history.ran(text, {"a": 10.0, "b": 100.0, "c": 40.0, "d": 5.0})
    found = history.estimate(text)
    assert [found.least_s, found.expected_s] == pytest.approx([115.0, 115.0])
    assert found.least_cost == pytest.approx(155.0 / HOUR_S) == found.expected_cost
    assert found.unknown == ()


def test_more_work_than_fits_at_once_takes_longer_than_the_longest_chain() -> None:
    history = History()
    stages = [f"s{number}" for number in range(32)]
    history.ran(a_file(*stages), dict.fromkeys(stages, 60.0))
    assert history.estimate(a_file(*stages)).least_s == pytest.approx(4 * 60.0)


def test_where_it_was_never_tried_it_may_be_faster_so_there_is_no_least() -> None:
    history = History(slow=SLOW)
    text = a_file("a")
    history.ran(text, {"a": 100.0})
    history.give(Hello("fast", "a", "origin-fast", FAST, []))
    found = history.estimate(text)
    assert (found.least_s, found.least_cost) == (0.0, 0.0)
    assert found.expected_s == pytest.approx(100.0)
    assert found.expected_cost == pytest.approx(100.0 / HOUR_S)


def test_few_runs_are_enough_to_expect_something_and_too_few_to_refuse() -> None:
    history = History()
    text = a_file("a")
    history.ran(text, {"a": 100.0}, times=1)
    found = history.estimate(text)
    assert [found.least_s, found.expected_s] == pytest.approx([0.0, 100.0])


def test_a_stage_that_never_ran_counts_with_its_time_limit_or_is_named() -> None:
    history = History()
    flow = a_workflow(a_file("a", "b"))
    stages = [
        flow.stages[0],
        structs.replace(flow.stages[1], job=structs.replace(flow.stages[1].job, time_limit_s=HOUR_S)),
    ]
    found = estimate(history.state, structs.replace(flow, stages=tuple(stages)))
    assert found == Estimate(0.0, HOUR_S, 0.0, 1.0, ("a",))


def test_stages_of_other_users_and_names_are_others() -> None:
    history = History()
    history.ran(a_file("a"), {"a": 100.0})
    assert history.estimate(a_file("a", name="weekly")).unknown == ("a",)
    assert estimate(history.state, a_workflow(a_file("a"), user="bob")).unknown == ("a",)


def test_a_task_type_is_known_by_its_models_wherever_it_ran() -> None:
    history = History()
    spec = {"taskType": "rag", "model": {"source": {"identifier": "org/m"}}, "max_attempts": 1}
    one = json.dumps({"apiVersion": "flowmesh/v1", "spec": spec})
    history.ran(one, {"task": 30.0})
    assert history.estimate(one).expected_s == pytest.approx(30.0)
    spec["model"] = {"source": {"identifier": "org/other"}}
    assert history.estimate(json.dumps({"apiVersion": "flowmesh/v1", "spec": spec})).unknown == ("task",)


def test_a_restart_does_not_forget_what_stages_took() -> None:
    history = History()
    history.ran(a_file("a"), {"a": 100.0})
    again = decode_state(encode_state(history.state), history.state.rules)
    assert estimate(again, a_workflow(a_file("a"))).expected_s == pytest.approx(100.0)


def limited(text: str, **limits: float) -> Workflow:
    return structs.replace(a_workflow(text), **limits)


class TestLimits:
    """What is refused at submit, what is only warned of, and what is neither."""

    def history(self) -> History:
        history = History()
        history.ran(a_file("a", "b>a"), {"a": HOUR_S, "b": HOUR_S})
        return history

    @pytest.mark.parametrize(
        ("limits", "code"),
        [
            ({"deadline_at": 100.0 + HOUR_S}, "DeadlineImpossible"),
            ({"budget": 1.5}, "BudgetImpossible"),
        ],
    )
    def test_limits_that_cannot_be_kept_are_refused_unless_one_wants_to_try(
        self, limits: dict[str, float], code: str
    ) -> None:
        history, flow = self.history(), limited(a_file("a", "b>a"), **limits)
        [answer] = history.give(SubmitWorkflow(flow))
        assert isinstance(answer, Refused)
        assert (answer.reason.code, answer.kind) == (code, "never")
        [answer] = history.give(SubmitWorkflow(flow, allow_infeasible=True))
        assert isinstance(answer, Accepted)

    def test_limits_that_can_be_kept_are_accepted_without_a_word(self) -> None:
        history = self.history()
        flow = limited(a_file("a", "b>a"), deadline_at=100.0 + 2.1 * HOUR_S, budget=2.1)
        assert estimate(history.state, flow).warnings(flow, history.now) == []
        [answer] = history.give(SubmitWorkflow(flow))
        assert isinstance(answer, Accepted)

    def test_what_is_expected_and_what_is_unknown_is_warned_of(self) -> None:
        history = self.history()
        history.give(Hello("fast", "a", "origin-fast", FAST, []))  # so that nothing is certain
        flow = limited(a_file("a", "b>a", "c"), deadline_at=100.0 + HOUR_S, budget=1.0)
        assert estimate(history.state, flow).warnings(flow, history.now) == [
            "its deadline is 1h away; by earlier runs it takes 2h, waits not counted",
            "its budget is 1; by earlier runs it costs 2",
            "whether it keeps its limits is not known: no earlier run and no time limit is known of c",
        ]
        [answer] = history.give(SubmitWorkflow(flow))
        assert isinstance(answer, Accepted)

    def test_without_limits_there_is_nothing_to_warn_of(self) -> None:
        flow = a_workflow(a_file("a", "b>a"))
        assert estimate(self.history().state, flow).warnings(flow, 100.0) == []
