"""Events of browsers that log in. None of them holds a ticket or a cookie, only digests."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import ClusterEvent
from phalanx.core.model.login import Login, LoginTicket


class LoginTicketMade(ClusterEvent, frozen=True):
    """A user asked for a ticket. Tickets whose time was over by then are forgotten with it."""

    ticket: LoginTicket


class LoginOpened(ClusterEvent, frozen=True):
    """A browser has logged in. Its ticket is used up, and `ended` names the logins that end with it."""

    login: Login
    ticket: bytes = b""  # its digest; nothing: a proxy vouched for the user
    ended: tuple[str, ...] = ()


class LoginsUsed(ClusterEvent, frozen=True):
    """Somebody showed their cookies. Written down now and then, not each time."""

    ids: tuple[str, ...]


class LoginEnded(ClusterEvent, frozen=True):
    """A user logged out, or was logged out."""

    id: str
