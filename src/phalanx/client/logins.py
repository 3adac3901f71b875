"""Calls about logins of browsers, as values, and as methods of both clients.

The address that opens the dashboard holds its ticket behind a `#`: what stands there is sent to no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote

from msgspec import Struct, json

from phalanx.api.schema.logins import LoginRecord, LoginTicketRequest, LoginTicketView
from phalanx.client.calls import Call, path_of
from phalanx.client.session_calls import reach_of

T = TypeVar("T")
ADDRESSES_MAX = 16


class DashboardAddress(Struct, frozen=True):
    """Where the dashboard is; `url` opens it logged in, once, within `expires_in_s` seconds."""

    address: str
    url: str
    expires_in_s: float


def ask_for_login(addresses: Sequence[str]) -> Call[LoginTicketView]:
    body = json.encode(LoginTicketRequest(coordinators=list(addresses[:ADDRESSES_MAX])))
    return Call(method="POST", path="/v1/logins/tickets", answer=LoginTicketView, body=body)


def logins_call() -> Call[list[LoginRecord]]:
    return Call(method="GET", path="/v1/logins", answer=list[LoginRecord], repeatable=True)


def end_login_call(id: str) -> Call[LoginRecord]:
    return Call(method="DELETE", path=path_of("logins", id), answer=LoginRecord)


def dashboard_at(exchange: object, ticket: LoginTicketView) -> DashboardAddress:
    """At the coordinator that answered."""
    at = reach_of(exchange, "").address
    page = f"{at}/ui/"
    return DashboardAddress(page, f"{page}#ticket={quote(ticket.ticket, safe='')}", ticket.expires_in_s)


class LoginCalls:
    """What a client that waits has of logins."""

    def _carrier(self) -> object:
        """What carries the calls."""
        raise NotImplementedError

    def _ask(self, call: Call[T]) -> T:
        raise NotImplementedError

    def dashboard(self, addresses: Sequence[str] = ()) -> DashboardAddress:
        """The address that opens the dashboard, logged in as you. `addresses`: where else coordinators are."""
        return dashboard_at(self._carrier(), self._ask(ask_for_login(addresses)))

    def logins(self) -> list[LoginRecord]:
        """The browsers that are logged in: one's own, or for an admin all."""
        return self._ask(logins_call())

    def end_login(self, id: str) -> LoginRecord:
        """Log a browser out."""
        return self._ask(end_login_call(id))


class AsyncLoginCalls:
    """The same of the async client."""

    def _carrier(self) -> object:
        """What carries the calls."""
        raise NotImplementedError

    async def _ask(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def dashboard(self, addresses: Sequence[str] = ()) -> DashboardAddress:
        """The address that opens the dashboard, logged in as you. `addresses`: where else coordinators are."""
        ticket = await self._ask(ask_for_login(addresses))
        return dashboard_at(self._carrier(), ticket)

    async def logins(self) -> list[LoginRecord]:
        """The browsers that are logged in: one's own, or for an admin all."""
        return await self._ask(logins_call())

    async def end_login(self, id: str) -> LoginRecord:
        """Log a browser out."""
        return await self._ask(end_login_call(id))
