"""A modelled process: it does what its script says, and reacts to signals as a real one does.

It belongs to the machine and not to its keeper: it goes on while the keeper is stopped or dead, and its parent at that
time, if any, sees its end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random

from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.sim.script import Script
from phalanx.sim.world import World

DIES_WITHIN_S = 0.5  # of SIGTERM


class SimulatedProcess:
    """One process, from its start to its end."""

    def __init__(
        self,
        world: World,
        dice: Random,
        attempt: KeptAttempt,
        fate: Script,
        ended: Callable[[SimulatedProcess], None],
    ) -> None:
        self.attempt = attempt
        self.is_alive = True
        self.code: int | None = None
        self.signal: int | None = None
        self._world = world
        self._dice = dice
        self._fate = fate
        self._ended = ended
        self._left_s = fate.run_s  # seconds of work left
        self._working_since: float | None = None  # None while it is frozen
        self._timer = 0  # only the newest timer may end it
        self._is_leaving = False  # it has received and obeyed SIGTERM
        self._work()

    def take(self, number: int) -> None:
        """A signal arrives."""
        if not self.is_alive:
            return
        if number == signal.SIGKILL:
            self._end(None, number)
        elif number == signal.SIGSTOP:
            self._freeze()
        elif number == signal.SIGCONT and self._working_since is None:
            self._work()
        elif number == signal.SIGTERM and self._fate.heeds_sigterm and not self._is_leaving:
            self._is_leaving = True
            if self._working_since is not None:
                self._work()

    def _freeze(self) -> None:
        if self._working_since is not None:
            self._left_s -= self._world.now - self._working_since
            self._working_since = None
            self._timer += 1

    def _work(self) -> None:
        """Continue with the work that is left; after SIGTERM a process ends soon, or earlier if its work is done."""
        self._freeze()
        self._working_since = self._world.now
        dies_s = self._dice.uniform(0.0, DIES_WITHIN_S) if self._is_leaving else None
        if dies_s is not None and dies_s < self._left_s:
            self._arm(dies_s, None, signal.SIGTERM)
        else:
            self._arm(max(0.0, self._left_s), self._fate.code, self._fate.signal)

    def _arm(self, delay_s: float, code: int | None, number: int | None) -> None:
        self._timer += 1
        self._world.after(delay_s, self._due, self._timer, code, number)

    def _due(self, timer: int, code: int | None, number: int | None) -> None:
        if self.is_alive and self._timer == timer:
            self._end(code, number)

    def _end(self, code: int | None, number: int | None) -> None:
        self.is_alive = False
        self.code, self.signal = code, None if number is None else int(number)
        self._ended(self)
