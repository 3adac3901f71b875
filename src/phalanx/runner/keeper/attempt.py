"""One attempt as the keeper knows it: from its spawn until the runner forgets it.

Plain values and what can be computed from them. Spawning is in `spawn.py`, signals in `tree.py`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Exit = dict[str, Any]  # code, signal, oom, reason, started_at, ended_at, stderr_tail
    Options = dict[str, Any]  # what a start request says beyond its brief

STDERR_TAIL_BYTES = 2048


class Attempt:
    """A running or ended attempt. `pid` leads its process group and its session."""

    __slots__ = (
        "born",
        "cgroups",
        "code",
        "doubts",
        "ended_at",
        "err",
        "exit",
        "key",
        "kill_at",
        "log_max_bytes",
        "oom_kills_before",
        "out",
        "paused",
        "pid",
        "punched",
        "reason",
        "signal",
        "started_at",
    )

    def __init__(self, key: str, options: Options) -> None:
        self.key = key
        self.pid = 0
        self.born = (0, 0)  # the two clock ticks between which the kernel made the leader
        self.started_at = 0.0
        self.out: str = options["out"]
        self.err: str = options["err"]
        self.cgroups: list[str] = [*(options.get("cgroups") or ())]
        self.log_max_bytes = int(options.get("log_max_bytes") or 0)
        self.oom_kills_before = 0
        self.punched: dict[str, int] = {}  # log path → the offset up to which it has been emptied
        self.paused = False
        self.kill_at: float | None = None  # set while it is being stopped
        self.reason: str | None = None
        self.doubts = 0
        self.code: int | None = None
        self.signal: int | None = None
        self.ended_at: float | None = None  # when the leader ended; its tree may still be dying
        self.exit: Exit | None = None  # set once nothing of the tree is left

    def start_line(self) -> tuple[Any, ...]:
        """What is written down and told about its start. The runner reads as far as started_at."""
        return ("started", self.key, self.pid, self.started_at, self.born, self.cgroups)

    def end_line(self) -> tuple[Any, ...]:
        return ("ended", self.key, self.exit)

    def row(self) -> list[Any]:
        return [self.key, self._state(), self.pid, self.started_at, self.exit]

    def _state(self) -> str:
        if self.exit is not None:
            return "ended"
        if self.kill_at is not None or self.ended_at is not None:
            return "stopping"
        return "paused" if self.paused else "running"

    def record(self, oom: bool) -> Exit:
        """How it ended, as it is reported and written down."""
        return {
            "code": self.code,
            "signal": self.signal,
            "oom": oom,
            "reason": self.reason,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "stderr_tail": "" if self.code == 0 else tail(self.err),
        }


def unknown_exit(started_at: float | None, ended_at: float) -> Exit:
    """The exit of an attempt whose keeper died before it: nobody can say how it would have ended."""
    return {
        "code": None,
        "signal": None,
        "oom": False,
        "reason": "unknown",
        "started_at": started_at,
        "ended_at": ended_at,
        "stderr_tail": "",
    }


def tail(path: str) -> str:
    """The last bytes of a log as text; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
