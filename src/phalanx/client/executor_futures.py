"""A call without a result and its future: what is sent, how often it was tried, and what its future is given.

No I/O. Which calls are sent when is decided by their pool (`executor_pool`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from phalanx.api.schema.calls import CallResult
from phalanx.client.pickles import PickledFunction, error_of
from phalanx.errors import CallFailed


class RetryRule(NamedTuple):
    """How often a call that raises runs again, and after which exceptions."""

    retries: int = 0
    retry_on: tuple[type[BaseException], ...] = (Exception,)


class CallFuture(Future[Any]):
    """The future of a call. It can be cancelled until a worker has been given the call."""

    call: RemoteCall  # the newest try

    def __init__(self, withdraw: Callable[[list[RemoteCall]], None]) -> None:
        super().__init__()
        self._withdraw = withdraw

    def cancel(self) -> bool:
        """Take the call back, if no worker has it yet; it will never run then."""
        if self.done() or self.running():
            return super().cancel()
        self._withdraw([self.call])
        return self.cancelled()

    def cancel_here(self) -> None:
        """The call is taken back: say so to all who wait."""
        if super().cancel():
            self.set_running_or_notify_cancel()


class RemoteCall:
    """One try of a call that has no result yet. Another try has another number and the same future."""

    __slots__ = ("arguments", "function", "future", "has_begun", "id", "is_sent", "rule", "tries")

    def __init__(
        self,
        id: int,
        function: PickledFunction,
        arguments: bytes,
        rule: RetryRule,
        future: CallFuture,
        tries: int = 1,
    ) -> None:
        self.id = id
        self.function = function
        self.arguments = arguments
        self.rule = rule
        self.future = future
        self.tries = tries  # this one included
        self.is_sent = False
        self.has_begun = False  # a worker has it
        future.call = self

    @property
    def size(self) -> int:
        return len(self.arguments)

    def may_retry(self, result: CallResult) -> bool:
        """Whether the call is to run again after this result: an exception of the right type, and not too often."""
        if result.outcome != "raised" or self.tries > self.rule.retries:
            return False
        return isinstance(error_of(result), self.rule.retry_on)

    def again(self, id: int) -> RemoteCall:
        """The next try."""
        return RemoteCall(id, self.function, self.arguments, self.rule, self.future, self.tries + 1)


def begin(future: CallFuture) -> None:
    """A worker has the call."""
    if not future.running() and not future.done():
        future.set_running_or_notify_cancel()


def settle(call: RemoteCall, result: CallResult) -> None:
    """Give a future its result."""
    future = call.future
    begin(future)
    if future.done():
        return
    if result.outcome != "returned":
        future.set_exception(error_of(result, call.tries))
        return
    try:
        value = pickle.loads(result.value)  # noqa: S301 - from our own worker
    except Exception as error:  # an object may fail to be made again in any way
        failed = CallFailed(f"the result cannot be unpickled here: {error!r}", reason="ResultNotPicklable")
        failed.__cause__ = error
        future.set_exception(failed)
    else:
        future.set_result(value)
