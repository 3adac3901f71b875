"""The executor: it carries out the table's effects with real processes, and returns the results to the table.

Deadlines are kept here, not in the runner, so that they hold when the runner is dead or hangs. Only looking at the
logs is done without the table.

What the keeper sends is an answer as JSON text; a fact goes into the journal first. Answers that can wait (a start, an
end whose lane continues) wait for a few milliseconds, so that those of short tasks travel in one frame: waking the
runner costs more than anything sent to it.
"""

from __future__ import annotations

from .attempt import RecordAndSend, RecordLine, SendLine, Signal, SpawnProcess, is_key
from .clock import since_boot
from .clock import since_boot as now
from .spawn import SpawnRefused
from .table import misunderstood

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempt import KeeperEffect, KeptAttempt
    from .journal import Journal
    from .logs import LogWatch
    from .spawn import Spawner
    from .table import KeeperTable
    from .tree import ProcessTable
    from .wire import SocketLink

WAIT_S_MAX = 3600.0  # the kernel accepts no infinite wait as a number
PATIENCE_S = 0.005


class NotAKey(ValueError):
    """A request about a key that cannot be an attempt's; it would stay in the journal for good."""


class Executor:
    """Serves one table."""

    def __init__(
        self,
        table: KeeperTable,
        processes: ProcessTable,
        journal: Journal,
        spawner: Spawner,
        logs: LogWatch,
        outbox: Outbox,
    ) -> None:
        self._table = table
        self._processes = processes
        self._journal = journal
        self._spawner = spawner
        self._logs = logs
        self._outbox = outbox
        self._lease_until: float | None = None

    def serve(self, requests: list[Any]) -> None:
        """Serve requests in the order they came."""
        self._table.log_cap = self._logs.supported
        for request in requests:
            try:
                _check_key(request)
                effects = self._table.serve(request, now())
                if self._table.lease_until != self._lease_until:
                    self._tell_watchdog()
                self._carry_out(effects)
            except (OSError, NotAKey) as error:  # a bad request must not end every attempt of the node
                self._carry_out([misunderstood(request, error)])

    def _tell_watchdog(self) -> None:
        self._lease_until = self._table.lease_until
        if self._lease_until is not None:
            self._processes.watchdog.renew(self._lease_until, self._table.fence_grace_s)

    def ended(self, attempt: KeptAttempt) -> None:
        self._logs.ended(attempt)
        self._carry_out(self._table.ended(attempt, now()))

    def wait_s(self) -> float:
        return max(0.0, min(self._logs.next_at - (at := now()), self._table.next_at - at, WAIT_S_MAX))

    def keep_deadlines(self) -> None:
        """Do what is due."""
        at = now()
        if at >= self._table.next_at:
            self._carry_out(self._table.due(at))
        if at >= self._logs.next_at:
            self._logs.look(at)

    def _carry_out(self, effects: list[KeeperEffect]) -> None:
        """One after the other. The results of one are carried out after those that were decided with it."""
        for effect in effects:
            match effect:
                case RecordAndSend():
                    self._outbox.record_and_send(effect.line, effect.urgent)
                case SpawnProcess():
                    effects += self._spawn(effect)
                case SendLine():
                    self._outbox.send(effect.line)
                case RecordLine():
                    self._journal.note(effect.line)
                case Signal():
                    self._processes.signal(effect.attempt, *effect.numbers)

    def _spawn(self, effect: SpawnProcess) -> list[KeeperEffect]:
        key = effect.key
        try:
            if self._processes.watchdog.is_killing():
                raise SpawnRefused("fenced", "the lease ran out, and what was left is being ended")
            if self._journal.trouble and not self._journal.try_flush():
                raise SpawnRefused("exhausted", f"cannot write the keeper's journal: {self._journal.trouble}")
            if effect.held:
                self._spawner.check(key, effect.brief, effect.options)
                return self._table.prepared(key)
            attempt = self._spawner.start(
                key, effect.brief, effect.options, lambda: self._table.why_not(key, effect.options, now())
            )
        except SpawnRefused as refusal:
            return self._table.refused(key, refusal.code, refusal.message, now())
        except OSError as error:
            return self._table.refused(key, "spawn_failed", f"cannot start: {error}", now())
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            return self._table.refused(
                key, "not_readable", f"cannot read the start request: {error!r}", now()
            )
        self._processes.leaders[attempt.pid] = attempt
        self._logs.started(attempt, now())
        self._carry_out(self._table.started(attempt))
        self._journal.try_flush()  # at once: a keeper killed later in this turn still has it
        return []


def _check_key(request: Any) -> None:
    match request:
        case ["start" | "stop", key, *_] if not is_key(key):
            raise NotAKey(f"{str(key)[:80]!r} is not the key of an attempt")


class Outbox:
    """What is sent to the runner. Without a connection it is dropped: a listing contains all of it."""

    def __init__(self, journal: Journal) -> None:
        self.link: SocketLink | None = None
        self.waiting_since: float | None = None  # since when answers wait for others
        self._journal = journal
        self._lines: list[str] = []
        self._urgent = False

    def record_and_send(self, line: str, urgent: bool = True) -> None:
        """Write it to the journal, and send it."""
        self._journal.note(line)
        if self.link is not None:
            self._lines.append(line)
            self._urgent |= urgent

    def send(self, line: str) -> None:
        if self.link is not None:
            self._lines.append(line)
            self._urgent = True

    def mark_urgent(self) -> None:
        """Send what waits with the next turn."""
        self._urgent = True

    def wait_s(self) -> float:
        """How long the waiting answers may still wait."""
        return max(0.0, (self.waiting_since or 0.0) + PATIENCE_S - since_boot())

    def flush(self) -> None:
        """Send the answers, unless they can wait a little; raises Lost."""
        if self._lines and not self._urgent:
            if self.waiting_since is None:
                self.waiting_since = since_boot()
            if self.wait_s() > 0.0:
                return
        lines, self._lines = self._lines, []
        self._urgent, self.waiting_since = False, None
        if self.link is not None and (lines or self.link.blocked):
            self.link.send(lines)
