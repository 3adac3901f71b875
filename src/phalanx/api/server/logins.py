"""Logins of browsers as requests show them: the cookie, the CSRF token, and which requests a cookie is taken for.

Scripts cannot read the cookie; it is for this site alone. Cookies know no ports, so the port is
in its name: two coordinators of one host do not take each other's. What follows from a cookie (its CSRF token, the
ticket for the next coordinator) is derived from it, so that every coordinator knows it and none keeps it. A request
with an Authorization header is never looked at for a cookie. Who is logged in is decided elsewhere (`AcceptsLogins`).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Protocol

from phalanx.api.server.auth import TOKEN_MAX, Identity
from phalanx.errors import BadRequest, Forbidden, Unauthorized

COOKIE = "phalanx_login"
_HOST = "__Host-"  # over TLS: browsers take such a cookie from this very host alone, not from its neighbours
COOKIES_MAX = 8192  # bytes of a Cookie header that are looked at
CSRF = b"phalanx-csrf"
OPEN_A_LOGIN = "run `phalanx ui`, which opens a page that is logged in"
_SAFE = frozenset({"GET", "HEAD"})
_OWN_PAGES = frozenset({b"same-origin", b"none"})  # none: typed by the user


class AcceptsLogins(Protocol):
    """Who knows the browsers that are logged in."""

    def accepts_login(self, cookie: str) -> Identity | None: ...


def cookie_name(host: bytes, *, is_secure: bool) -> str:
    """By the port that the browser uses."""
    _, colon, port = host.rpartition(b":")
    name = f"{COOKIE}_{port.decode()}" if colon and port.isdigit() and len(port) <= 5 else COOKIE
    return f"{_HOST}{name}" if is_secure else name


def read_cookie(headers: Mapping[bytes, bytes], name: str) -> str:
    """The cookie of this name; nothing if there is none. Two of one name may be one that somebody else has planted."""
    raw = headers.get(b"cookie", b"")
    if not raw:
        return ""
    if len(raw) > COOKIES_MAX:
        raise BadRequest(f"the Cookie header has {len(raw)} bytes, expected at most {COOKIES_MAX}")
    found = [
        value for key, _, value in (each.strip().partition("=") for each in raw.decode("latin-1").split(";"))
        if key == name
    ]  # fmt: skip
    if len(found) > 1:
        raise BadRequest(f"the cookie {name} is given {len(found)} times", hint="remove the site's cookies")
    return found[0] if found and len(found[0]) <= TOKEN_MAX else ""


def set_cookie(name: str, value: str, max_age_s: float) -> tuple[bytes, bytes]:
    """The header that gives a browser its cookie; with no time left it takes it away."""
    words = f"{name}={value}; Max-Age={max(0, int(max_age_s))}; HttpOnly; SameSite=Strict; {_place(name)}"
    return b"set-cookie", words.encode()


def renamed_cookie(header: bytes, theirs: str, ours: str) -> bytes:
    """What `set_cookie` gave at another coordinator, under our name."""
    words = header.decode("latin-1").removesuffix(_place(theirs))
    return f"{ours}{words.removeprefix(theirs)}{_place(ours)}".encode("latin-1")


def csrf_of(cookie: str) -> str:
    """What a page shows, besides the cookie that its browser sends, for everything but reading."""
    return _derived(cookie, "phalanx csrf 1")


def next_ticket_of(cookie: str) -> str:
    """The ticket that opens a login elsewhere in the place of this one."""
    return f"phx_next_{_derived(cookie, 'phalanx next ticket 1')}"


def identify_login(
    logins: AcceptsLogins, method: str, headers: Mapping[bytes, bytes], cookie: str
) -> Identity:
    """Who is logged in with this cookie, if the request comes from our own page; or raise."""
    if headers.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
        raise Forbidden("requests from the pages of another site are refused", reason="OriginNotAllowed")
    found = logins.accepts_login(cookie)
    if found is None:
        raise Unauthorized(
            "this login is over: it was ended, nothing was done with it for long, or its token is no longer accepted",
            reason="LoginEnded",
            hint=OPEN_A_LOGIN,
        )
    if method not in _SAFE:
        check_csrf(headers, cookie)
    return found


def check_csrf(headers: Mapping[bytes, bytes], cookie: str) -> None:
    """Raise Forbidden unless the page has shown what only our own page can know."""
    shown = headers.get(CSRF, b"")
    if not hmac.compare_digest(shown, csrf_of(cookie).encode()):
        raise Forbidden(
            "the header Phalanx-Csrf is wrong" if shown else "the header Phalanx-Csrf is missing",
            reason="CsrfRefused",
            hint="GET /v1/logins/current tells it to the page that is logged in",
        )


def _place(name: str) -> str:
    return "Path=/; Secure" if name.startswith(_HOST) else "Path=/v1"


def _derived(cookie: str, purpose: str) -> str:
    key = cookie.encode("utf-8", "surrogatepass")
    return urlsafe_b64encode(hmac.new(key, purpose.encode(), hashlib.sha256).digest()).decode().rstrip("=")
