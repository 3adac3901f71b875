"""Attempts as their runner knows them: what it knows of their jobs, each one while it is held, and why it ended.

An attempt is held from the order to start it until its end is acknowledged. Briefs of groups and rolls of formations
are kept until the job is dismissed and nothing of it is held any more; a new session tells them anew.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from phalanx.core.model.amounts import describe_bytes, plural
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Brief, Ended, Exit, Phase, Ready, Report, Returned, Roll, Start, Why
from phalanx.core.model.task_results import LoadedNames, PartResult
from phalanx.core.model.usage import AttemptUsage

ROLLS_MAX = 16  # of one job: starts follow their roll closely, so older formations are over


class Briefing:
    """Briefs by job and number of the group, rolls by job and formation."""

    def __init__(self) -> None:
        self._briefs: dict[JobId, dict[int, Brief]] = {}
        self._rolls: dict[JobId, dict[int, Roll]] = {}
        self._dismissed: set[JobId] = set()  # jobs that are over, but of which something was still held

    @property
    def jobs(self) -> list[JobId]:
        """Every job of which something was told."""
        return [*self._briefs, *(job for job in self._rolls if job not in self._briefs)]

    def learn(self, told: Brief | Roll) -> None:
        self._dismissed.discard(told.job)
        if isinstance(told, Brief):
            self._briefs.setdefault(told.job, {})[told.group] = told
            return
        rolls = self._rolls.setdefault(told.job, {})
        rolls[told.formation] = told
        if len(rolls) > ROLLS_MAX:
            del rolls[min(rolls)]

    def brief(self, job: JobId, group: int) -> Brief | None:
        return self._briefs.get(job, {}).get(group)

    def any_brief(self, job: JobId) -> Brief | None:
        """One of the job's briefs: limits of time are the same in all of them."""
        return next(iter(self._briefs.get(job, {}).values()), None)

    def roll(self, job: JobId, formation: int) -> Roll | None:
        return self._rolls.get(job, {}).get(formation)

    def dismiss_later(self, job: JobId) -> None:
        self._dismissed.add(job)

    def is_dismissed(self, job: JobId) -> bool:
        return job in self._dismissed

    def forget(self, job: JobId) -> list[int]:
        """Drop all that was told of a job; the numbers of the groups whose briefs were known."""
        self._dismissed.discard(job)
        self._rolls.pop(job, None)
        return list(self._briefs.pop(job, {}))


_OF_NODE = frozenset({"spawn_failed", "no_log"})  # refusals that another node would not give
_OF_PLACE = frozenset({"not_found", "not_executable", "no_cwd"})
_OF_USER = frozenset({"no_image"})  # refusals that every node would give
_BY_WORD = {why.word: why for why in Why if why != Why.NONE}
STUCK_MESSAGE = "Task stuck in pending state: its runner held it and never started it"


NO_INPUT_MESSAGE = (
    "it was submitted with standard input, and no client came to give it: the client of `run` is gone"
)
NO_PROGRAM = 127  # the exit code of a shell that does not find a program


class ProcessEnd(Struct, frozen=True):
    """How a process ended, as the keeper saw it."""

    code: int | None
    signal: int | None
    oom: bool
    reason: str | None  # fenced: the keeper's lease ran out; unknown: nobody saw the end
    started_at: float | None
    ended_at: float
    stderr_tail: str = ""
    stopped: bool = True  # False: it ended before its keeper was told to stop it
    why: str | None = None  # the keeper was told to stop it, maybe by a runner before us
    result: str = ""  # what the task gave, as JSON
    result_error: str = ""  # why what it wrote as its result is none
    result_bytes: int = 0  # of a result in the place for files
    result_sha256: str = ""
    is_own: bool = False  # no answer for several tasks is in the result: it was taken apart, or was none
    parts: tuple[PartResult, ...] = ()  # the results of the others
    loaded: LoadedNames | None = None  # what a result in the place for files says about its node
    note: str = ""  # what else is to be said of it: that not all of its files were kept
    files: int | None = None  # which files it has left (`runner/keeper/files.py`); None: nobody looked
    forks_refused: int = 0  # how often it could start no process because it had as many as it may
    memory_limit_bytes: int = 0  # what it was granted; 0: it had no limit
    memory_peak_bytes: int = (
        0  # the most it used: of its cgroup, or of its largest process alone; 0: not known
    )
    cpu_s: float = 0.0  # of the leader, the processes it waited for, and those its keeper reaped
    read_bytes: int = 0
    written_bytes: int = 0
    usage: AttemptUsage | None = None  # the same with what the runner has sampled


