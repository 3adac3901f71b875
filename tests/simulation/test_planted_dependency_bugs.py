"""Planted bugs about jobs that start after others: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster import dependencies as rules
from phalanx.core.cluster import invariants
from phalanx.core.cluster.apply import dependencies
from phalanx.core.cluster.apply import gangs as apply_gangs
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.inputs import Advance
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import When
from phalanx.core.model.orders import Status
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_job_that_waits_for_nobody_is_found(monkeypatch: Patch):
    monkeypatch.setattr(apply_jobs, "wait_for_others", lambda state, job: None)
    monkeypatch.setattr(invariants, "SENTENCES", ())
    must_find({"after"}, within=20)


def test_any_end_that_counts_as_a_good_one_is_found(monkeypatch: Patch):
    def over_is_enough(other: JobState, when: When) -> bool | None:
        return True if other.is_over else rules.has_come(other, when)

    for module in (dependencies, invariants):
        monkeypatch.setattr(module, "has_come", over_is_enough)
    must_find({"after"}, within=20)


def test_an_end_that_is_told_to_nobody_is_found(monkeypatch: Patch):
    monkeypatch.setattr(apply_gangs, "tell_dependents", lambda state, job: None)
    monkeypatch.setattr(invariants, "SENTENCES", ())
    must_find({"after", "replay"}, within=20)


def test_a_job_that_can_never_start_and_is_left_waiting_is_found(monkeypatch: Patch):
    def only_advance(self: Engine, now: float, turn: Turn) -> None:
        while self.state.due:
            self._propose(Advance(next(iter(self.state.due))), now, turn)

    monkeypatch.setattr(Engine, "_follow", only_advance)
    must_find({"after"}, within=20)


def test_an_image_that_forgets_who_waits_for_whom_is_found(monkeypatch: Patch):
    def forget(state: ClusterState) -> None:
        for job in state.jobs.values():
            job.awaits.clear()

    monkeypatch.setattr("phalanx.core.cluster.image.restore_dependents", forget)
    monkeypatch.setattr(invariants, "SENTENCES", ())  # which would see it first
    must_find({"replay", "after"}, within=20)


def test_a_task_that_does_not_wait_for_its_own_is_found(monkeypatch: Patch):
    monkeypatch.setattr(JobState, "is_locked", lambda self, position: False)
    monkeypatch.setattr(dependencies, "_judge", let_all_go)
    monkeypatch.setattr(invariants, "SENTENCES", ())
    must_find({"after"}, within=40)


def let_all_go(state: ClusterState, job: JobState, positions: Iterable[int]) -> None:
    for position in positions:
        group = job.group_of(position)
        if job.status[position] == Status.PENDING and not group.is_again(position):
            job.wait_again(position)
