"""Mistakes that the simulator found in our own code, too rare to be found again in a few seeds: tested directly."""

from __future__ import annotations

import pytest

from phalanx.coordinator.link import Links, RunnerSession
from phalanx.coordinator.link_auth import SharedToken
from phalanx.coordinator.restore import read_back
from phalanx.core.cluster.events import NodeHeard, TermOpened, encode
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Disconnect, Hello, Submit, Tick
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import Start
from phalanx.link import wire
from phalanx.store.protocol import Batch, Fenced, Loaded
from tests.support.builders import a_capacity, a_cluster, a_job


class Kept:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[wire.Message] = []

    def send(self, messages: list[wire.Message]) -> None:
        self.messages += messages

    def close(self) -> None:
        """The other end is closed."""

    def starts(self) -> list[int]:
        """The numbers of the attempts that are to be started."""
        orders = [order for each in self.messages if isinstance(each, wire.Orders) for order in each.orders]
        return [order.key[2] for order in orders if isinstance(order, Start)]


def test_an_attempt_that_ends_in_the_turn_that_placed_it_is_never_started():
    """The coordinator hung; a job for a node and the node's new incarnation came in meanwhile, in one turn."""
    cluster = a_cluster(n1={})
    links, connection = Links(lambda: cluster.state, SharedToken()), Kept()
    links.sessions["n1"] = RunnerSession(connection)
    cluster.give(Submit(a_job("n1"), no_queue=True), Hello("n1", "b", "origin-n1", a_capacity(), []))
    links.dispatch(cluster.turns[-1].effects)
    assert connection.starts() == [2]


def test_a_lease_outlives_a_state_that_was_read_back():
    """Heartbeats are not in the log, so a node that is away for a moment must not look long silent."""
    cluster = a_cluster(n1={})
    remembered = Loaded(encode_state(cluster.state), cluster.state.revision, [])
    apply(cluster.state, NodeHeard(at=cluster.now + 99.0, node="n1"))
    cluster.give(Disconnect("n1", "a"))
    state = cluster.engine.state = read_back(cluster.state, remembered, cluster.now + 100.0)
    assert not state.nodes["n1"].connected
    cluster.now += 101.0
    cluster.give(Tick())
    assert not state.nodes["n1"].lost


def test_a_state_read_back_with_another_epoch_ends_the_term():
    cluster = a_cluster(n1={})
    opened = encode([TermOpened(at=1.0, epoch=2)])
    with pytest.raises(Fenced):
        read_back(cluster.state, Loaded(None, 0, [Batch(1, opened)]), 1.0)
