"""`phalanx.Executor`: Python functions on a cluster, as `concurrent.futures` has them.

    with phalanx.Executor(client, cores=1) as executor:
        print(sum(executor.map(score, range(10_000))))

Calls run in Python workers, tasks of an array that stay while there are calls and each serve many. Calls with the same
resources share them. A call runs at least once: again, and alone, if its process or its node was lost, and after an
exception if it may be retried.
"""

from __future__ import annotations

import atexit
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast
from weakref import WeakSet

import msgspec

from phalanx.api.schema.calls import RETRIES_MAX
from phalanx.client.client import Client
from phalanx.client.executor_futures import CallFuture, RetryRule
from phalanx.client.executor_jobs import WORKERS_MAX, CallFields, WorkerJobs
from phalanx.client.executor_pool import CallPool
from phalanx.client.keywords import check_keywords
from phalanx.client.pickles import pickle_arguments, pickle_function
from phalanx.client.plain_values import plain_value
from phalanx.clock import Deadline
from phalanx.errors import BadRequest, CallFailed

R = TypeVar("R")
RetryOn = type[BaseException] | tuple[type[BaseException], ...]
IDLE_S_MAX = 86_400
FOREVER_S = threading.TIMEOUT_MAX
_OF_CALLS = ("retries", "retry_on", *CallFields.__annotations__)
_OF_EXECUTORS = ("max_workers", "python", "address", "lost_retries", "idle_s")
_ARGUMENTS = (*_OF_EXECUTORS, *_OF_CALLS)
_OF_ALL_CALLS = dict.fromkeys(_OF_EXECUTORS, "it is the same for all calls, give it to Executor()")
_NOT_OF_CALLS = dict.fromkeys(
    ("time_limit", "timeout"), "a call has no limit; future.result(timeout=…) stops waiting"
)
_open: WeakSet[SharedPools] = WeakSet()  # those that the end of the program has to end


class SharedPools:
    """What an executor shares with those of other resources: the client, the pools, and whether it is shut down."""

    def __init__(
        self,
        client: Client | None,
        max_workers: int | None,
        python: str | None,
        lost_retries: int,
        reach: dict[str, str],
    ) -> None:
        self.told: dict[str, object] = {} if max_workers is None else {"max_workers": max_workers}
        self._owns_client = client is None
        self.client = client or Client()
        self._max_workers = max_workers
        self._python = python
        self._lost_retries = lost_retries
        self._reach = reach
        self._pools: dict[bytes, CallPool] = {}
        self._lock = threading.Lock()
        self.is_shut_down = False
        _open.add(self)

    def pool(self, fields: CallFields) -> CallPool:
        """The pool of these resources; RuntimeError after the shutdown, as the standard has it."""
        key = msgspec.json.encode(fields, order="deterministic")
        with self._lock:
            if self.is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            found = self._pools.get(key)
            if found is None:
                found = self._pools[key] = self._made(fields)
            return found

    def _made(self, fields: CallFields) -> CallPool:
        name = f"e{secrets.token_hex(12)}"
        jobs = WorkerJobs(
            self.client,
            name,
            fields,
            max_workers=self._max_workers,
            python=self._python,
            reach=self.client._worker_access() | self._reach,  # noqa: SLF001 - of this package
        )
        return CallPool(self.client, name, jobs, self._lost_retries, self._make_room)

    def _make_room(self, starved: CallPool) -> None:
        """Calls of one pool have no room: idle workers of the others give back what they hold."""
        with self._lock:
            others = [pool for pool in self._pools.values() if pool is not starved]
        for pool in others:
            pool.release()

    def shut_down(self, *, wait: bool, cancel_futures: bool, at_once: bool = False) -> None:
        with self._lock:
            self.is_shut_down = True
            pools, self._pools = list(self._pools.values()), {}
        if cancel_futures or at_once:
            for pool in pools:
                pool.cancel_all()
        ending = threading.Thread(
            target=self._end, args=(pools, at_once), name="phalanx-shutdown", daemon=True
        )
        ending.start()
        if wait:
            ending.join()

    def _end(self, pools: list[CallPool], at_once: bool) -> None:
        for pool in pools:
            if not at_once:
                pool.join()
            pool.close(at_once=at_once)
        _open.discard(self)
        if self._owns_client:
            self.client.close()


