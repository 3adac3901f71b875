"""Why jobs wait, counted: closed gates are asked of each job, lack of room of one job of each kind.

Of a job of which a part runs it is the rest that waits (`coordinator/waiting_jobs.py` says which jobs wait).

Those that ask for the same wait for the same reason (`core/model/waiting.py`), so the reason of the first of a kind
counts for all of it. Only so many kinds are asked; the rest is counted as waiting for room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from phalanx.api.schema.jobs import JobReason
from phalanx.api.schema.pages import WaitingReason
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.waiting_jobs import first_waiting, waiting_tasks
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, Gate, GroupState
from phalanx.core.explain.gates import closed_gates

KINDS_ASKED = 12
REASONS_MAX = 30
GATES: dict[Gate, tuple[str, str]] = {
    Gate.HELD: ("Held", "held until they are released"),
    Gate.APPROVAL: ("WaitingApproval", "waiting for an approval"),
    Gate.BEGIN: ("BeginTime", "their time has not come"),
    Gate.APPLIED: ("GangIncomplete", "gangs whose members have not all been applied"),
    Gate.DEPENDENCY: ("WaitingDependency", "waiting for other jobs"),
    Gate.MERGED: ("Merged", "running as a part of another job"),
    Gate.PROMISE: ("WaitingVictims", "their places are promised, and are being left"),
    Gate.RESTART: ("Restarting", "their previous run is still ending"),
    Gate.RETRY: ("RetryBackoff", "pausing before they are retried"),
    Gate.BACKOFF: ("RestartBackoff", "pausing before another try"),
    Gate.AFTER: ("WaitingDependency", "waiting for another group of their job"),
    Gate.LIMIT: ("ArrayLimit", "their array runs as many tasks as it may at once"),
    Gate.BARRIER: ("BarrierWait", "members wait for the rest of their gang"),
    Gate.MEMBERS: ("GangIncomplete", "too few members of their gang can be placed"),
}
ROOM = ("WaitingCapacity", "waiting for room")
Ask = Callable[[Sequence[str]], Awaitable[list[JobReason]]]


class WaitingCount:
    """Jobs and tasks by reason, with a job as an example."""

    def __init__(self) -> None:
        self.jobs: Counter[tuple[str, str]] = Counter()
        self.tasks: Counter[tuple[str, str]] = Counter()
        self.example: dict[tuple[str, str], int] = {}

    def add(self, reason: tuple[str, str], number: int, jobs: int, tasks: int) -> None:
        self.jobs[reason] += jobs
        self.tasks[reason] += tasks
        self.example.setdefault(reason, number)

    def told(self) -> list[WaitingReason]:
        """The reason of most jobs first."""
        return [
            WaitingReason(code, text, jobs, self.tasks[code, text], self.example[code, text])
            for (code, text), jobs in self.jobs.most_common(REASONS_MAX)
        ]


class WaitingWords:
    """The code of the reason that a job waits for, as far as it was found when the jobs were counted last."""

    def __init__(self) -> None:
        self.by_kind: dict[object, str] = {}
        self.version = 0

    def note(self, by_kind: dict[object, str]) -> None:
        """What another count has found."""
        self.by_kind = by_kind
        self.version += 1

    def of(self, job: JobState) -> str:
        """Nothing for a job that does not wait, or of a kind that was not asked about."""
        if not waiting_tasks(job):
            return ""
        gate = _first_gate(job)
        return GATES[gate][0] if gate else self.by_kind.get(_unit(job).kind, "")


def _unit(job: JobState) -> GroupState | GangState:
    """What of a job waits, the first of its groups that does."""
    return job.group_of(first_waiting(job)) if job.gang is None else job.gang


def _first_gate(job: JobState) -> Gate | None:
    return next(iter(closed_gates(job, first_waiting(job))), None)


async def count_waiting(
    state: ClusterState, slices: TimeSlices, ask: Ask, words: WaitingWords
) -> list[WaitingReason]:
    """Every job that waits, by why it does."""
    found = WaitingCount()
    kinds: dict[object, list[JobState]] = {}
    piece = await slices.turn()
    for job in list(state.jobs.values()):
        if piece.is_over:
            piece = await slices.turn()
        waiting = waiting_tasks(job)
        if not waiting:
            continue
        gate = _first_gate(job)
        if gate:
            found.add(GATES[gate], job.arrival, 1, waiting)
        else:
            kinds.setdefault(_unit(job).kind, []).append(job)
    by_kind: dict[object, str] = {}
    ordered = sorted(kinds.items(), key=lambda each: len(each[1]), reverse=True)
    said = await ask([alike[0].job.id for _, alike in ordered[:KINDS_ASKED]])
    reasons = {each.id: (each.reason.code, each.reason.text) for each in said}
    for kind, alike in ordered:
        reason = reasons.get(alike[0].job.id, ROOM)  # it may have ended meanwhile
        by_kind[kind] = reason[0]
        tasks = sum(map(waiting_tasks, alike))
        found.add(reason, alike[0].arrival, len(alike), tasks)
    words.note(by_kind)
    return found.told()
