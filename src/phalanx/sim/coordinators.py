"""The coordinators of a run: their seats, the processes on them, and the restart of dead ones.

A seat is a name and an address. The address leads to the newest process there that has started to listen, even if that
one is paused. An older process of the same seat that was paused keeps its connections and what it believes.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.sim.coordinator import SimulatedCoordinator
from phalanx.sim.world import World

WATCH_S = 1.0


class SimulatedCoordinators:
    """All coordinators of a run, oldest first."""

    def __init__(
        self, world: World, seats: list[str], make: Callable[[str, str], SimulatedCoordinator]
    ) -> None:
        self.seats = seats
        self.processes: list[SimulatedCoordinator] = []
        self._world = world
        self._make = make
        self._vacant_until = dict.fromkeys(seats, 0.0)

    def begin(self) -> None:
        for seat in self.seats:
            self.sit(seat)
        self._watch()

    def sit(self, seat: str) -> None:
        """Start a new process on this seat, even if another one there is alive."""
        process = self._make(f"c{len(self.processes) + 1}", seat)
        self.processes.append(process)
        process.begin()

    def leave_vacant(self, seat: str, for_s: float) -> None:
        """Start no process on this seat for a while."""
        self._vacant_until[seat] = self._world.now + for_s

    def at(self, seat: str) -> SimulatedCoordinator | None:
        """The process that the seat's address leads to."""
        sitting = [each for each in reversed(self.processes) if each.is_alive and each.seat == seat]
        return next((each for each in sitting if each.is_open), sitting[0] if sitting else None)

    def leader(self) -> SimulatedCoordinator | None:
        """The coordinator that leads, or believes so, under the highest epoch."""
        leading = [each for each in self.processes if each.is_alive and each.is_open]
        return max(leading, key=lambda each: each.state.epoch, default=None)

    def alive(self) -> list[SimulatedCoordinator]:
        return [each for each in self.processes if each.is_alive]

    def _watch(self) -> None:
        """Restart the process of every empty seat, as an init system does."""
        for seat in self.seats:
            if self.at(seat) is None and self._world.now >= self._vacant_until[seat]:
                self.sit(seat)
        self._world.after(WATCH_S, self._watch)
