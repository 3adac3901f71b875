"""The keeper's loop: it waits, does all there is to do, writes the journal, then sends.

The executor carries out the table's effects with real processes, and returns the results to the table. Deadlines are
kept here, not in the runner, so that they hold when the runner is dead or hangs. Only looking at the logs is done
without the table.

Durable before sent: the answers of one turn leave as one frame, when its journal lines are written. Ends are learnt
from SIGCHLD and waitid rather than from a pidfd for each attempt: it costs the same CPU (0.08 ms a task, measured),
needs no descriptors, and covers orphans as well.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from . import log
from .attempt import CloseInput, RecordAndSend, RecordLine, SendLine, Signal, SpawnProcess, is_key
from .cgroup import AttemptSlots
from .files import LeftFiles
from .inputs import close_input
from .link import Lost, Outbox, SocketLink
from .logs import LogWatch, Trimmer
from .output import OutputReader
from .programs import SpawnRefused
from .spawn import Spawner
from .system import since_boot
from .table import misunderstood, without_questions
from .tree import SETTLE_S, KeeperEndings, ProcessTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempt import KeeperEffect, KeptAttempt
    from .journal import Journal
    from .link import SocketListener
    from .table import KeeperTable
    from .tree import Mark
    from .watchdog import Watchdog

REQUESTS_PER_TURN = 32  # so that ends are sent while a thousand starts are waiting
LAST_SEND_S = 1.0
SOCKET_LOOK_S = 2.0  # how often, while no runner is connected
ALONE_S = 600.0  # a keeper without requests and attempts ends; its journal stays for the next one
WAIT_S_MAX = 3600.0  # the kernel accepts no infinite wait as a number


class NotAKey(ValueError):
    """A request about a key that cannot be an attempt's; it would stay in the journal for good."""


class EffectRunner:
    """Serves one table."""

    def __init__(
        self,
        table: KeeperTable,
        processes: ProcessTable,
        journal: Journal,
        spawner: Spawner,
        logs: LogWatch,
        output: OutputReader,
        outbox: Outbox,
    ) -> None:
        self._table = table
        self._processes = processes
        self._journal = journal
        self._spawner = spawner
        self._logs = logs
        self._output = output
        self._outbox = outbox
        self._lease_until: float | None = None

    def serve(self, requests: list[Any]) -> None:
        """Serve requests in the order they came."""
        self._table.log_cap = self._logs.supported
        for request in requests:
            try:
                _check_key(request)
                effects = self._table.serve(request, since_boot())
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
        close_input(attempt)
        self._carry_out(self._table.ended(attempt, since_boot()))

    def wait_s(self) -> float:
        due_at = min(self._logs.next_at, self._output.next_at, self._table.next_at)
        return max(0.0, min(due_at - since_boot(), WAIT_S_MAX))

    def keep_deadlines(self) -> None:
        """Do what is due."""
        at = since_boot()
        if at >= self._table.next_at:
            self._carry_out(self._table.due(at))
        self._output.due(at)
        if at >= self._logs.next_at:
            self._logs.look(at)
            for attempt in self._logs.grown:
                self._carry_out(self._table.log_grew(attempt, at))

    def _carry_out(self, effects: list[KeeperEffect]) -> None:
        """One after the other. The results of one are carried out after those that were decided with it."""
        for effect in effects:
            match effect:
                case RecordAndSend():
                    self._outbox.record_and_send(effect)
                case SpawnProcess():
                    effects += self._spawn(effect)
                case SendLine():
                    self._outbox.send(effect.line)
                case RecordLine():
                    self._journal.note(effect.line)
                case Signal():
                    self._processes.signal(effect.attempt, *effect.numbers)
                case CloseInput():
                    close_input(effect.attempt)

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
                key,
                effect.brief,
                effect.options,
                lambda: self._table.why_not(key, effect.options, since_boot()),
            )
        except SpawnRefused as refusal:
            return self._table.refused(key, refusal.code, refusal.message, since_boot())
        except OSError as error:
            return self._table.refused(key, "spawn_failed", f"cannot start: {error}", since_boot())
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            return self._table.refused(
                key, "not_readable", f"cannot read the start request: {error!r}", since_boot()
            )
        self._processes.leaders[attempt.pid] = attempt
        self._logs.started(attempt, since_boot())
        self._output.started(attempt, since_boot())
        self._carry_out(self._table.started(attempt, since_boot()))
        self._journal.try_flush()  # at once: a keeper killed later in this turn still has it
        return []


def _check_key(request: Any) -> None:
    match request:
        case ["start" | "stop", key, *_] if not is_key(key):
            raise NotAKey(f"{str(key)[:80]!r} is not the key of an attempt")


