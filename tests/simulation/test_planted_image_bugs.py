"""Planted bugs about images that are got ready: what was stopped meanwhile starts, and a pull never ends."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.core.model.orders import AttemptKey
from phalanx.core.runner.effects import RunnerEffect, Spawn
from phalanx.core.runner.state import RunnerState
from phalanx.sim import images
from phalanx.sim.images import SimulatedImages
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _images_in_every_run(monkeypatch: Patch) -> None:
    monkeypatch.setattr(images, "RUNS_SHARE", 1.0)


def test_an_attempt_that_starts_though_it_was_stopped_during_its_pull_is_found(monkeypatch: Patch):
    def eager(self: RunnerState, key: AttemptKey, now: float) -> list[RunnerEffect]:
        held = self.held.get(key)
        brief = None if held is None or held.start is None else self.briefing.brief(key[0], held.start.group)
        if held is None or held.start is None or brief is None:
            return []
        return [Spawn(held.start, brief, held.roll, held.start.formation > 0, now + 20.0)]

    monkeypatch.setattr(RunnerState, "prepared", eager)
    monkeypatch.setattr(SimulatedImages, "abandon", lambda self, key: None)
    must_find({"one-run", "orders", "fence", "grants", "heals", "mistake", "barrier"}, within=20)


def test_a_pull_that_is_never_over_is_found(monkeypatch: Patch):
    def lost(self: SimulatedImages, *_: Any) -> None:
        return

    monkeypatch.setattr(SimulatedImages, "_end", lost)
    must_find({"heals"}, within=10)
