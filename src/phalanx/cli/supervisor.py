"""The supervisor: keeps the parts of a cluster alive, and stops them in order.

It has no thread and no event loop: signals are blocked and waited for, so that a fork is safe at any time.
Which parts there are is decided in `up.py`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from phalanx.cli.child import Child
from phalanx.cli.output import note
from phalanx.clock import Clock
from phalanx.errors import PhalanxError, Unavailable

ENDINGS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
WATCHED = ENDINGS | {signal.SIGCHLD}
READY_S = 300.0  # a long log takes a while to read; a part that dies is noticed at once
LOOK_S = 0.02
RUNNER_STOP_S = 20.0
COORDINATOR_STOP_S = 10.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 5.0
HEALTHY_S = 10.0


class Stopped(PhalanxError):
    """It was asked to stop before it was ready."""

    exit_code = 130


class Supervisor:
    """Watches one coordinator and its runners."""

    def __init__(self, coordinator: Child, runners: Sequence[Child], clock: Clock) -> None:
        self._coordinator = coordinator
        self._runners = runners
        self._clock = clock
        self._due: dict[Child, float] = {}  # when a child that died is started again
        self._pause_s: dict[Child, float] = {}
        self._started_at: dict[Child, float] = {}

    def start(self) -> None:
        for child in self._all:
            self._start(child)

    def await_ready(self, is_ready: Callable[[], bool]) -> None:
        """Until all parts work together. A part that dies now would die again, so that ends it."""
        until = self._clock.monotonic() + READY_S
        while not is_ready():
            if self._waited(LOOK_S) in ENDINGS:
                raise Stopped("stopped before it was ready")
            for child in self._all:
                if (code := child.reap()) is not None:
                    raise Unavailable(
                        f"{child.name} exited with code {code} while starting:\n{child.last_words()}"
                    )
            if self._clock.monotonic() > until:
                raise Unavailable(f"the cluster was not ready within {READY_S:g} s:\n{self._words()}")

    def watch(self) -> None:
        """Until it is asked to stop. A part that dies is restarted, after increasing delays."""
        while self._waited(self._next_due_s()) not in ENDINGS:
            for child in self._all:
                if (code := child.reap()) is not None:
                    self._plan_restart(child, code)
            for child in [each for each, at in self._due.items() if at <= self._clock.monotonic()]:
                del self._due[child]
                self._start(child)

    def stop(self) -> None:
        """Runners first, which stop their tasks and report it; then the coordinator, which writes it down."""
        self._stop(self._runners, RUNNER_STOP_S)
        self._stop([self._coordinator], COORDINATOR_STOP_S)

    @property
    def _all(self) -> list[Child]:
        return [self._coordinator, *self._runners]

    def _start(self, child: Child) -> None:
        self._started_at[child] = self._clock.monotonic()
        child.start()

    def _plan_restart(self, child: Child, code: int) -> None:
        now = self._clock.monotonic()
        healthy = now - self._started_at[child] > HEALTHY_S
        pause_s = PAUSE_FIRST_S if healthy else self._pause_s.get(child, PAUSE_FIRST_S)
        self._pause_s[child] = min(2 * pause_s, PAUSE_MAX_S)
        self._due[child] = now + pause_s
        note(f"{child.name} exited with code {code}, restarting in {pause_s:g} s; see {child.log}")

    def _next_due_s(self) -> float | None:
        return None if not self._due else max(0.0, min(self._due.values()) - self._clock.monotonic())

    def _waited(self, seconds: float | None) -> int | None:
        """The next signal, or None when the time is over."""
        if seconds is None:
            return signal.sigwaitinfo(WATCHED).si_signo
        got = signal.sigtimedwait(WATCHED, seconds)
        return got.si_signo if got else None

    def _stop(self, children: Sequence[Child], within_s: float) -> None:
        until = self._clock.monotonic() + within_s
        for child in children:
            child.send(signal.SIGTERM)
        while any(child.pid is not None and child.reap() is None for child in children):
            impatient = self._waited(max(0.0, until - self._clock.monotonic())) in ENDINGS
            if impatient or self._clock.monotonic() >= until:
                _kill(children)

    def _words(self) -> str:
        return "\n".join(filter(None, (child.last_words() for child in self._all)))


@contextmanager
def signals_held() -> Iterator[None]:
    """Signals wait until they are asked for, here and in no other thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill(children: Sequence[Child]) -> None:
    for child in children:
        child.send(signal.SIGKILL)
        if child.pid is not None:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
