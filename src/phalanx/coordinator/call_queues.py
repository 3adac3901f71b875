"""The queues of all executors, kept in memory by the coordinator that leads, and the waiting of clients and workers.

A queue belongs to a user and has the name of an executor. Its client reaches it under the user's own token; a worker by
the token of its job, which names the executor in a tag: so no user can reach the calls of another. Queues that their
client has left are forgotten. A user who holds a full share of the memory (`call_shares`) is refused more calls, and
results of that user's workers wait with them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict

from phalanx.api.schema.calls import (
    CALLS_FULL,
    EXECUTOR_TAG,
    CallsReply,
    CallsRequest,
    GiveReply,
    GiveRequest,
    QueueWord,
    ResultsQuery,
    ResultsReply,
    TakeReply,
    TakeRequest,
)
from phalanx.clock import Clock
from phalanx.coordinator.call_queue import LEASE_S, CallQueue, ServingWorker
from phalanx.coordinator.call_shares import held_by_user, why_no_more
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.units import Attempt
from phalanx.errors import BadRequest, Conflict, TooMany

QUEUES_MAX = 1024
QUEUES_OF_USER_MAX = 64
LEFT_S = 60.0  # after which a queue that its client does not ask about is forgotten
LOOK_S = 1.0  # between two looks at the workers
TAKEN_MAX = 10_000
INDEX_DIGITS_MAX = 9

QueueKey = tuple[str, str]  # the user, and the name of the executor


class CallQueues:
    """All queues, by user and name."""

    def __init__(self, loop: Requests, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._queues: dict[QueueKey, CallQueue] = {}
        self._changed: dict[QueueKey, asyncio.Event] = {}
        self._closed: OrderedDict[QueueKey, None] = OrderedDict()  # the last ones that were closed
        self._tidied_at = 0.0

    # For clients.

    async def post_calls(self, user: str, name: str, request: CallsRequest) -> CallsReply:
        self._loop.require_active()
        self._tidy()
        key = (user, name)
        queue = self._queues.get(key)
        if request.queue and (queue is None or queue.id != request.queue):
            return CallsReply("" if queue is None else queue.id)
        if request.batches:
            self._check_share(key, is_new=not request.queue)
        if queue is None or not request.queue:
            queue = self._new(key, request.python)
        queue.seen_at = self._clock.monotonic()
        gone = queue.withdraw(request.withdrawn)
        accepted = queue.post(request.batches, queue.seen_at)
        if accepted:
            self._wake(key)
        return CallsReply(queue.id, accepted, gone)

    async def call_results(self, user: str, name: str, query: ResultsQuery) -> ResultsReply:
        """Results, as soon as there are some, or something else that the client should know."""
        self._loop.require_active()
        key = (user, name)
        until = self._clock.monotonic() + query.timeout_s
        while True:
            queue = self._queues.get(key)
            if queue is None or queue.id != query.queue:
                return ResultsReply("" if queue is None else queue.id)
            now = queue.seen_at = self._clock.monotonic()
            self._look_after(queue)
            reply = self._reply(queue, query.after)
            has_changed = query.workers not in (-1, reply.workers)
            if reply.results or reply.taken or reply.trouble or reply.silent or has_changed or now >= until:
                return reply
            await self._wait(key, min(LOOK_S, until - now))
            self._loop.require_active()

    async def close_calls(self, user: str, name: str) -> CallsReply:
        """The client needs no more workers: they end."""
        key = (user, name)
        queue = self._queues.pop(key, None)
        self._closed[key] = None
        while len(self._closed) > QUEUES_MAX:
            self._closed.popitem(last=False)
        self._wake(key)
        return CallsReply("" if queue is None else queue.id)

    # For workers.

    async def take_calls(self, job: str, request: TakeRequest) -> TakeReply:
        """Calls for a worker, as soon as there are some."""
        self._loop.require_active()
        self._tidy()
        state = self._job(job)
        key, until = _key(state), self._clock.monotonic() + request.timeout_s
        asked: CallQueue | None = None
        while True:
            queue = self._queues.get(key)
            if queue is not None:
                worker = self._worker(queue, state, request.task, request.attempt)
                if asked is not queue:
                    self._check_python(queue, request)
                    queue.ask(worker, request.number, request.received)
                    asked = queue
                elif worker.asked != request.number:
                    return TakeReply("open")  # it asks anew on another connection
                if batches := queue.take(worker, request.want, request.known):
                    self._wake(key)
                    return TakeReply("open", batches)
            now = self._clock.monotonic()
            if key in self._closed or now >= until:
                return TakeReply(self._word(key))
            await self._wait(key, min(LOOK_S, until - now))
            self._loop.require_active()

    async def give_results(self, job: str, request: GiveRequest) -> GiveReply:
        self._loop.require_active()
        state = self._job(job)
        key = _key(state)
        queue = self._queues.get(key)
        if queue is None:
            return GiveReply(self._word(key))
        worker = self._worker(queue, state, request.task, request.attempt)
        if request.holding:
            queue.claim(worker, request.holding)
        if request.results and (queue.is_full() or self._has_unread(state.job.user)):
            return GiveReply("full", queue.id)
        if request.results or request.returned:
            queue.give(request.results, request.returned, worker)
            self._wake(key)
        return GiveReply("open", queue.id)

    def _word(self, key: QueueKey) -> QueueWord:
        if key in self._queues:
            return "open"
        return "closed" if key in self._closed else "absent"

    def _check_share(self, key: QueueKey, *, is_new: bool) -> None:
        """Refuse calls of a user who holds a full share; a new queue takes the place of the former one."""
        queues = (
            (user, 0 if is_new and (user, name) == key else each.bytes)
            for (user, name), each in self._queues.items()
        )
        if limit := why_no_more(held_by_user(queues), key[0]):
            raise TooMany(
                limit,
                reason=CALLS_FULL,
                hint="wait until calls have ended; phalanx.Executor does so by itself",
                retry_after_s=1,
            )

    def _has_unread(self, user: str) -> bool:
        """Whether the clients of a user have to read results before more are taken."""
        results = ((user, queue.results_bytes) for (user, _), queue in self._queues.items())
        return bool(why_no_more(held_by_user(results), user))

    def _new(self, key: QueueKey, python: str) -> CallQueue:
        if key not in self._queues:
            mine = sum(1 for user, _ in self._queues if user == key[0])
            if mine >= QUEUES_OF_USER_MAX or len(self._queues) >= QUEUES_MAX:
                raise TooMany(
                    f"user {key[0]} has {mine} executors at work, at most {QUEUES_OF_USER_MAX} are allowed"
                    if mine >= QUEUES_OF_USER_MAX
                    else f"{len(self._queues)} executors are at work, at most {QUEUES_MAX} are allowed",
                    reason="TooManyExecutors",
                    hint="shut some down, or use one for more calls",
                    retry_after_s=5,
                )
        self._closed.pop(key, None)
        queue = self._queues[key] = CallQueue(secrets.token_hex(8), python, self._clock.monotonic())
        return queue

    def _reply(self, queue: CallQueue, after: int) -> ResultsReply:
        results = queue.results_after(after)
        taken, queue.taken = queue.taken[:TAKEN_MAX], queue.taken[TAKEN_MAX:]
        return ResultsReply(
            queue.id,
            queue.last_of(results, after),
            results,
            taken,
            len(queue.workers),
            list(queue.silent),
            queue.trouble,
        )

    def _worker(self, queue: CallQueue, state: JobState, task: str, attempt: int) -> ServingWorker:
        """The worker that speaks, if it is that of a task of its job."""
        if task != state.job.id and not task.startswith(f"{state.job.id}."):
            raise BadRequest(f"task {task!r} is not one of the job {state.job.id}, whose token was shown")
        is_new = task not in queue.workers
        if is_new and not self._is_alive(ServingWorker(task, attempt, 0.0)):
            raise Conflict(f"attempt {attempt} of task {task!r} does not run", reason="NotRunning")
        worker = queue.hear(task, attempt, self._clock.monotonic())
        worker.called = f"{state.arrival}{task.removeprefix(state.job.id)}"
        if is_new:
            self._wake(_key(state))
        return worker

    def _check_python(self, queue: CallQueue, request: TakeRequest) -> None:
        """Functions that were pickled by one version of Python cannot be read by another."""
        if request.python == queue.python:
            return
        queue.trouble = (
            f"the worker {request.task} runs Python {request.python}, and the client Python {queue.python}:"
            " pickled functions are only for the same version"
        )
        raise Conflict(
            queue.trouble, reason="PythonMismatch", hint="give python=, the path of the same version"
        )

    def _look_after(self, queue: CallQueue) -> None:
        """Take the calls of workers back that have ended or are silent."""
        now = self._clock.monotonic()
        queue.release_unclaimed(now)
        for worker in list(queue.workers.values()):
            if not self._is_alive(worker):
                queue.lose(worker)
            elif now - worker.heard_at > LEASE_S:
                queue.give_up(worker, is_paused=self._is_paused(worker))
        for task in list(queue.silent):
            if not self._is_alive(ServingWorker(task, queue.silent[task], now)):
                del queue.silent[task]

    def _is_alive(self, worker: ServingWorker) -> bool:
        """Whether the coordinator believes that this attempt is placed or runs."""
        return self._attempt(worker) is not None

    def _is_paused(self, worker: ServingWorker) -> bool:
        attempt = self._attempt(worker)
        return attempt is not None and bool(attempt.paused)

    def _attempt(self, worker: ServingWorker) -> Attempt | None:
        id, _, index = worker.task.partition(".")
        state = self._loop.state.jobs.get(id)
        if state is None or len(index) > INDEX_DIGITS_MAX:
            return None
        position = 0 if worker.task == id else None
        if index.isascii() and index.isdecimal():
            position = state.job.position(int(index))
        attempt = None if position is None else state.live.get(position)
        return attempt if attempt is not None and attempt.key[2] == worker.attempt else None

    def _job(self, id: str) -> JobState:
        """The job of workers; its token was accepted, so it lives."""
        state = self._loop.state.jobs.get(id)
        if state is None or EXECUTOR_TAG not in dict(state.job.tags):
            raise Conflict(
                f"{id} is not a job of an executor: it has no tag {EXECUTOR_TAG}", reason="NoExecutor"
            )
        return state

    def _tidy(self) -> None:
        """Forget the queues that their clients have left."""
        now = self._clock.monotonic()
        if now - self._tidied_at < LOOK_S:
            return
        self._tidied_at = now
        for key in [key for key, queue in self._queues.items() if now - queue.seen_at > LEFT_S]:
            del self._queues[key]
        for key in [key for key in self._changed if key not in self._queues]:
            self._wake(key)

    async def _wait(self, key: QueueKey, seconds: float) -> None:
        """Return when the queue has changed, or after so long."""
        event = self._changed.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await event.wait()
        except TimeoutError:
            return

    def _wake(self, key: QueueKey) -> None:
        """All that wait for this queue look again; those that come later wait for the next change."""
        event = self._changed.pop(key, None)
        if event is not None:
            event.set()


def _key(state: JobState) -> QueueKey:
    return state.job.user, dict(state.job.tags)[EXECUTOR_TAG]
