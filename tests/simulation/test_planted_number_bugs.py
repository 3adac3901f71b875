"""Planted bugs about the numbers of jobs: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.state import ClusterState
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_number_that_is_given_again_after_its_job_was_forgotten_is_found(monkeypatch: Patch):
    """As if the highest number of those in memory were the highest that was ever given."""

    def next_number(self: ClusterState) -> int:
        ended = set(self.ended) | set(self.ended_workflows)
        return max((number for number, id in self.names.numbers.items() if id not in ended), default=0) + 1

    monkeypatch.setattr(ClusterState, "next_number", next_number)
    must_find({"numbers"}, within=40)


def test_a_number_that_another_coordinator_counts_for_itself_is_found(monkeypatch: Patch):
    """A standby or successor has to take the number of the event: its own count may be another."""

    def take_number(self: ClusterState, recorded: int) -> int:
        self.arrivals += 1 + (self.epoch > 1)
        return self.arrivals

    monkeypatch.setattr(ClusterState, "take_number", take_number)
    must_find({"numbers"}, within=40)
