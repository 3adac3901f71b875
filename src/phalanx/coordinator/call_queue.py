"""The calls of one executor: which wait, which worker has which, and which results the client has not yet seen.

It is a table without I/O and clock, and it is not durable: the client holds the futures, and sends what is not finished
to a new queue if this one is lost. A call leaves it when the client has seen its result. A call whose worker is lost,
or whose process died, waits again; from then on it is given alone, so that one call that kills its process takes no
other with it. A call that a worker had by a former queue waits a moment for that worker to say so.
The first result of a call counts, whichever worker sends it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Literal

from phalanx.api.schema.calls import (
    BATCH_BYTES,
    BATCH_CALLS_MAX,
    CallBatch,
    CallResult,
    PostedCall,
)

CALLS_MAX = 10_000
CALLS_BYTES_MAX = 16 << 20
RESULTS_BYTES_MAX = 16 << 20
CALL_COST = 200  # bytes of a call beside its arguments, about
LEASE_S = 10.0  # a worker that is silent for so long has lost its calls; it speaks every 2 s
UNCLAIMED_S = 6.0  # for a worker to say that it has a call since before this queue
DIED: Literal["died"] = "died"


class QueuedFunction:
    """A pickled function, kept while there are calls of it."""

    __slots__ = ("calls", "digest", "pickled")

    def __init__(self, digest: str, pickled: bytes) -> None:
        self.digest = digest
        self.pickled = pickled
        self.calls = 0


class QueuedCall:
    """One call that is not finished."""

    __slots__ = ("arguments", "function", "holder", "id", "losses", "retries")

    def __init__(self, id: int, function: QueuedFunction, arguments: bytes, retries: int) -> None:
        self.id = id
        self.function = function
        self.arguments = arguments
        self.retries = retries
        self.losses = 0  # how many workers it has outlived
        self.holder: ServingWorker | None = None

    @property
    def size(self) -> int:
        return CALL_COST + len(self.arguments)


class ServingWorker:
    """A worker: one attempt of one task, when it was last heard, and the calls that it has."""

    __slots__ = ("asked", "attempt", "called", "claims", "heard_at", "held", "sent", "task")

    def __init__(self, task: str, attempt: int, now: float) -> None:
        self.task = task
        self.called = task  # by users, such as 17.3
        self.attempt = attempt
        self.heard_at = now
        self.held: dict[int, QueuedCall] = {}
        self.claims: frozenset[int] = frozenset()  # calls that it had before this queue knew of it
        self.asked = 0  # the number of its newest question
        self.sent: list[int] = []  # calls in the answer to it, which may be lost


class CallQueue:
    """All calls of one executor, by their numbers."""

    def __init__(self, id: str, python: str, now: float) -> None:
        self.id = id
        self.python = python
        self.seen_at = now  # by its client
        self.calls: dict[int, QueuedCall] = {}
        self.bytes = 0
        self.results_bytes = 0
        self.workers: dict[str, ServingWorker] = {}
        self._claimed: dict[int, ServingWorker] = {}  # by call: which of them said to have it
        self.silent: dict[str, int] = {}  # attempts of tasks that were given up
        self.taken: list[int] = []
        self.trouble = ""
        self.last = 0  # number of the newest result
        self._newest = -1  # number of the newest call
        self._waiting: OrderedDict[int, QueuedCall] = OrderedDict()
        self._suspects: OrderedDict[int, QueuedCall] = OrderedDict()  # to be given alone
        self._unclaimed: OrderedDict[int, QueuedCall] = OrderedDict()  # begun, nobody says where
        self._unclaimed_at = now  # when the newest of them came
        self._results: deque[tuple[int, CallResult]] = deque()
        self._functions: dict[str, QueuedFunction] = {}

    # From the client.

    def post(self, batches: Iterable[CallBatch], now: float) -> int:
        """Take calls in; how many of them, in their order. One that was here before is not taken twice."""
        accepted = 0
        for batch in batches:
            function = self._functions.get(batch.digest) or QueuedFunction(batch.digest, batch.function)
            for each in batch.calls:
                if each.id > self._newest:
                    call = QueuedCall(each.id, function, each.arguments, batch.retries)
                    if not self._has_room(call):
                        return accepted
                    self._add(call)
                    if each.begun:
                        self._set_aside(call, now)
                accepted += 1
        return accepted

    def withdraw(self, ids: Iterable[int]) -> list[int]:
        """Forget calls that no worker has; the numbers of those that were forgotten."""
        gone = [id for id in ids if id in self._waiting or id in self._suspects]
        for id in gone:
            self._remove(self.calls[id])
        return gone

    def results_after(self, last: int) -> list[CallResult]:
        """The results that the client has not seen, as many as fit into a message; those it has are forgotten."""
        while self._results and self._results[0][0] <= last:
            _, seen = self._results.popleft()
            self.results_bytes -= _size(seen)
        found: list[CallResult] = []
        size = 0
        for _, result in self._results:
            size += _size(result)
            if found and (size > BATCH_BYTES or len(found) >= BATCH_CALLS_MAX):
                break
            found.append(result)
        return found

    def last_of(self, results: list[CallResult], last: int) -> int:
        """The number of the newest of these results, which begin after `last`."""
        return self._results[len(results) - 1][0] if results else last

    # From workers.

    def hear(self, task: str, attempt: int, now: float) -> ServingWorker:
        """Note a sign of life. A later attempt of the same task proves that the former has ended."""
        worker = self.workers.get(task)
        if worker is not None and worker.attempt < attempt:
            self.lose(worker)
            worker = None
        if worker is None:
            worker = self.workers[task] = ServingWorker(task, attempt, now)
        self.silent.pop(task, None)
        worker.heard_at = now
        return worker

    def ask(self, worker: ServingWorker, number: int, received: int) -> None:
        """A worker asks for calls: those in an answer that it has not received wait again."""
        if worker.sent and received < worker.asked:
            self._return(worker.sent, worker)
        worker.asked, worker.sent = number, []

    def claim(self, worker: ServingWorker, ids: Iterable[int]) -> None:
        """A worker says which calls it has since before this queue."""
        self._forget_claims(worker)
        worker.claims = frozenset(ids)
        self._claimed.update(dict.fromkeys(worker.claims, worker))
        for id in worker.claims & self._unclaimed.keys():
            self._hold(self._unclaimed.pop(id), worker)

    def has_call_for(self, worker: ServingWorker) -> bool:
        if self.results_bytes > RESULTS_BYTES_MAX or any(each.losses for each in worker.held.values()):
            return False
        return bool(self._waiting or (self._suspects and not worker.held))

    def take(self, worker: ServingWorker, want: int, known: Iterable[str]) -> list[CallBatch]:
        """Calls for a worker, at most its share of those that wait; functions that it knows without their bytes."""
        if not self.has_call_for(worker):
            return []
        given = self._alone() if self._suspects and not worker.held else self._share(want)
        for call in given:
            self._hold(call, worker)
        worker.sent = [call.id for call in given]
        self.taken += worker.sent
        return _batches(given, set(known))

    def give(self, results: Iterable[CallResult], returned: Iterable[int], worker: ServingWorker) -> None:
        """Take results in, and calls back that the worker has not begun."""
        for result in results:
            call = self.calls.get(result.id)
            if call is None:
                continue  # it was finished by another
            if result.outcome == DIED and call.holder is worker:
                self._let_go(call)
                self._lost(call, result.text, worker)
            elif result.outcome != DIED:
                self._finish(call, result)
        self._return(returned, worker)

    def is_full(self) -> bool:
        """Whether the client has to read results before more are taken."""
        return self.results_bytes > RESULTS_BYTES_MAX

    # From the coordinator.

    def give_up(self, worker: ServingWorker, *, is_paused: bool) -> None:
        """A worker has been silent too long: its calls go to others."""
        if not is_paused:
            self.silent[worker.task] = worker.attempt
        self.lose(worker)

    def release_unclaimed(self, now: float) -> None:
        """Calls that no worker has claimed in time wait like others."""
        if self._unclaimed and now - self._unclaimed_at > UNCLAIMED_S:
            self._waiting.update(self._unclaimed)
            self._unclaimed.clear()

    def lose(self, worker: ServingWorker) -> None:
        """A worker is gone: all of its calls wait again."""
        self.workers.pop(worker.task, None)
        self._forget_claims(worker)
        for call in list(worker.held.values()):
            self._let_go(call)
            self._lost(call, f"the worker {worker.called} was lost", worker)

    def _forget_claims(self, worker: ServingWorker) -> None:
        for id in worker.claims:
            if self._claimed.get(id) is worker:
                del self._claimed[id]

    def _return(self, ids: Iterable[int], worker: ServingWorker) -> None:
        for id in reversed(list(ids)):
            call = self.calls.get(id)
            if call is not None and call.holder is worker:
                self._let_go(call)
                place = self._suspects if call.losses else self._waiting
                place[id] = call
                place.move_to_end(id, last=False)

    def _alone(self) -> list[QueuedCall]:
        return [self._suspects.popitem(last=False)[1]]

    def _share(self, want: int) -> list[QueuedCall]:
        most = min(want, max(1, len(self._waiting) // (2 * max(1, len(self.workers)))), BATCH_CALLS_MAX)
        given: list[QueuedCall] = []
        size = 0
        while self._waiting and len(given) < most:
            call = next(iter(self._waiting.values()))
            size += len(call.arguments)
            if given and size > BATCH_BYTES:
                break
            given.append(self._waiting.popitem(last=False)[1])
        return given

    def _has_room(self, call: QueuedCall) -> bool:
        more = call.size + (0 if call.function.calls else len(call.function.pickled))
        return not self.calls or (len(self.calls) < CALLS_MAX and self.bytes + more <= CALLS_BYTES_MAX)

    def _add(self, call: QueuedCall) -> None:
        self._newest = call.id
        self.calls[call.id] = self._waiting[call.id] = call
        self.bytes += call.size
        if not call.function.calls:
            self._functions[call.function.digest] = call.function
            self.bytes += len(call.function.pickled)
        call.function.calls += 1

    def _set_aside(self, call: QueuedCall, now: float) -> None:
        """A call that a worker may still run: its worker has it, or is yet to be heard."""
        del self._waiting[call.id]
        holder = self._claimed.get(call.id)
        if holder is not None:
            self._hold(call, holder)
        else:
            self._unclaimed[call.id] = call
            self._unclaimed_at = now

    def _hold(self, call: QueuedCall, worker: ServingWorker) -> None:
        call.holder = worker
        worker.held[call.id] = call

    def _let_go(self, call: QueuedCall) -> None:
        if call.holder is not None:
            call.holder.held.pop(call.id, None)
            call.holder = None

    def _lost(self, call: QueuedCall, text: str, worker: ServingWorker) -> None:
        call.losses += 1
        if call.losses > call.retries:
            times = f"{call.losses} times" if call.losses > 1 else "once"
            told = f"{text}; the call was tried {times}"
            self._finish(call, CallResult(call.id, DIED, text=told, code="CallLost", worker=worker.called))
        else:
            self._suspects[call.id] = call

    def _finish(self, call: QueuedCall, result: CallResult) -> None:
        self._let_go(call)
        self._remove(call)
        self.last += 1
        self._results.append((self.last, result))
        self.results_bytes += _size(result)

    def _remove(self, call: QueuedCall) -> None:
        self._waiting.pop(call.id, None)
        self._suspects.pop(call.id, None)
        self._unclaimed.pop(call.id, None)
        del self.calls[call.id]
        self.bytes -= call.size
        call.function.calls -= 1
        if not call.function.calls:
            del self._functions[call.function.digest]
            self.bytes -= len(call.function.pickled)


def _size(result: CallResult) -> int:
    return CALL_COST + len(result.value) + len(result.text)


def _batches(calls: list[QueuedCall], known: set[str]) -> list[CallBatch]:
    """The calls, those of one function together if they follow each other."""
    batches: list[CallBatch] = []
    for call in calls:
        if not batches or batches[-1].digest != call.function.digest:
            pickled = b"" if call.function.digest in known else call.function.pickled
            known.add(call.function.digest)
            batches.append(CallBatch(call.function.digest, [], pickled))
        batches[-1].calls.append(PostedCall(call.id, call.arguments))
    return batches
