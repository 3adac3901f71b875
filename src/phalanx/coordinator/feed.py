"""Recent events for watchers: a bounded buffer of events, and the futures that wait for an end.

A watcher resumes after the revision it saw last; if that is no longer kept it has to list again (410). A
slow watcher costs nothing: it reads from the shared memory at its own pace.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice

from phalanx.api.schema.jobs import WatchEvent
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.naming import in_numbers
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.views import task_number
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Settle
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import Status
from phalanx.errors import Gone, Unavailable
from phalanx.store.protocol import Batch, Loaded

KEPT = 20_000


class Feed:
    """The newest events, and the futures that wait for a job or task to end."""

    def __init__(self, kept: int = KEPT) -> None:
        self._events: deque[tuple[int, e.Event]] = deque(maxlen=kept)
        self._fresh = asyncio.Event()
        self._waiters: dict[tuple[str, int | None], set[asyncio.Future[None]]] = {}
        self._slices = TimeSlices(SystemClock())
        self._first = 0  # the revision before the oldest event kept
        self._last = -1  # the newest revision that watchers know; −1: none yet

    def publish(self, turn: Turn) -> None:
        """Take note of a durable turn, of this coordinator or of another whose log it follows."""
        lasting = [event for event in turn.events if type(event) not in e.VOLATILE]
        self._take(turn.revision, lasting)
        if self._waiters:
            for effect in turn.effects:
                if type(effect) is Settle:
                    self._settle((effect.job, effect.position))

    def resume(self, loaded: Loaded, state: ClusterState) -> None:
        """The state was read from the store: go on from there, with what the log tells that nobody was told yet."""
        assert self._events.maxlen is not None
        oldest = max(loaded.image_revision, state.revision - self._events.maxlen)
        if self._last < oldest:
            self._events.clear()
            self._first = self._last = oldest
        for batch in loaded.batches:
            if batch.revision > self._last:
                self._take(batch.revision, _readable(batch))
        self._last = max(self._last, state.revision)
        for key in list(self._waiters):
            if _is_over(state, key):
                self._settle(key)

    def _take(self, revision: int, lasting: list[e.Event]) -> None:
        """Events that end at `revision`, less those that are known already."""
        kept, before = self._events, revision - len(lasting)
        known = max(0, min(self._last - before, len(lasting)))
        fresh = lasting[known:] if known else lasting
        assert kept.maxlen is not None
        is_full = len(kept) + len(fresh) > kept.maxlen
        kept.extend(enumerate(fresh, before + known + 1))
        if is_full:
            self._first = kept[0][0] - 1
        self._last = max(self._last, revision)
        if lasting:
            self._fresh.set()
            self._fresh = asyncio.Event()

    async def settled(self, job: str, position: int | None, timeout_s: float) -> None:
        """Wait until the job (or its task at `position`) has ended, or the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault((job, position), set())
        waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop((job, position), None)

    async def watch(
        self, after: int, job: str | None, state: Callable[[], ClusterState]
    ) -> AsyncIterator[WatchEvent]:
        """Everything after a revision, as it comes."""
        while True:
            if after < self._first:
                raise Gone(
                    f"revision {after} is no longer kept, the oldest is {self._first}", hint="list again"
                )
            fresh = self._fresh
            since = self._since(after)
            piece = await self._slices.turn() if since else None
            for revision, event in since:
                after = revision
                if piece is not None and piece.is_over:
                    piece = await self._slices.turn()
                if job is None or job in event.jobs:
                    yield watch_event(revision, event, state())
            if fresh is self._fresh:
                await fresh.wait()

    def _since(self, after: int) -> list[tuple[int, e.Event]]:
        if not self._events or self._events[-1][0] <= after:
            return []
        skip = bisect_right(
            self._events, after, key=lambda each: each[0]
        )  # a revision may belong to no event
        return list(islice(self._events, skip, skip + 1000))

    def close(self) -> None:
        """The coordinator stops: pending waits end."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(_stopping())

    def _settle(self, key: tuple[str, int | None]) -> None:
        """Wake the waits for this task; the end of a job is the end of every task of it."""
        keys = [key] if key[1] is not None else [each for each in self._waiters if each[0] == key[0]]
        for waiter in [waiter for each in keys for waiter in self._waiters.get(each, ())]:
            if not waiter.done():
                waiter.set_result(None)


def _stopping() -> Unavailable:
    return Unavailable("the coordinator is stopping", reason="Stopping", hint="ask again", retry_after_s=1.0)


def _readable(batch: Batch) -> list[e.Event]:
    try:
        return e.decode(batch.body)
    except ValueError:  # a damaged record: it is counted where the state is restored
        return []


def _is_over(state: ClusterState, key: tuple[str, int | None]) -> bool:
    job, at = state.jobs.get(key[0]), key[1]
    if job is None or job.is_over or at is None:
        return job is None or job.is_over
    return (
        at >= len(job.status) or job.status[at] >= Status.COMPLETED
    )  # members came, and it has another place


def watch_event(revision: int, event: e.Event, state: ClusterState) -> WatchEvent:
    """An event in the words of REST."""
    job_id, key = event.own_job, getattr(event, "key", None)
    job = state.jobs.get(job_id) if job_id else None
    watched = WatchEvent(
        revision, event.at, type(event).__name__, job_id, node=event.on_node, text=sentence(event)
    )
    if key is not None and job is not None:
        watched.task = job.job.task_id(key[1])
    if job is not None:
        watched.number = task_number(job, None if key is None else key[1])
    if job_id is not None:
        watched.text = f"{watched.task or job_id}: {watched.text}"
    watched.text = in_numbers(state, watched.text)
    match event:
        case e.AttemptEnded():
            watched.status, watched.exit_code = event.status.word, event.exit.code
            watched.reason = event.exit.why.word if event.exit.why else None
        case e.AttemptStarted():
            watched.status = Status.RUNNING.word
        case e.TaskPlaced():
            watched.status = Status.ASSIGNED.word
        case e.JobSubmitted():
            watched.status = Status.PENDING.word
        case e.TasksCancelled():
            watched.status = Status.CANCELLED.word
        case e.JobSettled() | e.TasksAbandoned():
            watched.status = event.status.word
    return watched
