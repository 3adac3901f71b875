"""What the coordinator answers to reports: something to what the runner keeps, nothing where that says nothing."""

from __future__ import annotations

import pytest

from phalanx.api import wire
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.links import Links, Session
from phalanx.core.cluster.decision import Disposed
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Disposition, Ready, Report, Returned

KEY = ("01kx0000000000000000000001", 0, 1)


class Kept:
    """A connection that keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[wire.Message] = []

    def send(self, messages: list[wire.Message]) -> None:
        self.sent += messages

    def close(self) -> None:
        raise AssertionError("nobody was to be hung up on")


@pytest.mark.parametrize(
    ("report", "disposition", "said"),
    [
        (Ready(KEY), Disposition.ACCEPTED, []),
        (Ready(KEY), Disposition.STALE_EPOCH, [wire.Dispositions(0, [])]),
        (Returned(KEY), Disposition.ACCEPTED, [wire.Dispositions(0, [(KEY, Disposition.ACCEPTED)])]),
    ],
)
def test_a_report_is_answered_if_the_answer_says_something(
    report: Report, disposition: Disposition, said: list[wire.Message]
):
    state = ClusterState()
    links, connection = Links(lambda: state, Credentials.local("user-token", "node-token")), Kept()
    letter = links.receive(Session(connection), wire.Reports(0, [report]))
    assert letter is not None
    letter[1]([Disposed(KEY, disposition, 0)])
    assert connection.sent == said
