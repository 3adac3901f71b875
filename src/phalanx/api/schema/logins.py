"""Logins of browsers over REST: a ticket, what it is exchanged for, and the list."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from phalanx.api.schema.fields import shown
from phalanx.errors import BadRequest

ADDRESS_MAX = 255
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\-]+(?::\d{1,5})?|https?://\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")
SHOWN_MAX = 256  # characters of a ticket that are looked at


class LoginTicketView(Struct, frozen=True, kw_only=True):
    """The right to open one login in a browser, once, within `expires_in_s` seconds, at any coordinator."""

    ticket: str
    expires_in_s: float


class LoginTicketRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where else the page may open itself if its coordinator dies: the addresses that the user's client knows."""

    coordinators: Annotated[list[Annotated[str, Meta(max_length=ADDRESS_MAX)]], Meta(max_length=16)] = []

    def check(self) -> None:
        """Raise BadRequest for what is no address of a coordinator."""
        for at, address in enumerate(self.coordinators):
            if not _ADDRESS.fullmatch(address):
                raise BadRequest(f"coordinators[{at}] = {shown(address)}: expected https://HOST:PORT")


class OpenLoginRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ticket; without one a trusted proxy has to name the user."""

    ticket: Annotated[str, Meta(max_length=SHOWN_MAX)] = ""


class LoginView(Struct, frozen=True, kw_only=True):
    """The login of this browser. `csrf` goes into the header Phalanx-Csrf of everything but GET.

    `next_ticket` opens a login at another coordinator, once, which then replaces this one: kept in the page's memory.
    """

    id: str
    name: str
    role: str
    csrf: str
    next_ticket: str
    expires_at: float
    idle_s: float  # without a request for so long it ends
    may: dict[str, str]  # what the role allows: for each permission `all` or `own`
    coordinators: list[str] = []  # where the page may open itself if this one dies


class LoginRecord(Struct, frozen=True, kw_only=True):
    """A login, as lists show it."""

    id: str
    name: str
    role: str
    token: str  # the id of the token that it came from; empty: a trusted proxy named the user
    valid: bool
    created_at: float
    used_at: float
    expires_at: float
    coordinators: list[str] = []  # where its page may go on
