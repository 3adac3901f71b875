"""The place of one keeper on a modelled machine: its keepers one after another, and what outlives them.

It is the `Machine` of the runner's loop, which connects to the keeper of the place, or starts one when there is none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol, cast

from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.journal import JournalContents
from phalanx.runner.keeper.recovery import over
from phalanx.runner.keeper.table import KeeperTable
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.log_files import LogPath, read_name
from phalanx.runner.merging import found_in
from phalanx.runner.processes import KeeperFailed, Processes
from phalanx.runner.results import TaskResult
from phalanx.sim.eventloop import outside
from phalanx.sim.keeper import Keeper, KeeperDisk, KeeperWatcher
from phalanx.sim.keeper_socket import KeeperSocket
from phalanx.sim.runner import SimulatedRunner
from phalanx.sim.world import LocalClock, World

KEEPER_STARTS_S = 0.05


class KeeperHost(Protocol):
    """The machine that the place is on."""

    name: str
    clock: LocalClock
    runner: SimulatedRunner
    loses_starts: str
    boots: int


class KeeperPlace:
    """Where one keeper of a node works, over all reboots of its machine."""

    def __init__(
        self, world: World, number: int, host: KeeperHost, watcher: KeeperWatcher, disk: KeeperDisk
    ) -> None:
        self._world = world
        self._number = number
        self._host = host
        self._watcher = watcher
        self._disk = disk
        self._starts_s = KEEPER_STARTS_S
        self._none_until = 0.0
        self.keeper = self._new_keeper(None)

    def __str__(self) -> str:
        return f"{self._host.name}/{self._number}" if self._number else self._host.name

    # What the runner's loop is given.

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        await asyncio.sleep(0)
        keeper, runner = self.keeper, self._host.runner
        if not keeper.is_alive:
            raise ConnectionRefusedError(f"{keeper.name} is dead")
        processes = make()
        socket = KeeperSocket(runner, keeper, processes, self._passes)
        runner.keeper_sockets = [each for each in runner.keeper_sockets if not each.is_closing()]
        runner.keeper_sockets.append(socket)
        processes.connection_made(cast(asyncio.BaseTransport, socket))
        keeper.call(keeper.accept, socket)
        return processes

    def _passes(self, request: list[Any]) -> bool:
        """Whether a request reaches the keeper."""
        return self._host.loses_starts != "keeper" or request[0] != "start"

    async def start_keeper(self, within_s: float) -> None:
        started, resolve = outside(self._host.runner)
        if self._world.now < self._none_until:
            failed = KeeperFailed("the keeper did not start: out of memory")
            self._world.after(self._starts_s, resolve, failed)
            await started
        self._world.after(self._starts_s, self._revive, self._host.boots, resolve)
        await started

    def end_keeper(self) -> bool:
        was_alive = self.keeper.is_alive
        self.crash(KEEPER_STARTS_S)
        return was_alive

    def make_folder(self, path: str) -> None:
        """Nothing to do: there are no folders."""

    def remove_empty(self, path: str) -> None:
        """Nothing to do: there are no folders."""

    def read_result(self, path: LogPath, tasks: int, bytes_max: int | None) -> TaskResult:
        named = read_name(path.folder, path.name)
        written = "" if named is None else self._disk.results.get(named[0], "")
        return found_in(written.encode(), tasks) if written else TaskResult()

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

    # What goes wrong.

    def crash(self, for_s: float) -> None:
        """The keeper dies, and its runner starts another, which takes a while and ends what the first one ran."""
        if self.keeper.is_alive:
            self._world.trace(f"{self.keeper.name} crashes")
            self._watcher.keeper_stopped(str(self))
            self._starts_s = for_s
            self.keeper.end()

    def lose(self, for_s: float) -> None:
        """The keeper dies, and no other can be started for a while."""
        self._none_until = self._world.now + for_s
        self.crash(KEEPER_STARTS_S)

    def pause(self, for_s: float) -> None:
        """The keeper is stopped, as by SIGSTOP; its processes go on."""
        keeper = self.keeper
        if keeper.is_alive and not keeper.is_paused:
            self._watcher.keeper_stopped(str(self))
            keeper.pause()
            self._world.after(for_s, self.let_go_on, keeper)

    def let_go_on(self, keeper: Keeper) -> None:
        keeper.resume()
        if keeper is self.keeper and keeper.is_alive:
            self._watcher.keeper_resumed(str(self))

    def power_off(self) -> None:
        self.keeper.end()
        self._end_processes()

    def lose_journal(self) -> None:
        self._disk.journal.clear()

    # What follows.

    def _revive(self, boot: int, resolve: Callable[[object], None]) -> None:
        """A new keeper recovers: it ends what an earlier one ran, and reports it by the journal."""
        if boot != self._host.boots:
            return
        if not self.keeper.is_alive:
            self._starts_s = KEEPER_STARTS_S
            past = _read_lines(self._disk.journal)
            attempts = over(past, self._end_processes(), self._host.clock.now())
            self._disk.journal[:] = _compact(attempts, past.stopped)
            self.keeper = self._new_keeper(KeeperTable(attempts, past.stopped))
            self._watcher.keeper_resumed(str(self))
        resolve(None)

    def _new_keeper(self, table: KeeperTable | None) -> Keeper:
        host = self._host
        return Keeper(self._world, host.name, host.clock, self._watcher, self._disk, table, str(self))

    def _end_processes(self) -> set[str]:
        """End everything that runs, unseen by any keeper; returns the keys."""
        orphans = [*self.keeper.processes.values()]
        for process in orphans:
            process.take(9)
        return {process.attempt.key for process in orphans}


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
