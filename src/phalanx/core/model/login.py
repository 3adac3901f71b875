"""Logins of browsers: a ticket that opens one, once, and the login itself, which a cookie stands for.

Both are kept as SHA-256 digests. A login stands for the token that it came from and is good no longer than that. With
each login comes a ticket for the next coordinator: a page whose coordinator has died opens itself elsewhere with it,
and the login there takes the place of this one. How long what is good, and how many there may be, is decided in
`core/cluster/decide/logins.py`.
"""

from __future__ import annotations

from msgspec import Struct

LOGIN_ID_CHARACTERS = 16
TICKET_S = 60.0
IDLE_S = 12 * 3600.0  # without a request a login is over,
LOGIN_S = 7 * 86_400.0  # and with requests after this
USED_EVERY_S = 600.0  # a use is written down at most so often
TICKETS_MAX, TICKETS_PER_USER_MAX = 1000, 16
LOGINS_MAX, LOGINS_PER_USER_MAX = 10_000, 32


class LoginTicket(Struct, frozen=True, array_like=True):
    """The right of one user to open one login. `parent` is the fingerprint of the token that was shown for it."""

    digest: bytes
    name: str
    role: str
    parent: str
    until: float
    addresses: tuple[str, ...] = ()  # of the coordinators, as the user's client knows them


class Login(Struct, frozen=True, array_like=True):
    """One browser that is logged in."""

    id: str
    digest: bytes  # of the cookie
    next_digest: bytes  # of the ticket for the next coordinator
    name: str
    role: str
    parent: str  # the fingerprint of the token it came from; empty: a proxy vouched for the user
    created_at: float
    expires_at: float
    used_at: float  # coarse
    addresses: tuple[str, ...] = ()  # where the page may go on

    def is_valid(self, now: float) -> bool:
        return now < self.expires_at and now - self.used_at < IDLE_S

    @property
    def is_of_proxy(self) -> bool:
        return not self.parent


class LoginsImage(Struct, array_like=True):
    tickets: list[LoginTicket] = []
    logins: list[Login] = []


class Logins:
    """Every ticket and every login, by what is shown for them."""

    def __init__(self) -> None:
        self.tickets: dict[bytes, LoginTicket] = {}
        self.by_id: dict[str, Login] = {}
        self.by_digest: dict[bytes, Login] = {}
        self.by_next: dict[bytes, Login] = {}

    def put(self, login: Login) -> None:
        """Add a login, or take its newer version."""
        self.by_id[login.id] = self.by_digest[login.digest] = self.by_next[login.next_digest] = login

    def remove(self, id: str) -> None:
        """Forget a login, if it is known."""
        login = self.by_id.pop(id, None)
        if login is not None:
            del self.by_digest[login.digest], self.by_next[login.next_digest]

    def of_user(self, name: str) -> list[Login]:
        """The one that was used longest ago first."""
        found = (each for each in self.by_id.values() if each.name == name)
        return sorted(found, key=lambda each: (each.used_at, each.created_at, each.id))

    def image(self) -> LoginsImage | None:
        """None if there is nothing."""
        if not self.tickets and not self.by_id:
            return None
        return LoginsImage(list(self.tickets.values()), list(self.by_id.values()))

    def restore(self, image: LoginsImage | None) -> None:
        if image is None:
            return
        self.tickets = {each.digest: each for each in image.tickets}
        for login in image.logins:
            self.put(login)
