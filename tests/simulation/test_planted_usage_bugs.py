"""Planted bugs about usage: what jobs keep of it is the same after a restart, or the checker of replays says so."""

from __future__ import annotations

import pytest

from phalanx.core.cluster import image
from phalanx.core.cluster.usage import DeviceNumbers, JobUsage
from phalanx.core.model.usage import UsageTotals
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_an_image_that_forgets_what_was_used_is_found(monkeypatch: Patch):
    def forgotten(
        column: bytes | None, devices: dict[int, DeviceNumbers] | None, totals: UsageTotals | None
    ) -> JobUsage:
        return JobUsage(None, devices, totals)

    monkeypatch.setattr(image, "JobUsage", forgotten)
    must_find({"replay"}, within=60)
