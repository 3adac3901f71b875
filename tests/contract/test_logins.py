"""Logins of browsers on every store: the coordinator that leads next knows them, and no secret is kept there."""

from __future__ import annotations

import pytest

from phalanx.api.server.auth import Identity
from phalanx.api.server.logins import next_ticket_of
from phalanx.core.cluster.events import decode
from phalanx.core.cluster.login_events import LoginOpened
from phalanx.errors import Forbidden
from tests.contract.backends import KINDS, Backend
from tests.contract.coordinators import a_coordinator_group

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", [*KINDS], indirect=True)]
ADA = Identity("ada", "user", "0" * 16)


class Accepting:
    """Takes the token behind every login for accepted: which tokens are is not the store's business."""

    def identity_by(self, shown: str) -> Identity | None:
        return Identity("ada", "user", shown)


async def test_the_next_coordinator_knows_tickets_and_logins(backend: Backend):
    async with a_coordinator_group(backend, lease_s=1.0) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        for each in (c1, c2):
            each.commands.login_access._keys = Accepting()  # type: ignore[assignment]
        used, _ = await c1.commands.make_login_ticket(["http://c1"], ADA)
        unused, _ = await c1.commands.make_login_ticket([], ADA)
        cookie = await c1.commands.open_login(used)
        await group.killed(c1, c2)
        assert c2.commands.login_access.accepts_login(cookie) is not None
        with pytest.raises(Forbidden):
            await c2.commands.open_login(used)
        assert await c2.commands.open_login(unused)
        moved = await c2.commands.open_login(next_ticket_of(cookie))
        assert c2.commands.login_access.accepts_login(cookie) is None
        assert c2.commands.login_access.accepts_login(moved) is not None
        loaded = await (await backend.store()).load()
        events = [event for batch in loaded.batches for event in decode(batch.body)]
        assert sum(isinstance(event, LoginOpened) for event in events) == 3
        for secret in (used, unused, cookie, moved, next_ticket_of(cookie)):
            assert not any(secret.encode() in batch.body for batch in loaded.batches)
