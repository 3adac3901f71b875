"""The watchdog beside a modelled keeper, as `runner/keeper/watchdog.py`: it ends what runs when the lease is over.

A keeper that is stopped past the end of its lease finds its processes killed; the processes of a dead one get SIGTERM
at the lease's end and SIGKILL after the grace, unless a new keeper has ended them before.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from phalanx.runner.keeper.table import FENCE_GRACE_S
from phalanx.runner.keeper.watchdog import LATE_S_MAX, lease_end_of_the_dead
from phalanx.sim.process import SimulatedProcess
from phalanx.sim.world import LocalClock, World


class SimulatedWatchdog:
    """One for each keeper process, which it outlives."""

    def __init__(self, world: World, clock: LocalClock, processes: dict[str, SimulatedProcess]) -> None:
        self.killed: set[str] = set()  # keys of the attempts that it ended while their keeper was stopped
        self._world = world
        self._clock = clock
        self._processes = processes
        self._lease_until = float("inf")
        self._grace_s = FENCE_GRACE_S
        self._kill_at = float("inf")
        self._looks = False

    def renew(self, until: float, grace_s: float) -> None:
        self._lease_until, self._grace_s = until, grace_s
        self._kill_at = until + grace_s + min(LATE_S_MAX, grace_s / 2)
        if not self._looks:
            self._looks = True
            self._at(self._kill_at, self._look)

    def keeper_died(self) -> None:
        now = self._clock.monotonic()
        until = lease_end_of_the_dead(self._lease_until, now)
        self._kill_at = float("inf")
        self._at(until, self._send, signal.SIGTERM, signal.SIGCONT)
        self._at(until + self._grace_s, self._send, signal.SIGKILL)

    def _look(self) -> None:
        now = self._clock.monotonic()
        self._looks = self._kill_at < float("inf")
        if now < self._kill_at:
            if self._looks:
                self._at(self._kill_at, self._look)
            return
        self._looks = False  # a renewal arms it again
        self.killed |= {name for name, process in self._processes.items() if process.is_alive}
        self._send(signal.SIGKILL)

    def _send(self, *numbers: int) -> None:
        for process in [*self._processes.values()]:
            for number in numbers:
                process.take(number)

    def _at(self, instant: float, effect: Callable[..., None], *numbers: int) -> None:
        self._world.after(max(0.0, self._clock.delay_s(instant)) + 1e-6, effect, *numbers)
