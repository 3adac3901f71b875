"""Gates: what keeps work from being placed, whatever room there is.

A job, a group, a gang and a task have gates of their own; work may be placed when all of them are open. Groups and
gangs ask here whether they are ready, and `core/explain/gates.py` puts every closed gate into words, so that the
scheduler and its explanation cannot differ.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from phalanx.core.model.job import Job

if TYPE_CHECKING:
    from phalanx.core.cluster.units import GangState, GroupState


class Gate(Enum):
    """One thing that has to come first. The order is that in which closed gates are told."""

    HELD = auto()  # of a job: a person has to release it
    APPLIED = auto()  # of a job: not all members of the gang have been applied
    PROMISE = auto()  # of a job: its places are promised, and their holders are still leaving
    RESTART = auto()  # of a job: attempts of its previous run are still ending
    RETRY = auto()  # of a task: it failed, and its backoff runs
    BACKOFF = auto()  # of a job: it restarts, or its gang tries again, after a pause
    AFTER = auto()  # of a group: another group has to start or complete first
    LIMIT = auto()  # of a task: its array runs as many tasks as it may
    BARRIER = auto()  # of a gang: its members hold places and wait for each other
    MEMBERS = auto()  # of a gang: too few of its members can be placed, or none is left to place


class GatedJob(Protocol):
    """What the gates of a job look at."""

    job: Job
    held_because: str
    restarting: bool
    hold_until: float

    @property
    def promise(self) -> object | None: ...


def of_job(job: GatedJob) -> list[Gate]:
    """The closed gates of a whole job; none: nothing about the job itself keeps it from being placed."""
    closed = []
    if job.held_because:
        closed.append(Gate.HELD)
    if job.job.draft is not None:
        closed.append(Gate.APPLIED)
    if job.promise is not None:
        closed.append(Gate.PROMISE)
    if job.restarting:
        closed.append(Gate.RESTART)
    if job.hold_until > 0.0:
        closed.append(Gate.BACKOFF)
    return closed


def of_group(group: GroupState) -> list[Gate]:
    """The closed gates of a group whose tasks are placed one by one, those of its job included."""
    closed = of_job(group.owner)
    if not group.may_begin:
        closed.append(Gate.AFTER)
    return closed


def of_gang(gang: GangState) -> list[Gate]:
    """The closed gates of a gang, those of its job included; with one closed its members are not counted."""
    closed = of_job(gang.owner)
    if gang.waits_at_barrier:
        closed.append(Gate.BARRIER)
    elif not closed and not gang.has_members:
        closed.append(Gate.MEMBERS)
    return closed


def of_task(group: GroupState, position: int) -> list[Gate]:
    """The closed gates of one task alone."""
    closed = [Gate.RETRY] if position in group.owner.delayed else []
    return [*closed, Gate.LIMIT] if group.is_full(position) else closed
