"""Asking a coordinator that is away for a while, as executors and their workers do."""

from __future__ import annotations

import pytest

from phalanx.api.schema.calls import ResultsQuery, ResultsReply
from phalanx.client.executor_calls import AWAY_S_MAX, PAUSES_S, ask_patiently, results
from phalanx.errors import TooMany
from tests.support.clocks import ManualClock
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import a_client, a_rest_app


class BusyCommands(FakeCommands):
    """Refuses so many questions for results."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def call_results(self, user: str, name: str, query: ResultsQuery) -> ResultsReply:
        if self.refusals:
            self.refusals -= 1
            raise TooMany("planted")
        return ResultsReply("q1")


CALL = results("e0123456789abcdef", "", 0, 0.0)


def test_the_answer_comes_after_pauses_that_grow_and_then_stay():
    pauses: list[float] = []

    def passes(pause_s: float) -> bool:
        pauses.append(pause_s)
        return False

    with a_client(a_rest_app(BusyCommands(7))) as client:
        reply = ask_patiently(client, CALL, passes)
    assert reply == ResultsReply("q1")
    assert pauses == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]


def test_nothing_is_asked_again_when_the_answer_is_of_no_use_any_more():
    commands = BusyCommands(2)
    with a_client(a_rest_app(commands)) as client:
        assert ask_patiently(client, CALL, lambda _: True) is None
    assert commands.refusals == 1


def test_the_refusal_is_raised_when_the_coordinator_stays_away():
    clock = ManualClock()

    def passes(pause_s: float) -> bool:
        clock.at += AWAY_S_MAX
        return False

    commands = BusyCommands(9)
    with a_client(a_rest_app(commands)) as client, pytest.raises(TooMany):
        ask_patiently(client, CALL, passes, clock)
    assert commands.refusals == 6
