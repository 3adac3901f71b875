"""A runner and the members of gangs: prepared, held, started by go."""

from __future__ import annotations

import pytest

from phalanx.core.model.job import Command
from phalanx.core.model.orders import (
    Brief,
    Dismiss,
    Disposition,
    Ended,
    Exit,
    Go,
    Order,
    Phase,
    Ready,
    Roll,
    Start,
    Started,
    Stop,
    Why,
)
from phalanx.core.model.resources import Grant
from phalanx.core.runner.attempts import ROLLS_MAX, ProcessEnd
from phalanx.core.runner.effects import Halt, Release, RunnerEffect, Spawn
from phalanx.core.runner.state import RunnerState

KEY = ("g1", 3, 1)
ROLL = Roll("g1", 1, (("n1", "10.0.0.1"), ("n2", "10.0.0.2")), ((2, 0), (3, 1)))
END = ProcessEnd(0, None, False, None, 25.0, 26.0)


def a_brief(time_limit_s: float | None = None) -> Brief:
    return Brief("g1", 0, Command(("/bin/true",)), "", "default", "g1", 4, None, 5.0, time_limit_s)


def a_start(formation: int = 1) -> Start:
    return Start(KEY, 1, Grant(1, 0), None, 0, formation=formation)


def a_runner() -> RunnerState:
    """A runner with a lease until 30."""
    runner = RunnerState()
    runner.welcome(1, 30.0)
    return runner


def tell(runner: RunnerState, *orders: Order, at: float = 10.0) -> list[RunnerEffect]:
    return [effect for order in orders for effect in runner.order(1, order, at)]


def a_member() -> RunnerState:
    """A runner that was ordered to prepare one member."""
    runner = a_runner()
    tell(runner, a_brief(), ROLL, a_start())
    return runner


def a_ready_member() -> RunnerState:
    runner = a_member()
    runner.process_ready(KEY)
    return runner


def exit_of(runner: RunnerState) -> Exit:
    report = runner.outbox[KEY]
    assert isinstance(report, Ended)
    return report.exit


def test_a_member_is_held_and_knows_its_roll() -> None:
    assert tell(a_runner(), a_brief(), ROLL, a_start()) == [
        Spawn(a_start(), a_brief(), ROLL, held=True, not_after=30.0)
    ]


def test_a_member_without_its_roll_does_not_start() -> None:
    runner = a_runner()
    assert tell(runner, a_brief(), ROLL, a_start(formation=2)) == []
    assert (exit_of(runner).why, exit_of(runner).message) == (
        Why.FENCED,
        "not started: its brief or its roll never arrived",
    )


def test_readiness_is_told_at_once_and_with_every_listing() -> None:
    runner = a_member()
    assert runner.process_ready(KEY) == []
    assert runner.is_urgent
    assert runner.take_fresh() == [Ready(KEY)]
    assert runner.listing() == [(KEY, Phase.READY)]
    runner.welcome(2, 40.0)
    assert runner.take_fresh() == [Ready(KEY)]


def test_the_word_to_go_releases_it_and_may_come_again() -> None:
    runner = a_ready_member()
    assert tell(runner, Go(KEY)) == [Release(KEY, 30.0)]
    assert tell(runner, Go(KEY)) == [Release(KEY, 30.0)], "the first may have been lost with the keeper"
    runner.process_started(KEY, 11.0)
    assert tell(runner, Go(KEY)) == []
    runner.process_ended(KEY, END)
    assert tell(runner, Go(KEY)) == []


def test_a_word_to_go_that_comes_early_is_remembered() -> None:
    runner = a_member()
    assert tell(runner, Go(KEY)) == []
    assert runner.process_ready(KEY) == [Release(KEY, 30.0)]


def test_a_word_to_go_for_a_stranger_or_after_the_lease_is_ignored() -> None:
    assert tell(a_runner(), Go(KEY)) == []
    runner = a_ready_member()
    assert tell(runner, Go(KEY), at=30.5) == []
    assert runner.keeper_lost(30.5, (), [*runner.held]) == [
        Spawn(a_start(), a_brief(), ROLL, held=True, not_after=30.0)
    ]


