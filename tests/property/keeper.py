"""A keeper without processes: what the test says is running runs, and ends when the test says so.

It is what `runner/keeper` owes its runner, in forty lines: attempts of one lane run one after another, what was
stopped or has lost its lease is never started, and an end is remembered until it may be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.model.orders import AttemptKey, Start
from phalanx.core.runner import (
    Deed,
    Forget,
    ForgetBrief,
    Freeze,
    Halt,
    ProcessEnd,
    Retract,
    RunnerState,
    Spawn,
)


class PlayedKeeper:
    """Who runs, who waits for a lane, and how it ended. `seen` is called with every deed that shows outside."""

    def __init__(self, seen: Callable[[str, AttemptKey], None]) -> None:
        self.runner: RunnerState | None = None
        self.running: dict[AttemptKey, tuple[Start, float]] = {}
        self.waiting: dict[AttemptKey, Start] = {}
        self.ended: dict[AttemptKey, tuple[int, ProcessEnd]] = {}  # lane, end
        self.announced: set[AttemptKey] = set()  # whose start the runner knows of
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
        for key, start in self.waiting.items():
            runner.adopt(key, start.lane, None, None)

    def do(self, deeds: list[Deed], now: float) -> None:
        for deed in deeds:
            match deed:
                case Spawn():
                    self._start(deed.start, now)
                case Halt() if deed.key in self.running:
                    self._seen("stops", deed.key)
                case Halt():
                    self._stopped.add(deed.key)
                    self._withdraw(deed.key, "stopped", now)
                case Retract():
                    self._withdraw(deed.key, "retracted", now)
                case Freeze():
                    self._seen("freezes" if deed.frozen else "thaws", deed.key)
                case Forget():
                    self.ended.pop(deed.key, None)
                case ForgetBrief():
                    pass

    def announce(self, key: AttemptKey, now: float) -> None:
        """The runner hears that a process runs."""
        self.announced.add(key)
        if self.runner is not None:
            self.do(self.runner.process_started(key, self.running[key][1]), now)

    def end(
        self, key: AttemptKey, now: float, code: int | None, signal: int | None = None, **how: object
    ) -> None:
        """One process ends, and its lane goes on."""
        start, at = self.running.pop(key)
        end = ProcessEnd(code, signal, bool(how.get("oom")), how.get("reason"), at, now)  # type: ignore[arg-type]
        self.ended[key] = (start.lane, end)
        if self.runner is not None:
            self.do(self.runner.process_ended(key, end), now)
        self._go_on(start.lane, now)

    def fail_to_start(self, key: AttemptKey, message: str, now: float) -> None:
        start, _ = self.running.pop(key)
        self._refuse(key, "not_found", message, now)
        self._go_on(start.lane, now)

    def fence(self, now: float) -> list[AttemptKey]:
        """The lease is over: everything ends."""
        fenced = list(self.running) if now > self.lease_until else []
        for key in fenced:
            if key in self.running:
                self.end(key, now, None, 9, reason="fenced")
        return fenced

    def lose_everything(self) -> None:
        for table in (self.running, self.waiting, self.ended, self.announced):
            table.clear()

    def _start(self, start: Start, now: float) -> None:
        assert start.key not in self.ended, "an attempt is started at most once"
        if start.key in self.running or start.key in self.waiting:
            return
        if any(other.lane == start.lane for other, _ in self.running.values()):
            self.waiting[start.key] = start
        else:
            self._try(start, now)

    def _try(self, start: Start, now: float) -> bool:
        if start.key in self._stopped or now > self.lease_until:
            code = "stopped" if start.key in self._stopped else "fenced"
            self._refuse(start.key, code, "it had not started", now)
            return False
        self.running[start.key] = (start, now)
        self._seen("spawns", start.key)
        return True

    def _go_on(self, lane: int, now: float) -> None:
        for start in [each for each in self.waiting.values() if each.lane == lane]:
            del self.waiting[start.key]
            if self._try(start, now):
                return

    def _withdraw(self, key: AttemptKey, code: str, now: float) -> None:
        if self.waiting.pop(key, None) is not None:
            self._refuse(key, code, "it had not started", now)

    def _refuse(self, key: AttemptKey, code: str, message: str, now: float) -> None:
        if self.runner is not None:
            self.do(self.runner.process_refused(key, code, message, now), now)
