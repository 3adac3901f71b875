"""Planted bugs in the runner's loop, in the keeper's table, and in what is decided about nodes that do not work.

Each was in the code once, or is a line that could be left out. The faults are those of a keeper that is stopped or
cannot be started, of a runner that starts nothing, and of a clock that is set.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from phalanx.core.cluster.decide.reports import UnconfirmedStarts
from phalanx.core.model.orders import AttemptKey
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.effects import RunnerEffect
from phalanx.core.runner.state import Keys, RunnerState
from phalanx.runner.keeper.table import KeeperTable
from phalanx.runner.keepers import NodeKeeper
from phalanx.runner.launches import Launches
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.machine import KeeperHealth
from phalanx.runner.processes import KeeperFailed
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_shell_that_gives_up_its_keeper_after_one_failure_is_found(monkeypatch: Patch):
    """X3: the failure ended in a task that was never awaited, and the node looked Online for ever."""

    async def once(self: NodeKeeper) -> None:
        with suppress(KeeperFailed):
            self._on_found(self, await self._connecting.again())

    monkeypatch.setattr(NodeKeeper, "_reopen", once)
    must_find({"heals"}, within=10, faults=["no-keeper"])


def test_a_runner_that_gives_up_the_attempts_of_all_its_keepers_when_one_dies_is_found(monkeypatch: Patch):
    keeper_lost = RunnerState.keeper_lost

    def of_all(self: RunnerState, now: float, listed: Keys, own: Keys) -> list[RunnerEffect]:
        return keeper_lost(self, now, listed, [*self.held])

    monkeypatch.setattr(RunnerState, "keeper_lost", of_all)
    must_find({"one-run"}, within=20, faults=["keeper-crash"])


def test_a_runner_that_says_nothing_of_its_keeper_is_found(monkeypatch: Patch):
    """M1, XW11: tasks are sent to a node on which none can start."""
    monkeypatch.setattr(KeeperHealth, "look", lambda self, keeper: "")
    must_find({"standstill"}, within=20, faults=["stopped-keeper", "no-keeper"])


def test_an_attempt_that_its_runner_does_not_list_and_keeps_for_ever_is_found(monkeypatch: Patch):
    monkeypatch.setattr(UnconfirmedStarts, "unlisted", lambda self, attempt: None)
    must_find({"heals"}, within=20, faults=["idle-runner"])


def test_an_attempt_that_is_listed_and_never_started_is_found(monkeypatch: Patch):
    monkeypatch.setattr(UnconfirmedStarts, "unstarted", lambda self, attempt, phase: None)
    must_find({"heals"}, within=10, faults=["idle-runner"])


def test_a_limit_counted_by_the_wall_clock_is_found(monkeypatch: Patch):
    """X2: a node's clock is set, and a task of seconds is ended for its limit at once, or never."""
    monkeypatch.setattr(RunnerLoop, "_since", lambda self, born: None)
    must_find({"limits"}, within=20, faults=["clock-step"])


def test_a_start_honoured_after_its_instant_is_found(monkeypatch: Patch):
    """It waited in the socket of a stopped keeper, while its runner gave it back and another node ran it.

    A lease that was over when it was sent, or is by now, would hide that, so it is not checked either.
    """

    def patient(self: KeeperTable, key: str, options: dict[str, Any], now: float) -> tuple[str, str] | None:
        return ("stopped", "it was stopped") if key in self.stopped else None

    monkeypatch.setattr(KeeperTable, "why_not", patient)
    must_find({"one-run"}, within=150, begin=90, faults=["stopped-keeper"])


# Results of tasks.


def test_a_result_that_is_lost_when_its_runner_comes_back_is_found(monkeypatch: Patch):
    with_result = Launches.with_result

    def only_of_the_known(
        self: Launches, key: AttemptKey, end: ProcessEnd, bytes_max: int | None = None
    ) -> ProcessEnd | None:
        return with_result(self, key, end, bytes_max) if key in self._engine.state.held else end

    monkeypatch.setattr(Launches, "with_result", only_of_the_known)
    must_find({"one-commit"}, within=60)
