"""The keeper's journal: what it started and how that ended, for the next keeper.

One JSON array per line, appended and not fsynced: written pages outlive a killed keeper, and when the machine itself
goes down no attempt is left to report. Lines are gathered during a turn of the loop and written before anything is
sent to the runner. `recovery.py` decides what to do with what was recorded.

    boot id                                       a keeper begins, during this boot of the machine
    started key pid started_at [tick tick] cgroups
    ended key exit
    forget [keys]                                 the runner has the exits
    stopped key                                   must not be started any more
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

from . import system
from .attempt import is_key
from .table import remember

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .attempt import KeptAttempt

NAME = "keeper.journal"
COMPACT_BYTES_MIN, COMPACT_LINES_MIN = 4 << 20, 10_000
# At most this much of a journal is read: tasks can write to it, and its reader has little time.
BYTES_MAX, LINES_MAX = 16 << 20, 50_000
UNREADABLE_MAX, UNREADABLE_BYTES_MAX = 1000, 1 << 20
BRACKETS_MAX = 10_000  # in a line: deep nesting takes long to read
REPORTED_MAX = 10  # reports of unreadable lines
TEXT_BYTES_MAX = 64 << 10
COMPACT_AGAIN_S = 60.0  # after a try that failed
PATH_BYTES_MAX = 4096
PID_MAX, TICK_MAX, CODE_MAX, SIGNAL_MAX = 1 << 22, 1 << 53, 255, 127
TIME_MAX = 1e11  # a wall clock in the year 5138


class Journal:
    """The file, open for appending. A write that fails is tried again with the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unwritten = b""
        self._lines: list[str] = []
        self.trouble = ""  # why the last write failed
        self._fd = system.open_own(path, os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size
        self._compacted_size = 0
        self._length = self._compacted_length = 0  # the same in lines, since it was opened
        self._compact_at = 0.0  # not before this instant
        self._looked_at_length = 0

    def begin(self, boot: str, attempts: Iterable[KeptAttempt], stopped: Iterable[str]) -> None:
        """Start with a clean file, or continue with the old one if the disk is full."""
        try:
            self.compact(boot, attempts, stopped)
        except OSError:
            self._lines += ["", json.dumps(["boot", boot])]  # the empty line ends one that may be torn

    def note(self, line: str) -> None:
        """Add a line of the kinds above, written with the next flush."""
        self._lines.append(line)

    def try_flush(self) -> bool:
        """Write what was gathered. On a full disk `trouble` is set, and the lines are kept for the next time."""
        if self._lines:
            self._length += len(self._lines)
            self._unwritten += ("\n".join(self._lines) + "\n").encode()
            self._lines = []
        try:
            while self._unwritten:
                written = os.write(self._fd, self._unwritten)
                self._size += written
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return False
        self.trouble = ""
        return True

    def is_large(self) -> bool:
        """Whether it is time to compact it."""
        if self._length != self._looked_at_length:  # our own lines must not be behind too many of others
            self._looked_at_length = self._length
            self._size = max(self._size, os.fstat(self._fd).st_size)  # tasks can write to it, too
        is_large = self._size > COMPACT_BYTES_MIN + 2 * self._compacted_size
        is_long = self._length > COMPACT_LINES_MIN + self._compacted_length
        return (is_large or is_long) and system.since_boot() >= self._compact_at

    def compact(self, boot: str, attempts: Iterable[KeptAttempt], stopped: Iterable[str]) -> None:
        """Replace the file by one with only what still matters; raises OSError, and then the old one stays."""
        self._compact_at = system.since_boot() + COMPACT_AGAIN_S
        lines = [json.dumps(["boot", boot])]
        for attempt in attempts:
            lines.append(attempt.started_line())
            if attempt.exit is not None:
                lines.append(attempt.ended_line())
        lines += (json.dumps(["stopped", key]) for key in stopped)
        text = ("\n".join(lines) + "\n").encode()
        fd = _replace(self._path, text)
        os.close(self._fd)
        self._compact_at = 0.0
        self._fd, self._size, self._compacted_size = fd, len(text), len(text)
        self._length = self._compacted_length = self._looked_at_length = len(lines)
        self._lines, self._unwritten = [], b""


class JournalContents:
    """The contents of a journal: attempts by key, the keys that must not start, the boot it was written in."""

    def __init__(self) -> None:
        self.boot = ""
        self.attempts: dict[str, list[Any]] = {}  # [pid, ticks, started_at, cgroups, exit or None]
        self.cgroups: set[str] = set()  # of all that started, whatever was recorded later
        self.stopped: dict[str, None] = {}
        self.unreadable: list[str] = []  # the lines that were skipped, the first few of them
        self.skipped = self.skipped_bytes = 0  # all of them

    def apply(self, line: list[Any]) -> None:
        """Apply one line; raises ValueError or TypeError for an invalid one."""
        match line:
            case ["boot", str(boot)]:
                self.boot = boot
            case ["started", key, pid, started_at, [first, last] as ticks, list(cgroups)] if (
                is_key(key)
                and _is_number(pid, PID_MAX)
                and _is_time(started_at)
                and _is_number(first, TICK_MAX)
                and _is_number(last, TICK_MAX)
                and all(_is_path(folder) for folder in cgroups)
            ):
                self.attempts[key] = [pid, ticks, started_at, cgroups, None]
                self.cgroups.update(cgroups)
            case ["ended", str(key), dict(recorded)] if key in self.attempts and is_exit(recorded):
                self.attempts[key][4] = recorded
            case ["forget", list(keys)]:
                for key in keys:
                    self.attempts.pop(key, None)
            case ["stopped", key] if is_key(key):
                remember(self.stopped, key)
            case _:
                raise ValueError("not a line of a journal")

    def skip(self, where: str, text: bytes) -> None:
        """Remember that something could not be read, to be logged when there is a log."""
        self.skipped += 1
        self.skipped_bytes += len(text)
        if len(self.unreadable) < REPORTED_MAX:
            self.unreadable.append(f"{where}: {text[:80]!r}")


def read(path: str) -> JournalContents:
    """Replay a journal. The last line may be torn and any line may be damaged or forged: it is skipped, and reported.

    A journal that no keeper can have written is read up to the bounds above: that takes half a second at the most.
    """
    past = JournalContents()
    lines = system.read(path, BYTES_MAX).split(b"\n", LINES_MAX)
    for number, line in enumerate(lines, 1):
        if past.skipped > UNREADABLE_MAX or past.skipped_bytes > UNREADABLE_BYTES_MAX:
            break
        if line:
            _apply_text(past, number, line)
    return past


def _apply_text(past: JournalContents, number: int, text: bytes) -> None:
    try:
        if len(text) > UNREADABLE_BYTES_MAX or text.count(b"[") + text.count(b"{") > BRACKETS_MAX:
            raise ValueError("larger than any line of a journal")
        past.apply(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        past.skip(f"line {number}", text)


def is_exit(recorded: dict[str, Any]) -> bool:
    """Whether it is an exit as `KeptAttempt.close` writes it: the runner will read it."""
    try:
        texts = [value for value in recorded.values() if isinstance(value, str)]
        return (
            all(name.isascii() for name in recorded)
            and (recorded["code"] is None or _is_number(recorded["code"], CODE_MAX))
            and (recorded["signal"] is None or _is_number(recorded["signal"], SIGNAL_MAX))
            and isinstance(recorded["oom"], bool)
            and isinstance(recorded["reason"], str | None)
            and _is_time(recorded["started_at"])
            and _is_time(recorded["ended_at"])
            and isinstance(recorded["stderr_tail"], str)
            and isinstance(recorded.get("stopped", True), bool)
            and isinstance(recorded.get("why"), str | None)
            and all(
                len(text.encode()) <= TEXT_BYTES_MAX for text in texts
            )  # and half a character is not encodable
            and all(_is_plain(value) for value in recorded.values())
        )
    except (KeyError, ValueError):
        return False


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | None) or _is_number(value, TICK_MAX) or _is_time(value)


def _is_number(value: object, most: int) -> bool:
    """Whether it is a whole number from 0 to this one; `True` is not."""
    return type(value) is int and 0 <= value <= most


def _is_time(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value <= TIME_MAX


def _is_path(value: object) -> bool:
    """Whether it can be passed to the operating system; otherwise Python would raise ValueError."""
    try:
        return isinstance(value, str) and "\0" not in value and len(os.fsencode(value)) <= PATH_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _replace(path: str, text: bytes) -> int:
    """Put a new file in its place, and leave it open for appending."""
    new = f"{path}.new"
    fd = system.open_own(new, os.O_TRUNC | os.O_WRONLY | os.O_APPEND)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        system.set_aside(path, unless=stat.S_ISREG)
        os.replace(new, path)  # noqa: PTH105 (the keeper imports no pathlib)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(new)  # noqa: PTH108 (what is full must not stay so for this)
        raise
    return fd