class Executor(StandardExecutor):
    """Runs calls on the workers of a cluster. Resources are those of each call; threads may share it."""

    def __init__(
        self,
        client: Client | None = None,
        *,
        max_workers: int | None = None,
        python: str | None = None,
        address: str | None = None,
        retries: int = 0,
        retry_on: RetryOn = Exception,
        lost_retries: int = 3,
        idle_s: float = 10.0,
        **resources: Unpack[CallFields],
    ) -> None:
        """`client` is a `Client`, `phalanx.local()`, or None for the cluster that the settings name.

        At most `max_workers` workers run at once, by default as many as the nodes could hold. `python` is the program
        of the workers, by default that of this process; it must have phalanx, cloudpickle and the same minor version.
        `address` is where workers reach the coordinators, if not where this client does. A call that raises `retry_on`
        (an exception type, or several) runs again at most `retries` times, one whose process died or whose node was
        lost at most `lost_retries` times. A worker without calls ends after `idle_s` and gives back what it holds.
        """
        check_keywords("Executor", resources, _ARGUMENTS, hints=_NOT_OF_CALLS)
        if not isinstance(client, Client | None):
            raise TypeError(
                f"client = {client!r:.80} is not a phalanx.Client: give phalanx.Client(ADDRESS), or none"
            )
        _check("max_workers", max_workers, 1, WORKERS_MAX)
        _check("lost_retries", lost_retries, 0, RETRIES_MAX)
        _check("idle_s", idle_s, 0, IDLE_S_MAX)
        reach = {"PHALANX_EXECUTOR_IDLE_S": f"{idle_s:g}"}
        if address:
            reach["PHALANX_EXECUTOR_ADDRESS"] = address
        self._rule = _rule(retries, retry_on)
        self._shared = SharedPools(client, max_workers, python, lost_retries, reach)
        self._fields = _plain(resources)

    def with_resources(
        self, *, retries: int | None = None, retry_on: RetryOn | None = None, **resources: Unpack[CallFields]
    ) -> Executor:
        """The same executor for calls with other resources: `executor.with_resources(gpus=1).submit(train)`.

        `retries` and `retry_on` are those of its calls. Both end with the shutdown of either.
        """
        check_keywords("with_resources", resources, _OF_CALLS, hints=_NOT_OF_CALLS | _OF_ALL_CALLS)
        other = object.__new__(type(self))
        other._shared = self._shared
        other._rule = _rule(
            self._rule.retries if retries is None else retries,
            self._rule.retry_on if retry_on is None else retry_on,
        )
        other._fields = cast(CallFields, {**self._fields, **_plain(resources)})
        return other

    def __repr__(self) -> str:
        told = self._shared.told | self._fields
        return f"Executor({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """A future of `fn(*args, **kwargs)`. What cannot be pickled is an error of this future."""
        pool = self._shared.pool(self._fields)
        try:
            call = pickle_function(fn), pickle_arguments(fn, args, kwargs)
        except CallFailed as error:
            return _failed(error)
        return pool.add([call], self._rule)[0]

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[R]:
        """The results of `fn` for each item, in their order, from one array of workers. All calls are sent now.

        `chunksize` changes nothing: how many calls travel together follows from how long they take.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        deadline = Deadline(timeout)
        pool = self._shared.pool(self._fields)
        function = pickle_function(fn)
        calls = [(function, pickle_arguments(fn, args, {})) for args in zip(*iterables, strict=False)]
        return _in_order(pool, pool.add(calls, self._rule), deadline, is_timed=timeout is not None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls, and end the workers when all calls have ended."""
        self._shared.shut_down(wait=wait, cancel_futures=cancel_futures)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Wait for all calls; but if the program is interrupted, cancel them and the job of the workers."""
        is_interrupted = error is not None and not isinstance(error, Exception)
        self._shared.shut_down(wait=True, cancel_futures=is_interrupted, at_once=is_interrupted)
        return None


def _in_order(
    pool: CallPool, futures: list[CallFuture], deadline: Deadline, *, is_timed: bool
) -> Iterator[Any]:
    """The results one after another; whoever stops reading cancels the rest."""
    futures.reverse()
    try:
        while futures:
            yield futures.pop().result(deadline.left_s(FOREVER_S) if is_timed else None)
    finally:
        if futures:
            pool.cancel([future.call for future in futures])


def _plain(given: CallFields) -> CallFields:
    """Resources in the form of a submission; what is None is as if it were not given."""
    found = {name: plain_value(name, value) for name, value in given.items() if value is not None}
    return cast(CallFields, found)


def _failed(error: CallFailed) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _rule(retries: int, retry_on: object) -> RetryRule:
    """The rule for calls that raise; BadRequest if it is none."""
    _check("retries", retries, 0, RETRIES_MAX)
    types = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    wrong = [each for each in types if not (isinstance(each, type) and issubclass(each, BaseException))]
    if wrong or not types:
        raise BadRequest(
            f"retry_on = {str(retry_on)[:80]} is not possible: expected exception types, such as"
            " (OSError, TimeoutError)"
        )
    return RetryRule(retries, types)


def _check(name: str, value: float | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise BadRequest(f"{name} = {value} is not possible: expected {least} to {most}")


@atexit.register
def _end_all() -> None:
    """A program that ends without a shutdown leaves no workers behind."""
    for shared in list(_open):
        with suppress(Exception):
            shared.shut_down(wait=True, cancel_futures=True, at_once=True)
