"""Why jobs wait, counted: closed gates are asked of each job, lack of room of one job of each kind.

Those that ask for the same wait for the same reason (`core/model/waiting.py`), so the reason of the first of a kind
counts for all of it. Only so many kinds are asked; the rest is counted as waiting for room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from phalanx.api.schema.jobs import JobReason
from phalanx.api.schema.pages import WaitingReason
from phalanx.api.server.limits import TimeSlices
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Gate
from phalanx.core.model.orders import Status

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
    Gate.BACKOFF: ("RestartBackoff", "pausing before another try"),
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

    def of(self, job: JobState) -> str:
        """Nothing for a job of which something is placed, or of a kind that was not asked about."""
        if job.live or not job.counts[Status.PENDING]:
            return ""
        gates = job.closed_gates()
        return GATES[gates[0]][0] if gates else self.by_kind.get(job.units[0].kind, "")


async def count_waiting(
    state: ClusterState, slices: TimeSlices, ask: Ask, words: WaitingWords
) -> list[WaitingReason]:
    """Every job of which something waits and nothing runs, by why it does."""
    found = WaitingCount()
    kinds: dict[object, list[JobState]] = {}
    piece = await slices.turn()
    for job in list(state.jobs.values()):
        if piece.is_over:
            piece = await slices.turn()
        waiting = job.counts[Status.PENDING]
        if not waiting or job.live:
            continue
        gates = job.closed_gates()
        if gates:
            found.add(GATES[gates[0]], job.arrival, 1, waiting)
        else:
            unit = job.units[0]
            kinds.setdefault(unit.kind, []).append(job)
    by_kind: dict[object, str] = {}
    ordered = sorted(kinds.items(), key=lambda each: len(each[1]), reverse=True)
    said = await ask([alike[0].job.id for _, alike in ordered[:KINDS_ASKED]])
    reasons = {each.id: (each.reason.code, each.reason.text) for each in said}
    for kind, alike in ordered:
        reason = reasons.get(alike[0].job.id, ROOM)  # it may have ended meanwhile
        by_kind[kind] = reason[0]
        tasks = sum(job.counts[Status.PENDING] for job in alike)
        found.add(reason, alike[0].arrival, len(alike), tasks)
    words.by_kind = by_kind
    return found.told()
