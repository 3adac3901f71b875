"""The verdict about the workflow can fail: for each thing that may go wrong with a stage, a case of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.answers import Task
from tests.chaos.flow import FAILS_WITH, FoundFlow, FoundStage, PlannedStage, expected, plan, wrong_stages

PLANNED = [
    PlannedStage("a", ()),
    PlannedStage("b", ("a",)),
    PlannedStage("bad", ("a",), FAILS_WITH),
    PlannedStage("late", ("b", "bad")),
    PlannedStage("later", ("late",)),
]


def a_flow() -> FoundFlow:
    """What has to come of the plan."""
    done = Task(0, "Completed", "", 0, 2, [2], [1, 2])
    failed = Task(0, "Failed", "exited", FAILS_WITH, 1, [], [1])
    stages = {
        "a": FoundStage("Completed", None, 1, done),
        "b": FoundStage("Completed", None, 2, replace(done)),
        "bad": FoundStage("Failed", None, 2, failed),
        "late": FoundStage("Failed", "bad", None, None),
        "later": FoundStage("Failed", "late", None, None),
    }
    return FoundFlow(PLANNED, stages, 1, {"a": 2, "b": 1, "bad": 1})


def test_what_has_to_come_of_it_is_not_wrong():
    assert wrong_stages(a_flow()) == []
    assert wrong_stages(None) == []


def task_of(flow: FoundFlow, name: str) -> Task:
    task = flow.stages[name].task
    assert task is not None
    return task


WRONG: dict[str, Callable[[FoundFlow], object]] = {
    "one request made 2 workflows": lambda flow: setattr(flow, "submitted", 2),
    "is not there": lambda flow: flow.stages.pop("b"),
    "it is Failed (lost, attempt 2), and has to be Completed": lambda flow: flow.stages.update(
        b=FoundStage("Failed", None, None, Task(0, "Failed", "lost", None, 2))
    ),
    "its result is 3, and has to be 2": lambda flow: setattr(flow.stages["b"], "number", 3),
    "2 attempts of it completed": lambda flow: setattr(task_of(flow, "b"), "completed", [1, 2]),
    "an attempt ended twice": lambda flow: setattr(task_of(flow, "b"), "ended", [2, 2]),
    "no process of it reached its end": lambda flow: flow.ran.pop("b"),
    "its parent is b, not one of ['bad']": lambda flow: setattr(flow.stages["late"], "parent", "b"),
    "it ran, though ['bad'] failed": lambda flow: flow.ran.update(late=1),
    "it names a parent, a, and failed by itself": lambda flow: setattr(flow.stages["bad"], "parent", "a"),
    "it is Waiting, and has to be Failed": lambda flow: setattr(flow.stages["later"], "status", "Waiting"),
    "the workflow was refused: no": lambda flow: setattr(flow, "refused", "no"),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_found(said: str):
    flow = a_flow()
    WRONG[said](flow)
    [found] = wrong_stages(flow)
    assert said in found


@pytest.mark.parametrize("seed", range(10))
def test_a_failure_goes_further_than_one_stage_in_a_small_plan_as_well(seed: int):
    planned = plan(seed, 60)
    came = expected(planned)
    failed = {each.name for each in planned if each.code}
    assert len(failed) == 3
    followers = {name for name, (_, parents, _) in came.items() if parents and not parents & failed}
    assert len(followers) >= 3


def test_a_plan_has_failures_that_spread_and_a_trunk_that_never_fails():
    planned = plan(7, 1000)
    assert plan(7, 1000) == planned
    came = expected(planned)
    assert all(came[f"s{number}"][0] == "Completed" for number in range(0, 1000, 2))
    followers = [name for name, (_, parents, _) in came.items() if parents]
    assert sum(each.code != 0 for each in planned) > 20
    assert len(followers) > 20
