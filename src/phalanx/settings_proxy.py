"""The settings of a trusted reverse proxy: who it is, which headers tell its users, and which roles those have."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from phalanx.core.model.credential import ROLES
from phalanx.errors import ConfigError
from phalanx.settings_types import TextOrEmpty

HeaderName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}\Z")]
HeaderNameOrEmpty = Annotated[str, Meta(pattern=r"^([A-Za-z][A-Za-z0-9-]{0,63})?\Z")]
PeersText = Annotated[tuple[str, ...], Meta(max_length=16)]
RolesText = Annotated[tuple[str, ...], Meta(max_length=1000)]
_ROLE_OF = re.compile(r"(user|group):([^=\s]{1,128})=([a-z]+)")
# What others decide by, or what we do.
_NOT_A_USER = frozenset({"authorization", "cookie", "host", "origin", "content-type", "content-length"})


class ProxySettings(Struct, frozen=True, kw_only=True):
    """A reverse proxy that is trusted to name users. Off unless `trusted_proxy` lists its address."""

    trusted_proxy: Annotated[
        PeersText,
        "a list of IP addresses or networks, such as 127.0.0.1 or 10.0.0.0/28",
        "reverse proxies whose headers about users are believed; off if empty",
    ] = ()
    trusted_proxy_user_header: Annotated[
        HeaderName, "the name of a header", "header in which a trusted proxy names the user"
    ] = "X-Forwarded-User"
    trusted_proxy_groups_header: Annotated[
        HeaderNameOrEmpty,
        "the name of a header, or empty",
        "header in which a trusted proxy lists the user's groups, separated by commas",
    ] = ""
    trusted_proxy_roles: Annotated[
        RolesText,
        "a list such as user:ada=admin,group:ops=operator",
        "roles of users and groups that a trusted proxy names",
    ] = ()
    trusted_proxy_role: Annotated[
        TextOrEmpty,
        "viewer, user, operator or admin, or empty",
        "role of all others whom a trusted proxy names; empty: they are refused",
    ] = ""

    def check_proxy(self) -> None:
        """Raise ConfigError for what cannot be meant."""
        for peer in self.trusted_proxy:
            try:
                ipaddress.ip_network(peer, strict=False)
            except ValueError:
                expected = "expected an IP address or a network such as 10.0.0.0/28"
                raise ConfigError(f"coordinator.trusted_proxy has {peer[:80]!r}: {expected}") from None
        for header in (self.trusted_proxy_user_header, self.trusted_proxy_groups_header):
            if header.lower() in _NOT_A_USER:
                raise ConfigError(f"coordinator.trusted_proxy: the header {header} has another meaning")
        if self.trusted_proxy_role and self.trusted_proxy_role not in ROLES:
            raise ConfigError(
                f"coordinator.trusted_proxy_role = {self.trusted_proxy_role!r}: expected one of {', '.join(ROLES)}"
            )
        dict(self.roles_by_name())

    def roles_by_name(self) -> Iterator[tuple[str, str]]:
        """`user:NAME` or `group:NAME`, and the role."""
        for text in self.trusted_proxy_roles:
            found = _ROLE_OF.fullmatch(text.strip())
            if found is None or found[3] not in ROLES:
                raise ConfigError(
                    f"coordinator.trusted_proxy_roles has {text[:80]!r}: expected user:NAME=ROLE or group:NAME=ROLE,"
                    f" with one of {', '.join(ROLES)}"
                )
            yield f"{found[1]}:{found[2]}", found[3]
