"""A blocking call in a thread of its own, with a deadline: a disk or driver that hangs must not hold up the runner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """One call at a time. While an earlier one hangs, none is begun: the answer is that it hangs."""

    def __init__(self, name: str, call: Callable[[], T], within_s: float) -> None:
        self._name = name
        self._call = call
        self._within_s = within_s
        self._answer: asyncio.Future[T] | None = None

    async def ask(self) -> T:
        """What it returns or raises; TimeoutError if it takes too long, or an earlier one still does."""
        if self._answer is None or self._answer.done():
            loop = asyncio.get_running_loop()
            self._answer = loop.create_future()
            self._answer.add_done_callback(_look_at)
            threading.Thread(
                target=self._run, args=(loop, self._answer), name=self._name, daemon=True
            ).start()
        async with asyncio.timeout(self._within_s):
            return await asyncio.shield(self._answer)

    def _run(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
        try:
            result = self._call()
        except Exception as error:
            failed = error
            with suppress(RuntimeError):  # the runner has stopped meanwhile
                loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_exception(failed))
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(result))


def _look_at(answer: asyncio.Future[T]) -> None:
    """An error that nobody waits for any more is no defect."""
    if not answer.cancelled():
        answer.exception()
