"""Who may enter: the Host and Origin of a request, and the bearer token in its Authorization header.

Which permission a route needs stands in its row of the route table, what a role may do in `roles.py`. Which tokens
are accepted is somebody else's business (`Accepts`); a token is known here only by its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from phalanx.api.server.request import HttpRequest
from phalanx.api.server.roles import Bearer, Identity, Permission, forbidden
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS
from phalanx.errors import Forbidden, Unauthorized

TOKEN_MAX = 4096  # longer ones are not ours, and are not worth a digest


class Accepts(Protocol):
    """Who knows the accepted tokens of the moment."""

    def accepts_user(self, token: str) -> Identity | None: ...


class Tokens:
    """A fixed set of accepted tokens, each with its user, all of one role. None accepted means nobody enters."""

    def __init__(self, accepted: Iterable[tuple[str, str]], role: Bearer = "admin") -> None:
        self._role: Bearer = role
        self._digests: list[tuple[bytes, Identity]] = []
        self.replace(accepted)

    def replace(self, accepted: Iterable[tuple[str, str]]) -> None:
        """Take another set of (user, token) from now on; open streams notice it at their next beat."""
        self._digests = [
            (digest(token), Identity(user, self._role, fingerprint(token)))
            for user, token in accepted
            if token
        ]

    def accepts_user(self, token: str) -> Identity | None:
        """Who shows a token, or None. Every accepted token is compared, so time tells nothing."""
        if not token or len(token) > TOKEN_MAX:
            return None
        shown, found = digest(token), None
        for accepted, identity in self._digests:
            if hmac.compare_digest(shown, accepted):
                found = identity
        return found


class Guard:
    """Looks at each request before any route does."""

    def __init__(self, tokens: Accepts, hosts: Iterable[str] = ()) -> None:
        self._tokens = tokens
        extra = frozenset(host.lower().strip("[]") for host in hosts if host)
        # A Host header repeats for ever, so each spelling is judged once.
        self._is_ours = lru_cache(maxsize=256)(lambda host: _is_ours(host, extra))

    def check_site(self, http_request: HttpRequest) -> None:
        """Refuse a Host that is not ours (DNS rebinding) and an Origin that is another site (web pages)."""
        host = http_request.headers.get(b"host", b"")
        if not self._is_ours(host):
            raise Forbidden(
                f"the Host {host[:80].decode('latin-1')!r} is not one this coordinator answers to",
                reason="HostNotAllowed",
                hint="use a loopback address, or add the name to the coordinator's allowed hosts",
            )
        origin = http_request.headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise Forbidden("requests from the pages of another site are refused", reason="OriginNotAllowed")

    def identify(self, http_request: HttpRequest) -> None:
        """Name who sends this request, or raise Unauthorized."""
        identify(self._tokens, http_request)

    def admit(self, http_request: HttpRequest, permission: Permission, *, is_about_a_job: bool) -> None:
        """Refuse what the role does not allow. Whether a job is one's own is asked later, when it is known."""
        if permission == "open":
            return
        self.identify(http_request)
        scope = http_request.identity.scope(permission)
        if scope is None or (scope == "own" and not is_about_a_job and permission != "grant"):
            raise forbidden(http_request.identity, permission)


def identify(tokens: Accepts, http_request: HttpRequest) -> None:
    """Name who sends this request, or raise Unauthorized."""
    scheme, _, token = http_request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    found = tokens.accepts_user(token.strip()) if scheme.lower() == "bearer" else None
    if found is None:
        raise Unauthorized(
            "a token is needed" if not scheme else "this token is not accepted",
            hint="send the header 'Authorization: Bearer TOKEN'; tokens are not read from anywhere else",
        )
    http_request.identity, http_request.token = found, token.strip()


def is_insider(tokens: Accepts, http_request: HttpRequest) -> bool:
    """For a route that anybody may ask: whether this one may know more. A wrong token is refused here as well."""
    if b"authorization" not in http_request.headers:
        return False
    identify(tokens, http_request)
    return http_request.identity.scope("read") == "all"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def fingerprint(token: str) -> str:
    """What may be written of a token."""
    return digest(token).hex()[:FINGERPRINT_CHARACTERS]


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
