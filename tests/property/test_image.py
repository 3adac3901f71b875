"""Images and records: what was written is what is read, and what cannot be read is skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.coordinator.restore import restore
from phalanx.coordinator.views import job_view, task_view
from phalanx.core.cluster.events import Event, JobSubmitted, NodeLost, TermOpened, decode, encode
from phalanx.core.cluster.image import decode_job, decode_state, encode_job, encode_state
from phalanx.core.cluster.inputs import Cancel, Tick
from phalanx.core.cluster.invariants import check
from phalanx.store.protocol import Batch, Loaded, LogHole
from tests.support.builders import Cluster, a_cluster, a_job

RunnerEffect = tuple[str, int, int]
words = st.sampled_from(("submit", "array", "start", "end", "fail", "cancel", "wait"))
effects = st.lists(st.tuples(words, st.integers(0, 9), st.integers(0, 9)), max_size=25)


def a_lived_in_cluster(effects: list[RunnerEffect]) -> Cluster:
    """Two nodes that have run some work."""
    cluster = a_cluster(n1={"cores": 3, "gpus": 2, "numa": 1}, n2={"cores": 2})
    for effect, which, what in effects:
        live = [attempt for job in cluster.state.jobs.values() for attempt in job.live.values()]
        attempt = live[which % len(live)] if live else None
        match effect:
            case "submit":
                cluster.submit(a_job(gpus=what % 2, priority=which, time_limit_s=9.5))
            case "array":
                cluster.submit(a_job(array=f"1-{what + 2}%{which + 1}", max_retries=what % 3))
            case "start" if attempt:
                cluster.started(attempt.node, attempt.key)
            case "end" if attempt:
                cluster.ended(attempt.node, attempt.key)
            case "fail" if attempt:
                cluster.ended(attempt.node, attempt.key, code=what + 1)
            case "cancel" if attempt:
                cluster.give(Cancel(attempt.key[0], attempt.key[1] if what % 2 else None))
            case "wait":
                cluster.now += what / 2
                cluster.give(Tick())
    return cluster


@given(effects)
def test_an_image_holds_the_whole_state(effects: list[RunnerEffect]):
    state = a_lived_in_cluster(effects).state
    again = decode_state(encode_state(state), state.rules)
    assert encode_state(again) == encode_state(state)
    assert check(again) == []
    assert (again.counts, again.job_ids, len(again.waiting)) == (
        state.counts,
        state.job_ids,
        len(state.waiting),
    )


@given(effects)
def test_a_job_looks_the_same_out_of_the_history(effects: list[RunnerEffect]):
    state = a_lived_in_cluster(effects).state
    for job in state.jobs.values():
        if job.live or job.promise is not None:  # such a job does not leave memory
            continue
        again = decode_job(encode_job(job))
        assert job_view(state, again) == job_view(state, job)
        for position in range(job.job.tasks):
            assert task_view(state, again, position) == task_view(state, job, position)


# An empty batch can be read: it says nothing.
@given(st.binary(max_size=60).filter(lambda body: body != encode([])))
def test_a_record_that_cannot_be_read_is_a_hole(body: bytes):
    good: list[Event] = [TermOpened(at=1.0, epoch=3), JobSubmitted(at=2.0, job=a_job())]
    with pytest.raises(LogHole):
        restore(Loaded(None, 0, [Batch(2, encode(good)), Batch(7, body)]), a_cluster().state.rules)


@given(st.floats(0, 1e12), st.text(max_size=20))
def test_events_come_back_as_they_were(at: float, cause: str):
    events: list[Event] = [
        NodeLost(at=at, cause=cause, node="n1"),
        JobSubmitted(at=at, job=a_job("n1:0::1", array="1-9%2")),
    ]
    assert decode(encode(events)) == events