def unseen(started_at: float | None, now: float) -> ProcessEnd:
    """The end of one that its keeper knows no more: by now it is over, and nobody saw how."""
    return ProcessEnd(None, None, False, "unknown", started_at, now)


def exit_of(end: ProcessEnd, stopping: Why | None, started_at: float | None) -> Exit:
    """The exit of a process that ran; `stopping` says why it was being stopped, if it was and we still know."""
    if stopping is None and end.why is not None:
        stopping = _BY_WORD.get(end.why)
    code = -end.signal if end.signal else end.code
    why, message = _judge(end, stopping)
    if end.forks_refused or end.note:
        message = "; ".join(filter(None, (message, _of_processes(end), end.note)))
    started_at = end.started_at or started_at
    return Exit(
        why,
        code,
        started_at,
        end.ended_at,
        message,
        end.stderr_tail,
        result="" if why == Why.REFUSED else end.result,
        result_bytes=end.result_bytes,
        result_sha256=end.result_sha256,
        usage=end.usage,
        is_own=end.is_own,
        parts=end.parts,
        loaded=end.loaded,
    )


def told_refusal(code: str, message: str, node: str) -> str:
    """The keeper's refusal; of what may be otherwise elsewhere, with the name of the node."""
    return f"{message}, on node {node}" if code in _OF_PLACE else message


def exit_unstarted(code: str, message: str, stopping: Why | None, now: float) -> Exit:
    """The exit of an attempt that never ran, from the keeper's refusal."""
    if code == "stopped" and stopping == Why.STUCK:  # coordinators of version 0.2 ask for it
        return Exit(Why.STUCK, -1, ended_at=now, message=STUCK_MESSAGE)
    if code == "stopped":
        return Exit(stopping or Why.EVICTED, ended_at=now, message=message)
    if code == "fenced":
        return Exit(Why.FENCED, ended_at=now, message=message)
    if code == "exhausted":
        return Exit(Why.EXHAUSTED, ended_at=now, message=message, of_node=True)
    shell_says = 126 if code == "not_executable" else 127
    of_node, of_user = code in _OF_NODE, code in _OF_USER
    return Exit(Why.REFUSED, shell_says, ended_at=now, message=message, of_node=of_node, of_user=of_user)


def _judge(end: ProcessEnd, stopping: Why | None) -> tuple[Why, str]:
    if end.reason == "shutdown":
        return Why.EVICTED, "its runner was stopped; it runs again when there is room"
    if end.reason == "fenced":
        return Why.FENCED, "stopped by its runner, which had lost touch with the coordinator"
    if end.reason is not None:
        return Why.UNKNOWN, "the process is gone and its exit code is unknown"
    if stopping == Why.TIMEOUT and end.stopped:
        return Why.TIMEOUT, "its time limit passed"
    if stopping == Why.NO_INPUT and end.stopped:
        return Why.NO_INPUT, NO_INPUT_MESSAGE
    # One that had done its work before its keeper was told to stop it has completed, and need not run again.
    is_wrong = end.signal or end.oom or end.result_error
    if stopping == Why.EVICTED and not end.stopped and end.code == 0 and not is_wrong:
        return Why.NONE, ""
    if stopping not in (None, Why.TIMEOUT, Why.OOM, Why.NO_INPUT):
        return stopping, "evicted" if stopping == Why.EVICTED else "stopped on request"
    if end.oom or (stopping == Why.OOM and end.stopped):
        return Why.OOM, _out_of_memory(end)
    if end.signal:
        return Why.SIGNALLED, f"ended by signal {end.signal} ({_signal_name(end.signal)})"
    if end.code == NO_PROGRAM and (text := _cannot_run(end.result)):
        return Why.REFUSED, text
    if end.code:
        return Why.EXITED, f"exited with code {end.code}"
    return (Why.BAD_RESULT, end.result_error) if end.result_error else (Why.NONE, "")


def _out_of_memory(end: ProcessEnd) -> str:
    if not end.memory_limit_bytes:
        return "out of memory: killed by the kernel for using more than it was granted"
    limit, peak = describe_bytes(end.memory_limit_bytes), describe_bytes(end.memory_peak_bytes)
    who = "the kernel" if end.oom else "its node"
    return f"out of memory: killed by {who} for using more than its limit of {limit} (peak {peak})"


def _of_processes(end: ProcessEnd) -> str:
    if not end.forks_refused:
        return ""
    return (
        f"it had as many processes as it may, and could start no more ({plural(end.forks_refused, 'time')})"
    )


class CannotRun(Struct):
    """What the program of a Python function leaves as its result if there is no such function."""

    phalanx_cannot_run: str


def _cannot_run(result: str) -> str:
    """Why there was nothing to run, as the program says it; empty if it says nothing."""
    try:
        return _decode_cannot_run(result).phalanx_cannot_run if result else ""
    except msgspec.MsgspecError:
        return ""


def _signal_name(number: int) -> str:
    return _SIGNALS.get(number, "unnamed")


_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU",
    25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip


_decode_cannot_run = msgspec.json.Decoder(CannotRun).decode

LATE_S = 1.0  # how long after its instant an attempt surely does not start any more


class Held:
    """An attempt on this node. Instants are the runner's own, of a clock that does not step, unless it says so."""

    __slots__ = (
        "deadline", "go_by", "grace_s", "lane", "may_go", "phase", "roll", "since", "start", "start_by", "started_at",
        "stopping",
    )  # fmt: skip

    def __init__(self, start: Start | None, lane: int, phase: Phase, roll: Roll | None = None) -> None:
        self.start = start  # None if an earlier life of this runner was told
        self.roll = roll
        self.lane = lane
        self.phase = phase
        self.start_by: float | None = None  # the keeper does not start it, nor get it ready, after this
        self.go_by: float | None = None  # of a member: nor does it go after this
        self.started_at: float | None = None  # by the wall clock, to be shown
        self.since: float | None = None  # the same instant, to measure with
        self.deadline: float | None = None
        self.grace_s = 0.0
        self.may_go = False  # the word to go has come
        self.stopping: Why | None = None

    @property
    def is_member(self) -> bool:
        """True if it is known to be a member of a gang."""
        return self.phase == Phase.READY or (self.start is not None and self.start.formation > 0)

    def is_to_stop(self, why: Why) -> bool:
        """Stop it for this, unless it does not run or is being stopped already; returns whether it is to be."""
        if self.phase != Phase.RUNNING or self.stopping is not None:
            return False
        self.stopping = why
        return True

    def can_start(self, now: float) -> bool:
        """False once it has not started by its instant: then it never will."""
        by = self.go_by if self.phase == Phase.READY or self.may_go else self.start_by
        return by is None or now <= by + LATE_S


def is_news(report: Report, held: Held | None) -> bool:
    """Whether it is still worth a word: ends always, what came before them while it is true."""
    if isinstance(report, Ended | Returned):
        return True
    phase = Phase.ENDED if held is None else held.phase
    return phase == Phase.RUNNING or (phase == Phase.READY and isinstance(report, Ready))
