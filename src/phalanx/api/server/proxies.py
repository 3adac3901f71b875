"""Users whom a trusted reverse proxy names in a header, after a single sign-on of its own.

Off unless it is configured. A proxy is trusted by the address that the connection comes from, never by what it says.
From anybody else a header that names a user is refused, so that a mistake shows, and what is said of where a request
came from is not looked at. A header that comes twice is refused: one of them may be the user's own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from phalanx.api.server.messages import HttpRequest
from phalanx.core.model.credential import power
from phalanx.core.model.job import is_name
from phalanx.errors import BadRequest, Forbidden, Unauthorized

GROUPS_MAX = 1000
OF_SETTINGS = ("admin", "local")
VOUCHER = b"phalanx-voucher"
_HOST, _PROTO, _FOR = b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-for"


class ProxyUser(Struct, frozen=True):
    name: str
    role: str


class Vouchers(Protocol):
    """What one coordinator says to another of a user whom its proxy has named."""

    def voucher(self, user: ProxyUser) -> str: ...

    def vouched(self, voucher: str) -> ProxyUser | None:
        """Whom a voucher of another coordinator of this cluster names; None if it is not good."""
        ...


class TrustedProxies(Struct, frozen=True):
    """Which peers are trusted, which headers tell the user and the groups, and what role follows."""

    peers: tuple[str, ...] = ()  # addresses or networks
    user_header: str = "X-Forwarded-User"
    groups_header: str = ""
    roles: Mapping[str, str] = {}  # by `user:NAME`, or `group:NAME`
    role: str = ""  # of whoever is not listed; empty: refused

    def trusts(self, address: str) -> bool:
        """Whether a connection from this address is a trusted proxy's."""
        return bool(self.peers) and _is_among(address, self.peers)

    def take_over(self, http_request: HttpRequest) -> None:
        """Believe a trusted proxy where a request came from: the host, TLS or not, and the client's address."""
        if not self.trusts(http_request.peer):
            return
        headers = http_request.headers
        host, proto = _once(http_request, _HOST), _once(http_request, _PROTO)
        if host:
            headers[b"host"] = host.encode("latin-1")
        if proto not in ("", "http", "https"):
            raise BadRequest(f"X-Forwarded-Proto = {proto[:20]!r}: expected http or https")
        http_request.is_secure = http_request.is_secure or proto == "https"
        last = headers.get(_FOR, b"").decode("latin-1").rpartition(",")[2].strip(" \t")
        if _is_address(last):
            http_request.where = f"{last}:0"

    def user_of(self, http_request: HttpRequest) -> ProxyUser | None:
        """Whom the proxy names; None without one. Forbidden if a stranger plays the proxy, or the user has no role."""
        if not self.peers:
            return None
        name = _once(http_request, self.user_header.lower().encode())
        if not name:
            return None
        if not self.trusts(http_request.peer):
            raise Forbidden(
                f"the header {self.user_header} is taken from a trusted proxy alone",
                reason="ProxyNotTrusted",
                hint="coordinator.trusted_proxy lists who that is",
            )
        if not is_name(name):
            raise Forbidden(
                f"{self.user_header} = {name[:80]!r} is not a user name: expected letters, digits, '.', '_', '-'",
                reason="BadProxyUser",
            )
        if name in OF_SETTINGS and f"user:{name}" not in self.roles:
            raise Forbidden(
                f"{self.user_header} = {name!r} is the name of all tokens out of settings",
                reason="BadProxyUser",
                hint=f"user:{name}=ROLE in coordinator.trusted_proxy_roles allows it",
            )
        role = self._role(name, http_request)
        if not power(role):
            raise Forbidden(
                f"user {name} has no role here",
                reason="NoRole",
                hint="coordinator.trusted_proxy_roles gives users and groups their roles",
            )
        return ProxyUser(name, role)

    def check_same(self, http_request: HttpRequest, vouchers: Vouchers | None = None) -> None:
        """Raise Unauthorized if the proxy names another user, or role, than the login is of.

        A login that came from a proxy is good behind it alone: whom the proxy no longer lets in has no other way.
        """
        user, identity = self.user_of(http_request), http_request.identity
        if user is None and vouchers is not None and (said := http_request.headers.get(VOUCHER)):
            user = vouchers.vouched(said.decode("latin-1"))
        if user is None and identity.is_of_proxy:
            raise Unauthorized(
                f"this login is of a user whom a trusted proxy named, and no proxy names {identity.name} now",
                reason="LoginEnded",
                hint="open the page through the proxy",
            )
        if user is not None and identity.login and (user.name, user.role) != (identity.name, identity.role):
            raise Unauthorized(
                f"this login is {identity.name}'s, and the proxy names {user.name} ({user.role})",
                reason="LoginEnded",
                hint="log in again",
            )

    def _role(self, name: str, http_request: HttpRequest) -> str:
        """The user's own; or the most powerful one of its groups; or that of everybody."""
        if f"user:{name}" in self.roles:
            return self.roles[f"user:{name}"]
        said = _once(http_request, self.groups_header.lower().encode()) if self.groups_header else ""
        groups = [each.strip() for each in said.split(",")[:GROUPS_MAX]]
        found = [self.roles[f"group:{each}"] for each in groups if f"group:{each}" in self.roles]
        return max(found, key=power, default=self.role)


NO_PROXIES = TrustedProxies()


def _once(http_request: HttpRequest, name: bytes) -> str:
    if http_request.count(name) > 1:
        raise BadRequest(f"the header {name.decode()} is given twice in the request")
    return (
        http_request.headers.get(name, b"").decode("latin-1").strip(" \t")
    )  # what else Python strips is of the name


@lru_cache(maxsize=256)
def _is_among(address: str, peers: tuple[str, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(each, strict=False) for each in peers)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
