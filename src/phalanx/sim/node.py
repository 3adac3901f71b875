"""A node: a machine with processes, a keeper, a runner that may die and restart, and its own clock.

It is the `Machine` of the runner's loop, which connects to a keeper, or starts one when there is none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec import structs

from phalanx.core.model.orders import Start
from phalanx.core.model.resources import Capacity
from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.journal import JournalContents
from phalanx.runner.keeper.recovery import over
from phalanx.runner.keeper.table import KeeperTable
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.log_files import LogPath, read_name
from phalanx.runner.processes import KeeperFailed, Processes
from phalanx.sim import keeper as keeping
from phalanx.sim import runner as running
from phalanx.sim.eventloop import outside
from phalanx.sim.keeper import Keeper, KeeperDisk
from phalanx.sim.keeper_socket import KeeperSocket
from phalanx.sim.network import Network
from phalanx.sim.runner import SimulatedRunner
from phalanx.sim.world import LocalClock, World

KEEPER_STARTS_S = 0.05
RUNNER_RESTARTS_S = 1.0


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
        self._world = world
        self._network = network
        self._addresses = addresses
        self._watcher = watcher
        self._disk = KeeperDisk()
        self._lives: list[SimulatedRunner] = []
        self._boots = 0
        self._keeper_starts_s = KEEPER_STARTS_S
        self._no_keeper_until = 0.0
        self.is_powered = True
        self.loses_starts = ""  # "runner" or "keeper": the part that loses the next starts; "" for none
        self.keeper = Keeper(world, name, clock, watcher, self._disk)
        self.runner = self._new_runner()

    def __str__(self) -> str:
        return self.name

    # What the runner's loop is given.

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        await asyncio.sleep(0)
        keeper, runner = self.keeper, self.runner
        if not keeper.is_alive:
            raise ConnectionRefusedError(f"{keeper.name} is dead")
        processes = make()
        runner.keeper_socket = socket = KeeperSocket(runner, keeper, processes, self._passes)
        processes.connection_made(cast(asyncio.BaseTransport, socket))
        keeper.call(keeper.accept, socket)
        return processes

    def _passes(self, request: list[Any]) -> bool:
        """Whether a request reaches the keeper."""
        return self.loses_starts != "keeper" or request[0] != "start"

    async def start_keeper(self, within_s: float) -> None:
        started, resolve = outside(self.runner)
        if self._world.now < self._no_keeper_until:
            failed = KeeperFailed("the keeper did not start: out of memory")
            self._world.after(self._keeper_starts_s, resolve, failed)
            await started
        self._world.after(self._keeper_starts_s, self._revive_keeper, self._boots, resolve)
        await started

    def end_keeper(self) -> bool:
        was_alive = self.keeper.is_alive
        self.crash_keeper(KEEPER_STARTS_S)
        return was_alive

    def make_folder(self, path: str) -> None:
        """Nothing to do: there are no folders."""

    def read_result(self, path: LogPath) -> tuple[str, str]:
        named = read_name(path.folder, path.name)
        return ("" if named is None else self._disk.results.get(named[0], "")), ""

    def write_hosts(self, path: LogPath, text: str) -> None:
        """Nobody reads it."""

    def remove_hosts(self, path: LogPath) -> None:
        """There is none."""

    def make_artifacts(self, path: LogPath) -> None:
        """Nothing to do here either."""

    def has_artifacts(self, path: LogPath) -> bool:
        return False

    def close_artifacts(self, path: LogPath) -> bool:
        return False

    def begun(self) -> dict[str, tuple[float, Ticks]]:
        past = _read_lines(self._disk.journal)
        return {
            key: (recorded[2], (recorded[1][0], recorded[1][1])) for key, recorded in past.attempts.items()
        }

    def given(self, start: Start) -> None:
        self._disk.starts[start.key] = start

    # What goes wrong.

    def crash_runner(self, for_s: float) -> None:
        """The runner dies and is restarted later."""
        if self.runner.is_alive:
            self._world.trace(f"{self.runner.name} crashes")
            self.runner.end()
            self._world.after(for_s, self._start_runner, self._boots)

    def pause_runner(self, for_s: float) -> None:
        """The runner hangs, perhaps past its lease; the keeper does not."""
        runner = self.runner
        if runner.is_alive and not runner.is_paused:
            runner.pause()
            self._world.after(for_s, runner.resume)

    def crash_keeper(self, for_s: float) -> None:
        """The keeper dies, and its runner starts another, which takes a while and ends what the first one ran."""
        if self.keeper.is_alive:
            self._world.trace(f"{self.keeper.name} crashes")
            self._watcher.keeper_stopped(self.name)
            self._keeper_starts_s = for_s
            self.keeper.end()

    def lose_keeper(self, for_s: float) -> None:
        """The keeper dies, and no other can be started for a while."""
        self._no_keeper_until = self._world.now + for_s
        self.crash_keeper(KEEPER_STARTS_S)

    def pause_keeper(self, for_s: float) -> None:
        """The keeper is stopped, as by SIGSTOP; its processes go on."""
        keeper = self.keeper
        if keeper.is_alive and not keeper.is_paused:
            self._watcher.keeper_stopped(self.name)
            keeper.pause()
            self._world.after(for_s, self._let_go_on, keeper)

    def lose_starts(self, for_s: float, part: str) -> None:
        """For a while attempts to start are lost: before the runner records them, or before the keeper does."""
        self.loses_starts = part
        self._world.after(for_s, setattr, self, "loses_starts", "")

    def reboot(self, for_s: float, keeps_journal: bool) -> None:
        """Keeper and processes die as well. If the journal is kept, the next keeper reads it."""
        if not self.is_powered:
            return
        self._world.trace(
            f"{self.name} loses its power, its journal is {'kept' if keeps_journal else 'lost'}"
        )
        self.is_powered = False
        self._boots += 1
        self.runner.vanish()
        self.keeper.end()
        self._end_processes()
        self._world.after(for_s, self._boot, keeps_journal)

    def move(self, labels: dict[str, str]) -> None:
        """Change the node's labels from its next start on."""
        self.capacity = structs.replace(self.capacity, labels=labels)

    def wake(self) -> None:
        """Resume the runner and the keeper."""
        self.runner.resume()
        self._let_go_on(self.keeper)

    def close(self) -> None:
        """The run is over."""
        for runner in self._lives:
            runner.events.abandon()

    # What follows.

    def _let_go_on(self, keeper: Keeper) -> None:
        keeper.resume()
        if keeper is self.keeper and keeper.is_alive:
            self._watcher.keeper_resumed(self.name)

    def _boot(self, keeps_journal: bool) -> None:
        self.is_powered = True
        if not keeps_journal:
            self._disk.journal.clear()
            self._watcher.journal_lost(self.name)
        self._start_runner(self._boots)

    def _revive_keeper(self, boot: int, resolve: Callable[[object], None]) -> None:
        """A new keeper recovers: it ends what an earlier one ran, and reports it by the journal."""
        if boot != self._boots:
            return
        if not self.keeper.is_alive:
            self._keeper_starts_s = KEEPER_STARTS_S
            past = _read_lines(self._disk.journal)
            attempts = over(past, self._end_processes(), self.clock.now())
            self._disk.journal[:] = _compact(attempts, past.stopped)
            table = KeeperTable(attempts, past.stopped)
            self.keeper = Keeper(self._world, self.name, self.clock, self._watcher, self._disk, table)
            self._watcher.keeper_resumed(self.name)
        resolve(None)

    def _end_processes(self) -> set[str]:
        """End everything that runs, unseen by any keeper; returns the keys."""
        orphans = [*self.keeper.processes.values()]
        for process in orphans:
            process.take(9)
        return {process.attempt.key for process in orphans}

    def _start_runner(self, boot: int) -> None:
        if boot == self._boots and not self.runner.is_alive:
            self.runner = self._new_runner()

    def _new_runner(self) -> SimulatedRunner:
        incarnation = f"{self.name}-{len(self._lives) + 1}"
        runner = SimulatedRunner(
            self._world, incarnation, self, self._network, self._addresses, self._watcher
        )
        self._lives.append(runner)
        boot = self._boots
        runner.begin(lambda: self._world.after(RUNNER_RESTARTS_S, self._start_runner, boot))
        return runner


def _read_lines(journal: list[str]) -> JournalContents:
    """What a journal contains, as `journal.read` finds it in a file."""
    past = JournalContents()
    for line in journal:
        past.apply(json.loads(line))
    return past


def _compact(attempts: list[KeptAttempt], stopped: dict[str, None]) -> list[str]:
    """A journal with only what still matters, as `Journal.compact` writes it."""
    lines: list[str] = []
    for attempt in attempts:
        lines += [attempt.started_line(), attempt.ended_line()]
    return lines + [json.dumps(["stopped", key]) for key in stopped]
