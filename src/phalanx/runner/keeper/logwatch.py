"""When to look at the logs of running attempts, so that none outgrows its allowance by much.

A new log is not looked at before it could have filled its allowance. One that is being written to is looked at every
few milliseconds; one that has not grown since the last look costs nothing until the kernel says that it is written to
again (inotify). What is then given back is decided in `trim.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

from .trim import fills_in_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt
    from .trim import Trimmer

LOOK_S, FAST_LOOK_S = 0.003, 0.001
FAST_BYTES = 2 << 20  # a log that grew by so much between two looks is looked at sooner
_IN_MODIFY, _IN_ONESHOT = 0x2, 0x80000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 << 10


class _Logs:
    """The logs of one running attempt."""

    __slots__ = ("attempt", "due_at", "sizes", "watches")

    def __init__(self, attempt: KeptAttempt, due_at: float) -> None:
        self.attempt = attempt
        self.due_at = due_at  # when it is looked at first
        self.sizes = (0, 0)
        self.watches: list[int] = []


class LogWatch:
    """Says when to look next, and looks."""

    def __init__(self, trimmer: Trimmer) -> None:
        self._trimmer = trimmer
        self._new: dict[str, _Logs] = {}  # cannot be full yet
        self._written: dict[str, _Logs] = {}  # being written to, or looked at for the first time
        self._quiet: dict[str, _Logs] = {}
        self._watched: dict[int, str] = {}  # the kernel's number of a watch → the attempt's key
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(
            os.O_NONBLOCK | os.O_CLOEXEC
        )  # -1: then nothing ever counts as quiet
        self.next_at = float("inf")

    @property
    def supported(self) -> bool:
        return self._trimmer.supported

    def started(self, attempt: KeptAttempt, at: float) -> None:
        if attempt.log_max_bytes and self._trimmer.supported:
            due_at = at + max(FAST_LOOK_S, fills_in_s(attempt))
            self._new[attempt.key] = _Logs(attempt, due_at)
            self.next_at = min(self.next_at, due_at)

    def ended(self, attempt: KeptAttempt) -> None:
        key = attempt.key
        if self._new.pop(key, None) is None and self._written.pop(key, None) is None and key in self._quiet:
            self._unwatch(self._quiet.pop(key))

    def look(self, at: float) -> None:
        """Give back what is too much, and see who is quiet now."""
        pause_s = LOOK_S
        for key in [key for key, logs in self._new.items() if logs.due_at <= at]:
            self._written[key] = self._new.pop(key)
        for key, logs in [*self._written.items()]:
            before, logs.sizes = logs.sizes, self._trimmer.trim(logs.attempt)
            if logs.sizes == before and self._watch(logs):
                self._quiet[key] = self._written.pop(key)
            elif sum(logs.sizes) - sum(before) > FAST_BYTES:
                pause_s = FAST_LOOK_S
        self.next_at = min(
            at + pause_s if self._written else float("inf"),
            min((logs.due_at for logs in self._new.values()), default=float("inf")),
        )

    def hear(self, at: float) -> None:
        """Some that were quiet are written to again."""
        with contextlib.suppress(BlockingIOError):
            told = os.read(self.fd, _READ_BYTES)
            for offset in range(0, len(told), _EVENT.size):  # no names: only files are watched
                key = self._watched.get(_EVENT.unpack_from(told, offset)[0])
                if key in self._quiet:
                    self._wake(key, at)

    def _wake(self, key: str, at: float) -> None:
        logs = self._written[key] = self._quiet.pop(key)
        self._unwatch(logs)
        self.next_at = min(self.next_at, at + FAST_LOOK_S)

    def _watch(self, logs: _Logs) -> bool:
        """Have the kernel say when either log is written to; False if it cannot, or if that has just happened."""
        for path in (logs.attempt.out, logs.attempt.err):
            watch = self._libc.inotify_add_watch(self.fd, os.fsencode(path), _IN_MODIFY | _IN_ONESHOT)
            if watch >= 0:
                logs.watches.append(watch)
                self._watched[watch] = logs.attempt.key
        if len(logs.watches) == 2 and self._trimmer.trim(logs.attempt) == logs.sizes:
            return True
        self._unwatch(logs)
        return False

    def _unwatch(self, logs: _Logs) -> None:
        for watch in logs.watches:
            self._libc.inotify_rm_watch(self.fd, watch)
            self._watched.pop(watch, None)
        logs.watches.clear()
