"""Choices about logins of browsers: what a ticket opens, how many there may be, and which one gives way.

Whether the token behind a ticket or a login is still accepted is asked where it is shown, for tokens out of settings
are no part of the state; of those that are, it is asked here as well.
"""

from __future__ import annotations

from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decision import Accepted, Decision, refuse_because
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.login import (
    LOGIN_ID_CHARACTERS,
    LOGIN_S,
    LOGINS_MAX,
    LOGINS_PER_USER_MAX,
    TICKET_S,
    TICKETS_MAX,
    TICKETS_PER_USER_MAX,
    USED_EVERY_S,
    Login,
    LoginTicket,
)

REFUSED = "this ticket is not accepted: it is unknown, used or expired"


def make_ticket(state: ClusterState, given: i.MakeLoginTicket, now: float) -> Decision:
    """A ticket for the user of a token, good once and for a minute."""
    open_ones = [each for each in state.logins.tickets.values() if each.until > now]
    mine = sum(each.name == given.name for each in open_ones)
    if len(open_ones) >= TICKETS_MAX or mine >= TICKETS_PER_USER_MAX:
        text = f"{mine} tickets of {given.name} were not used yet, of {len(open_ones)} in all: try again in a minute"
        return refuse_because("TooManyTickets", text, "too_many")
    ticket = LoginTicket(given.digest, given.name, given.role, given.parent, now + TICKET_S, given.addresses)
    return Decision([LoginTicketMade(at=now, cause=f"user {given.name}", ticket=ticket)], [], Accepted())


def open_login(state: ClusterState, given: i.OpenLogin, now: float) -> Decision:
    """A login for whoever shows a ticket, or the ticket that came with a login, which it then replaces."""
    logins = state.logins
    ticket, before = logins.tickets.get(given.ticket), logins.by_next.get(given.ticket)
    if ticket is not None and ticket.until > now:
        made = _login(given, ticket.name, ticket.role, ticket.parent, ticket.addresses, now, now + LOGIN_S)
        replaced: tuple[str, ...] = ()
    elif before is not None and before.is_valid(now):
        made = _login(
            given, before.name, before.role, before.parent, before.addresses, now, before.expires_at
        )
        replaced = (before.id,)
    else:
        return refuse_because("TicketRefused", REFUSED, "forbidden")
    record = state.keyring.by_id.get(made.parent)
    if record is not None and not record.is_valid(now):
        return refuse_because("TicketRefused", REFUSED, "forbidden")
    return _opened(state, made, given.ticket, replaced, now)


def vouch_login(state: ClusterState, given: i.VouchLogin, now: float) -> Decision:
    """A login for a user whom a trusted proxy names. What was said once is not said again."""
    if given.digest in state.logins.by_digest:
        return refuse_because("TicketRefused", REFUSED, "forbidden")
    made = _login(given, given.name, given.role, "", (), now, now + LOGIN_S)
    return _opened(state, made, b"", (), now)


def use_logins(state: ClusterState, given: i.UseLogins, now: float) -> Decision:
    """Write down who came, of those who have not been written down lately."""
    known = (state.logins.by_id.get(id) for id in given.ids)
    ids = tuple(each.id for each in known if each is not None and is_use_news(each, now))
    events = [LoginsUsed(at=now, cause="use", ids=ids)] if ids else []
    return Decision([*events], [], Accepted(len(ids)))


def end_login(state: ClusterState, given: i.EndLogin, now: float) -> Decision:
    """Whose it is was asked before."""
    if given.id not in state.logins.by_id:
        return refuse_because("LoginNotFound", f"no login {given.id!r}: it has ended", "not_found")
    return Decision([LoginEnded(at=now, cause=given.cause, id=given.id)], [], Accepted())


def is_use_news(login: Login, now: float) -> bool:
    """Whether another use is worth writing down."""
    return login.is_valid(now) and now - login.used_at >= USED_EVERY_S


def _opened(
    state: ClusterState, made: Login, ticket: bytes, replaced: tuple[str, ...], now: float
) -> Decision:
    over = [each.id for each in state.logins.by_id.values() if not each.is_valid(now)]
    left = {*replaced, *over}
    mine = [each.id for each in state.logins.of_user(made.name) if each.id not in left]
    left.update(mine[: max(0, len(mine) - LOGINS_PER_USER_MAX + 1)])
    if len(state.logins.by_id) - len(left) >= LOGINS_MAX:
        text = f"{LOGINS_MAX} browsers are logged in, at most so many may be: log some out"
        return refuse_because("TooManyLogins", text, "too_many")
    cause = f"user {made.name}"
    event = LoginOpened(at=now, cause=cause, login=made, ticket=ticket, ended=tuple(sorted(left)))
    return Decision([event], [], Accepted())


def _login(
    given: i.OpenLogin | i.VouchLogin,
    name: str,
    role: str,
    parent: str,
    addresses: tuple[str, ...],
    now: float,
    until: float,
) -> Login:
    id, shown = _id(given.digest), (given.digest, given.next_digest)
    return Login(id, *shown, name, role, parent, now, until, used_at=now, addresses=addresses)


def _id(digest: bytes) -> str:
    return digest.hex()[:LOGIN_ID_CHARACTERS]
