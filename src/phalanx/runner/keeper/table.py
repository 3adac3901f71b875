"""The keeper's decisions without side effects: requests, ends and time come in, effects come out as values.

Nothing here reads a clock, a file or a socket; `now` is in seconds since boot. Three drivers carry the effects out and
return the results: the keeper itself (`loop.py`) with real processes, the simulator (`sim/keeper.py`) with
modelled ones, and tests with none. So what they prove of the table holds on every node.

A key is started once. It waits while its lane is taken, a member of a gang also until it gets go; what was stopped is
never started; a stop is SIGTERM, and SIGKILL after its grace; when the lease is over, whatever runs is stopped and
nothing starts. An end is remembered until it may be forgotten.
"""

from __future__ import annotations

import json
import signal

from . import VERSION
from .attached import FIRST_READ_S, is_unread
from .attempt import CloseInput, KeptBrief, Lanes, RecordAndSend, RecordLine, SendLine, Signal, SpawnProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .attempt import KeeperEffect, KeptAttempt, Options, Waiting

AGAIN_S = 1.0  # between two kills of a tree that does not die
WHY_CHARS_MAX = 40
FENCE_GRACE_S = 2.0  # or a quarter of the lease if less: the coordinator waits half a lease longer than we do
STOPPED_MAX = 10_000
QUESTIONS = ("list", "ping")
LEASE_S_MAX = 2 * 3600.0  # more than a stopping runner may ask for, whatever is requested
_FENCED = "the runner's lease has run out"
_LATE = "it could not start in time"
_STOPPED = "it was stopped before it could start"
_BAD_REQUEST = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class KeeperTable:
    """Every attempt of this node, from its request until the runner has its exit and forgets it."""

    def __init__(self, attempts: Iterable[KeptAttempt] = (), stopped: dict[str, None] | None = None) -> None:
        """With what an earlier keeper left: attempts that are over, and keys that must not start any more."""
        self.attempts: dict[str, KeptAttempt] = {attempt.key: attempt for attempt in attempts}
        self.running: dict[str, KeptAttempt] = {}  # until the leader has ended; its tree may live on
        self.stopped: dict[str, None] = {} if stopped is None else stopped
        self.briefs: dict[str, KeptBrief] = {}
        self.lanes = Lanes()
        self.closing = False
        self.pid = 0  # of the keeper, so that one that is stopped can be killed
        self.log_cap = True  # False when a filesystem cannot keep logs within their bound
        self.next_at = 0.0  # when `due` must be called next, if `is_on_watch`
        self._starting: dict[str, Waiting] = {}  # whose SpawnProcess has not been answered
        self._kill_at: dict[str, float] = {}
        self._unread: dict[str, KeptAttempt] = {}  # stopped until their output is read
        self.lease_until: float | None = None
        self.fence_grace_s = FENCE_GRACE_S
        self._effects: list[KeeperEffect] = []

    # Requests of the runner.

    def serve(self, request: Any, now: float) -> list[KeeperEffect]:
        """Serve one request. No request can end the keeper but a shutdown."""
        try:
            _SERVE[request[0]](self, now, *request[1:])
        except _BAD_REQUEST as error:  # a bad request must not end every attempt of the node
            self._effects.append(misunderstood(request, error))
        return self._take()

    def _start(self, now: float, key: str, brief_id: str, options: Options) -> None:
        if not isinstance(brief_id, str):  # it is read later, when its lane is free
            raise TypeError("the id of a brief must be a text")
        attempt = self.attempts.get(key)
        if attempt is not None:
            self._effects.append(SendLine(attempt.started_line()))
            if attempt.exit is not None:
                self._effects.append(SendLine(attempt.ended_line()))
            return
        lane = options.get("lane")
        if key in self.lanes.ready:
            self._say_ready(key) if options.get("held") else self._go(now, key, options.get("not_after"))
        elif key in self._starting or key in self.lanes.waiting:
            return  # its end will be sent
        elif lane is None or not self.lanes.is_taken(lane):
            self._begin((key, brief_id, options), now)
        else:
            self.lanes.wait(lane, (key, brief_id, options))

    def _go(self, now: float, key: str, not_after: float | None = None) -> None:
        """Start one that is ready. If it is refused even now, its lane continues without it."""
        request = self.lanes.ready.pop(key, None)
        if request is None:
            return
        options = {**request[2], "held": False, "not_after": not_after}
        if not self._begin((key, request[1], options), now):
            self._go_on(request[2].get("lane"), key, now)

    def _ping(self, now: float) -> None:
        self._effects.append(SendLine('["pong"]'))

    def _brief(self, now: float, brief_id: str, content: dict[str, Any]) -> None:
        self.briefs[brief_id] = KeptBrief(content)

    def _forget_brief(self, now: float, brief_id: str) -> None:
        self.briefs.pop(brief_id, None)

    def _signal(self, now: float, key: str, number: int) -> None:
        attempt, known = self.running.get(key), signal.Signals(number)
        if attempt is not None:
            self._effects.append(Signal(attempt, known))

    def _pause(self, now: float, key: str) -> None:
        self._set_paused(key, True, signal.SIGSTOP)

    def _resume(self, now: float, key: str) -> None:
        self._set_paused(key, False, signal.SIGCONT)

    def _set_paused(self, key: str, paused: bool, number: int) -> None:
        attempt = self.running.get(key)
        if (
            attempt is not None and attempt.kill_at is None
        ):  # one that is being stopped has to receive its SIGTERM
            attempt.paused = paused
            if not attempt.unread:  # else it is stopped, and goes on when it was read
                self._effects.append(Signal(attempt, number))

    def _reader(self, now: float, key: str, log: int, at: int | None, for_s: float) -> None:
        """The reader of a log has come so far, and is there for so long; `at` None: it is as far as it was."""
        attempt = self.running.get(key)
        if attempt is not None and attempt.readers is not None and 0 <= log < len(attempt.readers):
            attempt.readers[log].come(at, now + float(for_s))
            self._judge_readers(attempt, now)

    def _end_input(self, now: float, key: str) -> None:
        attempt = self.attempts.get(key)
        if attempt is not None and attempt.input is not None:
            self._effects.append(CloseInput(attempt))

    def log_grew(self, attempt: KeptAttempt, now: float) -> list[KeeperEffect]:
        """A look at the logs of an attached attempt: stop it if its reader is far behind, or let it go on."""
        self._judge_readers(attempt, now)
        return self._take()

    def _judge_readers(self, attempt: KeptAttempt, now: float) -> None:
        unread, until = is_unread(attempt, now)
        if attempt.kill_at is None and unread != attempt.unread:
            self._set_unread(attempt, unread)
        self.next_at = min(self.next_at, until)

    def _set_unread(self, attempt: KeptAttempt, unread: bool) -> None:
        attempt.unread = unread
        if unread:
            self._unread[attempt.key] = attempt
        else:
            self._unread.pop(attempt.key, None)
        if not attempt.paused:
            self._effects.append(Signal(attempt, signal.SIGSTOP if unread else signal.SIGCONT))
        self._effects.append(SendLine(json.dumps(["unread", attempt.key, unread])))

    def _stop(self, now: float, key: str, grace_s: float, why: str | None = None) -> None:
        if not isinstance(why, str | None) or (why is not None and not why.isidentifier()):
            raise TypeError("the why of a stop must be one word")
        attempt = self.running.get(key)
        if attempt is not None:
            if attempt.kill_at is None:
                attempt.why = why and why[:WHY_CHARS_MAX]
            self._end(attempt, float(grace_s), now)
        elif key not in self.attempts:
            remember(self.stopped, key)
            self._effects.append(RecordLine(json.dumps(["stopped", key])))
            if not self._withdraw(key, "stopped", _STOPPED, now):
                self._refuse(
                    key, "stopped", _STOPPED
                )  # its start never came, and the runner waits for its end

    def _retract(self, now: float, key: str) -> None:
        """Withdraw what still waits for its lane; what has started or is ready in a gang stays."""
        if key in self.lanes.waiting and not self.lanes.waiting[key][2].get("held"):
            self._withdraw(key, "retracted", "it was withdrawn before it could start", now)

    def _lease(self, now: float, seconds_left: float, until: float | None = None) -> None:
        """Both limits are given, because a message may be late: a runner that hangs must not lengthen the lease."""
        end = now + (left if (left := float(seconds_left)) <= LEASE_S_MAX else LEASE_S_MAX)  # also for NaN
        self.lease_until = end if until is None else min(end, float(until))
        self.fence_grace_s = min(FENCE_GRACE_S, max(0.0, float(seconds_left)) / 4)
        self.next_at = 0.0

    def _list(self, now: float) -> None:
        facts = {"version": VERSION, "log_cap": self.log_cap, "pid": self.pid}
        rows = [attempt.row() for attempt in self.attempts.values()]
        unstarted = {**self._starting, **self.lanes.waiting}
        for state, keys in (("ready", self.lanes.ready), ("waiting", unstarted)):
            rows += [_unstarted_row(state, request) for request in keys.values()]
        self._effects.append(SendLine(f'["listing",[{",".join(rows)}],{json.dumps(facts)}]'))
        self._effects += [SendLine(json.dumps(["unread", key, True])) for key in self._unread]
        self._effects += [
            SendLine(each.input_line(self.pid)) for each in self.running.values() if each.has_input
        ]

    def _forget(self, now: float, keys: list[str]) -> None:
        ended = [key for key in keys if key in self.attempts and self.attempts[key].exit is not None]
        for key in ended:
            del self.attempts[key]
        if ended:
            self._effects.append(RecordLine(json.dumps(["forget", ended])))

    def _shutdown(self, now: float, grace_s: float = FENCE_GRACE_S) -> None:
        self.closing = True
        for key in [*self.lanes.waiting, *self.lanes.ready, *self._starting]:
            self._stop(now, key, 0.0)
        for attempt in [*self.running.values()]:
            if attempt.kill_at is None:  # one that was being stopped anyway ends for that reason
                attempt.reason = attempt.reason or "shutdown"
            self._end(attempt, float(grace_s), now)

    # Results of a SpawnProcess.

    def started(self, attempt: KeptAttempt, now: float = 0.0) -> list[KeeperEffect]:
        for reader in attempt.readers or ():
            reader.come(None, now + FIRST_READ_S)
        del self._starting[attempt.key]
        self.attempts[attempt.key] = self.running[attempt.key] = attempt
        line = RecordAndSend(attempt.started_line(), False, began=attempt.key)
        return [line, SendLine(attempt.input_line(self.pid))] if attempt.has_input else [line]

    def prepared(self, key: str) -> list[KeeperEffect]:
        """A held attempt could start now. It may have been withdrawn meanwhile."""
        if (request := self._starting.pop(key, None)) is not None:
            self.lanes.ready[key] = request
            self._say_ready(key)
        return self._take()

    def refused(self, key: str, code: str, message: str, now: float) -> list[KeeperEffect]:
        """It could not be started: its lane continues without it."""
        if (request := self._starting.pop(key, None)) is not None:
            self._refuse(key, code, message)
            self._go_on(request[2].get("lane"), key, now)
        return self._take()

    # Processes.

    def leader_ended(self, attempt: KeptAttempt) -> None:
        """The leader is reaped: from now on it is not signalled, and its end is sent when its tree is gone too."""
        self.running.pop(attempt.key, None)
        self._unread.pop(attempt.key, None)

    def ended(self, attempt: KeptAttempt, now: float) -> list[KeeperEffect]:
        """Nothing of an attempt is left: send its end, and start the next one of its lane."""
        is_urgent = self.lanes.is_short(attempt.lane)
        self._effects.append(RecordAndSend(attempt.ended_line(), is_urgent, ended=attempt.key))
        self._go_on(attempt.lane, attempt.key, now)
        return self._take()

    # Time.

    @property
    def is_on_watch(self) -> bool:
        """Whether any deadline is running."""
        return bool(self.running or self.lanes.ready or self._starting)

    def lease_is_over(self, now: float) -> bool:
        """Without any lease there is no fence: the runner has not been given one yet."""
        return self.lease_until is not None and now >= self.lease_until

    def due(self, now: float) -> list[KeeperEffect]:
        """Do what is due, and find when something is due next."""
        over = self.lease_is_over(now)
        if over:
            self._fence(now)
        for key in [key for key, kill_at in self._kill_at.items() if now >= kill_at]:
            self._kill(key, now)
        upcoming = [*self._kill_at.values()]
        for attempt in [*self._unread.values()]:
            self._judge_readers(attempt, now)
            upcoming += [
                each.until for each in attempt.readers or () if attempt.unread and each.until is not None
            ]
        if self.lease_until is not None and not over:
            upcoming.append(self.lease_until)
        self.next_at = min(upcoming, default=float("inf"))
        return self._take()

    def _fence(self, now: float) -> None:
        for key in [*self.lanes.ready, *self._starting]:
            self._withdraw(key, "fenced", _FENCED, now)
        for attempt in [*self.running.values()]:
            if attempt.reason is None:
                attempt.reason = "fenced"
                self._end(attempt, self.fence_grace_s, now)

    def _kill(self, key: str, now: float) -> None:
        attempt = self.running.get(key)
        if attempt is None:
            del self._kill_at[key]
        else:
            self._effects.append(Signal(attempt, signal.SIGKILL))
            self._kill_at[key] = now + AGAIN_S  # once more, in case it forked while it was signalled

    def _end(self, attempt: KeptAttempt, grace_s: float, now: float) -> None:
        """SIGTERM now, SIGKILL after the grace. A second stop can only shorten the first one's grace."""
        kill_at = now + max(0.0, grace_s)
        if attempt.kill_at is None:
            attempt.kill_at = kill_at
            if attempt.unread:
                attempt.unread = False
                self._unread.pop(attempt.key, None)
                self._effects.append(SendLine(json.dumps(["unread", attempt.key, False])))
            # A paused process receives SIGTERM only once it is continued.
            self._effects.append(Signal(attempt, signal.SIGTERM, signal.SIGCONT))
        attempt.kill_at = self._kill_at[attempt.key] = min(attempt.kill_at, kill_at)
        self.next_at = 0.0

    # Lanes.

    def _begin(self, request: Waiting, now: float) -> bool:
        """Its lane is free, or its own: start it, or prepare it if it is held; False if that is refused."""
        key, brief_id, options = request
        brief = self.briefs.get(brief_id)
        if (no := self.why_not(key, options, now)) is not None:
            self._refuse(key, *no)
        elif brief is None:
            self._refuse(key, "no_brief", f"the keeper was not given the brief {brief_id!r}")
        else:
            self.lanes.take(options.get("lane"), key)
            self._starting[key] = request
            self._effects.append(SpawnProcess(key, brief, options, bool(options.get("held"))))
            return True
        return False

    def why_not(self, key: str, options: Options, now: float) -> tuple[str, str] | None:
        """Why it may not start now: a code for programs, a message for people."""
        not_after = options.get("not_after")
        if key in self.stopped:
            return "stopped", _STOPPED
        if self.closing:
            return "stopped", "the keeper is shutting down"
        if self.lease_until is not None and now >= self.lease_until:
            return "fenced", _FENCED
        if not_after is not None and now >= not_after:
            return "late", _LATE
        return None

    def _go_on(self, lane: int | None, key: str, now: float) -> None:
        """The holder of a lane is gone: start the first waiting attempt that is not refused."""
        request = self.lanes.leave(lane, key)
        while request is not None and not self._begin(request, now):
            request = self.lanes.next(request[2]["lane"])

    def _withdraw(self, key: str, code: str, message: str, now: float) -> bool:
        """Refuse what has not started: it no longer waits for its lane, or gives it to the next; False if unknown."""
        if self.lanes.withdraw(key):
            self._refuse(key, code, message)
            return True
        request = self.lanes.ready.pop(key, None) or self._starting.pop(key, None)
        if request is None:
            return False
        self._refuse(key, code, message)
        self._go_on(request[2].get("lane"), key, now)
        return True

    def _say_ready(self, key: str) -> None:
        self._effects.append(SendLine(json.dumps(["ready", key])))

    def _refuse(self, key: str, code: str, message: str) -> None:
        self._effects.append(SendLine(json.dumps(["refused", key, code, message])))

    def _take(self) -> list[KeeperEffect]:
        effects, self._effects = self._effects, []
        return effects


