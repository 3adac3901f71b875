"""The runner's own small state machine: orders and process news in, deeds and reports out.

A runner starts an attempt at most once, runs the attempts of a lane one after another, and keeps every end in
its outbox until a coordinator has disposed of it. It accepts no order of an older epoch and starts nothing
once its lease is over. Processes, clocks and connections belong to the shell in `runner/`.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.orders import (
    AttemptKey,
    Brief,
    Dismiss,
    Disposition,
    Ended,
    Exit,
    Order,
    Pause,
    Phase,
    Report,
    Resume,
    Returned,
    Start,
    Started,
    Stop,
)
from phalanx.core.model.status import Why

TOMBSTONES_MAX = 10_000
STUCK_MESSAGE = "Task stuck in pending state: its runner held it and never started it"
RETURN_AFTER_S = 1.0  # how long an attempt may run before those queued behind it are given back


class Spawn(Struct, frozen=True):
    """Start a process for this attempt, as soon as those before it in its lane have ended."""

    start: Start
    brief: Brief


class Halt(Struct, frozen=True):
    """End its processes: politely, then after the grace not so."""

    key: AttemptKey
    grace_s: float


class Retract(Struct, frozen=True):
    """Take it back, if it still waits for its lane."""

    key: AttemptKey


class Freeze(Struct, frozen=True):
    key: AttemptKey
    frozen: bool


class Forget(Struct, frozen=True):
    """The coordinator has taken note of this end; nothing need remember it."""

    key: AttemptKey


class ForgetBrief(Struct, frozen=True):
    """No attempt of this job will come any more."""

    job: JobId


Deed = Spawn | Halt | Retract | Freeze | Forget | ForgetBrief


class ProcessEnd(Struct, frozen=True):
    """How a process ended, as the keeper saw it."""

    code: int | None
    signal: int | None
    oom: bool
    reason: str | None  # fenced: the keeper's lease ran out; unknown: nobody saw the end
    started_at: float | None
    ended_at: float
    stderr_tail: str = ""


class Held:
    """An attempt on this node, until its end is acknowledged."""

    __slots__ = ("deadline", "grace_s", "lane", "phase", "start", "started_at", "stopping")

    def __init__(self, start: Start | None, lane: int, phase: Phase) -> None:
        self.start = start
        self.lane = lane
        self.phase = phase
        self.started_at: float | None = None
        self.deadline: float | None = None
        self.grace_s = 0.0
        self.stopping: Why | None = None


class RunnerState:
    """What this runner holds. Methods take what happened and return the deeds to do; reports go to `fresh`."""

    def __init__(self) -> None:
        self.epoch = 0
        self.lease_until = 0.0
        self.briefs: dict[JobId, Brief] = {}
        self.dismissed: set[JobId] = set()  # jobs that are over, but of which something is still held
        self.held: dict[AttemptKey, Held] = {}
        self.lanes: dict[int, deque[AttemptKey]] = {}
        self.outbox: dict[AttemptKey, Report] = {}  # ends that no coordinator has disposed of yet
        self.fresh: list[Report] = []  # reports to send with the next message
        self.tombstones: dict[AttemptKey, None] = {}
        self.refused_orders = 0

    def adopt(self, key: AttemptKey, lane: int, end: ProcessEnd | None, started_at: float | None) -> None:
        """After our own restart: an attempt that the keeper has kept for us; without a start it still waits."""
        held = self.held[key] = Held(None, lane, Phase.QUEUED if started_at is None else Phase.RUNNING)
        held.started_at = started_at
        self.lanes.setdefault(lane, deque()).append(key)
        if end is not None:
            self._close(key, held, Ended(key, _exit_of(held, end)))

    def welcome(self, epoch: int, lease_until: float) -> bool:
        """A coordinator took us in. False if it is of an older epoch than one we have served."""
        if epoch < self.epoch:
            return False
        self.epoch = epoch
        self.renew(lease_until)
        self.fresh = list(self.outbox.values())
        return True

    def prune(self) -> list[Deed]:
        """A new session sends briefs anew, so those of which nothing is held may go."""
        return [deed for job in list(self.briefs) for deed in self._dismiss(job)]

    def renew(self, lease_until: float) -> None:
        self.lease_until = max(self.lease_until, lease_until)

    def listing(self) -> list[tuple[AttemptKey, Phase]]:
        """Everything held, for a hello or a heartbeat."""
        return [(key, held.phase) for key, held in self.held.items()]

    def order(self, epoch: int, order: Order, now: float) -> list[Deed]:
        """Obey one order, unless it comes from a coordinator that has been replaced."""
        if epoch < self.epoch:
            self.refused_orders += 1
            return []
        match order:
            case Start():
                return self._start(order, now)
            case Stop():
                return self._stop(order, now)
            case Brief():
                self._learn(order)
            case Dismiss():
                return self._dismiss(order.job)
            case Pause() | Resume():
                held = self.held.get(order.key)
                if held is not None and held.phase == Phase.RUNNING:
                    return [Freeze(order.key, isinstance(order, Pause))]
        return []

    def process_started(self, key: AttemptKey, at: float) -> list[Deed]:
        held = self.held.get(key)
        if held is None or held.phase == Phase.ENDED:
            return []
        held.started_at, held.phase = at, Phase.RUNNING
        self._set_deadline(key, held)
        self.fresh.append(Started(key, at))
        return []

    def process_refused(self, key: AttemptKey, code: str, message: str, now: float) -> list[Deed]:
        """The keeper made no process: it was told not to, or there is no such program or folder."""
        held = self.held.get(key)
        if held is None or held.phase == Phase.ENDED:
            return []
        if code == "retracted":
            self._close(key, held, Returned(key))
        elif code == "stopped" and held.stopping == Why.STUCK:
            self._close(key, held, Ended(key, Exit(Why.STUCK, -1, ended_at=now, message=STUCK_MESSAGE)))
        elif code == "stopped":
            self._close(
                key, held, Ended(key, Exit(held.stopping or Why.EVICTED, ended_at=now, message=message))
            )
        elif code == "fenced":
            self._close(key, held, Ended(key, Exit(Why.FENCED, ended_at=now, message=message)))
        else:
            self._close(key, held, Ended(key, Exit(Why.REFUSED, 127, ended_at=now, message=message)))
        return []

    def process_ended(self, key: AttemptKey, end: ProcessEnd) -> list[Deed]:
        held = self.held.get(key)
        if held is not None and held.phase != Phase.ENDED:
            self._close(key, held, Ended(key, _exit_of(held, end)))
        return []

    def keeper_lost(self) -> list[Deed]:
        """The keeper died, and with it the memory of what waited for a lane: send that again."""
        waiting = [
            held.start
            for held in self.held.values()
            if held.phase == Phase.QUEUED and held.start is not None and held.stopping is None
        ]
        return [Spawn(start, self.briefs[start.key[0]]) for start in waiting if start.key[0] in self.briefs]

    def disposed(self, key: AttemptKey, disposition: Disposition) -> list[Deed]:
        """The coordinator answered a report."""
        if disposition == Disposition.STALE_EPOCH or key not in self.outbox:
            return []
        del self.outbox[key]
        self.held.pop(key, None)
        return [Forget(key), *(self._dismiss(key[0]) if key[0] in self.dismissed else ())]

    def tick(self, now: float) -> list[Deed]:
        """Time limits, lanes whose head takes long, and a lease that is over."""
        deeds: list[Deed] = []
        for lane in list(self.lanes.values()):
            head = self.held[lane[0]]
            if head.deadline is not None and now >= head.deadline and head.stopping is None:
                head.stopping = Why.TIMEOUT
                deeds.append(Halt(lane[0], head.grace_s))
            long_s = now - head.started_at if head.started_at is not None else 0.0
            if len(lane) > 1 and (long_s > RETURN_AFTER_S or now > self.lease_until):
                deeds += [Retract(key) for key in lane if self.held[key].phase == Phase.QUEUED]
        return deeds

    def resend(self) -> None:
        """Ends that were reported but never answered go out again with the next message."""
        waiting = {report.key for report in self.fresh}
        self.fresh += [report for key, report in self.outbox.items() if key not in waiting]

    def take_fresh(self) -> list[Report]:
        """The reports to send now. A start needs no word of its own when its end is told as well."""
        reports, self.fresh = self.fresh, []
        return [each for each in reports if type(each) is not Started or each.key not in self.outbox]

    @property
    def is_urgent(self) -> bool:
        """True if an end is to be told and some lane, or the whole node, has nothing more to do."""
        return not self.is_busy and any(type(report) is not Started for report in self.fresh)

    @property
    def is_busy(self) -> bool:
        """True while every lane has more to do, so that no report is urgent."""
        return bool(self.lanes) and all(len(lane) > 1 for lane in self.lanes.values())

    def _dismiss(self, job: JobId) -> list[Deed]:
        if self._holds(job):
            self.dismissed.add(job)
            return []
        self.dismissed.discard(job)
        return [ForgetBrief(job)] if self.briefs.pop(job, None) is not None else []

    def _learn(self, brief: Brief) -> None:
        """Keep a brief; attempts adopted after a restart get their time limit back from it."""
        self.briefs[brief.job] = brief
        self.dismissed.discard(brief.job)
        for key, held in self.held.items():
            if key[0] == brief.job:
                self._set_deadline(key, held)

    def _set_deadline(self, key: AttemptKey, held: Held) -> None:
        brief = self.briefs.get(key[0])
        if brief is not None and brief.time_limit_s is not None and held.started_at is not None:
            held.deadline = held.started_at + brief.time_limit_s
            held.grace_s = brief.grace_s

    def _start(self, order: Start, now: float) -> list[Deed]:
        if order.key in self.held:
            return []
        if order.key in self.tombstones:
            self._report(
                Ended(order.key, Exit(Why.CANCELLED, ended_at=now, message="stopped before it started"))
            )
            return []
        held = self.held[order.key] = Held(order, order.lane, Phase.QUEUED)
        self.lanes.setdefault(order.lane, deque()).append(order.key)
        brief = self.briefs.get(order.key[0])
        if now > self.lease_until or brief is None:
            why = "the lease was over" if brief else "its brief never arrived"
            exit = Exit(Why.FENCED, ended_at=now, message=f"not started: {why}")
            self._close(order.key, held, Ended(order.key, exit))
            return []
        return [Spawn(order, brief)]

    def _stop(self, order: Stop, now: float) -> list[Deed]:
        self.tombstones[order.key] = None
        while len(self.tombstones) > TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        held = self.held.get(order.key)
        if held is None:  # never known, or long over: say so, because somebody waits for the answer
            self._report(Ended(order.key, Exit(order.why, ended_at=now, message="it was not running")))
            return []
        if held.phase == Phase.ENDED or held.stopping is not None:
            return []
        held.stopping = order.why
        return [Halt(order.key, order.grace_s)]

    def _close(self, key: AttemptKey, held: Held, report: Ended | Returned) -> None:
        """It is over here; what is left is that a coordinator takes note of it."""
        held.phase = Phase.ENDED
        lane = self.lanes[held.lane]
        lane.remove(key)
        if not lane:
            del self.lanes[held.lane]
        self._report(report)

    def _report(self, report: Report) -> None:
        self.outbox[report.key] = report
        self.fresh.append(report)

    def _holds(self, job: JobId) -> bool:
        return any(key[0] == job for key in self.held)


def _exit_of(held: Held, end: ProcessEnd) -> Exit:
    """Why it ended, in our words."""
    code = -end.signal if end.signal else end.code
    why, message = _judge(held, end)
    return Exit(why, code, end.started_at or held.started_at, end.ended_at, message, end.stderr_tail)


def _judge(held: Held, end: ProcessEnd) -> tuple[Why, str]:
    if end.reason == "shutdown":
        return Why.EVICTED, "its runner was stopped; it runs again when there is room"
    if end.reason == "fenced":
        return Why.FENCED, "stopped by its runner, which had lost touch with the coordinator"
    if end.reason is not None:
        return Why.UNKNOWN, "the process is gone and nobody saw its exit code"
    if held.stopping == Why.TIMEOUT:
        return Why.TIMEOUT, "its time limit passed"
    if held.stopping is not None:
        return held.stopping, "stopped on request"
    if end.oom:
        return Why.OOM, "out of memory: the kernel ended it for using more than it was granted"
    if end.signal:
        return Why.SIGNALLED, f"ended by signal {end.signal} ({_signal_name(end.signal)})"
    if end.code:
        return Why.EXITED, f"exited with code {end.code}"
    return Why.NONE, ""


def _signal_name(number: int) -> str:
    return _SIGNALS.get(number, "unnamed")


_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU",
    25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip
