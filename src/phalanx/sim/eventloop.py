"""asyncio under virtual time: the event loop of one simulated process, so that real coroutines run unchanged.

Each process has its own loop, because each may be paused or die alone. Callbacks run when the world's clock reaches
them; a timer counts by the machine's own clock, which is a little fast or slow. There are no sockets here: everything
from outside arrives through `Life.call`.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop as set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any, TypeVar

from phalanx.errors import PhalanxError
from phalanx.sim.life import Life
from phalanx.sim.world import LocalClock
from phalanx.store.protocol import StoreError

CLOSE_TRIES_MAX = 20
T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class EventLoop(asyncio.AbstractEventLoop):
    """The part of asyncio's event loop that tasks, futures, events and timeouts need."""

    def __init__(self, life: Life, clock: LocalClock) -> None:
        self._life = life
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._is_awake = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._mistake: BaseException | None = None

    def begin(self, work: Work[Any]) -> None:
        """Start a coroutine. An exception of it, other than a StoreError, ends the run of the simulator."""
        self.create_task(work)

    def abandon(self) -> None:
        """The run is over: end what still waits here, so that no warning about it appears later."""
        self._life.end()
        set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
                    _close(task.get_coro())
        finally:
            set_running_loop(None)
        self._tasks.clear()
        self._ready.clear()

    # What asyncio calls.

    def time(self) -> float:
        return self._clock.monotonic()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_awake:
            self._is_awake = True
            self._life.later(0.0, self._turn)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._life.later(self._clock.delay_s(when), self._due, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self._mistake = self._mistake or error

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The handle stays in the world's queue and does nothing when it is due."""

    # Turns of the loop.

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self._ready.append(handle)
            self._turn()

    def _turn(self) -> None:
        """Run all callbacks that are ready; what becomes ready meanwhile runs in the next turn, at the same instant."""
        self._is_awake = True
        set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if self._life.is_alive and not handle.cancelled():
                    handle._run()  # noqa: SLF001 - as every event loop does
        finally:
            set_running_loop(None)
        if self._mistake is not None:
            raise self._mistake
        self._is_awake = bool(self._ready)
        if self._is_awake:
            self._life.later(0.0, self._turn)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreError):
            self._mistake = self._mistake or error


def an_event_loop(life: Life, clock: LocalClock) -> EventLoop:
    """The loop of one process. It implements only what coroutines without sockets need of asyncio's abstract class."""
    return EventLoop(life, clock)  # type: ignore[abstract]


def _close(work: Any) -> None:
    """Close a coroutine, again whenever it awaits something while it ends; errors on the way do not matter."""
    for _ in range(CLOSE_TRIES_MAX):
        if getcoroutinestate(work) == CORO_CLOSED:
            return
        with suppress(AssertionError, RuntimeError, PhalanxError, StoreError):
            work.close()


def outside(life: Life) -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
    """A future for something that happens outside of this process, and the function that settles it.

    The outcome waits for a paused process and is lost for a dead one. An exception is raised in the process.
    """
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(outcome: Any) -> None:
        if future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def resolve(outcome: Any) -> None:
        life.call(settle, outcome)

    return future, resolve
