"""Planted bugs about logins of browsers: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster import transitions
from phalanx.core.cluster.apply import logins as apply_logins
from phalanx.core.cluster.decide import logins as decide_logins
from phalanx.core.cluster.decision import Decision
from phalanx.core.cluster.login_events import LoginOpened
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.login import Login, Logins, LoginsImage
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_ticket_that_opens_two_logins_is_found(monkeypatch: Patch):
    """As if a ticket were kept until its time is over."""

    def opened(state: ClusterState, event: LoginOpened) -> None:
        ticket = state.logins.tickets.get(event.ticket)
        real(state, event)
        if ticket is not None:
            state.logins.tickets[event.ticket] = ticket

    real = apply_logins.opened
    monkeypatch.setitem(transitions.CHANGES, LoginOpened, opened)
    must_find({"logins"}, within=40)


def test_a_login_that_goes_on_beside_the_one_that_took_its_place_is_found(monkeypatch: Patch):
    def _opened(
        state: ClusterState, made: Login, ticket: bytes, replaced: tuple[str, ...], now: float
    ) -> Decision:
        return real(state, made, ticket, (), now)

    real = decide_logins._opened
    monkeypatch.setattr(decide_logins, "_opened", _opened)
    must_find({"logins"}, within=40)


def test_a_restart_that_forgets_the_tickets_for_the_next_coordinator_is_found(monkeypatch: Patch):
    def restore(self: Logins, image: LoginsImage | None) -> None:
        if image is not None:
            real(self, structs.replace(image, logins=[]))

    real = Logins.restore
    monkeypatch.setattr(Logins, "restore", restore)
    must_find({"logins", "replay", "replica"}, within=40)
