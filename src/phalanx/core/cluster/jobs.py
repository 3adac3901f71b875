"""What has happened to one job: a few bytes per task, and more only for what is alive.

A million tasks of an array are a handful of byte columns; a task that waits for the first time costs nothing
beyond its place in them. Attempts that hold a grant are objects in `live`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush, nsmallest

import numpy as np

from phalanx.core.cluster.transitions import check_move
from phalanx.core.model.job import Job
from phalanx.core.model.lane import Lane
from phalanx.core.model.orders import AttemptKey, Exit
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Status, Why
from phalanx.core.model.waiting import Rank

NO_CODE = -32_768
DETAILS_MAX = 1000  # how many failed tasks of a job keep their message in memory
_SAMPLES_MIN = 4


class Attempt:
    """One try at one task, alive: it holds a grant until its end is confirmed."""

    __slots__ = ("ending", "grant", "key", "lane", "node", "paused", "placed_at", "started_at", "suspicions")

    def __init__(self, key: AttemptKey, node: str, lane: int, grant: Grant, placed_at: float) -> None:
        self.key = key
        self.node = node
        self.lane = lane
        self.grant = grant
        self.placed_at = placed_at
        self.started_at: float | None = None
        self.ending: Why | None = None  # being stopped, and why
        self.paused: bool | None = None  # None: it never was
        self.suspicions = 0


class JobState:
    """A job and its tasks' columns, by position."""

    __slots__ = (
        "again", "attempts", "charged", "code", "counts", "delayed", "details", "ended_at", "first_code",
        "first_started_at", "fresh", "job", "lanes", "live", "losses", "nodes", "rank", "run_s", "samples",
        "status", "times", "totals", "why",
    )  # fmt: skip

    def __init__(self, job: Job, arrival: int, totals: list[int]) -> None:
        size = job.tasks
        self.job = job
        self.rank: Rank = (-job.priority, arrival)
        self.status = bytearray(size)
        self.why = bytearray(size)
        self.attempts = array("H", bytes(2 * size))
        self.code = array("h", [NO_CODE]) * size
        self.times: array[float] | None = None  # started and ended, two numbers per task, once one has run
        self.nodes: array[int] | None = None  # row of the node that ran it last, plus 1
        self.counts = [size, 0, 0, 0, 0, 0]
        self.totals = totals  # the same counts over all jobs, which this one keeps up to date
        self.fresh = 0  # the first position that was never placed
        self.again: list[int] = []  # positions to be placed again, lowest first
        self.delayed: dict[int, float] = {}  # positions in backoff, and when they are ready
        self.charged: dict[int, int] = {}
        self.losses: dict[int, int] = {}
        self.live: dict[int, Attempt] = {}
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.details: dict[int, tuple[str, str]] = {}  # message and last words on stderr
        self.first_started_at: float | None = None
        self.ended_at: float | None = None
        self.first_code: int | None = None  # of the first task that failed
        self.run_s = 0.0
        self.samples = 0

    @property
    def is_over(self) -> bool:
        """True when every task has ended for good (attempts may still be stopping)."""
        counts = self.counts
        return not (counts[0] or counts[1] or counts[2])

    @property
    def typical_run_s(self) -> float | None:
        return self.run_s if self.samples >= _SAMPLES_MIN else None

    @property
    def has_ready(self) -> bool:
        """True if a task could be placed now, as far as the job itself is concerned."""
        limit = self.job.array.at_once if self.job.array else 0
        if limit and len(self.live) >= limit:
            return False
        return bool(self.again) or self.fresh < len(self.status)

    def ready(self, most: int) -> Iterator[int]:
        """Up to `most` positions that may be placed now: those to be placed again first, then fresh ones."""
        limit = self.job.array.at_once if self.job.array else 0
        if limit:
            most = min(most, limit - len(self.live))
        if self.again:
            for position in nsmallest(most, self.again):
                yield position
                most -= 1
        position, size = self.fresh, len(self.status)
        while position < size and most > 0:
            if self.is_ready(position):
                yield position
                most -= 1
            position += 1

    def is_ready(self, position: int) -> bool:
        return self.status[position] == Status.PENDING and position not in self.delayed

    def move(self, position: int, after: Status) -> None:
        """Change a task's status, if the table of moves allows it."""
        before = Status(self.status[position])
        check_move(f"task {position} of {self.job.id}", before, after)
        self.status[position] = after
        self.counts[before] -= 1
        self.counts[after] += 1
        self.totals[before] -= 1
        self.totals[after] += 1

    def begin(self, attempt: Attempt, node_row: int) -> None:
        """A placed attempt: its position is no longer ready, and it has a number."""
        _, position, number = attempt.key
        self.move(position, Status.ASSIGNED)
        self.attempts[position] = number
        self.live[position] = attempt
        self.delayed.pop(position, None)  # in a replay the backoff may not have been noticed to end
        if self.nodes is None:
            self.nodes = array("H", bytes(2 * len(self.status)))
        self.nodes[position] = node_row + 1
        self._take_ready(position)

    def wait_again(self, position: int) -> None:
        """The task may be placed again from now on."""
        self.delayed.pop(position, None)
        if position < self.fresh:
            heappush(self.again, position)

    def record(self, position: int, exit: Exit) -> None:
        """Keep how the newest attempt ended."""
        self.why[position] = exit.why
        self.code[position] = NO_CODE if exit.code is None else max(-32_000, min(32_000, exit.code))
        if exit.started_at is not None:
            times = self._times()
            times[2 * position] = exit.started_at
            times[2 * position + 1] = exit.ended_at or 0.0
            self._learn((exit.ended_at or exit.started_at) - exit.started_at)
        if (exit.message or exit.stderr_tail) and (
            position in self.details or len(self.details) < DETAILS_MAX
        ):
            self.details[position] = (exit.message, exit.stderr_tail)

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

    def _learn(self, run_s: float) -> None:
        weight = 0.25 if self.samples >= _SAMPLES_MIN else 1.0 / (self.samples + 1)
        self.run_s += weight * (max(run_s, 0.0) - self.run_s)
        self.samples += 1

    def _take_ready(self, position: int) -> None:
        """Forget that a position waits. One beyond `fresh` needs no forgetting: its status is passed over."""
        if self.again and self.again[0] == position:
            heappop(self.again)
        elif position < self.fresh and position in self.again:
            self.again.remove(position)
        while self.fresh < len(self.status) and self.status[self.fresh] != Status.PENDING:
            self.fresh += 1

    def cancel_rest(self) -> None:
        """Cancel every task that has not ended, all at once: an array may have a million of them."""
        status = np.frombuffer(self.status, dtype=np.uint8)
        rest = status < Status.COMPLETED
        np.frombuffer(self.why, dtype=np.uint8)[rest] = Why.CANCELLED
        status[rest] = Status.CANCELLED
        for before in (Status.PENDING, Status.ASSIGNED, Status.RUNNING):
            moved, self.counts[before] = self.counts[before], 0
            self.counts[Status.CANCELLED] += moved
            self.totals[before] -= moved
            self.totals[Status.CANCELLED] += moved
        for attempt in self.live.values():
            attempt.ending = attempt.ending or Why.CANCELLED
        self.again.clear()
        self.delayed.clear()
        self.fresh = len(self.status)

    def drop_ready(self, position: int) -> None:
        """A waiting task that will not be placed after all; its status has already changed."""
        if self.delayed.pop(position, None) is None:
            self._take_ready(position)
