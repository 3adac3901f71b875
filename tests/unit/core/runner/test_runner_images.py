"""An attempt with an image: prepared first, then as any other; stopped, fenced or given back before that."""

from __future__ import annotations

from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Ended, Phase, Returned, Start, Stop, Why
from phalanx.core.model.resources import Grant
from phalanx.core.runner.effects import Prepare, Spawn, StopPreparing
from phalanx.core.runner.state import RunnerState

KEY = ("job", 0, 1)
START = Start(KEY, 1, Grant(1, 0), None, 0)


def preparing() -> RunnerState:
    state = RunnerState()
    state.welcome(1, lease_until=100.0)
    brief = Brief("job", 0, Command(("true",), image="python"), "", "default", "job", 1, None, 5.0, None)
    state.order(1, brief, 0.0)
    [effect] = state.order(1, START, 0.0)
    assert effect == Prepare(START, brief)
    assert state.listing() == [(KEY, Phase.PREPARING)]
    return state


def why(state: RunnerState) -> Why:
    [report] = state.take_fresh()
    assert isinstance(report, Ended)
    return report.exit.why


def test_it_starts_when_its_image_is_ready_and_has_as_long_for_that_as_any_other():
    state = preparing()
    [spawn] = state.prepared(KEY, 70.0)
    assert isinstance(spawn, Spawn)
    assert spawn.not_after == 90.0
    assert state.listing() == [(KEY, Phase.QUEUED)]
    assert state.prepared(KEY, 71.0) == [], "told twice"


def test_a_stop_ends_it_at_once():
    state = preparing()
    assert state.order(1, Stop(KEY, Why.CANCELLED, 5.0), 1.0) == [StopPreparing(KEY)]
    assert why(state) == Why.CANCELLED
    assert state.prepared(KEY, 2.0) == [], "it was stopped"


def test_the_end_of_the_lease_ends_it():
    state = preparing()
    assert state.tick(99.0) == []
    assert state.tick(101.0) == [StopPreparing(KEY)]
    assert why(state) == Why.FENCED


def test_an_image_that_is_ready_too_late_starts_nothing():
    state = preparing()
    assert state.prepared(KEY, 101.0) == [StopPreparing(KEY)]
    assert why(state) == Why.FENCED


def test_an_image_that_cannot_be_had_refuses_it():
    state = preparing()
    state.process_refused(KEY, "bad_image", "no such image", 1.0)
    assert why(state) == Why.REFUSED


def test_a_runner_that_leaves_gives_it_back():
    state = preparing()
    assert state.give_back_unprepared(1.0) == [StopPreparing(KEY)]
    assert state.take_fresh() == [Returned(KEY)]


def test_a_keeper_that_dies_does_not_concern_it():
    state = preparing()
    assert state.overdue(1000.0) == []
