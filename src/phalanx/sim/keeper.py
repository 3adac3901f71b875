"""A node's keeper under virtual time: the real table, with modelled processes, a modelled journal and socket.

`runner/keeper/table.py` decides; the order of a turn is that of `runner/keeper/loop.py`: requests, ends of processes,
deadlines, then the replies are sent. A stopped keeper does all of it later; a killed one leaves its processes without
a parent.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from phalanx.core.model.orders import AttemptKey, Start, key_from_text
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.keeper.attempt import (
    CloseInput,
    KeeperEffect,
    KeptAttempt,
    RecordAndSend,
    RecordLine,
    SendLine,
    Signal,
    SpawnProcess,
)
from phalanx.runner.keeper.loop import REQUESTS_PER_TURN
from phalanx.runner.keeper.table import KeeperTable, without_questions
from phalanx.runner.keeper_messages import TICKS_PER_S
from phalanx.sim.life import Life
from phalanx.sim.process import SimulatedProcess
from phalanx.sim.script import script
from phalanx.sim.watchdog import SimulatedWatchdog
from phalanx.sim.world import LocalClock, World

FORGETFUL_SHARE = 0.2  # of merged tasks: the answer lacks one
SLOW_SHARE, SLOW_MAX_S = (
    0.15,
    5.0,
)  # share of members that need time to get ready, and the most that they need


class KeeperWatcher(Protocol):
    """Sees processes start and end."""

    def process_ready(self, node: str, key: AttemptKey) -> None: ...

    def process_started(self, node: str, start: Start) -> None: ...

    def process_ended(self, node: str, key: AttemptKey, end: ProcessEnd) -> None: ...

    def end_seen(self, node: str, key: AttemptKey, by_itself: bool) -> None:
        """A keeper has seen it end, and written it to its journal."""
        ...

    def keeper_stopped(self, place: str) -> None:
        """The keeper of this place is stopped, or dead."""
        ...

    def keeper_resumed(self, place: str) -> None: ...

    def journal_lost(self, node: str) -> None: ...


class KeeperLink(Protocol):
    """The connection to a runner."""

    def send(self, lines: list[str]) -> None: ...

    def hang_up(self) -> None: ...


class KeeperDisk:
    """What outlives the keepers of a node: the journal, what its runners were ordered, and the results of tasks."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.starts: dict[AttemptKey, Start] = {}
        self.results: dict[AttemptKey, str] = {}

    def beside(self) -> KeeperDisk:
        """That of another keeper of the node: only the journal is its own."""
        other = KeeperDisk()
        other.starts, other.results = self.starts, self.results
        return other