@pytest.mark.parametrize("ready", [True, False])
def test_a_member_that_is_stopped_never_ran(ready: bool) -> None:
    runner = a_ready_member() if ready else a_member()
    assert tell(runner, Stop(KEY, Why.RECALLED, 5.0)) == [Halt(KEY, 5.0)]
    assert tell(runner, Go(KEY)) == []
    assert runner.process_ready(KEY) == []
    runner.process_refused(KEY, "stopped", "it was stopped before it could start", 12.0)
    assert exit_of(runner) == Exit(
        Why.RECALLED, ended_at=12.0, message="it was stopped before it could start"
    )
    assert [type(report) for report in runner.take_fresh()] == [Ended]


@pytest.mark.parametrize(
    ("code", "why"), [("fenced", Why.FENCED), ("not_found", Why.REFUSED), ("exhausted", Why.EXHAUSTED)]
)
def test_why_a_member_could_not_start_is_told(code: str, why: Why) -> None:
    runner = a_ready_member()
    runner.process_refused(KEY, code, "no", 12.0)
    assert (exit_of(runner).why, exit_of(runner).started_at) == (why, None)


def test_a_time_limit_counts_from_the_real_start() -> None:
    runner = a_runner()
    tell(runner, a_brief(time_limit_s=5.0), ROLL, a_start())
    runner.process_ready(KEY)
    assert runner.tick(20.0) == []
    runner.process_started(KEY, 20.0)
    assert runner.tick(24.9) == []
    assert runner.tick(25.0) == [Halt(KEY, 5.0)]


def test_a_restarted_runner_lists_it_as_ready_and_lets_it_go() -> None:
    runner = RunnerState()
    runner.adopt(KEY, 1, None, None, is_ready=True)
    runner.welcome(1, 30.0)
    assert runner.listing() == [(KEY, Phase.READY)]
    assert runner.take_fresh() == [Ready(KEY)]
    assert tell(runner, Go(KEY)) == [Release(KEY, 30.0)]
    runner.process_started(KEY, 11.0)
    assert runner.take_fresh() == [Started(KEY, 11.0)]


def test_the_next_keeper_holds_it_again_unless_it_was_told_to_go() -> None:
    runner = a_ready_member()
    assert runner.keeper_lost(11.0, (), [*runner.held]) == [
        Spawn(a_start(), a_brief(), ROLL, held=True, not_after=30.0)
    ]
    assert runner.listing() == [(KEY, Phase.QUEUED)]
    assert runner.take_fresh() == [], "it is not ready any more"
    tell(runner, Go(KEY))
    assert runner.keeper_lost(12.0, (), [*runner.held]) == [
        Spawn(a_start(), a_brief(), ROLL, held=False, not_after=30.0)
    ]


def test_a_member_behind_another_attempt_is_not_given_back() -> None:
    runner = a_runner()
    first = Start(("g1", 0, 1), 1, Grant(1, 0), None, 0)
    tell(runner, a_brief(), ROLL, first, a_start())
    runner.process_started(first.key, 10.0)
    assert runner.tick(20.0) == []


def test_rolls_are_few_and_go_with_the_job() -> None:
    runner = a_ready_member()
    for formation in range(2, ROLLS_MAX + 2):
        tell(runner, Roll("g1", formation, ROLL.nodes, ROLL.members))
    assert runner.briefing.roll("g1", 1) is None
    assert runner.briefing.roll("g1", 2) is not None
    assert runner.keeper_lost(11.0, (), [*runner.held]) == [
        Spawn(a_start(), a_brief(), ROLL, held=True, not_after=30.0)
    ], "its own is kept with it"
    tell(runner, Dismiss("g1"))
    runner.process_refused(KEY, "stopped", "", 12.0)
    runner.disposed(KEY, Disposition.ACCEPTED)
    assert runner.briefing.roll("g1", 2) is None
    assert runner.briefing.jobs == []
