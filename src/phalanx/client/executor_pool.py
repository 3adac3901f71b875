"""The calls of an executor with the same resources: what is to be sent, what was sent, and the threads that do it.

The futures are the truth. Calls are sent in windows to a queue that the coordinator keeps in memory; if that is gone,
because another coordinator leads or because it was forgotten, all calls without a result are sent to a new one. One
thread sends and looks after the workers, one waits for results. A call that raised what it may be retried after is
sent again, as a new call with the same future.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from phalanx.api.schema.calls import (
    BATCH_BYTES,
    BATCH_CALLS_MAX,
    CALLS_FULL,
    CallBatch,
    CallsReply,
    CallsRequest,
    PostedCall,
    ResultsReply,
)
from phalanx.client import executor_calls
from phalanx.client.calls import Call
from phalanx.client.client import Client
from phalanx.client.executor_calls import PAUSES_S
from phalanx.client.executor_futures import CallFuture, RemoteCall, RetryRule, begin, settle
from phalanx.client.executor_jobs import WorkerJobs
from phalanx.client.pickles import PickledFunction
from phalanx.clock import SystemClock
from phalanx.errors import CallFailed, PhalanxError, TooMany, Unavailable

WINDOW_CALLS = 5000  # at the coordinator; the others wait here
WINDOW_BYTES = 8 << 20
POLL_S = 10.0
REVIEW_S = 1.0
FULL_S = 0.2  # before calls are sent again that the coordinator had no room for
WITHDRAW_MAX = 50_000

T = TypeVar("T")


class CallPool:
    """Calls and workers of one kind."""

    def __init__(
        self,
        client: Client,
        name: str,
        jobs: WorkerJobs,
        lost_retries: int,
        starved: Callable[[CallPool], None],
    ) -> None:
        """`starved` is called when calls wait and there is no room for their workers."""
        self._starved = starved
        self._client = client
        self._name = name
        self._jobs = jobs
        self._lost_retries = lost_retries
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._posting = threading.Lock()  # one message at a time, so that a withdrawal follows its call
        self._calls: dict[int, RemoteCall] = {}
        self._unsent: OrderedDict[int, RemoteCall] = OrderedDict()
        self._sent = self._sent_bytes = 0
        self._queue = ""
        self._last = 0
        self._workers = 0
        self._next_id = 0
        self._reviewed_at = 0.0
        self._is_ending = False  # no call is retried any more
        self._is_closed = False
        self._threads: list[threading.Thread] = []

    def add(self, calls: Iterable[tuple[PickledFunction, bytes]], rule: RetryRule) -> list[CallFuture]:
        """Futures for these calls, which are sent soon."""
        with self._changed:
            futures = [
                self._added(RemoteCall(self._number(), function, arguments, rule, CallFuture(self.cancel)))
                for function, arguments in calls
            ]
            if not self._threads:
                self._threads = [
                    threading.Thread(target=work, name=f"phalanx-{work.__name__}", daemon=True)
                    for work in (self._send_calls, self._read_results)
                ]
                for thread in self._threads:
                    thread.start()
            self._changed.notify_all()
        return futures

    def _added(self, call: RemoteCall) -> CallFuture:
        self._calls[call.id] = self._unsent[call.id] = call
        return call.future

    def _number(self) -> int:
        """A number that no call had before."""
        self._next_id += 1
        return self._next_id - 1

    def cancel(self, calls: Iterable[RemoteCall]) -> None:
        """Cancel the futures of those calls that no worker has been given."""
        with self._posting:
            with self._changed:
                live = [call for call in calls if call.id in self._calls]
                gone = [call.id for call in live if not call.is_sent]
                sent, queue = [call.id for call in live if call.is_sent], self._queue
            for at in range(0, len(sent), WITHDRAW_MAX):
                request = CallsRequest(
                    executor_calls.python_version(), queue, withdrawn=sent[at : at + WITHDRAW_MAX]
                )
                with suppress(Unavailable, TooMany):
                    gone += executor_calls.ask(
                        self._client, executor_calls.post(self._name, request)
                    ).withdrawn
        with self._changed:
            cancelled = [self._forgotten(id) for id in gone]
            self._changed.notify_all()
        for call in cancelled:
            if call is not None:
                call.future.cancel_here()

    def cancel_all(self) -> None:
        with self._changed:
            self._is_ending = True
            calls = [call for call in self._calls.values() if not call.future.running()]
        self.cancel(calls)

    def fail(self, error: BaseException) -> None:
        """All calls end with this error."""
        with self._changed:
            failed = [call for id in list(self._calls) if (call := self._forgotten(id)) is not None]
            self._changed.notify_all()
        for call in failed:
            begin(call.future)
            call.future.set_exception(error)

    def join(self) -> None:
        """Return when no call is without a result."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls)

    def release(self) -> None:
        """If there are no calls, let the workers end now; the next call makes new ones."""
        with self._posting:
            with self._changed:
                if self._calls or not self._queue:
                    return
                self._queue, self._workers = "", 0
            with suppress(PhalanxError):
                executor_calls.ask(self._client, executor_calls.close(self._name))

    def close(self, *, at_once: bool) -> None:
        """End the workers and the threads. With `at_once` whatever still runs is given up."""
        if not self._threads:
            return
        if at_once:
            self.fail(CallFailed("the executor was shut down before the call had ended", reason="ShutDown"))
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        with suppress(PhalanxError):
            executor_calls.ask(self._client, executor_calls.close(self._name))
        self._threads[0].join()  # so that it submits no further job
        with suppress(Unavailable):
            self._jobs.end(at_once=at_once)

    # The thread that sends.

    def _send_calls(self) -> None:
        while True:
            with self._changed:
                if not self._has_room and not self._is_closed:  # it may have been closed during a request
                    self._changed.wait(REVIEW_S if self._calls else None)
                if self._is_closed:
                    return
            try:
                if self._has_room:
                    self._post()
                if self._calls:
                    self._review()
            except PhalanxError as error:
                self.fail(error)

    @property
    def _has_room(self) -> bool:
        """Whether there is a call to be sent, and room for it in the window."""
        is_room = self._sent < WINDOW_CALLS and self._sent_bytes < WINDOW_BYTES
        return bool(self._unsent) and (is_room or not self._sent) and not self._is_closed

    def _post(self) -> None:
        pause_s, is_full = 0.0, False
        with self._posting:
            with self._changed:
                calls, queue = self._next_calls(), self._queue
            request = CallsRequest(executor_calls.python_version(), queue, self._batches(calls))
            try:
                reply = self._asked(executor_calls.post(self._name, request))
            except TooMany as error:
                if error.reason != CALLS_FULL:
                    raise
                reply, pause_s = None, error.retry_after_s or PAUSES_S[-1]
            if reply is not None:
                with self._changed:
                    is_full = self._posted(calls, queue, reply)
                    self._changed.notify_all()
        if pause_s:
            self._is_closed_after(pause_s)
        elif is_full:
            with self._changed:
                self._changed.wait(FULL_S)

    def _posted(self, calls: list[RemoteCall], queue: str, reply: CallsReply) -> bool:
        """Note what was accepted; whether the queue is full."""
        if queue and reply.queue != queue:
            self._renew()
            return False
        if not queue:
            self._queue, self._last, self._workers = reply.queue, 0, 0
        for call in calls[: reply.accepted]:
            if self._unsent.pop(call.id, None) is not None:
                call.is_sent = True
                self._sent += 1
                self._sent_bytes += call.size
        return reply.accepted < len(calls)

    def _next_calls(self) -> list[RemoteCall]:
        calls: list[RemoteCall] = []
        size = 0
        for call in self._unsent.values():
            size += call.size
            if calls and (size > BATCH_BYTES or len(calls) >= BATCH_CALLS_MAX):
                break
            calls.append(call)
        return calls

    def _batches(self, calls: list[RemoteCall]) -> list[CallBatch]:
        batches: list[CallBatch] = []
        for call in calls:
            if not batches or batches[-1].digest != call.function.digest:
                batches.append(CallBatch(call.function.digest, [], call.function.pickled, self._lost_retries))
            batches[-1].calls.append(PostedCall(call.id, call.arguments, call.has_begun))
        return batches

    def _renew(self) -> None:
        """The queue is gone: everything without a result is sent to a new one, in order."""
        self._queue, self._sent, self._sent_bytes = "", 0, 0
        self._unsent = OrderedDict(sorted(self._calls.items()))
        for call in self._calls.values():
            call.is_sent = False

    def _review(self) -> None:
        """Submit workers if there are too few, and look from time to time whether they run."""
        now = self._clock.monotonic()
        try:
            if now - self._reviewed_at > REVIEW_S and self._workers < self._jobs.workers:
                self._reviewed_at = now
                self._jobs.review()
                if self._workers < self._jobs.workers:
                    self._starved(self)
            self._jobs.ensure(len(self._calls))
        except (Unavailable, TooMany):
            with self._changed:  # the next look is soon enough
                self._changed.wait(PAUSES_S[1])

    # The thread that reads.

    def _read_results(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or (self._queue and self._calls))
                if self._is_closed:
                    return
                queue, last, workers = self._queue, self._last, self._workers
            try:
                reply = self._asked(executor_calls.results(self._name, queue, last, POLL_S, workers))
            except PhalanxError as error:
                self.fail(error)
                continue
            if reply is not None:
                self._read(queue, reply)

    def _read(self, queue: str, reply: ResultsReply) -> None:
        again = self._retried(reply)
        with self._changed:
            if reply.queue != queue:
                if self._queue == queue:
                    self._renew()
                self._changed.notify_all()
                return
            self._last, self._workers = reply.last, reply.workers
            self._jobs.has_served = self._jobs.has_served or reply.workers > 0
            begun = [self._calls[id] for id in reply.taken if id in self._calls]
            for call in begun:
                call.has_begun = True
            ended = [(self._forgotten(result.id), result) for result in reply.results]
            for gone, _ in ended:
                if gone is not None and gone.id in again:
                    self._added(gone.again(self._number()))
            if ended:
                self._jobs.progressed()
            self._changed.notify_all()
        for call in begun:
            begin(call.future)
        for gone, result in ended:
            if gone is not None and result.id not in again:
                settle(gone, result)
        for task in reply.silent:
            self._jobs.evict(task)
        if reply.silent:
            with self._changed:  # they are named again until they have ended
                self._changed.wait(PAUSES_S[2])
        if reply.trouble:
            self.fail(
                CallFailed(
                    reply.trouble, reason="PythonMismatch", hint="python= names the program of workers"
                )
            )

    def _retried(self, reply: ResultsReply) -> set[int]:
        """Which of these results are exceptions after which their calls run again."""
        calls = ((self._calls.get(result.id), result) for result in reply.results)
        return {
            result.id
            for call, result in calls
            if call is not None and not self._is_ending and call.may_retry(result)
        }

    def _forgotten(self, id: int) -> RemoteCall | None:
        """A call that has a result now; None if it had one before."""
        call = self._calls.pop(id, None)
        if call is not None:
            self._unsent.pop(id, None)
            if call.is_sent:
                self._sent -= 1
                self._sent_bytes -= call.size
        return call

    def _asked(self, call: Call[T]) -> T | None:
        """The answer of a coordinator that may be away for a while; None if the pool was closed meanwhile."""
        return executor_calls.ask_patiently(self._client, call, self._is_closed_after)

    def _is_closed_after(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, seconds)
