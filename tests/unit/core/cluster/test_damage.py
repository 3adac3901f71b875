"""What is left when a record is missing is consistent: a repair may continue from it. A start does not."""

from __future__ import annotations

import pytest

from phalanx.coordinator.restore import restore
from phalanx.core.cluster.events import (
    AttemptEnded,
    Event,
    JobForgotten,
    JobSubmitted,
    NodeJoined,
    TaskPlaced,
    encode,
)
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.orders import Exit, Status, Why
from phalanx.core.model.resources import Grant
from phalanx.store.protocol import Batch, Loaded, LogHole
from tests.support.builders import a_capacity, a_job

JOB = a_job()
OTHER = a_job()
WHOLE = Grant(4, 0)


def joined() -> Event:
    return NodeJoined(at=1.0, node="n1", incarnation="a", origin="o", capacity=a_capacity(cores=4))


def submitted(job: object = JOB) -> Event:
    return JobSubmitted(at=2.0, job=job)  # type: ignore[arg-type]


def placed(number: int, job: str = JOB.id, lane: int = 1) -> Event:
    return TaskPlaced(at=3.0, key=(job, 0, number), node="n1", lane=lane, grant=WHOLE)


def completed(number: int, job: str = JOB.id) -> Event:
    return AttemptEnded(at=4.0, key=(job, 0, number), exit=Exit(Why.NONE, 0), status=Status.COMPLETED)


def after(*events: Event) -> ClusterState:
    """The state that a log of these events gives, one record each."""
    batches = [Batch(revision, encode([event])) for revision, event in enumerate(events, start=1)]
    state = restore(Loaded(None, 0, batches), Timers())
    assert check(state) == []
    return state


def test_without_the_end_of_an_attempt_the_next_one_takes_its_place() -> None:
    state = after(joined(), submitted(), placed(1), placed(2, lane=2))
    assert [attempt.key[2] for attempt in state.jobs[JOB.id].live.values()] == [2]
    assert state.table.ledgers[0].cores_free == 0


def test_without_the_end_of_another_task_there_is_no_room_but_the_number_is_used_up() -> None:
    state = after(joined(), submitted(OTHER), submitted(), placed(1, OTHER.id), placed(1, lane=2))
    assert state.jobs[JOB.id].status[0] == Status.PENDING
    assert state.jobs[JOB.id].attempts[0] == 1
    assert state.skipped == 1


def test_without_its_submission_nothing_of_a_job_is_known() -> None:
    state = after(joined(), placed(1), completed(1), JobForgotten(at=5.0, job=JOB.id))
    assert state.jobs == {}
    assert state.skipped == 3


def test_without_its_node_a_placement_is_passed_over() -> None:
    state = after(submitted(), placed(1), completed(1))
    assert state.jobs[JOB.id].status[0] == Status.PENDING
    assert state.jobs[JOB.id].groups[0] in state.waiting


def test_a_job_that_left_memory_leaves_even_if_it_seems_alive() -> None:
    state = after(joined(), submitted(), placed(1), JobForgotten(at=5.0, job=JOB.id))
    assert state.jobs == {}
    assert state.nodes["n1"].attempts == {}
    assert state.table.ledgers[0].is_empty
    assert len(state.waiting) == 0


def test_a_record_that_cannot_be_read_stops_everything() -> None:
    good = Batch(2, encode([joined(), submitted(OTHER)]))
    with pytest.raises(LogHole, match="from revision 3 to 9") as found:
        restore(Loaded(None, 0, [good, Batch(9, b"\x93from the future")]), Timers())
    assert found.value.jobs == (OTHER.id,), "it may be about whoever has not ended"
