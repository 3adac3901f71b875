"""What has happened to one job: a few bytes per task, and more only for what is alive.

A million tasks of an array are a handful of byte columns; a task that waits for the first time costs nothing
beyond its place in them. Attempts that hold a grant are objects in `live`; who waits is kept by group, or for the
whole job if it is a gang.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from phalanx.core.cluster.conditions import Condition
from phalanx.core.cluster.ranking import urgency_of
from phalanx.core.cluster.units import Attempt, Formation, GangState, Gate, GroupState, Promise
from phalanx.core.cluster.usage import JobUsage
from phalanx.core.model.job import Job, JobId, job_bytes
from phalanx.core.model.orders import STATUSES, AttemptKey, Exit, Status, Why

PENDING, ASSIGNED, RUNNING = Status.PENDING, Status.ASSIGNED, Status.RUNNING
COMPLETED, FAILED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED

# The legal moves of a task. Completed, Failed and Cancelled never change again; and a task holds a grant exactly as
# long as one of its attempts is alive on some node, whatever its status says.
MOVES: dict[tuple[Status, Status], str] = {
    (PENDING, ASSIGNED): "a plan gave it a node and a grant",
    (PENDING, CANCELLED): "the user cancelled it, or what it was to start after ended otherwise",
    (PENDING, FAILED): "the job or the task that it was to start after failed",
    (ASSIGNED, RUNNING): "the runner confirmed the start",
    (ASSIGNED, PENDING): "the attempt failed with retries left, or its runner lost or returned it",
    (ASSIGNED, COMPLETED): "it ran and ended with code 0 before its start was reported",
    (ASSIGNED, FAILED): "the runner could not start it, or it failed with no retry left",
    (ASSIGNED, CANCELLED): "the user cancelled it; the runner gets an order never to start it",
    (RUNNING, PENDING): "the attempt failed with retries left, or its node was lost",
    (RUNNING, COMPLETED): "the process ended with code 0",
    (RUNNING, FAILED): "the process failed and no retry is left",
    (RUNNING, CANCELLED): "the user cancelled it; the runner gets an order to stop it",
}
NO_CODE = -32_768
DETAILS_MAX = 1000  # how many failed tasks of a job keep their message in memory, and their former nodes
RESULTS_BYTES_MAX = 16 << 20  # of all tasks of a job
KEPT_RESULT_BYTES = 128  # what the digest of one in the place for files counts
EARLIER_MAX = 20  # how many attempts of a task before the last, the newest; the story knows the others
_OWN_ENDS = (Why.NONE, Why.EXITED)  # one that was stopped says nothing about how long others take


class IllegalMove(AssertionError):
    """A move that is not in the table: a defect of ours."""


class JobState:
    """A job and its tasks' columns, by position."""

    __slots__ = (
        "approve_by", "attempts", "awaits", "begins_at", "by_task", "cancelled_by", "charged", "code", "conditions",
        "counts", "delayed", "details", "done", "earlier", "ended_at", "first_code", "first_started_at", "firsts",
        "formations", "forming", "gang", "groups", "held_because", "held_by", "hold_until", "job", "kept_results",
        "live", "losses", "merged_into", "nodes", "outcome", "promise", "recalls", "restarting", "restarts",
        "result_bytes", "results", "satisfied", "setbacks", "size_bytes", "status", "times", "totals", "usage", "why",
    )  # fmt: skip

    def __init__(
        self,
        job: Job,
        arrival: int,
        totals: list[int],
        incomplete: set[JobId] | None = None,
        aging_s: float = 0.0,
    ) -> None:
        size = job.tasks
        self.job = job
        self.size_bytes = job_bytes(job)  # as it was submitted
        self.by_task = any(after.each for after in job.after)  # its tasks wait for others one by one
        self.totals = totals  # the counts over all jobs, which this one keeps up to date
        self.status = bytearray(size)
        self.why = bytearray(size)
        self.attempts = array("H", bytes(2 * size))
        self.code = array("h", [NO_CODE]) * size
        self.counts = [size, 0, 0, 0, 0, 0]
        self._begin()
        self.begins_at = job.begin_at  # nothing is placed before this; 0: nothing or the time has come
        self.firsts = list(accumulate((group.tasks for group in job.groups[:-1]), initial=0))
        urgency = urgency_of(job, aging_s)
        self.groups = [
            GroupState(self, number, first, (urgency, arrival, number))
            for number, first in enumerate(self.firsts)
        ]
        self.gang: GangState | None = None
        if job.gang is not None:
            rank = (urgency, arrival, 0)
            self.gang = GangState(self, job.gang, rank, set() if incomplete is None else incomplete)

    def _begin(self) -> None:
        """Nothing has happened yet."""
        self.times: array[float] | None = None  # started and ended, two numbers per task, once one has run
        self.nodes: array[int] | None = None  # number of the node that ran it last, plus 1
        self.earlier: dict[int, dict[int, int]] = {}  # the same of attempts before the last, by their numbers
        self.delayed: dict[int, float] = {}  # positions in backoff, and when they are ready
        self.charged: dict[int, int] = {}
        self.losses: dict[int, int] = {}
        self.live: dict[int, Attempt] = {}
        self.details: dict[int, tuple[str, str]] = {}  # message and last words on stderr
        self.results: dict[int, str] = {}  # what tasks gave, as JSON
        self.result_bytes = 0
        self.kept_results: dict[int, tuple[int, str]] = {}  # in the place for files: size and digest
        self.conditions: dict[int, Condition] = {}
        self.first_started_at: float | None = None
        self.ended_at: float | None = None
        self.first_code: int | None = None  # of the first task that failed
        self.outcome: Status | None = None  # of the job, where it is not the sum of its tasks
        self.usage = JobUsage()
        self.done: set[int] = set()  # ended with code 0, and Completed once the whole job is
        self.satisfied = False  # of a gang: it has started whole
        self.forming: Formation | None = None
        self.formations = 0  # tries of a gang to start whole
        self.recalls = 0  # how many of them failed in a row
        self.promise: Promise | None = None
        self.restarts = 0  # of the whole job, those that count against its limit
        self.setbacks = 0  # of the whole job, those that were nobody's doing
        self.restarting = False  # attempts of the life before are still ending
        self.hold_until = 0.0  # nothing is placed before this
        self.held_because = ""  # nothing is placed until somebody releases it, and why
        self.held_by = ""  # the user who holds it; empty: a repair of the store does
        self.approve_by: float | None = None  # it waits for an approval until then; 0: for ever
        self.cancelled_by: dict[int, str] = {}  # by position (`cancels.py`)
        self.awaits: set[JobId] = set()  # of the jobs that come first, those that have not come yet
        self.merged_into: AttemptKey | None = None  # it runs as a part of this attempt of another job

    @property
    def arrival(self) -> int:
        return self.groups[0].rank[1]

    @property
    def units(self) -> list[GroupState] | list[GangState]:
        """What waits: the gang as a whole, or each group."""
        return self.groups if self.gang is None else [self.gang]

    @property
    def is_over(self) -> bool:
        """True when every task has ended for good (attempts may still be stopping)."""
        counts = self.counts
        return not (counts[0] or counts[1] or counts[2])

    @property
    def has_started(self) -> bool:
        """Whether no task is left that has not started."""
        return not (self.counts[Status.PENDING] or self.counts[Status.ASSIGNED])

    @property
    def overall_status(self) -> Status:
        """The job as a whole: what is furthest on while it lives, the worst once it is over."""
        if self.outcome is not None and self.is_over:
            return self.outcome
        for status in (Status.RUNNING, Status.ASSIGNED, Status.PENDING, Status.FAILED, Status.CANCELLED):
            if self.counts[status]:
                return status
        return Status.COMPLETED

    @property
    def is_held(self) -> bool:
        """True while nothing of it may be placed."""
        return bool(self.closed_gates())

    def closed_gates(self) -> list[Gate]:
        """The closed gates of a whole job; none: nothing about the job itself keeps it from being placed."""
        closed = []
        if self.held_because:
            closed.append(Gate.HELD)
        if self.approve_by is not None:
            closed.append(Gate.APPROVAL)
        if self.begins_at > 0.0:
            closed.append(Gate.BEGIN)
        if self.job.draft is not None:
            closed.append(Gate.APPLIED)
        if self.awaits:
            closed.append(Gate.DEPENDENCY)
        if self.merged_into is not None:
            closed.append(Gate.MERGED)
        if self.promise is not None:
            closed.append(Gate.PROMISE)
        if self.restarting:
            closed.append(Gate.RESTART)
        if self.hold_until > 0.0:
            closed.append(Gate.BACKOFF)
        return closed

    @property
    def restarts_whole(self) -> bool:
        """True if a task that ended well may have to run again for the others' sake."""
        restart = self.job.restart
        return restart.whole or any(rule.action != "fail" for rule in restart.rules)

    def group_of(self, position: int) -> GroupState:
        if len(self.groups) == 1:
            return self.groups[0]
        return self.groups[bisect_right(self.firsts, position) - 1]

    def has_come(self, group: str, when: str) -> bool:
        """Whether every task of a group has started, or has completed.

        Nobody waits for what was cancelled, nor, in a gang, for members without a place that it can do without.
        """
        state = next(each for each in self.groups if each.group.name == group)
        status = self.status[state.first : state.last]
        waiting = status.count(Status.PENDING)
        if self.gang is not None and len(status) - waiting >= state.group.needed:
            waiting = 0
        if when == "started":
            return not (waiting or status.count(Status.ASSIGNED))
        running = status.count(Status.RUNNING) - self.done_in(state)
        return not (waiting or status.count(Status.ASSIGNED) or running or status.count(Status.FAILED))

    def done_in(self, group: GroupState) -> int:
        """How many tasks of a group ended with code 0 and are Completed once the whole job is."""
        return sum(group.first <= position < group.last for position in self.done)

    def well_in(self, group: GroupState) -> int:
        """How many tasks of a group have ended well, Completed or not yet."""
        return self.status[group.first : group.last].count(Status.COMPLETED) + self.done_in(group)

    def left_in(self, group: GroupState) -> int:
        """How many tasks of a group have neither failed nor been cancelled."""
        status = self.status[group.first : group.last]
        return len(status) - status.count(Status.FAILED) - status.count(Status.CANCELLED)

    def is_ready(self, position: int) -> bool:
        is_waiting = self.status[position] == Status.PENDING and position not in self.delayed
        return is_waiting and not (self.by_task and self.is_locked(position))

    def is_locked(self, position: int) -> bool:
        """Whether a task still waits for the task of the same index of another job."""
        is_waiting = self.status[position] == Status.PENDING and position not in self.delayed
        return self.by_task and is_waiting and not self.group_of(position).is_again(position)

    def wait_one_by_one(self, come: tuple[int, ...] = ()) -> None:
        """Its tasks wait for those of the same index of another array, all but these."""
        for group in self.groups:
            group.fresh = group.last
        for position in come:
            self.group_of(position).wait_again(position)

    def move(self, position: int, after: Status) -> None:
        """Change a task's status, if the table of moves allows it."""
        before = STATUSES[self.status[position]]
        if (before, after) not in MOVES:
            said = f"cannot go from {before.word} to {after.word}"
            raise IllegalMove(f"task {position} of {self.job.id} {said}")
        self.status[position] = after
        self.counts[before] -= 1
        self.counts[after] += 1
        self.totals[before] -= 1
        self.totals[after] += 1

    def begin(self, attempt: Attempt, node_number: int) -> None:
        """A placed attempt: its position is no longer ready, and it has a number."""
        _, position, number = attempt.key
        self.move(position, Status.ASSIGNED)
        self.attempts[position] = number
        self.live[position] = attempt
        self.delayed.pop(position, None)  # in a replay the backoff may not have been noticed to end
        self._forget_end(position)
        if (condition := self.conditions.get(position)) is not None and condition.past_at is None:
            condition.past_at = attempt.placed_at
        if self.nodes is None:
            self.nodes = array("I", bytes(4 * len(self.status)))
        if number > 1 and (position in self.earlier or len(self.earlier) < DETAILS_MAX):
            rows = self.earlier.setdefault(position, {})
            rows[number - 1] = self.nodes[position]
            if len(rows) > EARLIER_MAX:
                del rows[min(rows)]
        self.nodes[position] = node_number + 1
        self.groups[attempt.group].begin(position)

    def node_number(self, position: int, number: int) -> int | None:
        """Which node had this attempt of a task, if that is known."""
        if number == self.attempts[position]:
            row = self.nodes[position] if self.nodes else 0
        else:
            row = self.earlier.get(position, {}).get(number, 0)
        return row - 1 if row else None

    def leave(self, attempt: Attempt) -> None:
        """The attempt is over."""
        self.mark(attempt, Why.NONE)
        del self.live[attempt.key[1]]
        self.groups[attempt.group].leave(attempt.key[1])

    def mark(self, attempt: Attempt, why: Why) -> None:
        """It will not keep its place; the first reason counts, unless the job starts anew: its life is over then."""
        if attempt.ending is None:
            attempt.ending = why
            self.groups[attempt.group].staying -= 1
        elif why == Why.RESTARTED:
            attempt.ending = why

    def wait_again(self, position: int) -> None:
        """The task may be placed again from now on."""
        self.delayed.pop(position, None)
        self.group_of(position).wait_again(position)

    def record(
        self, position: int, exit: Exit, started_at: float | None = None, told_at: float = 0.0
    ) -> None:
        """Keep how the newest attempt ended, and nothing of those before it.

        An end that nobody saw has no times of its own: it began when its start was told, and ended by `told_at`.
        """
        self.code[position] = NO_CODE if exit.code is None else max(-32_000, min(32_000, exit.code))
        started = (exit.started_at if exit.started_at is not None else started_at) or 0.0
        times = self._times()
        times[2 * position] = started
        times[2 * position + 1] = max(exit.ended_at or told_at, started)  # two clocks may disagree
        if exit.started_at is not None and exit.why in _OWN_ENDS:
            self.group_of(position).learn((exit.ended_at or exit.started_at) - exit.started_at)
        self._keep_result(position, exit.result)
        if exit.result_sha256:
            self._note_kept_result(position, (exit.result_bytes, exit.result_sha256))
        known = self.details.pop(position, None) is not None
        if (exit.result or exit.result_sha256) and not self.has_result(position):
            text = f"its result was not kept: those of this job are over {RESULTS_BYTES_MAX >> 20} MiB"
            self.details[position] = (text, "")
        if (exit.message or exit.stderr_tail) and (known or len(self.details) < DETAILS_MAX):
            self.details[position] = (exit.message, exit.stderr_tail)

    def _keep_result(self, position: int, result: str) -> None:
        """Instead of the one of an earlier attempt, as long as all of them are not too much."""
        self.result_bytes -= len(self.results.pop(position, ""))
        if self.kept_results.pop(position, None) is not None:
            self.result_bytes -= KEPT_RESULT_BYTES
        if result and self.result_bytes + len(result) <= RESULTS_BYTES_MAX:
            self.results[position] = result
            self.result_bytes += len(result)

    def _note_kept_result(self, position: int, kept: tuple[int, str]) -> None:
        """Remember how to find and verify it; that counts as well."""
        if self.result_bytes + KEPT_RESULT_BYTES <= RESULTS_BYTES_MAX:
            self.kept_results[position] = kept
            self.result_bytes += KEPT_RESULT_BYTES

    def has_result(self, position: int) -> bool:
        return position in self.results or position in self.kept_results

    def _forget_end(self, position: int) -> None:
        """A new attempt begins: the code and the times of the one before say nothing about it."""
        self.code[position] = NO_CODE
        self._keep_result(position, "")
        if self.times is not None:
            self.times[2 * position] = self.times[2 * position + 1] = 0.0

    def note_condition(self, position: int, condition: Condition) -> None:
        if position in self.conditions or len(self.conditions) < DETAILS_MAX:
            self.conditions[position] = condition

    def note_start(self, position: int, at: float) -> None:
        self._times()[2 * position] = at
        if self.first_started_at is None:
            self.first_started_at = at

    def started_at(self, position: int) -> float | None:
        return (self.times[2 * position] or None) if self.times else None

    def finished_at(self, position: int) -> float | None:
        return (self.times[2 * position + 1] or None) if self.times else None

    def exit_code(self, position: int) -> int | None:
        return None if self.code[position] == NO_CODE else self.code[position]

    def _times(self) -> array[float]:
        if self.times is None:
            self.times = array("d", bytes(16 * len(self.status)))
        return self.times

    def settle_unfinished(self, status: Status, why: Why) -> None:
        """Give every task that has not ended one same end, all at once: an array may have a million of them."""
        for position in self.done:
            self.move(position, Status.COMPLETED)
        self.done.clear()
        column = np.frombuffer(self.status, dtype=np.uint8)
        unfinished = column < Status.COMPLETED
        np.frombuffer(self.why, dtype=np.uint8)[unfinished] = why
        column[unfinished] = status
        for before in (Status.PENDING, Status.ASSIGNED, Status.RUNNING):
            moved, self.counts[before] = self.counts[before], 0
            self.counts[status] += moved
            self.totals[before] -= moved
            self.totals[status] += moved
        for attempt in self.live.values():
            self.mark(attempt, why)
        for group in self.groups:
            group.drop_all()
        self.delayed.clear()
        self.restarting, self.forming = False, None

    def drop_ready(self, position: int) -> None:
        """A waiting task that will not be placed after all; its status has already changed."""
        if self.delayed.pop(position, None) is None:
            self.group_of(position).take_ready(position)
