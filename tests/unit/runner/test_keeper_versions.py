"""What a keeper of an older version is not asked for: the attempt is refused with the reason, and may run elsewhere."""

from __future__ import annotations

import pytest

from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Start, Why
from phalanx.core.model.parameters import PROGRAM
from phalanx.core.model.resources import Grant
from phalanx.core.runner.attempts import exit_unstarted
from phalanx.core.runner.effects import Spawn
from phalanx.runner.keeper import VERSION
from phalanx.runner.keeper_versions import refusal

JOB = "01jcm3k8t0z9x5v7b2n4d6f8gh"


def a_spawn(command: Command, params: str = "", held: bool = False, index: int | None = None) -> Spawn:
    start = Start((JOB, 0, 1), 1, Grant(1, 0), index, 0, params=params)
    return Spawn(start, Brief(JOB, 0, command, "", "default", JOB, 1, None, 5.0, None), None, held)


SWEEP = a_spawn(Command((PROGRAM, "echo", "{lr}")), '{"lr":"1"}')
ARRAY = a_spawn(Command(("echo", "{i}")), index=3)
INPUT = a_spawn(Command(("cat",), stdin=True))
GANG = a_spawn(Command(("true",)), held=True)


@pytest.mark.parametrize(("spawn", "since"), [(SWEEP, 7), (ARRAY, 7), (INPUT, 8), (GANG, 2)])
def test_only_an_older_keeper_is_spared_what_it_does_not_know(spawn: Spawn, since: int):
    assert refusal(since, spawn) is None
    no = refusal(since - 1, spawn)
    assert no is not None and "older version" in no[1] and "--drain" in no[1]
    exit = exit_unstarted(*no, None, 0.0)
    assert exit.why in {Why.EXHAUSTED, Why.FENCED}  # neither is charged, so another node may take it
    assert exit.of_node == (exit.why == Why.EXHAUSTED)


def test_ordinary_attempts_are_started_by_any_keeper():
    assert refusal(1, a_spawn(Command(("true",)))) is None
    assert refusal(1, a_spawn(Command(("echo", "{}")), index=3)) is None
    assert (
        refusal(1, a_spawn(Command((PROGRAM, "true"), image="x"), "{}")) is None
    )  # its container has the command


def test_our_own_keeper_knows_all():
    assert [refusal(VERSION, each) for each in (SWEEP, INPUT, GANG)] == [None, None, None]
