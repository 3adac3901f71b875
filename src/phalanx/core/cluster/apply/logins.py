"""What events do to tickets and logins of browsers."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.cluster.state import ClusterState


def ticket_made(state: ClusterState, event: LoginTicketMade) -> None:
    known = state.logins.tickets
    for digest in [each.digest for each in known.values() if each.until <= event.at]:
        del known[digest]
    known[event.ticket.digest] = event.ticket


def opened(state: ClusterState, event: LoginOpened) -> None:
    state.logins.tickets.pop(event.ticket, None)
    for id in event.ended:
        state.logins.remove(id)
    state.logins.put(event.login)


def used(state: ClusterState, event: LoginsUsed) -> None:
    for id in event.ids:
        known = state.logins.by_id.get(id)
        if known is not None:
            state.logins.put(structs.replace(known, used_at=event.at))


def ended(state: ClusterState, event: LoginEnded) -> None:
    state.logins.remove(event.id)
