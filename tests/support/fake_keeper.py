"""A keeper without processes: what the test says is running runs, and ends when the test says so.

It is what `runner/keeper` owes its runner, in few lines: attempts of one lane run one after another, a member of a
gang is held until it is told to go, what was stopped or has lost its lease is never started, and an end is
remembered until it may be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from phalanx.core.model.orders import AttemptKey, Start
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.effects import (
    Forget,
    ForgetBrief,
    Freeze,
    Halt,
    Release,
    Retract,
    RunnerEffect,
    Spawn,
)
from phalanx.core.runner.state import RunnerState


class FakeKeeper:
    """Who runs, who is ready, who waits for a lane, and how it ended.

    `seen` is called with every deed that shows outside.
    """

    def __init__(self, seen: Callable[[str, AttemptKey], None]) -> None:
        self.runner: RunnerState | None = None
        self.running: dict[AttemptKey, tuple[Start, float]] = {}
        self.ready: dict[AttemptKey, Spawn] = {}  # held at the barrier
        self.waiting: dict[AttemptKey, Spawn] = {}
        self.ended: dict[AttemptKey, tuple[int, ProcessEnd]] = {}  # lane, end
        self.announced: set[AttemptKey] = set()  # whose start, or readiness, the runner knows of
        self.is_prompt = True  # says at once who is ready; otherwise when the test announces it
        self.lease_until = 0.0
        self._stopped: set[AttemptKey] = set()
        self._seen = seen

    def attach(self, runner: RunnerState) -> None:
        """A new runner reads what there is."""
        self.runner = runner
        for key, (start, at) in self.running.items():
            runner.adopt(key, start.lane, None, at)
        for key, (lane, end) in self.ended.items():
            runner.adopt(key, lane, end, end.started_at)
        for key, spawn in (self.ready | self.waiting).items():
            runner.adopt(key, spawn.start.lane, None, None, key in self.ready)

    def do(self, effects: list[RunnerEffect], now: float) -> None:
        for effect in effects:
            match effect:
                case Spawn():
                    self._start(effect, now)
                case Release():
                    self._go(effect.key, now)
                case Halt() if effect.key in self.running:
                    self._seen("stops", effect.key)
                case Halt():
                    self._stopped.add(effect.key)
                    self._withdraw(effect.key, "stopped", now)
                case Retract() if effect.key in self.waiting and not self.waiting[effect.key].held:
                    self._withdraw(effect.key, "retracted", now)
                case Freeze():
                    self._seen("freezes" if effect.frozen else "thaws", effect.key)
                case Forget():
                    self.ended.pop(effect.key, None)
                case ForgetBrief() | Retract():
                    pass

    def announce(self, key: AttemptKey, now: float) -> None:
        """The runner hears that a process runs, or that one is ready to."""
        self.announced.add(key)
        if self.runner is None:
            return
        if key in self.ready:
            self.do(self.runner.process_ready(key), now)
        else:
            self.do(self.runner.process_started(key, self.running[key][1]), now)

    def end(
        self, key: AttemptKey, now: float, code: int | None, signal: int | None = None, **how: object
    ) -> None:
        """One process ends, and its lane goes on."""
        start, at = self.running.pop(key)
        given = {name: how[name] for name in ("result", "result_bytes", "result_sha256") if name in how}
        end = ProcessEnd(code, signal, bool(how.get("oom")), how.get("reason"), at, now, **given)  # type: ignore[arg-type]
        self.ended[key] = (start.lane, end)
        if self.runner is not None:
            self.do(self.runner.process_ended(key, end), now)
        self._go_on(start.lane, now)

    def fail_to_start(self, key: AttemptKey, message: str, now: float) -> None:
        start = self.ready.pop(key).start if key in self.ready else self.running.pop(key)[0]
        self._refuse(key, "not_found", message, now)
        self._go_on(start.lane, now)

    def fence(self, now: float) -> list[AttemptKey]:
        """The lease is over: everything ends, and nothing begins."""
        if now <= self.lease_until:
            return []
        for key in list(self.ready):
            self._withdraw(key, "fenced", now)
        fenced = list(self.running)
        for key in fenced:
            if key in self.running:
                self.end(key, now, None, 9, reason="fenced")
        return fenced

    def lose_everything(self) -> None:
        """The machine is gone, and with it all that is not on another one."""
        for table in (self.running, self.ready, self.waiting, self.ended, self.announced):
            table.clear()

    def die(self, now: float) -> None:
        """The keeper dies; the next one knows how processes ended, and nothing of what had not started."""
        self.ready.clear()
        self.waiting.clear()
        for key in list(self.running):
            self.end(key, now, None, None, reason="unknown")

    def _start(self, spawn: Spawn, now: float) -> None:
        key = spawn.start.key
        assert key not in self.ended, "an attempt is started at most once"
        if key in self.running or key in self.waiting or key in self.ready:
            return
        holders = [
            *(start for start, _ in self.running.values()),
            *(each.start for each in self.ready.values()),
        ]
        if any(other.lane == spawn.start.lane for other in holders):
            self.waiting[key] = spawn
        else:
            self._try(spawn, now)

    def _try(self, spawn: Spawn, now: float) -> bool:
        key = spawn.start.key
        if key in self._stopped or now > self.lease_until:
            code = "stopped" if key in self._stopped else "fenced"
            self._refuse(key, code, "it had not started", now)
            return False
        if spawn.held:
            self.ready[key] = spawn
            if self.is_prompt:
                self.announce(key, now)
        else:
            self.announced.discard(key)
            self.running[key] = (spawn.start, now)
            self._seen("spawns", key)
        return True

    def _go(self, key: AttemptKey, now: float) -> None:
        spawn = self.ready.pop(key, None)
        if spawn is not None and not self._try(replace(spawn, held=False), now):
            self._go_on(spawn.start.lane, now)

    def _go_on(self, lane: int, now: float) -> None:
        for spawn in [each for each in self.waiting.values() if each.start.lane == lane]:
            del self.waiting[spawn.start.key]
            if self._try(spawn, now):
                return

    def _withdraw(self, key: AttemptKey, code: str, now: float) -> None:
        if self.waiting.pop(key, None) is not None:
            self._refuse(key, code, "it had not started", now)
        elif (spawn := self.ready.pop(key, None)) is not None:
            self._refuse(key, code, "it had not started", now)
            self._go_on(spawn.start.lane, now)

    def _refuse(self, key: AttemptKey, code: str, message: str, now: float) -> None:
        if self.runner is not None:
            self.do(self.runner.process_refused(key, code, message, now), now)