def _unstarted_row(state: str, request: Waiting) -> str:
    memo = f",[0,0],{json.dumps(request[2]['memo'])}" if request[2].get("memo") else ""
    return f'[{json.dumps(request[0])},"{state}",0,0.0,null{memo}]'


def without_questions(requests: list[Any]) -> list[Any]:
    """The requests of a disconnected runner that are still carried out: not questions, which nothing would read."""
    return [each for each in requests if not (isinstance(each, list) and each and each[0] in QUESTIONS)]


def misunderstood(request: Any, error: Exception) -> SendLine:
    return SendLine(json.dumps(["misunderstood", f"{str(request)[:200]}: {error!r}"]))


def remember(stopped: dict[str, None], key: str) -> None:
    """Remember a key that must not start any more, among the newest ones."""
    stopped.pop(key, None)
    stopped[key] = None
    if len(stopped) > STOPPED_MAX:
        del stopped[next(iter(stopped))]


VERBS = (
    *("ping", "brief", "forget_brief", "start", "go", "signal", "pause", "resume", "stop", "retract"),
    *("lease", "list", "forget", "shutdown", "reader", "end_input"),
)
_SERVE: dict[str, Callable[..., None]] = {verb: getattr(KeeperTable, f"_{verb}") for verb in VERBS}
