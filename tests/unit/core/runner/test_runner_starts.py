"""A runner's promise that what did not start in time never will, and its clock that does not step."""

from __future__ import annotations

import pytest

from phalanx.core.model.job import Command
from phalanx.core.model.orders import AttemptKey, Brief, Ended, Go, Returned, Roll, Start, Stop, Why
from phalanx.core.model.resources import Grant
from phalanx.core.runner.attempts import LATE_S, ProcessEnd
from phalanx.core.runner.effects import Halt, Release, Spawn
from phalanx.core.runner.state import RunnerState

KEY: AttemptKey = ("j1", 0, 1)
ROLL = Roll("j1", 1, (("n1", "10.0.0.1"),), ((0, 0),))
WALL = 1_700_000_000.0


def a_brief(time_limit_s: float | None = None) -> Brief:
    return Brief("j1", 0, Command(("/bin/true",)), "", "default", "j1", 1, None, 5.0, time_limit_s)


def a_runner(formation: int = 0, time_limit_s: float | None = None) -> RunnerState:
    """Ordered at 10 to start an attempt, under a lease until 40 that lasts 20."""
    runner = RunnerState()
    runner.welcome(1, 40.0)
    for told in (a_brief(time_limit_s), ROLL, Start(KEY, 1, Grant(1, 0), None, 0, formation=formation)):
        runner.order(1, told, 10.0)
    return runner


def test_an_attempt_may_start_within_a_lease_of_its_arrival_and_not_after_the_lease_in_force() -> None:
    assert a_runner().held[KEY].start_by == 30.0
    short = RunnerState()
    short.welcome(1, 15.0)
    short.order(1, a_brief(), 10.0)
    (spawn,) = short.order(1, Start(KEY, 1, Grant(1, 0), None, 0), 10.0)
    assert isinstance(spawn, Spawn) and spawn.not_after == 15.0


def test_what_the_keeper_is_silent_about_is_given_back_once_it_cannot_start() -> None:
    runner = a_runner()
    assert runner.overdue(30.0 + LATE_S) == []
    assert runner.overdue(30.1 + LATE_S) == [KEY]
    runner.give_back(KEY, 31.1)
    assert runner.take_fresh() == [Returned(KEY)]
    assert runner.overdue(100.0) == []


@pytest.mark.parametrize("stopped", [True, False])
def test_a_member_or_one_that_was_being_stopped_ends(stopped: bool) -> None:
    runner = a_runner(formation=1)
    if stopped:
        runner.order(1, Stop(KEY, Why.CANCELLED, 1.0), 11.0)
    runner.give_back(KEY, 31.1)
    (report,) = runner.take_fresh()
    assert isinstance(report, Ended)
    assert report.exit.why == (Why.CANCELLED if stopped else Why.UNCONFIRMED)


def test_the_keeper_says_that_it_was_too_late() -> None:
    runner = a_runner()
    runner.process_refused(KEY, "late", "it could not start in time", 31.0)
    assert runner.take_fresh() == [Returned(KEY)]


def test_a_member_may_wait_at_the_barrier_and_goes_within_a_lease_of_the_first_word() -> None:
    runner = a_runner(formation=1)
    runner.process_ready(KEY)
    runner.renew(500.0)
    assert runner.overdue(400.0) == []
    assert runner.order(1, Go(KEY), 400.0) == [Release(KEY, 420.0)]
    assert runner.order(1, Go(KEY), 410.0) == [Release(KEY, 420.0)], "told again it may not go any later"
    assert runner.overdue(420.1 + LATE_S) == [KEY]


def test_the_next_keeper_is_not_sent_what_may_not_start_any_more() -> None:
    runner = a_runner()
    assert runner.keeper_lost(30.1, (), [*runner.held]) == []
    assert runner.take_fresh() == [Returned(KEY)]


@pytest.mark.parametrize("step_s", [-3600.0, 0.0, 3600.0])
def test_a_time_limit_does_not_follow_the_wall_clock(step_s: float) -> None:
    runner = a_runner(time_limit_s=20.0)
    runner.process_started(KEY, WALL + step_s, since=11.0)
    assert runner.held[KEY].started_at == WALL + step_s, "this is shown"
    assert runner.tick(30.9) == []
    assert runner.tick(31.0) == [Halt(KEY, 5.0)]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_nor_does_it_after_a_restart(step_s: float) -> None:
    runner = RunnerState()
    runner.adopt(KEY, 1, None, WALL + step_s, since=11.0)
    runner.welcome(1, 40.0)
    runner.order(1, a_brief(time_limit_s=20.0), 12.0)
    assert runner.tick(30.9) == []
    assert runner.tick(31.0) == [Halt(KEY, 5.0)]


@pytest.mark.parametrize(("stopped", "why"), [(True, Why.TIMEOUT), (False, Why.EXITED)])
def test_one_that_ended_before_its_limit_could_stop_it_was_not_ended_by_it(stopped: bool, why: Why) -> None:
    runner = a_runner(time_limit_s=20.0)
    runner.process_started(KEY, WALL, since=11.0)
    assert runner.tick(31.0) == [Halt(KEY, 5.0)]
    runner.process_ended(KEY, ProcessEnd(1, None, False, None, WALL, WALL + 40.0, stopped=stopped))
    report = runner.outbox[KEY]
    assert isinstance(report, Ended)
    assert report.exit.why == why


@pytest.mark.parametrize(
    ("code", "stopped", "oom", "why"),
    [
        (0, False, False, Why.NONE),
        (0, True, False, Why.EVICTED),
        (1, False, False, Why.EVICTED),
        (0, False, True, Why.EVICTED),
    ],
    ids=["done before", "saved its work", "failed beside those that were stopped", "out of memory"],
)
def test_one_that_was_done_before_it_could_be_evicted_has_completed(
    code: int, stopped: bool, oom: bool, why: Why
) -> None:
    runner = a_runner()
    runner.process_started(KEY, WALL, since=11.0)
    runner.order(1, Stop(KEY, Why.EVICTED, 5.0), 12.0)
    runner.process_ended(KEY, ProcessEnd(code, None, oom, None, WALL, WALL + 1.0, stopped=stopped))
    report = runner.outbox[KEY]
    assert isinstance(report, Ended)
    assert (report.exit.why, report.exit.code) == (why, code)


@pytest.mark.parametrize(
    ("told", "why"),
    [("timeout", Why.TIMEOUT), ("evicted", Why.EVICTED), ("nonsense", Why.EXITED), (None, Why.EXITED)],
)
def test_after_a_restart_an_end_that_was_asked_for_is_told_as_such(told: str | None, why: Why) -> None:
    runner = RunnerState()
    end = ProcessEnd(143, None, False, None, WALL, WALL + 40.0, stopped=True, why=told)
    runner.adopt(KEY, 1, end, WALL, since=11.0)
    report = runner.outbox[KEY]
    assert isinstance(report, Ended)
    assert (report.exit.why, report.exit.code) == (why, 143)
