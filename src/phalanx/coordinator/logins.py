"""Logins of browsers: requests become inputs, and a cookie becomes the identity that it stands for at this moment.

A login is good while the token is that it came from: revoked, rotated out or expired tokens, and those that were taken
out of settings, end their logins at once. Cookies and tickets are made here by chance and told once.
"""

from __future__ import annotations

import secrets

from msgspec import structs

from phalanx.api.schema.logins import LoginRecord
from phalanx.api.server.auth import TOKEN_MAX, Bearer, Identity, digest
from phalanx.api.server.logins import next_ticket_of
from phalanx.clock import Clock
from phalanx.coordinator.link_auth import LinkAuthenticator
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.decide.logins import REFUSED, is_use_news
from phalanx.core.cluster.inputs import (
    EndLogin,
    Input,
    MakeLoginTicket,
    OpenLogin,
    UseLogins,
    VouchLogin,
)
from phalanx.core.model.credential import power
from phalanx.core.model.login import TICKET_S, Login
from phalanx.errors import Forbidden, NotFound

ASK_AGAIN = "`phalanx ui` gives another: each opens one login, within a minute"


class LoginAccess:
    """The identity behind a cookie, and who came lately."""

    def __init__(self, loop: Requests, keys: LinkAuthenticator, clock: Clock) -> None:
        self._loop = loop
        self._keys = keys
        self._clock = clock
        self._shown: set[str] = set()
        self.takes_proxy = (
            False  # whether a proxy may vouch for users, as far as this coordinator is concerned
        )

    def accepts_login(self, cookie: str) -> Identity | None:
        """Raises Unavailable before the log was read."""
        if not cookie or len(cookie) > TOKEN_MAX:
            return None
        login = self._loop.state.logins.by_digest.get(digest(cookie))
        if login is None or not login.is_valid(self._clock.now()):
            return None
        found = self.identity_of(login)
        if found is not None and is_use_news(login, self._clock.now()):
            self._shown.add(login.id)
        return found

    def is_accepted(self, parent: str) -> bool:
        """Whether the token with this fingerprint is accepted."""
        return self._keys.identity_by(parent) is not None

    def identity_of(self, login: Login) -> Identity | None:
        """For whom a login stands: nobody any more if its token does not."""
        if login.is_of_proxy:
            if not self.takes_proxy:
                return None
            role: Bearer = login.role  # type: ignore[assignment]  # one of a user's, which `vouch_login` asked
            return Identity(login.name, role, login.id, expires_at=login.expires_at, login=login.id)
        behind = self._keys.identity_by(login.parent)
        if behind is None or (behind.name, behind.role) != (login.name, login.role):
            return None
        until = login.expires_at if behind.expires_at is None else min(behind.expires_at, login.expires_at)
        return structs.replace(behind, expires_at=until, login=login.id)

    def inputs(self) -> list[Input]:
        """Who came since the last time."""
        if not self._shown:
            return []
        ids, self._shown = tuple(sorted(self._shown)), set()
        return [UseLogins(ids)]


class CoordinatorLogins:
    """What REST may ask about logins."""

    def __init__(self, loop: Requests, clock: Clock, access: LoginAccess) -> None:
        self._loop = loop
        self._clock = clock
        self._access = access

    async def make_login_ticket(self, addresses: list[str], by: Identity) -> tuple[str, float]:
        self._loop.require_active()
        if by.login or not power(by.role):
            raise Forbidden(
                "a ticket is for whoever shows a user's token; a login has one for the next coordinator",
                reason="RoleForbids",
                hint="`phalanx ui` asks for one with your token",
            )
        ticket = "phx_ui_" + secrets.token_urlsafe(32)
        given = MakeLoginTicket(digest(ticket), by.name, by.role, by.fingerprint, tuple(addresses))
        accepted(await self._loop.ask([given]), "ticket")
        return ticket, TICKET_S

    async def open_login(self, ticket: str) -> str:
        self._loop.require_active()
        shown = digest(ticket)
        self._require_ticket(shown)  # so that strangers cost no turn
        cookie = _new_cookie()
        given = OpenLogin(shown, digest(cookie), digest(next_ticket_of(cookie)))
        accepted(await self._loop.ask([given]), "ticket")
        return cookie

    async def vouch_login(self, name: str, role: str) -> str:
        self._loop.require_active()
        cookie = _new_cookie()
        given = VouchLogin(digest(cookie), digest(next_ticket_of(cookie)), name, role)
        accepted(await self._loop.ask([given]), f"user {name}")
        return cookie

    async def end_login(self, id: str, by: Identity) -> LoginRecord:
        login = self._loop.state.logins.by_id.get(id)
        if login is None:
            raise NotFound(f"no login {id!r}: it has ended", reason="LoginNotFound")
        view = self._view(login)
        accepted(await self._loop.ask([EndLogin(id, f"user {by.name}")]), f"login {id}")
        return structs.replace(view, valid=False)

    async def logins(self) -> list[LoginRecord]:
        known = self._loop.state.logins.by_id.values()
        return [self._view(each) for each in sorted(known, key=lambda one: one.created_at, reverse=True)]

    def _require_ticket(self, shown: bytes) -> None:
        logins, now = self._loop.state.logins, self._clock.now()
        ticket, before = logins.tickets.get(shown), logins.by_next.get(shown)
        parent = None if ticket is None or ticket.until <= now else ticket.parent
        if before is not None and self._access.identity_of(before) is not None:
            return
        if parent is None or not self._access.is_accepted(parent):
            raise Forbidden(REFUSED, reason="TicketRefused", hint=ASK_AGAIN)

    def _view(self, login: Login) -> LoginRecord:
        valid = login.is_valid(self._clock.now()) and self._access.identity_of(login) is not None
        return LoginRecord(
            id=login.id,
            name=login.name,
            role=login.role,
            token=login.parent,
            valid=valid,
            created_at=login.created_at,
            used_at=login.used_at,
            expires_at=login.expires_at,
            coordinators=list(login.addresses),
        )


def _new_cookie() -> str:
    return "phx_login_" + secrets.token_urlsafe(32)
