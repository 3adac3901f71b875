"""Lanes: one grant on a node, opened by a placement and held until its last attempt has ended; and who may share one.

Short tasks may be queued behind each other in a lane, so that the node need not wait for the coordinator between them.
They run one at a time, so nothing is ever given out twice. Tasks of one group share lanes; so do stages of workflows
that are of one kind (`lane_kind`), through a `LanePool` that knows their lanes and how long such stages take.
"""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Grant

SAMPLES_MIN = 4  # so many ends, before anything is said about how long tasks take
POOLS_MAX = 1000
LaneKey = tuple[str, int]  # (node, lane)


class Lane:
    """Attempts in the order in which they run; the first is the one that holds the grant now."""

    __slots__ = ("attempts", "grant", "id", "is_slow", "listed_in", "node")

    def __init__(
        self, id: int, node: str, grant: Grant, listed_in: dict[LaneKey, Lane] | None = None
    ) -> None:
        self.id = id
        self.node = node
        self.grant = grant
        self.attempts: dict[AttemptKey, None] = {}  # a dict keeps order and finds quickly
        self.is_slow = (
            False  # its runner gave back what was queued, or it has to be left: nothing more is queued
        )
        self.listed_in = (
            {} if listed_in is None else listed_in
        )  # lanes of the same group, or of the same pool
        self.listed_in[node, id] = self

    def __len__(self) -> int:
        return len(self.attempts)

    def close(self) -> None:
        """Its last attempt has ended."""
        del self.listed_in[self.node, self.id]


def lane_kind(job: Job) -> Hashable | None:
    """What jobs have in common that may share lanes; None if a job shares with no other.

    Whoever is queued in a lane gets its grant and its node, and is evicted with it: so all that decides about those has
    to be equal. The program is part of it because the run time of one program says little about that of another.
    """
    if job.workflow is None or job.gang is not None or job.tasks != 1:
        return None
    group, asked = job.groups[0], job.dispatch
    if group.request.wants_address or group.command.image:
        return None
    if asked is not None and asked.merge_key:  # it would rather wait and run as one with others
        return None
    how = (
        None if asked is None else (asked.mode, asked.task_type, asked.context, asked.sticky, asked.selection)
    )
    return (
        job.user, job.queue, group.request, job.priority, job.evictable, job.min_run_s, job.time_limit_s,
        group.command.argv[:1], how,
    )  # fmt: skip


def averaged(before_s: float, samples: int, run_s: float) -> float:
    """The typical run time after one more end: an average that forgets."""
    weight = 0.25 if samples >= SAMPLES_MIN else 1.0 / (samples + 1)
    return before_s + weight * (max(run_s, 0.0) - before_s)


class LanePool:
    """The lanes of jobs of one kind, and how long their tasks have been running of late."""

    __slots__ = ("lanes", "run_s", "samples")

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self.run_s = 0.0
        self.samples = 0

    @property
    def typical_run_s(self) -> float | None:
        return self.run_s if self.samples >= SAMPLES_MIN else None

    def learn(self, run_s: float) -> None:
        self.run_s = averaged(self.run_s, self.samples, run_s)
        self.samples += 1


class LanePools:
    """Pools by kind, at most `POOLS_MAX`: beyond that, those without lanes that were not asked for longest are dropped.

    They are not kept in images: how long stages take is learned again from the jobs in memory.
    """

    def __init__(self) -> None:
        self._pools: dict[Hashable, LanePool] = {}

    def __len__(self) -> int:
        return len(self._pools)

    def of(self, job: Job) -> LanePool | None:
        """The pool that a job shares lanes in; None if it shares with no other."""
        kind = lane_kind(job)
        if kind is None:
            return None
        pool = self._pools.pop(kind, None)
        if pool is None:
            pool = LanePool()
            if len(self._pools) >= POOLS_MAX:
                idle = next((each for each, other in self._pools.items() if not other.lanes), None)
                self._pools.pop(idle, None)
        self._pools[kind] = pool  # at the end: it was asked for last
        return pool
