"""Virtual time: a heap of what happens next, and a clock that leaps from one event to the next.

Everything a run does follows from one seed. Each purpose has its own random numbers, so that one more draw for the
network does not change what the users do. Every traced line goes into the hash of the trace.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

BEGINNING_S = 1_000_000.0
TAIL_LINES = 40
CALLS_AT_ONCE_MAX = 20_000


class World:
    """One process, one thread, one clock."""

    def __init__(self, seed: int, listener: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = BEGINNING_S
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._listener = listener
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._hash = hashlib.blake2b(digest_size=8)

    def dice(self, purpose: str) -> Random:
        """Random numbers for one purpose. A text seeds them through SHA-512, never through the salted `hash`."""
        return Random(f"{self.seed}/{purpose}")

    def after(self, delay_s: float, effect: Callable[..., None], *args: Any) -> None:
        """Call it later; calls due at the same instant happen in the order they were asked for."""
        self._sequence += 1
        due = self.now + delay_s if delay_s > 0.0 else self.now  # quicker than max(), and called most of all
        heappush(self._queue, (due, self._sequence, effect, args))

    def run(self, until: float) -> None:
        """Let time pass. A process that never waits, so that time cannot pass, is a mistake."""
        at, effects = self.now, 0
        while self._queue and self._queue[0][0] <= until:
            self.now, _, effect, args = heappop(self._queue)
            effects = effects + 1 if self.now == at else 0
            at = self.now
            if effects > CALLS_AT_ONCE_MAX:
                raise RuntimeError(
                    f"time stands still: {effects} effects at one instant, the last is {effect} {args}"
                )
            effect(*args)
        self.now = until

    def trace(self, line: str) -> None:
        """Add one line to the trace."""
        line = f"{self.now - BEGINNING_S:8.3f}  {line}"
        self._hash.update(line.encode())
        self.tail.append(line)
        if self._listener is not None:
            self._listener(line)

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()


class LocalClock:
    """A machine's own clock: off by some seconds, a little fast or slow, and its wall time can be set."""

    def __init__(self, world: World, offset_s: float, rate: float) -> None:
        self._world = world
        self._offset_s = offset_s
        self._rate = rate
        self._set_by_s = 0.0

    def now(self) -> float:
        return self.monotonic() + self._set_by_s

    def monotonic(self) -> float:
        """The clock that cannot be set."""
        return BEGINNING_S + self._offset_s + (self._world.now - BEGINNING_S) * self._rate

    def delay_s(self, until: float) -> float:
        """How long it really takes until the monotonic clock shows `until`."""
        return (until - self.monotonic()) / self._rate

    def step(self, by_s: float) -> None:
        """Set the machine's wall time."""
        self._set_by_s += by_s


class VirtualClock:
    """As `phalanx.clock.SteadyClock`: reads the wall clock once and continues with the monotonic one."""

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._offset_s = clock.now() - clock.monotonic()

    def now(self) -> float:
        return self._offset_s + self._clock.monotonic()

    def monotonic(self) -> float:
        return self._clock.monotonic()
