"""Planted bugs about damaged records: a coordinator that continues over a hole in the log is found."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.coordinator import replica, restore
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.sim.trial import run
from phalanx.store.chain import events_of
from phalanx.store.protocol import Batch
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)
FAULTS = ["damaged-record", "damaged-record", "crash"]
CHECKERS = {
    "replay",
    "accepted",
    "one-commit",
    "one-run",
    "durable",
    "mistake",
    "assertion",
    "heals",
    "gang-whole",
    "ledger",
}


def test_a_damaged_record_is_refused_and_nothing_is_broken():
    results = [run(seed, FAULTS) for seed in range(10)]
    assert [result.sentence for result in results if not result.is_good] == []
    assert sum(result.counts["damaged log refused"] for result in results) > 10, "the fault bites"


def test_a_replay_that_goes_on_over_a_hole_is_found(monkeypatch: Patch):
    """As it was: the record is skipped, and what follows is applied to a state that it does not fit."""

    def careless(state: ClusterState, batch: Batch) -> tuple[list[Any], list[Any]]:
        events = events_of(batch) or []
        effects = [effect for event in events for effect in apply(state, event)]
        state.revision = batch.revision
        return events, effects

    for module in (restore, replica):
        monkeypatch.setattr(module, "replay", careless)
    must_find(CHECKERS, within=40, faults=FAULTS)


def test_a_store_that_leaves_damaged_records_out_is_found(monkeypatch: Patch):
    """A revision that does not follow is accepted, so what the store leaves out is never missed."""
    monkeypatch.setattr(restore, "missing_before", lambda revision, batch, events: None)
    monkeypatch.setattr(restore, "events_of", lambda batch: events_of(batch) or [])
    must_find(CHECKERS, within=40, faults=FAULTS)
