"""The tables of moves match `apply`: nothing else happens, and everything in them does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from phalanx.coordinator import turn
from phalanx.coordinator.views_cluster import node_status
from phalanx.core.cluster.decision import Effect
from phalanx.core.cluster.events import (
    AttemptEnded,
    Event,
    JobAmended,
    JobSubmitted,
    NodeConnected,
    NodeDisconnected,
    NodeJoined,
    NodeLost,
    NodeQuarantined,
    NodeRemoved,
    RoomPromised,
    TaskPlaced,
    TasksCancelled,
)
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.explain.transitions import GANG_MOVES, NODE_MOVES, NONE, PROMISE_MOVES
from phalanx.core.model.job import IncompleteGang
from phalanx.core.model.orders import Exit, Status, Why
from phalanx.core.model.resources import Grant
from phalanx.sim.trial import run
from tests.support.builders import a_capacity, a_gang, a_group, a_job
from tests.transcripts.test_transcripts import FOLDER, play

SEEDS_LEAST, SEEDS_MOST = 6, 80  # until everything in the tables has been seen
TABLES = {"nodes": NODE_MOVES, "gangs": GANG_MOVES, "promises": PROMISE_MOVES}
Moves = set[tuple[str, str]]


def gang_phase(job: JobState) -> str:
    if job.is_over:
        return "Ended"
    if job.job.draft is not None:
        return "Draft"
    if job.forming is not None:
        return "Forming"
    return "Started" if job.satisfied else "Waiting"


def promise_phase(job: JobState) -> str:
    if job.promise is None:
        return NONE
    return "Leaving" if job.promise.victims else "Free"


class Watch:
    """Does what `apply` does, and records how nodes, gangs and promises moved."""

    def __init__(self) -> None:
        self.nodes: Moves = set()
        self.gangs: Moves = set()
        self.promises: Moves = set()

    def apply(self, state: ClusterState, event: Event) -> list[Effect]:
        nodes, gangs, promises = phases(state)
        effects = apply(state, event)
        for moves, before, after in zip(
            (self.nodes, self.gangs, self.promises), (nodes, gangs, promises), phases(state), strict=True
        ):
            pairs = {(before.get(name, NONE), after.get(name, NONE)) for name in before | after}
            moves |= {(old, new) for old, new in pairs if old != new}
        return effects


def phases(state: ClusterState) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    return (
        {name: node_status(node) for name, node in state.nodes.items()},
        {id: gang_phase(job) for id, job in state.jobs.items() if job.gang is not None},
        {id: promise_phase(state.jobs[id]) for id in state.promised},
    )


def rare_events() -> Iterator[Event]:
    """What few seeds produce: nodes that come back empty or are removed, gangs that come in pieces, and a promise of
    what another one held.
    """
    yield NodeJoined(at=1.0, cause="t", node="n1", incarnation="a", origin="o", capacity=a_capacity())
    yield NodeLost(at=2.0, cause="t", node="n1")
    yield NodeJoined(at=3.0, cause="t", node="n1", incarnation="b", origin="o", capacity=a_capacity())
    yield NodeLost(at=4.0, cause="t", node="n1")
    yield NodeRemoved(at=5.0, cause="t", node="n1")
    for cancelled in (False, True):
        gang = a_gang(a_group(2))
        yield JobSubmitted(at=6.0, cause="t", job=structs.replace(gang, draft=IncompleteGang("1 of 2")))
        if cancelled:
            yield TasksCancelled(at=7.0, cause="t", job=gang.id)
        else:
            yield JobAmended(at=7.0, cause="t", job=gang)
    yield from broken_quarantine()
    yield from promise_of_another()


def broken_quarantine() -> Iterator[Event]:
    """The connection of a node ends while an attempt was given up there."""
    yield NodeJoined(at=8.0, cause="t", node="n3", incarnation="a", origin="o", capacity=a_capacity())
    yield NodeQuarantined(at=8.0, cause="t", node="n3", key=("given up", 0, 1))
    yield NodeDisconnected(at=9.0, cause="t", node="n3")
    yield NodeConnected(at=10.0, cause="t", node="n3")


def promise_of_another() -> Iterator[Event]:
    """A task leaves a node for a job, and before that one starts a more urgent one is promised the place."""
    grant = Grant(8, 0)
    victim, first, urgent = a_job(), a_job(), a_job()
    yield NodeJoined(at=8.0, cause="t", node="n2", incarnation="a", origin="o", capacity=a_capacity())
    for job in (victim, first, urgent):
        yield JobSubmitted(at=8.0, cause="t", job=job)
    key = (victim.id, 0, 1)
    yield TaskPlaced(at=8.0, cause="t", key=key, node="n2", lane=1, grant=grant)
    promised = RoomPromised(
        at=9.0,
        cause="t",
        job=first.id,
        members=((0, "n2", grant),),
        victims=(key,),
        displaced=(),
        trigger=0,
        until=99.0,
    )
    yield promised
    yield AttemptEnded(at=10.0, cause="t", key=key, exit=Exit(Why.EVICTED), status=Status.PENDING)
    yield structs.replace(promised, at=11.0, job=urgent.id, victims=(), displaced=(first.id,))


@pytest.fixture(scope="module")
def seen() -> Watch:
    watch = Watch()
    state = ClusterState()
    for event in rare_events():
        watch.apply(state, event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn, "apply", watch.apply)
        for path in sorted(FOLDER.glob("*.txt")):
            play(path.read_text())
        for seed in range(SEEDS_MOST):
            if seed >= SEEDS_LEAST and all(
                set(table) <= getattr(watch, kind) for kind, table in TABLES.items()
            ):
                break
            assert run(seed).is_good
    return watch


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", TABLES)
def test_what_happens_is_what_the_table_says(seen: Watch, kind: str):
    table = TABLES[kind]
    happened: Moves = getattr(seen, kind)
    assert happened - set(table) == set(), "these happen and are not in the table"
    assert set(table) - happened == set(), "these are in the table and never happen"
