"""The link port checks a node's credential at hello and again later, on the control and the log connection."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.api.server.auth import digest, fingerprint
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.link import Links, RunnerSession
from phalanx.coordinator.logs import LogLinks, WantedLog
from phalanx.core.cluster.inputs import CreateCredential, Input, RevokeCredential
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.model.credential import Credential
from phalanx.core.model.resources import Capacity
from phalanx.link import wire
from tests.support.builders import a_cluster, a_job
from tests.support.clocks import ManualClock
from tests.support.recording_connection import RecordingConnection

KEY = ("01kx0000000000000000000001", 0, 1)


class Port:
    """Links and log links over a state that decides at once."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.keys = Credentials.local("user-token", "node-token")
        self.keys._clock = ManualClock()
        self.keys.follow(lambda: self.state)
        self.links = Links(lambda: self.state, self.keys)
        self.log_links = LogLinks(self.keys)

    def do(self, given: list[Input]) -> list[object]:
        answers: list[object] = []
        for each in given:
            decision = decide(self.state, each, 1000.0)
            for event in decision.events:
                apply(self.state, event)
            answers.append(decision.answer)
        return answers

    def join_token(self, token: str) -> None:
        record = Credential(fingerprint(token), "join", digest(token), 1000.0, expires_at=2000.0)
        self.do([CreateCredential(record)])

    def dials(
        self, token: str, node: str = "n1", origin: str = "o1", peer: str | None = None
    ) -> tuple[RecordingConnection, RunnerSession]:
        connection = RecordingConnection()
        session = RunnerSession(connection)
        session.peer_name = peer
        hello = wire.HelloMessage(
            wire.VERSION, token, node, f"life of {origin}", origin, Capacity(4, 1 << 30), 0, []
        )
        envelope = self.links.receive(session, hello)
        if envelope is not None:
            inputs, reply = envelope
            assert connection.sent == []  # nothing is sent before it is durable
            reply(self.do(inputs))  # type: ignore[arg-type]
        return connection, session

    def opens_a_log_link(self, token: str, node: str = "n1") -> RecordingConnection:
        log_link = RecordingConnection()
        self.log_links.opened(log_link, wire.LogHello(wire.VERSION, token, node, "life"))
        return log_link


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://10.0.0.1:7433", "http://10.0.0.1:7433"),
        ("https://c1:7433", "https://c1:7433"),
        ("http://0.0.0.0:7433", ""),
        ("http://[::]:7433", ""),
        ("", ""),
    ],
)
def test_tasks_get_the_address_of_their_coordinator_unless_it_is_of_no_use_elsewhere(address: str, told: str):
    cluster, job = a_cluster(), a_job()
    cluster.submit(job)
    links = Links(lambda: cluster.state, Credentials.local("user-token", "node-token"), address)
    assert links._brief(job, 0).address == told


def welcome(connection: RecordingConnection) -> wire.Welcome:
    found = connection.sent[0]
    assert isinstance(found, wire.Welcome), found
    return found


def refusal(connection: RecordingConnection) -> str:
    found = connection.sent[0]
    assert isinstance(found, wire.Rejected), found
    assert connection.is_closed
    return found.message


def test_a_join_token_is_answered_with_a_credential_and_a_shared_token_is_not():
    port = Port()
    port.join_token("join")
    given = welcome(port.dials("join")[0]).credential
    assert given.startswith("phx_node_")
    assert welcome(port.dials(given)[0]).credential == ""
    assert welcome(port.dials("node-token", "n2", "o2")[0]).credential == ""


def test_the_same_runner_is_given_the_same_again_and_another_is_not():
    port = Port()
    port.join_token("join")
    first = welcome(port.dials("join")[0]).credential
    assert welcome(port.dials("join")[0]).credential == first
    assert "was used by node 'n1'" in refusal(port.dials("join", "n1", "o2")[0])
    assert "was used by node 'n1'" in refusal(port.dials("join", "n2", "o2")[0])


def test_two_runners_with_one_join_token_in_one_turn_are_not_both_let_in():
    port = Port()
    port.join_token("join")
    envelopes = []
    for node in ("n1", "n2"):
        session = RunnerSession(connection := RecordingConnection())
        hello = wire.HelloMessage(
            wire.VERSION, "join", node, "life", f"o-{node}", Capacity(4, 1 << 30), 0, []
        )
        envelopes.append((connection, port.links.receive(session, hello)))
    for _, envelope in envelopes:
        assert envelope is not None
        envelope[1](port.do(envelope[0]))  # type: ignore[arg-type]
    assert welcome(envelopes[0][0]).credential
    assert "was used by node 'n1'" in refusal(envelopes[1][0])
    assert list(port.state.nodes) == ["n1"]


@pytest.mark.parametrize(("peer", "is_in"), [("n1", True), ("n2", False), ("", False)])
def test_the_certificate_and_the_hello_name_one_node(peer: str, is_in: bool):
    connection, _ = Port().dials("node-token", peer=peer)
    assert isinstance(connection.sent[0], wire.Welcome) == is_in


def test_a_connection_and_a_road_end_when_their_credential_does():
    port = Port()
    port.join_token("join")
    given = welcome(port.dials("join")[0]).credential
    control, log_link = port.dials(given)[0], port.opens_a_log_link(given)
    other, other_road = port.dials("node-token", "n2", "o2")[0], port.opens_a_log_link("node-token", "n2")
    for recheck in (port.links.recheck, port.log_links.recheck):
        recheck()
    assert not any(each.is_closed for each in (control, log_link, other, other_road))
    port.do([RevokeCredential(fingerprint(given))])
    for recheck in (port.links.recheck, port.log_links.recheck):
        recheck()
    assert [each.is_closed for each in (control, log_link, other, other_road)] == [True, True, False, False]


def test_a_road_is_for_the_nodes_own_logs():
    port = Port()
    port.join_token("join")
    given = welcome(port.dials("join")[0]).credential
    assert "for node 'n1', not for 'n2'" in refusal(port.opens_a_log_link(given, "n2"))
    assert "first hello" in refusal(port.opens_a_log_link("join"))
    assert "cannot speak" not in refusal(port.opens_a_log_link("user-token"))
    assert port.opens_a_log_link(given).sent == []


@pytest.mark.anyio
async def test_what_another_road_says_of_a_log_is_not_believed():
    port = Port()
    log_link, stranger = port.opens_a_log_link("node-token", "n1"), port.opens_a_log_link("node-token", "n2")
    reading = port.log_links.read("n1", KEY, WantedLog("stdout"))
    first = asyncio.ensure_future(anext(reading))
    await log_link.heard.wait()
    asked = log_link.sent[0]
    assert isinstance(asked, wire.ReadLog)
    port.log_links.arrived(stranger, wire.LogData(asked.id, 0, b"forged", 6, True))
    port.log_links.arrived(log_link, wire.LogData(asked.id, 0, b"true", 4, True))
    assert (await first).data == b"true"
