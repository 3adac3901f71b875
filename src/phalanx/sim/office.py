"""The office of coordinator: which processes hold it or believe they do, and who starts the next one.

There is one address for runners and users; it leads to the newest process that has opened its doors, even if
that one is paused. An older process that was paused keeps its connections and its illusions.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.sim.coordinator import Coordinator
from phalanx.sim.world import World

WATCH_S = 1.0


class Office:
    """Every coordinator of a run, oldest first."""

    def __init__(self, world: World, make: Callable[[str], Coordinator]) -> None:
        self.processes: list[Coordinator] = []
        self._world = world
        self._make = make
        self._vacant_until = 0.0

    def begin(self) -> None:
        self.take_over()
        self._watch()

    def take_over(self) -> None:
        """A new process opens a term, whoever else is alive."""
        process = self._make(f"c{len(self.processes) + 1}")
        self.processes.append(process)
        process.begin()

    def leave_vacant(self, for_s: float) -> None:
        self._vacant_until = self._world.now + for_s

    def listening(self) -> Coordinator | None:
        """Where the address leads."""
        return next((each for each in reversed(self.processes) if each.is_alive and each.is_open), None)

    def alive(self) -> list[Coordinator]:
        return [each for each in self.processes if each.is_alive]

    def _watch(self) -> None:
        """Somebody always looks after it: a vacant office is filled again."""
        if not self.alive() and self._world.now >= self._vacant_until:
            self.take_over()
        self._world.after(WATCH_S, self._watch)
