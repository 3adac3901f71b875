"""What the REST app is given so that browsers can use it: who is logged in, which proxy is trusted, the page itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from phalanx.api.server.logins import AcceptsLogins
from phalanx.api.server.messages import HttpRequest, Reply
from phalanx.api.server.proxies import NO_PROXIES, TrustedProxies, Vouchers
from phalanx.api.server.static_files import StaticFiles


class Forwards(Protocol):
    """What passes a page's request on to the leader."""

    async def forward(
        self, http_request: HttpRequest, leader: str, body: bytes, is_leader: Callable[[], bool]
    ) -> Reply:
        """The leader's answer, as long as it `is_leader`."""
        ...


class PageAccess(Struct, frozen=True):
    """Nothing of it is needed where only programs ask."""

    logins: AcceptsLogins | None = None
    proxies: TrustedProxies = NO_PROXIES
    static: StaticFiles | None = None
    forwards: Forwards | None = None
    vouchers: Vouchers | None = None


NO_PAGE = PageAccess()
