"""Fake of the commands about logins of browsers: a ticket opens one login, as its user."""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.logins import LoginRecord
from phalanx.api.server.auth import Bearer, Identity
from phalanx.errors import Forbidden, NotFound


class FakeLogins:
    """The part of `Commands` that is about logins, and who is logged in with which cookie."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets: dict[str, Identity] = {"phx_ui_...": Identity("ada", "admin", "f" * 16)}
        self.cookies: dict[str, Identity] = {}
        self.browsers: dict[str, LoginRecord] = {}

    def accepts_login(self, cookie: str) -> Identity | None:
        return self.cookies.get(cookie)

    async def make_login_ticket(self, addresses: list[str], by: Identity) -> tuple[str, float]:
        ticket = f"phx_ui_{len(self.tickets) + 1}"
        self.tickets[ticket] = by
        return ticket, 60.0

    async def open_login(self, ticket: str) -> str:
        if ticket not in self.tickets:
            raise Forbidden("this ticket is not accepted", reason="TicketRefused")
        return self.opened(self.tickets.pop(ticket))

    async def vouch_login(self, name: str, role: str) -> str:
        bearer: Bearer = role  # type: ignore[assignment]
        return self.opened(Identity(name, bearer, ""))

    async def end_login(self, id: str, by: Identity) -> LoginRecord:
        if id not in self.browsers:
            raise NotFound(f"no login {id!r}", reason="LoginNotFound")
        self.cookies = {cookie: who for cookie, who in self.cookies.items() if who.login != id}
        return structs.replace(self.browsers.pop(id), valid=False)

    async def logins(self) -> list[LoginRecord]:
        return list(self.browsers.values())

    def opened(self, who: Identity) -> str:
        """The cookie of a new login."""
        id = f"{len(self.browsers) + 1:016x}"
        cookie = f"phx_login_{id}"
        self.cookies[cookie] = structs.replace(
            who, login=id, fingerprint=who.fingerprint or id, expires_at=4e9
        )
        self.browsers[id] = LoginRecord(
            id=id,
            name=who.name,
            role=who.role,
            token=who.fingerprint,
            valid=True,
            created_at=1.0,
            used_at=1.0,
            expires_at=4e9,
        )
        return cookie
