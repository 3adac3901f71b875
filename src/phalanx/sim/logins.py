"""Browsers that log in under virtual time, and whether each ticket opens one login at most.

Users ask for tickets, show them once, twice or too late, go on at the next coordinator with the ticket that came with a
login, and log out; requests and replies may be lost like all others. The checker knows tickets and logins from the log
alone, and asks every coordinator that leads whether its state says the same. It shares no code with `apply`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Accepted, Answer
from phalanx.core.cluster.inputs import EndLogin, MakeLoginTicket, OpenLogin, UseLogins
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginTicketMade
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.login import TICKET_S, Login
from phalanx.sim.violation import Violation
from phalanx.sim.world import World

if TYPE_CHECKING:
    from phalanx.sim.users import Users

RUNS_SHARE = 0.3
BROWSERS = 12  # in one run
LATE_S = 1.2 * TICKET_S


class LoginChecker:
    """Which tickets can still be shown, and who is logged in."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._until: dict[bytes, float] = {}  # of tickets that were not shown yet
        self._next: dict[bytes, str] = {}  # the login behind a ticket for the next coordinator
        self._logins: dict[str, Login] = {}

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        if isinstance(event, LoginTicketMade):
            self._until[event.ticket.digest] = event.ticket.until
        elif isinstance(event, LoginOpened):
            self._opened(event)
        elif isinstance(event, LoginEnded):
            self._end(event.id)

    def check(self, state: ClusterState) -> None:
        """The state of a coordinator that leads has these logins, and no ticket that was used."""
        logins = state.logins
        for what, found in (
            ("ids", {id: each.digest for id, each in logins.by_id.items()}),
            ("cookies", {each.id: digest for digest, each in logins.by_digest.items()}),
        ):
            if found != {id: each.digest for id, each in self._logins.items()}:
                raise Violation(
                    "logins", f"by {what}, the state has {sorted(found)}, the log {sorted(self._logins)}"
                )
        if {each: login.id for each, login in logins.by_next.items()} != self._next:
            raise Violation("logins", "the tickets for the next coordinator are not those of the log")
        if used := set(logins.tickets) - set(self._until):
            raise Violation("logins", f"{len(used)} tickets could be shown again")

    def _opened(self, event: LoginOpened) -> None:
        until, before = self._until.pop(event.ticket, None), self._next.get(event.ticket)
        if until is None and before is None:
            raise Violation(
                "logins", f"login {event.login.id} was opened with a ticket that is used or unknown"
            )
        if until is not None and event.at >= until:
            raise Violation("logins", f"login {event.login.id} was opened {event.at - until:.1f} s too late")
        if before is not None and before not in event.ended:
            raise Violation("logins", f"login {event.login.id} did not take the place of {before}")
        for id in event.ended:
            self._end(id)
        self._logins[event.login.id] = event.login
        self._next[event.login.next_digest] = event.login.id
        self._count("login opened" if before is None else "login moved")

    def _end(self, id: str) -> None:
        login = self._logins.pop(id, None)
        if login is None:
            raise Violation("logins", f"login {id} ended twice")
        del self._next[login.next_digest]


class LoggingInUsers:
    """Their requests go through those of `Users`, and may be lost like those."""

    def __init__(self, world: World, users: Users, dice: Random) -> None:
        self._world = world
        self._users = users
        self._dice = dice
        self._made = 0

    def begin(self, until_s: float) -> None:
        for _ in range(BROWSERS):
            self._world.after(5.0 + (until_s - 5.0) * self._dice.random(), self._ask_for_ticket)

    def _ask_for_ticket(self) -> None:
        ticket, user = self._new(), self._dice.choice(("ada", "bob"))
        self._users.ask([MakeLoginTicket(ticket, user, "user", f"token of {user}")])
        for _ in range(self._dice.choice((1, 1, 2, 3))):
            after_s = LATE_S if self._dice.random() < 0.1 else self._dice.uniform(0.2, 6.0)
            self._world.after(after_s, self._show, ticket)

    def _show(self, ticket: bytes) -> None:
        cookie, following = self._new(), self._new()

        def answered(answers: list[Answer | None]) -> None:
            if answers and isinstance(answers[0], Accepted):
                self._world.after(self._dice.uniform(0.2, 10.0), self._go_on, cookie.hex()[:16], following)

        self._users.ask([OpenLogin(ticket, cookie, following)], answered)

    def _go_on(self, id: str, following: bytes) -> None:
        what = self._dice.random()
        if what < 0.3:
            self._users.ask([EndLogin(id)])
        elif what < 0.8:
            for _ in range(self._dice.choice((1, 2))):  # two tabs
                self._world.after(self._dice.uniform(0.0, 1.0), self._show, following)
        else:
            self._users.ask([UseLogins((id,))])

    def _new(self) -> bytes:
        self._made += 1
        return hashlib.sha256(b"%d of %d" % (self._made, self._dice.getrandbits(64))).digest()