class Keeper(Life):
    """One process of a node's keeper."""

    def __init__(
        self,
        world: World,
        node: str,
        clock: LocalClock,
        watcher: KeeperWatcher,
        disk: KeeperDisk,
        table: KeeperTable | None = None,
        place: str = "",
    ) -> None:
        super().__init__(world, f"keeper of {place or node}")
        self.node = node
        self.clock = clock
        self.table = table or KeeperTable()
        self.processes: dict[str, SimulatedProcess] = {}  # until they are reaped
        self._watchdog = SimulatedWatchdog(world, clock, self.processes)
        self._lease_until: float | None = None
        self._disk = disk
        self._watcher = watcher
        self._dice = world.dice(f"keeper {place or node} {world.now}")
        self._link: KeeperLink | None = None
        self._requests: list[Any] = []
        self._ending: list[KeptAttempt] = []
        self._lines: list[str] = []
        self._is_awake = False
        self._looks_at = float("inf")

    # The connection.

    def accept(self, link: KeeperLink) -> None:
        """A newer runner replaces an older one."""
        if self._link is not None:
            self._link.hang_up()
            self.lost(self._link)
        self._link, self._lines = link, []

    def received(self, requests: list[Any]) -> None:
        self._requests += requests
        self._wake()

    def lost(self, link: KeeperLink) -> None:
        if link is self._link:
            self._link = None
            self._requests = without_questions(self._requests)

    def end(self) -> None:
        super().end()
        self._watchdog.keeper_died()
        if self._link is not None:
            self._link.hang_up()

    # The loop.

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self.later(0.0, self._turn)

    def _turn(self) -> None:
        self._is_awake = False
        requests, self._requests = self._requests[:REQUESTS_PER_TURN], self._requests[REQUESTS_PER_TURN:]
        for request in requests:
            effects = self.table.serve(request, self.clock.monotonic())
            self._tell_watchdog()
            self._carry_out(effects)
        ending, self._ending = self._ending, []
        for attempt in ending:
            self._finish(attempt)
        if self.table.is_on_watch and self.clock.monotonic() >= self.table.next_at:
            self._carry_out(self.table.due(self.clock.monotonic()))
        if self._requests:
            self._wake()
        self._look_later()
        self._flush()

    def _tell_watchdog(self) -> None:
        until = self.table.lease_until
        if until is not None and until != self._lease_until:
            self._lease_until = until
            self._watchdog.renew(until, self.table.fence_grace_s)

    def _look_later(self) -> None:
        """Set a timer for the next deadline, unless one is set already."""
        at = self.table.next_at
        if self.table.is_on_watch and at < self._looks_at:
            self._looks_at = at
            self.later(max(0.0, self.clock.delay_s(at)) + 1e-6, self._look, at)

    def _look(self, at: float) -> None:
        if at == self._looks_at:
            self._looks_at = float("inf")
            self._wake()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines and self._link is not None:
            self._link.send(lines)

    # Effects of the table.

    def _carry_out(self, effects: list[KeeperEffect]) -> None:
        for effect in effects:
            match effect:
                case SpawnProcess():
                    effects += self._spawn(effect)
                case Signal():
                    for number in effect.numbers:
                        if (process := self.processes.get(effect.attempt.key)) is not None:
                            process.take(number)
                case RecordLine():
                    self._disk.journal.append(effect.line)
                case RecordAndSend():
                    self._disk.journal.append(effect.line)
                    if effect.ended:  # a start that was not sent yet is not sent any more
                        begun = f'["started","{effect.ended}",'
                        self._lines = [line for line in self._lines if not line.startswith(begun)]
                    self._queue_line(effect.line)
                case SendLine():
                    self._queue_line(effect.line)
                case CloseInput():
                    effect.attempt.input = None  # modelled processes read nothing

    def _queue_line(self, line: str) -> None:
        if self._link is not None:
            self._lines.append(line)

    def _spawn(self, effect: SpawnProcess) -> list[KeeperEffect]:
        start = self._disk.starts[key_of(effect.key)]
        fate = script(effect.options.get("argv") or effect.brief.argv, start.restarts)
        if not fate.exists:
            return self.table.refused(effect.key, "not_found", "no such program", self.clock.monotonic())
        if effect.held:
            slow = self._dice.random() < SLOW_SHARE
            self.later(self._dice.uniform(0.0, SLOW_MAX_S) if slow else 0.0, self._prepared, effect.key)
            return []
        attempt = KeptAttempt(effect.key, effect.options)
        attempt.pid, attempt.started_at = 1, self.clock.now()
        tick = int(self.clock.monotonic() * TICKS_PER_S)
        attempt.born = (tick, tick)
        self._watcher.process_started(self.node, start)
        self.processes[effect.key] = SimulatedProcess(
            self.world, self._dice, attempt, fate, self._process_ended
        )
        return self.table.started(attempt)

    def _prepared(self, key: str) -> None:
        """Its program and folder have been checked, which takes a moment; the attempt may be gone by now."""
        if effects := self.table.prepared(key):
            self._watcher.process_ready(self.node, key_of(key))
            self._carry_out(effects)
            self._wake()

    # What processes do.

    def _process_ended(self, process: SimulatedProcess) -> None:
        """The process is over, whether its keeper can see it or not."""
        attempt = process.attempt
        key, now = key_of(attempt.key), self.clock.now()
        result = ""
        if process.code == 0:
            result = f'"{attempt.key}"'
            start = self._disk.starts[key]
            answer = self._for_all(result, start.merged) if start.has_merged else result
            self._disk.results[key] = answer
        end = ProcessEnd(process.code, process.signal, False, None, attempt.started_at, now, result=result)
        self._watcher.process_ended(self.node, key, end)
        self.call(self._reap, process)

    def _for_all(self, own: str, merged: str) -> str:
        """The answer of a program that did the work of others with its own; at times it leaves one out."""
        children = {each["task_id"]: each["task_id"] for each in json.loads(merged)}
        if self._dice.random() < FORGETFUL_SHARE:
            children.popitem()
        return json.dumps({"result": json.loads(own), "children": children})

    def _reap(self, process: SimulatedProcess) -> None:
        attempt = process.attempt
        attempt.code, attempt.signal, attempt.ended_at = process.code, process.signal, self.clock.now()
        del self.processes[attempt.key]
        if attempt.key in self._watchdog.killed and attempt.reason is None and attempt.kill_at is None:
            attempt.reason = "fenced"
        self.table.leader_ended(attempt)
        self._ending.append(attempt)
        self._wake()

    def _finish(self, attempt: KeptAttempt) -> None:
        by_itself = attempt.kill_at is None and attempt.reason is None
        self._watcher.end_seen(self.node, key_of(attempt.key), by_itself)
        # It used all of one core, and wrote a little: what is kept of that must be the same after every restart.
        run_s = max(0.0, (attempt.ended_at or 0.0) - attempt.started_at)
        attempt.used = [round(run_s, 6), 1 << 20, 0, 4096]
        attempt.close(oom=False)
        self._carry_out(self.table.ended(attempt, self.clock.monotonic()))


def key_of(name: str) -> AttemptKey:
    """The attempt's key in a runner's key, which has the lane at its end."""
    return key_from_text(name.rpartition("/")[0])


def requests_in(frame: bytes) -> list[Any]:
    """The requests in one frame from the runner."""
    found: list[Any] = json.loads(frame[4:])
    return found
