"""A node: a machine with one keeper or two, a runner that may die and restart, and its own clock."""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from phalanx.core.model.orders import Start
from phalanx.core.model.resources import Capacity
from phalanx.sim import keeper as keeping
from phalanx.sim import runner as running
from phalanx.sim.keeper import KeeperDisk
from phalanx.sim.keeper_place import KeeperPlace
from phalanx.sim.network import Network
from phalanx.sim.runner import SimulatedRunner
from phalanx.sim.world import LocalClock, World

RUNNER_RESTARTS_S = 1.0
TWO_KEEPERS_SHARE = 0.3  # of the nodes


class NodeWatcher(keeping.KeeperWatcher, running.RunnerWatcher, Protocol):
    """Sees what a node does, from outside."""


class Node:
    """One machine, over all its reboots."""

    def __init__(
        self,
        world: World,
        name: str,
        capacity: Capacity,
        clock: LocalClock,
        network: Network,
        addresses: list[str],
        watcher: NodeWatcher,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.clock = clock
        self.boots = 0
        self._world = world
        self._network = network
        self._addresses = addresses
        self._watcher = watcher
        self._lives: list[SimulatedRunner] = []
        self._dice = world.dice(f"keepers of {name}")
        self.is_powered = True
        self.loses_starts = ""  # "runner" or "keeper": the part that loses the next starts; "" for none
        disk = KeeperDisk()
        disks = [disk, *([disk.beside()] if self._dice.random() < TWO_KEEPERS_SHARE else [])]
        self.places = [KeeperPlace(world, number, self, watcher, each) for number, each in enumerate(disks)]
        self._starts = disk.starts
        self.runner = self._new_runner()

    def __str__(self) -> str:
        return self.name

    def given(self, start: Start) -> None:
        self._starts[start.key] = start

    # What goes wrong.

    def crash_runner(self, for_s: float) -> None:
        """The runner dies and is restarted later."""
        if self.runner.is_alive:
            self._world.trace(f"{self.runner.name} crashes")
            self.runner.end()
            self._world.after(for_s, self._start_runner, self.boots)

    def pause_runner(self, for_s: float) -> None:
        """The runner hangs, perhaps past its lease; the keeper does not."""
        runner = self.runner
        if runner.is_alive and not runner.is_paused:
            runner.pause()
            self._world.after(for_s, runner.resume)

    def crash_keeper(self, for_s: float) -> None:
        self._a_place().crash(for_s)

    def lose_keeper(self, for_s: float) -> None:
        self._a_place().lose(for_s)

    def pause_keeper(self, for_s: float) -> None:
        self._a_place().pause(for_s)

    def lose_starts(self, for_s: float, part: str) -> None:
        """For a while attempts to start are lost: before the runner records them, or before the keeper does."""
        self.loses_starts = part
        self._world.after(for_s, setattr, self, "loses_starts", "")

    def reboot(self, for_s: float, keeps_journal: bool) -> None:
        """Keepers and processes die as well. If the journals are kept, the next keepers read them."""
        if not self.is_powered:
            return
        self._world.trace(
            f"{self.name} loses its power, its journal is {'kept' if keeps_journal else 'lost'}"
        )
        self.is_powered = False
        self.boots += 1
        self.runner.vanish()
        for place in self.places:
            place.power_off()
        self._world.after(for_s, self._boot, keeps_journal)

    def move(self, labels: dict[str, str]) -> None:
        """Change the node's labels from its next start on."""
        self.capacity = structs.replace(self.capacity, labels=labels)

    def wake(self) -> None:
        """Resume the runner and the keepers."""
        self.runner.resume()
        for place in self.places:
            place.let_go_on(place.keeper)

    def close(self) -> None:
        """The run is over."""
        for runner in self._lives:
            runner.events.abandon()

    # What follows.

    def _a_place(self) -> KeeperPlace:
        return self.places[0] if len(self.places) == 1 else self._dice.choice(self.places)

    def _boot(self, keeps_journal: bool) -> None:
        self.is_powered = True
        if not keeps_journal:
            for place in self.places:
                place.lose_journal()
            self._watcher.journal_lost(self.name)
        self._start_runner(self.boots)

    def _start_runner(self, boot: int) -> None:
        if boot == self.boots and not self.runner.is_alive:
            self.runner = self._new_runner()

    def _new_runner(self) -> SimulatedRunner:
        incarnation = f"{self.name}-{len(self._lives) + 1}"
        runner = SimulatedRunner(
            self._world, incarnation, self, self._network, self._addresses, self._watcher
        )
        self._lives.append(runner)
        boot = self.boots
        runner.begin(lambda: self._world.after(RUNNER_RESTARTS_S, self._start_runner, boot))
        return runner
