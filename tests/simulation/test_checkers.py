"""What checkers must not report: runs that only seemed to break a promise, and why."""

from __future__ import annotations

import pytest

from phalanx.core.cluster import events as e
from phalanx.core.cluster.events import BackoffsEnded
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.transitions import apply
from phalanx.link import wire
from phalanx.sim.fences import Fences
from phalanx.sim.replica import differences
from phalanx.sim.violation import Violation
from phalanx.store.protocol import Loaded
from tests.support.builders import Cluster, a_cluster, a_job


def braked() -> Fences:
    fences = Fences(lambda what: None)
    fences.note(e.BrakeSet(at=1.0, cause="silence", silent=3, nodes=3))
    return fences


def lost(generation: int = 1) -> e.NodeLost:
    return e.NodeLost(at=2.0, cause="lease over", node="n1", generation=generation)


def test_nobody_is_lost_while_the_brake_is_set():
    with pytest.raises(Violation, match="while the brake is set"):
        braked().note(lost())


def test_a_new_term_begins_without_a_brake():
    """Seed 3141595644: the brake was set in one term, and the next gave every node a whole lease."""
    fences = braked()
    fences.note(e.TermOpened(at=1.5, cause="coordinator c2", epoch=2))
    fences.note(lost())


def replaced(*seats: str) -> Fences:
    fences = Fences(lambda what: None)
    for epoch, seat in enumerate(seats, start=1):
        fences.term_opened(epoch, seat)
    return fences


@pytest.mark.parametrize("seats", [("s2", "s3"), ("s2", "s3", "s2"), ("s2", "s2", "s3", "s2")])
def test_a_coordinator_whose_lease_is_over_says_nothing(seats: tuple[str, ...]):
    epoch = seats.index("s3")  # the one before it
    with pytest.raises(Violation, match="while s3 holds"):
        replaced(*seats).sent("s2", wire.BeatAck(epoch, 0.0))


def test_a_coordinator_whose_lease_was_taken_while_it_ran_may_not_know_it_yet():
    """Seed 860006701: a second process of its seat led, retired at once, and another seat followed within 1 ms."""
    replaced("s2", "s2", "s3").sent("s2", wire.BeatAck(1, 0.0))


def a_cluster_in_backoff() -> Cluster:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(cores=1, max_retries=5)
    cluster.submit(job)
    for _ in range(2):
        cluster.ended("n1", cluster.state.jobs[job.id].live[0].key, 1)
    assert cluster.state.jobs[job.id].delayed
    return cluster


def test_a_backoff_that_a_faster_clock_has_seen_end_is_no_difference():
    """Seed 3141593629: an image left by a coordinator whose clock was ahead, compared with the log alone."""
    cluster = a_cluster_in_backoff()
    state, slow, fast = cluster.state, cluster.now, cluster.now + 10.0
    written = Loaded(encode_state(state), state.revision, [])
    assert differences(state, written, slow) == []
    apply(state, BackoffsEnded(at=fast))
    assert differences(state, written, slow) != []
    assert differences(state, written, slow, fast) == []
