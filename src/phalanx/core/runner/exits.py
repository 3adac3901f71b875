"""Why an attempt ended, in our words: from what the keeper saw of a process to the exit that is reported."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.orders import Exit
from phalanx.core.model.status import Why

_OF_NODE = frozenset({"spawn_failed", "no_log"})  # refusals that another node would not give
_BY_WORD = {why.word: why for why in Why if why != Why.NONE}
STUCK_MESSAGE = "Task stuck in pending state: its runner held it and never started it"


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


def unseen(started_at: float | None, now: float) -> ProcessEnd:
    """The end of one that its keeper knows no more: by now it is over, and nobody saw how."""
    return ProcessEnd(None, None, False, "unknown", started_at, now)


def exit_of(end: ProcessEnd, stopping: Why | None, started_at: float | None) -> Exit:
    """The exit of a process that ran; `stopping` says why it was being stopped, if it was and we still know."""
    if stopping is None and end.why is not None:
        stopping = _BY_WORD.get(end.why)
    code = -end.signal if end.signal else end.code
    why, message = _judge(end, stopping)
    return Exit(why, code, end.started_at or started_at, end.ended_at, message, end.stderr_tail)


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
    return Exit(Why.REFUSED, shell_says, ended_at=now, message=message, of_node=code in _OF_NODE)


def _judge(end: ProcessEnd, stopping: Why | None) -> tuple[Why, str]:
    if end.reason == "shutdown":
        return Why.EVICTED, "its runner was stopped; it runs again when there is room"
    if end.reason == "fenced":
        return Why.FENCED, "stopped by its runner, which had lost touch with the coordinator"
    if end.reason is not None:
        return Why.UNKNOWN, "the process is gone and nobody saw its exit code"
    if stopping == Why.TIMEOUT and end.stopped:
        return Why.TIMEOUT, "its time limit passed"
    if stopping not in (None, Why.TIMEOUT):
        return stopping, "stopped on request"
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
