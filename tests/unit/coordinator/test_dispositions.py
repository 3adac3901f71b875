"""What the coordinator answers to reports: to all but those of members that are ready, whose answer is to go."""

from __future__ import annotations

import pytest

from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.link import Links, RunnerSession
from phalanx.core.cluster.decision import Disposed
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Disposition, Ready, Report, Returned, Started
from phalanx.link import wire
from tests.support.recording_connection import RecordingConnection

KEY = ("01kx0000000000000000000001", 0, 1)
GONE = wire.Dispositions(0, [(KEY, Disposition.ACCEPTED)])
IN_FORCE = wire.Dispositions(0, [])


@pytest.mark.parametrize(
    ("reports", "disposition", "said"),
    [
        ([Ready(KEY)], Disposition.ACCEPTED, []),
        ([Ready(KEY)], Disposition.STALE_EPOCH, [IN_FORCE]),
        ([Started(KEY, 1.0)], Disposition.ACCEPTED, [IN_FORCE]),
        ([Returned(KEY)], Disposition.ACCEPTED, [GONE]),
        ([Ready(KEY), Returned(KEY)], Disposition.ACCEPTED, [GONE]),
    ],
)
def test_a_report_is_answered(reports: list[Report], disposition: Disposition, said: list[wire.Message]):
    state = ClusterState()
    links, connection = (
        Links(lambda: state, Credentials.local("user-token", "node-token")),
        RecordingConnection(),
    )
    envelope = links.receive(RunnerSession(connection), wire.Reports(0, reports))
    assert envelope is not None
    envelope[1]([Disposed(KEY, disposition, 0) for _ in reports])
    assert connection.sent == said and not connection.is_closed
