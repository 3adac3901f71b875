"""What has just happened, for those who watch: a bounded memory of events, and who waits for which end.

A watcher resumes after the revision it saw last; if that is no longer kept it is told to list again (410). A
slow watcher costs nothing: it reads from the shared memory at its own pace.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from phalanx.api.schema import WatchEvent
from phalanx.coordinator.heart import Turn
from phalanx.core.cluster import events as e
from phalanx.core.cluster.effects import Settle
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.story import sentence
from phalanx.core.model.status import Status
from phalanx.errors import Gone, Unavailable

KEPT = 20_000


class Feed:
    """The newest events, and the futures of those who wait for a job or task to end."""

    def __init__(self, kept: int = KEPT) -> None:
        self._events: deque[tuple[int, e.Event]] = deque(maxlen=kept)
        self._fresh = asyncio.Event()
        self._waiters: dict[tuple[str, int | None], set[asyncio.Future[None]]] = {}
        self._first = 0  # the revision before the oldest event kept

    def begin(self, revision: int) -> None:
        """A term begins: what was before is in the story, not here."""
        self._first = revision

    def publish(self, turn: Turn) -> None:
        """Take note of a durable turn."""
        lasting = [event for event in turn.events if type(event) not in e.VOLATILE]
        revision = turn.revision - len(lasting)
        for event in lasting:
            revision += 1
            if len(self._events) == self._events.maxlen:
                self._first = self._events[0][0]
            self._events.append((revision, event))
        if lasting:
            self._fresh.set()
            self._fresh = asyncio.Event()
        if self._waiters:
            for effect in turn.effects:
                if type(effect) is Settle:
                    self._settle((effect.job, effect.position))

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

    async def watch(self, after: int, job: str | None, state: ClusterState) -> AsyncIterator[WatchEvent]:
        """Everything after a revision, as it comes."""
        while True:
            if after < self._first:
                raise Gone(
                    f"revision {after} is no longer kept, the oldest is {self._first}", hint="list again"
                )
            fresh = self._fresh
            for revision, event in self._since(after):
                after = revision
                if job is None or job in e.jobs_of(event):
                    yield watch_event(revision, event, state)
            if fresh is self._fresh:
                await fresh.wait()

    def _since(self, after: int) -> list[tuple[int, e.Event]]:
        if not self._events or self._events[-1][0] <= after:
            return []
        skip = max(0, after + 1 - self._events[0][0])
        return [self._events[at] for at in range(skip, min(len(self._events), skip + 1000))]

    def close(self) -> None:
        """The coordinator stops: nobody need wait for an answer that will not come."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(_stopping())

    def _settle(self, key: tuple[str, int | None]) -> None:
        """Wake those who wait for this task; the end of a job is the end of every task of it."""
        keys = [key] if key[1] is not None else [each for each in self._waiters if each[0] == key[0]]
        for waiter in [waiter for each in keys for waiter in self._waiters.get(each, ())]:
            if not waiter.done():
                waiter.set_result(None)


def _stopping() -> Unavailable:
    return Unavailable("the coordinator is stopping", reason="Stopping", hint="ask again", retry_after_s=1.0)


def watch_event(revision: int, event: e.Event, state: ClusterState) -> WatchEvent:
    """An event in the words of REST."""
    job_id, key = e.job_of(event), getattr(event, "key", None)
    job = state.jobs.get(job_id) if job_id else None
    watched = WatchEvent(
        revision, event.at, type(event).__name__, job_id, node=e.node_of(event), text=sentence(event)
    )
    if key is not None and job is not None:
        watched.task = job.job.task_id(key[1])
    if job_id is not None:
        watched.text = f"{watched.task or job_id}: {watched.text}"
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
        case e.JobSettled():
            watched.status = event.status.word
    return watched
