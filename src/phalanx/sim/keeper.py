"""A node's keeper under virtual time: the parent of all processes there, which outlives the runner.

It starts a key once, holds a member of a gang at the barrier until it is told to go, honours a stop with its grace,
never starts what was stopped before, and stops everything by itself when the lease is over. It remembers ends until
it is told to forget them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from phalanx.core.model.orders import AttemptKey, Start
from phalanx.core.runner import Spawn
from phalanx.core.verdict import ProcessEnd
from phalanx.sim.life import Life
from phalanx.sim.script import Script, script
from phalanx.sim.world import LocalClock, World

FENCE_GRACE_S = 2.0  # as runner/keeper/deadlines.py has it
SLOW_SHARE, SLOW_MAX_S = 0.15, 5.0  # how many members take time to get ready, and how long at the most
NEWS_S = 0.0005  # how long a word takes from the keeper to its runner
SIGTERM, SIGKILL = 15, 9


class Watcher(Protocol):
    """Who sees processes come and go."""

    def process_ready(self, node: str, key: AttemptKey) -> None: ...

    def process_started(self, node: str, start: Start) -> None: ...

    def process_ended(self, node: str, key: AttemptKey, end: ProcessEnd, by_itself: bool) -> None: ...

    def journal_lost(self, node: str) -> None: ...


class News(Protocol):
    """The runner that is attached."""

    def ready(self, key: AttemptKey) -> None: ...

    def started(self, key: AttemptKey, at: float) -> None: ...

    def refused(self, key: AttemptKey, code: str, message: str) -> None: ...

    def ended(self, key: AttemptKey, end: ProcessEnd) -> None: ...


class Process:
    """One process, running or ended."""

    def __init__(self, start: Start, fate: Script, at: float) -> None:
        self.start = start
        self.fate = fate
        self.started_at = at
        self.left_s = fate.run_s  # what it still has to do
        self.working_since: float | None = at  # None while it is frozen
        self.timer = 0  # only the newest timer may end it
        self.kill_at: float | None = None
        self.reason: str | None = None
        self.end: ProcessEnd | None = None


class Keeper(Life):
    """The process table of one boot of a node."""

    def __init__(self, world: World, node: str, clock: LocalClock, watcher: Watcher) -> None:
        super().__init__(world, f"keeper of {node}")
        self.node = node
        self.clock = clock
        self.runner: News | None = None
        self.table: dict[AttemptKey, Process] = {}
        self.waiting: list[Spawn] = []  # for their lanes, in order
        self.held: dict[AttemptKey, Spawn] = {}  # in their lanes, until they are told to go
        self.ready: set[AttemptKey] = set()  # of those held, the ones that are ready
        self._watcher = watcher
        self._dice = world.dice(f"keeper {node} {world.now}")
        self._stopped: set[AttemptKey] = set()
        self._lease_until: float | None = None

    # What the runner asks for.

    def start(self, spawn: Spawn) -> None:
        start = spawn.start
        process = self.table.get(start.key)
        if process is not None:
            self._tell_start(process)
            if process.end is not None:
                self._tell_end(start.key, process.end)
        elif start.key in self.ready:
            self._tell_ready(start.key) if spawn.held else self.go(start.key)
        elif start.key in self.held:
            pass  # it is being got ready, and will say so
        elif not self._is_taken(start.lane):
            self._try(spawn)
        elif not self._is_waiting(start.key):
            self.waiting.append(spawn)

    def go(self, key: AttemptKey) -> None:
        """Start one that is ready; no effect on any other."""
        if key not in self.ready:
            return
        self.ready.discard(key)
        spawn = self.held.pop(key)
        if not self._try(replace(spawn, held=False)):
            self._go_on(spawn.start.lane)

    def stop(self, key: AttemptKey, grace_s: float) -> None:
        process = self.table.get(key)
        if process is None:
            self._stopped.add(key)
            self._withdraw(key, "stopped")
        elif process.end is None:
            self._stop(process, grace_s)

    def retract(self, key: AttemptKey) -> None:
        """Take back what still waits for its lane, unless it is a member of a gang."""
        if any(spawn.start.key == key and not spawn.held for spawn in self.waiting):
            self._withdraw(key, "retracted")

    def freeze(self, key: AttemptKey, frozen: bool) -> None:
        process = self.table.get(key)
        if process is None or process.end is not None or process.kill_at is not None:
            return
        if frozen and process.working_since is not None:
            process.left_s -= self.world.now - process.working_since
            process.working_since = None
            process.timer += 1
        elif not frozen and process.working_since is None:
            self._work(process)

    def lease(self, seconds_left: float) -> None:
        self._lease_until = self.clock.now() + seconds_left
        self.later(self.clock.delay_s(self._lease_until), self._look_at_lease)

    def forget(self, key: AttemptKey) -> None:
        if key in self.table and self.table[key].end is not None:
            del self.table[key]

    # What happens.

    def lose_power(self) -> None:
        """The machine stops, and all that ran on it."""
        self.end_processes()
        self.end()

    def end_processes(self) -> None:
        """Everything that runs is ended, and nobody sees how."""
        self.waiting.clear()
        self.held.clear()
        self.ready.clear()
        for process in list(self.table.values()):
            if process.end is None:
                self._finish(process, None, None, "unknown")

    def _try(self, spawn: Spawn) -> bool:
        """Start it now, or get it ready if it is held; False if that was refused."""
        key, fate = spawn.start.key, script(spawn.brief, spawn.start)
        if (no := self._why_not(key, fate)) is not None:
            self._say(lambda runner: runner.refused(key, *no))
            return False
        if spawn.held:
            self.held[key] = spawn
            if self._dice.random() < SLOW_SHARE:
                self.later(self._dice.uniform(0.0, SLOW_MAX_S), self._prepared, key)
            else:
                self._prepared(key)
        else:
            self._tell_start(self._spawn(spawn.start, fate))
        return True

    def _prepared(self, key: AttemptKey) -> None:
        """Its program and its folder were looked at, which takes a moment; it may be gone by now."""
        if key in self.held and key not in self.ready:
            self.ready.add(key)
            self._watcher.process_ready(self.node, key)
            self._tell_ready(key)

    def _is_taken(self, lane: int) -> bool:
        """Whether somebody runs in a lane, or is ready to."""
        holders = [process.start for process in self.table.values() if process.end is None]
        return any(start.lane == lane for start in [*holders, *(each.start for each in self.held.values())])

    def _go_on(self, lane: int) -> None:
        """A lane is free: start the first that waits for it and is not refused."""
        for spawn in [each for each in self.waiting if each.start.lane == lane]:
            self.waiting.remove(spawn)
            if self._try(spawn):
                return

    def _is_waiting(self, key: AttemptKey) -> bool:
        return any(spawn.start.key == key for spawn in self.waiting)

    def _withdraw(self, key: AttemptKey, code: str) -> None:
        """Refuse what has not started: it no longer waits for its lane, or leaves it to the next."""
        if self._is_waiting(key):
            self.waiting = [each for each in self.waiting if each.start.key != key]
            self._say(lambda runner: runner.refused(key, code, "it had not started"))
        elif (spawn := self.held.pop(key, None)) is not None:
            self.ready.discard(key)
            self._say(lambda runner: runner.refused(key, code, "it had not started"))
            self._go_on(spawn.start.lane)

    def _tell_ready(self, key: AttemptKey) -> None:
        self._say(lambda runner: runner.ready(key))

    def _tell_start(self, process: Process) -> None:
        key, at = process.start.key, process.started_at
        self._say(lambda runner: runner.started(key, at))

    def _why_not(self, key: AttemptKey, fate: Script) -> tuple[str, str] | None:
        if key in self._stopped:
            return "stopped", "it was stopped before it could start"
        if self._lease_until is not None and self.clock.now() >= self._lease_until:
            return "fenced", "the runner's lease has run out"
        if not fate.exists:
            return "not_found", "no such program"
        return None

    def _spawn(self, start: Start, fate: Script) -> Process:
        process = self.table[start.key] = Process(start, fate, self.clock.now())
        self._watcher.process_started(self.node, start)
        self._work(process)
        return process

    def _work(self, process: Process) -> None:
        process.working_since = self.world.now
        self._arm(process, process.left_s, process.fate.code, process.fate.signal)

    def _arm(self, process: Process, delay_s: float, code: int | None, signal: int | None) -> None:
        process.timer += 1
        self.later(delay_s, self._due, process, process.timer, code, signal)

    def _due(self, process: Process, timer: int, code: int | None, signal: int | None) -> None:
        if process.end is None and process.timer == timer:
            self._finish(process, code, signal, process.reason)

    def _stop(self, process: Process, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace; a second stop can only shorten the first one's grace."""
        kill_at = self.world.now + max(0.0, grace_s)
        if process.kill_at is not None and process.kill_at <= kill_at:
            return
        first, process.kill_at = process.kill_at is None, kill_at
        dies_s = self._dice.uniform(0.0, 0.5)
        left_s = process.left_s - (self.world.now - process.working_since if process.working_since else 0.0)
        if left_s <= min(dies_s, grace_s):  # it is done before it heeds the signal
            self._arm(process, max(0.0, left_s), process.fate.code, process.fate.signal)
        elif first and process.fate.heeds_sigterm and dies_s < grace_s:
            self._arm(process, dies_s, None, SIGTERM)
        elif first or not process.fate.heeds_sigterm:
            self._arm(process, grace_s, None, SIGKILL)

    def _look_at_lease(self) -> None:
        """The keeper's own watch: it holds when the runner is dead or hangs."""
        if self._lease_until is None or self.clock.now() < self._lease_until - 1e-6:
            return
        for key in list(self.held):
            self._withdraw(key, "fenced")
        for process in list(self.table.values()):
            if process.end is None and process.reason is None:
                process.reason = "fenced"
                self._stop(process, FENCE_GRACE_S)

    def _finish(self, process: Process, code: int | None, signal: int | None, reason: str | None) -> None:
        process.end = ProcessEnd(code, signal, False, reason, process.started_at, self.clock.now())
        by_itself = process.kill_at is None and reason is None
        self._watcher.process_ended(self.node, process.start.key, process.end, by_itself)
        self._tell_end(process.start.key, process.end)
        self._go_on(process.start.lane)

    def _tell_end(self, key: AttemptKey, end: ProcessEnd) -> None:
        self._say(lambda runner: runner.ended(key, end))

    def _say(self, news: Callable[[News], None]) -> None:
        """To whoever is attached when it arrives; a runner that comes later reads the table."""
        self.later(NEWS_S, self._deliver, self.runner, news)

    def _deliver(self, runner: News | None, news: Callable[[News], None]) -> None:
        if runner is not None and runner is self.runner:
            news(runner)
