"""A node: a keeper with its processes, and a runner that comes and goes. Its clock is its own."""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from phalanx.core.model.resources import Capacity
from phalanx.sim import keeper as keeping
from phalanx.sim import runner as running
from phalanx.sim.keeper import Keeper
from phalanx.sim.network import Network
from phalanx.sim.runner import Runner
from phalanx.sim.world import LocalClock, World


class Watcher(keeping.Watcher, running.Watcher, Protocol):
    """Who looks at a node from outside."""


class Node:
    """One machine, through its reboots."""

    def __init__(
        self,
        world: World,
        name: str,
        capacity: Capacity,
        clock: LocalClock,
        network: Network,
        doors: list[str],
        watcher: Watcher,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self._world = world
        self._clock = clock
        self._network = network
        self._doors = doors
        self._watcher = watcher
        self._lives = 0
        self._boots = 0
        self.is_powered = True
        self.keeper = Keeper(world, name, clock, watcher)
        self.runner = self._new_runner()

    def crash_runner(self, for_s: float) -> None:
        """The runner dies; whoever looks after it starts a new one."""
        if self.runner.is_alive:
            self._world.tell(f"{self.runner.name} crashes")
            self.runner.end()
            self._world.after(for_s, self._start_runner, self._boots)

    def crash_keeper(self, for_s: float) -> None:
        """The keeper dies, and its runner starts another, which ends what the first one ran.

        While neither of the two is alive, nobody watches the lease; that limit is documented, so it is not tried.
        """
        if self.keeper.is_alive and self.runner.is_alive and not self.runner.is_paused:
            self._world.tell(f"{self.keeper.name} crashes")
            self.keeper.end()
            self._world.after(for_s, self._revive_keeper, self._boots)

    def reboot(self, for_s: float, keeps_journal: bool) -> None:
        """Keeper and processes die as well. The journal tells the next keeper what there was, if it is kept."""
        if not self.is_powered:
            return
        self._world.tell(f"{self.name} loses its power, its journal is {'kept' if keeps_journal else 'lost'}")
        self.is_powered = False
        self._boots += 1
        self.runner.vanish()
        self.keeper.lose_power()
        self._world.after(for_s, self._boot, keeps_journal)

    def move(self, labels: dict[str, str]) -> None:
        """It stands elsewhere from its next start on."""
        self.capacity = structs.replace(self.capacity, labels=labels)

    def _boot(self, keeps_journal: bool) -> None:
        self.is_powered = True
        self._replace_keeper(keeps_journal)
        self._start_runner(self._boots)

    def _revive_keeper(self, boot: int) -> None:
        if boot == self._boots:
            self.keeper.end_processes()
            self._replace_keeper(keeps_journal=True)
            self.runner.call(self.runner.reattach, self.keeper)

    def _replace_keeper(self, keeps_journal: bool) -> None:
        former = self.keeper
        self.keeper = Keeper(self._world, self.name, self._clock, self._watcher)
        if keeps_journal:
            self.keeper.table = former.table
        else:
            self._watcher.journal_lost(self.name)

    def _start_runner(self, boot: int) -> None:
        if boot == self._boots and not self.runner.is_alive:
            self.runner = self._new_runner()

    def _new_runner(self) -> Runner:
        self._lives += 1
        incarnation = f"{self.name}-{self._lives}"
        runner = Runner(
            self._world, incarnation, self.capacity, self.keeper, self._network, self._doors, self._watcher
        )
        self._world.tell(f"{incarnation} starts with {len(self.keeper.table)} attempts adopted")
        runner.begin()
        return runner