class KeeperLoop:
    """One thread, one epoll, at most one runner connected."""

    def __init__(
        self,
        listener: SocketListener,
        table: KeeperTable,
        journal: Journal,
        watchdog: Watchdog,
        boot: str,
        mark: Mark,
        alone_s: float = ALONE_S,
    ) -> None:
        self._signals = _catch_signals()
        slots = AttemptSlots(mark)
        files = LeftFiles()
        spawner = Spawner(slots, files)  # after the signals, since it has to know which ones are ignored
        trimmer = Trimmer()
        self._logs = LogWatch(trimmer)
        self._table = table
        table.pid = os.getpid()
        self._processes = processes = ProcessTable(watchdog, slots)
        self._journal = journal
        self._boot = boot
        self._outbox = Outbox(journal)
        self._poll = select.epoll()
        self._output = OutputReader(self._poll, watchdog, lambda key: self._logs.wrote(key, since_boot()))
        self._executor = EffectRunner(
            table, processes, journal, spawner, self._logs, self._output, self._outbox
        )
        self._endings = KeeperEndings(
            table, processes, trimmer, files, self._output.ended, self._executor.ended
        )
        self._alone_s = alone_s
        self._alone_since: float | None = None
        self._backlog: list[Any] = []
        self._link: SocketLink | None = None
        self._waits_for_room = False
        self._listener = listener
        self._listening = listener.fileno()
        self._look_at = 0.0  # when to check whether the socket can still be reached
        self._poll.register(listener.fileno(), select.EPOLLIN)
        self._poll.register(self._signals, select.EPOLLIN)

    def run(self) -> None:
        """Serve until a shutdown has left nothing, or until there has been no need for long."""
        while not (self._table.closing and not self._processes.leaders and not self._processes.ending):
            self._turn()
            if self._alone_for_s() >= self._alone_s:
                return
        if self._link is not None:
            self._link.peer.settimeout(LAST_SEND_S)
            self._outbox.mark_urgent()
            self._flush()

    def _turn(self) -> None:
        for fd, events in self._poll.poll(self._wait_s()):
            if fd == self._signals:
                self._hear_signals()
            elif fd == self._listening:
                self._accept()
            elif self._link is not None and fd == self._link.fileno():
                self._hear(events)
            else:
                self._output.hear(fd, since_boot())
        if self._link is None and since_boot() >= self._look_at:
            self._keep_listening()
        if self._backlog:
            self._serve()
        if self._processes.ending:
            self._endings.settle()
        if self._table.is_on_watch:
            self._executor.keep_deadlines()
        self._processes.watchdog.ensure()
        self._write_down()
        self._flush()

    def _wait_s(self) -> float | None:
        """How long to wait for events: without a runner, not for long."""
        wait_s = self._wait_for_work_s()
        if (again_s := self._processes.watchdog.wait_s()) is not None:
            wait_s = again_s if wait_s is None else min(wait_s, again_s)
        if self._link is not None:
            return wait_s
        return max(0.0, min(self._look_at - since_boot(), SOCKET_LOOK_S if wait_s is None else wait_s))

    def _wait_for_work_s(self) -> float | None:
        """The shorter waits come first: later deadlines are kept soon after."""
        if self._backlog:
            return 0.0
        if self._outbox.waiting_since is not None:
            return self._outbox.wait_s()
        if self._processes.ending:
            return SETTLE_S
        if self._table.is_on_watch:
            return self._executor.wait_s()
        return None if self._link is not None else max(0.0, self._alone_s - self._alone_for_s())

    def _alone_for_s(self) -> float:
        """How long there has been no runner and nothing to keep."""
        if self._link is not None or self._table.is_on_watch or self._processes.ending or self._backlog:
            self._alone_since = None
            return 0.0
        if self._alone_since is None:
            self._alone_since = since_boot()
        return since_boot() - self._alone_since

    def _hear_signals(self) -> None:
        if signal.SIGTERM in os.read(self._signals, 512):
            self._executor.serve([["shutdown"]])
        self._endings.reap()

    def _serve(self) -> None:
        self._executor.serve(self._backlog[:REQUESTS_PER_TURN])
        del self._backlog[:REQUESTS_PER_TURN]

    def _write_down(self) -> None:
        if self._journal.try_flush() and self._journal.is_large():
            with contextlib.suppress(OSError):  # a full disk: it is tried again in a later turn
                self._journal.compact(self._boot, self._table.attempts.values(), self._table.stopped)

    def _keep_listening(self) -> None:
        """The next runner must find us: a task may have removed the socket."""
        self._look_at = since_boot() + SOCKET_LOOK_S
        if not self._listener.is_gone():
            return
        try:
            self._poll.unregister(self._listening)
            self._listener.renew()
        except OSError as error:
            log.write("listen", f"cannot listen: {error}")
        finally:
            self._listening = self._listener.fileno()
            self._poll.register(self._listening, select.EPOLLIN)

    def _accept(self) -> None:
        peer = self._listener.accept()
        if peer is None:
            return
        self._hang_up()  # a newer runner replaces an older one
        self._link = self._outbox.link = SocketLink(peer)
        self._waits_for_room = False
        self._poll.register(peer.fileno(), select.EPOLLIN)

    def _hear(self, events: int) -> None:
        if self._link is None or events == select.EPOLLOUT:
            return
        try:
            requests = self._link.receive()
        except Lost:
            self._hang_up()
            return
        self._executor.serve([each for each in requests if _is_urgent(each)])
        self._backlog += [each for each in requests if not _is_urgent(each)]

    def _flush(self) -> None:
        try:
            self._outbox.flush()
        except Lost:
            self._hang_up()
        if self._link is not None and self._link.blocked != self._waits_for_room:
            self._waits_for_room = self._link.blocked
            room = select.EPOLLOUT if self._link.blocked else 0
            self._poll.modify(self._link.fileno(), select.EPOLLIN | room)

    def _hang_up(self) -> None:
        """Close the connection. What was requested over it is still done, in order."""
        if self._link is not None:
            self._poll.unregister(self._link.fileno())
            self._link.close()
            self._link = self._outbox.link = None
            self._look_at = 0.0
            self._backlog = without_questions(self._backlog)


def _is_urgent(request: Any) -> bool:
    """A sign of life or a lease, which must not wait behind thousands of starts: without them the runner gives up."""
    return isinstance(request, list) and request[:1] in (["ping"], ["lease"])


def _catch_signals() -> int:
    """A descriptor on which the numbers of caught signals can be read: SIGCHLD and SIGTERM."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    return reader
