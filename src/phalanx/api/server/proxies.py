"""Users whom a trusted reverse proxy names in a header, after a single sign-on of its own.

Off unless it is configured. A proxy is trusted by the address that the connection comes from, never by what it says.
From anybody else such a header is refused, so that a mistake shows; and a request that names its user twice is, too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from msgspec import Struct

from phalanx.core.model.credential import power
from phalanx.core.model.job import is_name
from phalanx.errors import Forbidden

ROLE_BY_GROUP_MAX = 100


class ProxyUser(Struct, frozen=True):
    name: str
    role: str


class TrustedProxies(Struct, frozen=True):
    """Which peers are trusted, which headers tell the user and the groups, and what role follows."""

    peers: tuple[str, ...] = ()  # addresses or networks
    user_header: str = ""
    groups_header: str = ""
    roles: Mapping[str, str] = {}  # by `user:NAME`, or `group:NAME`
    role: str = ""  # of whoever is not listed; empty: refused

    def trusts(self, address: str) -> bool:
        """Whether a connection from this address is a trusted proxy's."""
        try:
            found = ipaddress.ip_address(address.strip("[]"))
        except ValueError:
            return False
        return any(found in ipaddress.ip_network(each, strict=False) for each in self.peers)

    def user_of(self, headers: Mapping[bytes, bytes], address: str) -> ProxyUser | None:
        """Whom the proxy names; None without one. Forbidden if a stranger plays the proxy, or the user has no role."""
        if not self.peers:
            return None
        said = headers.get(self.user_header.lower().encode())
        if said is None:
            return None
        if not self.trusts(address):
            raise Forbidden(
                f"the header {self.user_header} is taken from the trusted proxy alone",
                reason="ProxyNotTrusted",
                hint="coordinator.trusted_proxy lists who that is",
            )
        name = said.decode("latin-1").strip()
        if not is_name(name):
            raise Forbidden(
                f"{self.user_header} does not hold the name of a user: letters, digits, . _ - are allowed",
                reason="BadProxyUser",
            )
        role = self._role(name, headers)
        if not power(role):
            raise Forbidden(
                f"user {name} has no role here",
                reason="NoRole",
                hint="coordinator.trusted_proxy_roles gives users and groups their roles",
            )
        return ProxyUser(name, role)

    def _role(self, name: str, headers: Mapping[bytes, bytes]) -> str:
        """The user's own; or the most powerful one of its groups; or that of everybody."""
        if f"user:{name}" in self.roles:
            return self.roles[f"user:{name}"]
        said = headers.get(self.groups_header.lower().encode(), b"") if self.groups_header else b""
        groups = [each.strip() for each in said.decode("latin-1").split(",")[:ROLE_BY_GROUP_MAX]]
        found = [self.roles[f"group:{each}"] for each in groups if f"group:{each}" in self.roles]
        return max(found, key=power, default=self.role)


NO_PROXIES = TrustedProxies()
