"""Work whose next try is known: a job that restarts, a gang that was recalled, a task in backoff.

It does not wait for a place yet, so no plan places it. What it will ask for follows from the state, and `plan` keeps
room for that from less urgent work, which would only be evicted again (`core/placement/reserve/retries.py`).
`ClusterState.returning` names the jobs that may have such work, with their priorities; which of them have some is
worked out here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Literal

from phalanx.core.cluster.units import Attempt, GangState, Gate, GroupState
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.waiting import Member, Part, Rank, Retry

if TYPE_CHECKING:
    from phalanx.core.cluster.jobs import JobState
    from phalanx.core.cluster.state import ClusterState

RETRIES_MAX = 32  # how many units one plan keeps room for, and how many tasks of one group
JOBS_MAX = 256  # how many jobs are looked at for that,
TASKS_MAX = 1024  # and how many tasks of each of their groups
_LAST = 2**62  # behind every arrival
_PASSING = frozenset({Gate.RESTART, Gate.BACKOFF, Gate.MEMBERS})  # gates that open by themselves


def is_returning(job: JobState) -> bool:
    """Whether some of a job may be about to be tried again."""
    return bool(job.restarting or job.hold_until or job.delayed or (job.recalls and job.live))


def retries(state: ClusterState, now: float, within_s: float) -> list[Retry]:
    """Units that are to be tried again within so many seconds while less urgent work waits, in order of rank."""
    if not state.returning or not len(state.waiting):
        return []
    last = max(kind.ranks[-1][0] for kind in state.waiting.classes.values())
    age = now / state.rules.aging_s if state.rules.aging_s else 0.0
    if age - max(state.returning.values()) >= last:
        return []
    found: list[Retry] = []
    ahead = ((id, priority) for id, priority in state.returning.items() if age - priority < last)
    for id, priority in islice(ahead, JOBS_MAX):
        # Behind everybody of its own priority that waits by now, before everybody of a lower one.
        found += _of_job(state, state.jobs[id], (age - priority, _LAST, 0), now, within_s)
    return sorted(found, key=lambda each: (each.rank, each.unit.job.id))[:RETRIES_MAX]


def _of_job(state: ClusterState, job: JobState, rank: Rank, now: float, within_s: float) -> Iterator[Retry]:
    live = job.live.values() if job.gang is not None or job.restarts_whole else ()
    leaving = [each for each in live if each.ending in (Why.RESTARTED, Why.RECALLED)]
    ends = [_leaves_at(state, each) for each in leaving]
    if None in ends:
        return
    ready_at = max([job.hold_until, *(each for each in ends if each is not None)])
    if ready_at > now + within_s or (ready_at and ready_at + within_s < now):
        return
    if job.gang is not None:
        if _may_return(job.gang) and (unit := RetryGang(job.gang, leaving, rank)).is_whole:
            at = max([ready_at, *job.delayed.values()])
            if at <= now + within_s:
                yield Retry(unit, at, at + within_s)
        return
    for group in job.groups:
        if _PASSING.issuperset(group.closed_gates()):
            yield from _of_group(group, leaving, rank, ready_at, now + within_s, within_s)


def _may_return(gang: GangState) -> bool:
    """Whether nothing but time keeps a gang from being placed; one that waits for a place needs no room kept."""
    closed = gang.closed_gates()
    return bool(closed) and _PASSING.issuperset(closed)


def _leaves_at(state: ClusterState, attempt: Attempt) -> float | None:
    """When an attempt that was told to leave has left; None if its lane is shared with others that stay."""
    tenant = state.tenants.get((attempt.node, attempt.lane))
    return tenant.ends_at if tenant is not None and tenant.is_leaving else None


def _of_group(
    group: GroupState, leaving: list[Attempt], rank: Rank, ready_at: float, before: float, within_s: float
) -> Iterator[Retry]:
    """The tasks of a group that are in backoff, or all that it has left if its whole job pauses."""
    job = group.owner
    mine = [each.key[1] for each in leaving if each.group == group.number]
    delayed = (each for each in job.delayed if group.first <= each < group.last)
    held, chosen, instants = Counter(group.live), list[int](), list[float]()
    held.subtract(map(group.replica, mine))
    for position in islice((*mine, *_pending(group)) if job.is_held else delayed, TASKS_MAX):
        at, replica = max(ready_at, job.delayed.get(position, 0.0)), group.replica(position)
        is_full = 0 < group.group.at_once <= held[replica]
        if at > before or is_full or job.is_locked(position) or len(chosen) == RETRIES_MAX:
            continue
        held[replica] += 1
        chosen.append(position)
        instants.append(at)
    if chosen:
        yield Retry(RetryGroup(group, chosen, rank), min(instants), max(instants) + within_s)


class RetryGroup:
    """Tasks of a group as they will wait when their backoff is over."""

    is_gang: Literal[False] = False
    comes_back = False

    def __init__(self, group: GroupState, positions: list[int], rank: Rank) -> None:
        self.job, self.number, self.request = group.job, group.number, group.request
        self.kind, self.lanes, self.pool = group.kind, group.lanes, group.pool
        self.typical_run_s = group.typical_run_s
        self.rank = rank
        self._positions = positions

    def ready(self, most: int) -> Iterator[int]:
        return islice(self._positions, most)


class RetryGang:
    """A gang as it will wait when its pause is over and the attempts before have ended."""

    is_gang: Literal[True] = True
    may_hold_part = False

    def __init__(self, gang: GangState, leaving: list[Attempt], rank: Rank) -> None:
        self.job, self.rank, self.kind = gang.job, rank, gang.kind
        self.comes_back, self.is_surplus = gang.owner.satisfied, gang.is_surplus
        self._gang = gang
        self._leaving = leaving

    @property
    def is_whole(self) -> bool:
        """Whether it needs members, and has enough of them for a start."""
        wanted = self.wanted()
        return any(each.need for each in wanted) and all(each.need <= each.most for each in wanted)

    def wanted(self) -> tuple[Part, ...]:
        job, asks = self._gang.owner, []
        for group in job.groups:
            well = job.well_in(group) if job.satisfied else 0
            need = max(0, group.group.needed - group.staying - well)
            asks.append(Part(group.request, need, len(self.members(group.number))))
        return tuple(asks)

    def members(self, group: int) -> list[Member]:
        state = self._gang.owner.groups[group]
        indexes, first = state.group.indexes, state.first
        mine = {each.key[1] for each in self._leaving if each.group == group}
        mine.update(_pending(state))
        return sorted((indexes[each - first] if indexes else each, each) for each in mine)

    def bound(self) -> list[tuple[int, int]]:
        live = (each for each in self._gang.owner.live.values() if each not in self._leaving)
        return [(each.row, 1) for each in live]


def _pending(group: GroupState) -> Iterator[int]:
    """Positions of a group whose tasks are Pending, in order, those in backoff among them."""
    status = group.owner.status
    at = status.find(Status.PENDING, group.first, group.last)
    while at >= 0:
        yield at
        at = status.find(Status.PENDING, at + 1, group.last)
