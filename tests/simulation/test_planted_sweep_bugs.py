"""Planted bugs about sweeps and retries: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.retries import RepeatedJobs
from phalanx.core.model.job import Job
from phalanx.core.model.parameters import Params
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_task_that_two_users_repeat_at_once_is_found(monkeypatch: Patch):
    """As if nobody remembered which jobs repeat tasks of which."""

    def note(self: RepeatedJobs, job: Job) -> None:
        assert self == {}

    monkeypatch.setattr(RepeatedJobs, "note", note)
    must_find({"retries"}, within=120)


def test_values_that_are_counted_by_position_and_not_by_index_are_found(monkeypatch: Patch):
    """A job that repeats tasks 3 and 8 would give them the values of tasks 1 and 2."""

    def params_at(self: Job, position: int) -> dict[str, str]:
        return {} if self.params is None else Params.values(self.params, position + 1)

    monkeypatch.setattr(Job, "params_at", params_at)
    must_find({"sweeps"}, within=120)
