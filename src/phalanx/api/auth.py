"""Who may enter: the Host and Origin of a request, and the bearer token in its Authorization header.

A token is known here only by its digest. Which permission a route needs stands in its row of the route table;
today every accepted token holds every permission, and `Guard.admit` is the place where that will change.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from phalanx.api.visit import Visit
from phalanx.errors import Forbidden, Unauthorized

Permission = Literal["open", "read", "submit", "control", "operate"]
TOKEN_MAX = 4096  # longer ones are not ours, and are not worth a digest


class Tokens:
    """The accepted tokens, each with the name of its user. None accepted means nobody enters."""

    def __init__(self, accepted: Iterable[tuple[str, str]]) -> None:
        self._digests: list[tuple[bytes, str]] = []
        self.replace(accepted)

    def replace(self, accepted: Iterable[tuple[str, str]]) -> None:
        """Take another set of (user, token) from now on; open streams notice it at their next beat."""
        self._digests = [(_digest(token), user) for user, token in accepted if token]

    def verify(self, token: str) -> str | None:
        """The user of a token, or None. Every accepted token is compared, so time tells nothing."""
        if not token or len(token) > TOKEN_MAX:
            return None
        digest, found = _digest(token), None
        for accepted, user in self._digests:
            if hmac.compare_digest(digest, accepted):
                found = user
        return found


class Guard:
    """Looks at each request before any route does."""

    def __init__(self, tokens: Tokens, hosts: Iterable[str] = ()) -> None:
        self._tokens = tokens
        extra = frozenset(host.lower().strip("[]") for host in hosts if host)
        # A Host header repeats for ever, so each spelling is judged once.
        self._is_ours = lru_cache(maxsize=256)(lambda host: _is_ours(host, extra))

    def check_site(self, visit: Visit) -> None:
        """Refuse a Host that is not ours (DNS rebinding) and an Origin that is another site (web pages)."""
        host = visit.headers.get(b"host", b"")
        if not self._is_ours(host):
            raise Forbidden(
                f"the Host {host[:80].decode('latin-1')!r} is not one this coordinator answers to",
                reason="HostNotAllowed",
                hint="use a loopback address, or add the name to the coordinator's allowed hosts",
            )
        origin = visit.headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise Forbidden("requests from the pages of another site are refused", reason="OriginNotAllowed")

    def admit(self, visit: Visit, permission: Permission) -> None:
        """Name the user of this request, or raise Unauthorized."""
        if permission == "open":
            return
        scheme, _, token = visit.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        user = self._tokens.verify(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise Unauthorized(
                "a token is needed" if not scheme else "this token is not accepted",
                hint="send the header 'Authorization: Bearer TOKEN'; tokens are not read from anywhere else",
            )
        visit.user, visit.token = user, token.strip()


def _is_ours(host: bytes, extra: frozenset[str]) -> bool:
    try:
        name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
    except ValueError:
        return False
    if any(each in host for each in b"/@?#\\ "):
        return False
    return name == "localhost" or name in extra or _is_loopback(name)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
