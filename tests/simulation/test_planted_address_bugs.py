"""Planted bugs about addresses of the overlay network: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.overlay import Overlay, ReservedAddress
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_an_address_that_is_given_again_at_once_is_found(monkeypatch: Patch):
    rest = Overlay.rest
    monkeypatch.setattr(Overlay, "rest", lambda self, node, address, until: rest(self, node, address, 0.0))
    must_find({"addresses"}, within=40)


def test_a_token_that_is_used_twice_is_found(monkeypatch: Patch):
    monkeypatch.setattr(ReservedAddress, "is_open", lambda self, now: now < self.expires_at)
    must_find({"addresses"}, within=150)


def test_a_token_that_never_expires_is_found(monkeypatch: Patch):
    monkeypatch.setattr(Overlay, "expired", lambda self, now: [])
    monkeypatch.setattr(ReservedAddress, "is_open", lambda self, now: not self.job)
    must_find({"addresses"}, within=150)
