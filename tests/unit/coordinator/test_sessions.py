"""Tickets of sessions, and the connections that runners dial for them."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.coordinator import sessions as module
from phalanx.coordinator.link_auth import SharedToken
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.sessions import Sessions
from phalanx.duplex import Duplex
from phalanx.errors import Forbidden, TooMany, Unavailable
from phalanx.link import wire
from phalanx.link.session_messages import OpenSession, SessionHello, SessionSpec
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
KEY = ("j1", 0, 1)
SPEC = SessionSpec(("true",))


class LogChannel:
    """A node's connection for logs: what it was sent."""

    def __init__(self) -> None:
        self.sent: list[wire.Message] = []

    def send(self, messages: list[wire.Message]) -> None:
        self.sent += messages

    def close(self) -> None:
        """Nothing is open."""


class Rig:
    def __init__(self, *, serves: bool = True, ticket_s: float = 30.0) -> None:
        self.keys = keys = SharedToken("node-token")
        self.links = LogLinks(keys)
        self.channel = LogChannel()
        hello = wire.LogHello(wire.VERSION, "node-token", "n1", "i1", sessions=serves)
        assert self.links.opened(self.channel, hello)
        self.sessions = Sessions(keys, self.links, ticket_s)

    def asked(self) -> OpenSession:
        return next(each for each in reversed(self.channel.sent) if isinstance(each, OpenSession))

    def dial(self, **other: str) -> tuple[wire.Rejected | None, list[Duplex]]:
        """The runner's answer to the last request, with fields of its own."""
        asked, taken = self.asked(), list[Duplex]()
        fields = {"token": "node-token", "node": "n1", "id": asked.id, "secret": asked.secret} | other
        return self.sessions.arrived(SessionHello(version=wire.VERSION, **fields), None, taken.append), taken


async def test_a_ticket_opens_one_session_of_its_user():
    rig = Rig()
    ticket = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    with pytest.raises(Forbidden):
        await rig.sessions.redeem(ticket.session, ticket.ticket, "bob")
    with pytest.raises(Forbidden):
        await rig.sessions.redeem(ticket.session, "another", "ada")
    redeeming = asyncio.create_task(rig.sessions.redeem(ticket.session, ticket.ticket, "ada"))
    await until(lambda: len(rig.channel.sent) == 1)
    asked = rig.asked()
    assert (asked.key, asked.spec) == (KEY, SPEC)
    assert asked.secret != ticket.ticket
    refused, taken = rig.dial()
    assert refused is None
    assert await redeeming is taken[0]
    with pytest.raises(Forbidden) as used:
        await rig.sessions.redeem(ticket.session, ticket.ticket, "ada")
    assert used.value.reason == "TicketRefused"


async def test_an_expired_ticket_is_refused_and_forgotten():
    rig = Rig(ticket_s=0.0)
    ticket = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    with pytest.raises(Forbidden):
        await rig.sessions.redeem(ticket.session, ticket.ticket, "ada")
    assert not rig.sessions._offered
    assert not rig.sessions._of_users


@pytest.mark.parametrize(
    "other", [{"token": "wrong"}, {"secret": "wrong"}, {"node": "n2"}, {"id": "unknown"}], ids=str
)
async def test_only_the_runner_that_was_asked_is_connected(other: dict[str, str]):
    rig = Rig()
    ticket = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    redeeming = asyncio.create_task(rig.sessions.redeem(ticket.session, ticket.ticket, "ada"))
    await until(lambda: len(rig.channel.sent) == 1)
    refused, taken = rig.dial(**other)
    assert refused is not None
    assert not taken
    assert rig.dial()[0] is None
    await redeeming
    assert rig.dial()[0] is not None  # nobody waits any more


async def test_a_runner_that_does_not_dial_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "DIAL_WITHIN_S", 0.01)
    rig = Rig()
    ticket = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    with pytest.raises(Unavailable) as away:
        await rig.sessions.redeem(ticket.session, ticket.ticket, "ada")
    assert away.value.reason == "NodeAway"
    assert not rig.sessions._awaited
    assert not rig.sessions._of_nodes


async def test_an_older_runner_and_one_that_is_away_are_said():
    with pytest.raises(Unavailable) as old:
        Rig(serves=False).sessions.offer("ada", "j1", "n1", KEY, SPEC)
    assert old.value.reason == "SessionsNotServed"
    with pytest.raises(Unavailable) as away:
        Rig().sessions.offer("ada", "j1", "n2", KEY, SPEC)
    assert away.value.reason == "NodeAway"


async def test_a_node_whose_token_is_no_longer_accepted_loses_its_sessions():
    class Closing(asyncio.Transport):
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    rig, transport = Rig(), Closing()
    ticket = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    redeeming = asyncio.create_task(rig.sessions.redeem(ticket.session, ticket.ticket, "ada"))
    await until(lambda: len(rig.channel.sent) == 1)
    rig.dial()
    (await redeeming).connection_made(transport)
    rig.links.sessions = rig.sessions
    rig.links.recheck()
    assert not transport.is_aborted
    rig.keys._token = "another"
    rig.links.recheck()
    assert transport.is_aborted


async def test_tickets_and_sessions_have_limits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TICKETS_PER_USER_MAX", 2)
    monkeypatch.setattr(module, "NODE_SESSIONS_MAX", 1)
    rig = Rig()
    first = rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    with pytest.raises(TooMany) as many:
        rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    assert many.value.reason == "TooManySessions"
    redeeming = asyncio.create_task(rig.sessions.redeem(first.session, first.ticket, "ada"))
    await until(lambda: len(rig.channel.sent) == 1)
    rig.dial()
    opened = await redeeming
    with pytest.raises(TooMany, match="n1"):
        rig.sessions.offer("bob", "j1", "n1", KEY, SPEC)
    opened.connection_lost(None)
    await until(lambda: not rig.sessions._of_nodes)
    rig.sessions.offer("bob", "j1", "n1", KEY, SPEC)


async def test_one_user_cannot_take_all_sessions_of_a_node(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "NODE_SESSIONS_PER_USER_MAX", 1)
    rig = Rig()
    tickets = [rig.sessions.offer("ada", "j1", "n1", KEY, SPEC) for _ in range(2)]
    redeeming = asyncio.create_task(rig.sessions.redeem(tickets[0].session, tickets[0].ticket, "ada"))
    await until(lambda: len(rig.channel.sent) == 1)
    rig.dial()
    opened = await redeeming
    with pytest.raises(TooMany, match="user ada has 1 sessions on node n1"):
        rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
    with pytest.raises(TooMany, match="user ada"):
        await rig.sessions.redeem(tickets[1].session, tickets[1].ticket, "ada")
    rig.sessions.offer("bob", "j1", "n1", KEY, SPEC)
    opened.connection_lost(None)
    await until(lambda: not rig.sessions._of_users_there)
    rig.sessions.offer("ada", "j1", "n1", KEY, SPEC)
