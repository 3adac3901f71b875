"""Runners are told with their next heartbeat which jobs have ended, as far as they were sent the briefs of those."""

from __future__ import annotations

from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.link import Links, RunnerSession
from phalanx.core.cluster.decision import Accepted
from phalanx.core.model.orders import Brief, Dismiss, Order, Phase
from phalanx.link import wire
from tests.support.builders import Cluster, a_capacity, a_job
from tests.support.recording_connection import RecordingConnection


class Told:
    """Two nodes with their connections, and two jobs of which each node runs one."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.links = Links(lambda: self.cluster.state, Credentials.local("user-token", "node-token"))
        self.sessions = {name: self._joined(name) for name in ("n1", "n2")}
        for id, node in (("j1", "n1"), ("j2", "n2")):
            self.cluster.submit(a_job(node, id=id))
            self.links.dispatch(self.cluster.turns[-1].effects)

    def _joined(self, name: str) -> RunnerSession:
        self.cluster.add_node(name)
        session = RunnerSession(RecordingConnection())
        session.node, session.incarnation = name, "a"
        self.links.sessions[name] = session
        return session

    def dismissed(self, node: str) -> list[Order]:
        return self.sessions[node].dismissed


def test_only_the_runners_that_were_sent_the_brief_are_told_of_the_end() -> None:
    told = Told()
    told.links.forget("j1")
    assert (told.dismissed("n1"), told.dismissed("n2")) == ([Dismiss("j1")], [])
    told.links.forget("j1")
    told.links.forget("j2")
    assert (told.dismissed("n1"), told.dismissed("n2")) == ([Dismiss("j1")], [Dismiss("j2")])


def test_a_runner_that_connected_anew_is_told_once_it_was_sent_the_brief_again() -> None:
    told = Told()
    told.links.closed(told.sessions["n1"])
    connection = RecordingConnection()
    session = RunnerSession(connection)
    held = [(("j1", 0, 1), Phase.RUNNING)]
    hello = wire.HelloMessage(wire.VERSION, "node-token", "n1", "a", "o", a_capacity(), 0, held)
    envelope = told.links.receive(session, hello)
    assert envelope is not None
    envelope[1]([Accepted()])
    orders = connection.sent[-1]
    assert isinstance(orders, wire.Orders)
    assert [order.job for order in orders.orders if isinstance(order, Brief)] == ["j1"]
    told.links.forget("j1")
    assert session.dismissed == [Dismiss("j1")]
