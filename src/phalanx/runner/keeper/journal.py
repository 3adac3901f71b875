"""The keeper's journal: what it started and how that ended, for the keeper that comes after it.

One JSON array per line, appended and not fsynced: written pages outlive a killed keeper, and when the
machine itself goes down no attempt is left to tell about. Lines are gathered during a turn of the loop and
written before anything is said to the runner. What to do about the past is decided in `past.py`.

    boot id                                       a keeper begins, during this boot of the machine
    started key pid started_at [tick tick] cgroups
    ended key exit
    forget [keys]                                 the runner has the exits
    stopped key                                   must not be started any more
"""

from __future__ import annotations

import json
import os

from . import files
from .table import remember

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .attempt import Attempt

NAME = "keeper.journal"
COMPACT_BYTES_MIN = 4 << 20


class Journal:
    """The file, open for appending. A write that fails is tried again with the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unwritten = b""
        self._lines: list[str] = []
        self.trouble = ""  # why the last write failed
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._compacted_size = 0

    def begin(self, boot: str, attempts: Iterable[Attempt], stopped: Iterable[str]) -> None:
        """Start a keeper's life with a clean file, or on a full disk go on with the old one."""
        try:
            self.compact(boot, attempts, stopped)
        except OSError:
            self._lines += ["", json.dumps(["boot", boot])]  # the empty line ends one that may be torn

    def note(self, line: str) -> None:
        """Take down a line of the kinds above, to be written with the next flush."""
        self._lines.append(line)

    def try_flush(self) -> bool:
        """Write what was gathered. On a full disk `trouble` says so, and it is kept for the next time."""
        if self._lines:
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
        return self._size > COMPACT_BYTES_MIN + 2 * self._compacted_size

    def compact(self, boot: str, attempts: Iterable[Attempt], stopped: Iterable[str]) -> None:
        """Replace the file by one that says only what still matters."""
        lines = [json.dumps(["boot", boot])]
        for attempt in attempts:
            lines.append(attempt.started_line())
            if attempt.exit is not None:
                lines.append(attempt.ended_line())
        lines += (json.dumps(["stopped", key]) for key in stopped)
        text = ("\n".join(lines) + "\n").encode()
        fd = _write_new(f"{self._path}.new", text)
        os.replace(f"{self._path}.new", self._path)  # noqa: PTH105 (the keeper imports no pathlib)
        os.close(self._fd)
        self._fd, self._size, self._compacted_size = fd, len(text), len(text)
        self._lines, self._unwritten = [], b""


class Past:
    """What a journal says: attempts by key, the keys that must not start, the boot it was written in."""

    def __init__(self) -> None:
        self.boot = ""
        self.attempts: dict[str, list[Any]] = {}  # [pid, ticks, started_at, cgroups, exit or None]
        self.stopped: dict[str, None] = {}
        self.unreadable = 0

    def apply(self, line: list[Any]) -> None:
        match line:
            case ["boot", str(boot)]:
                self.boot = boot
            case ["started", str(key), int(pid), float(started_at), [int(), int()] as ticks, list(cgroups)]:
                self.attempts[key] = [pid, ticks, started_at, cgroups, None]
            case ["ended", str(key), dict(recorded)] if key in self.attempts:
                self.attempts[key][4] = recorded
            case ["forget", list(keys)]:
                for key in keys:
                    self.attempts.pop(key, None)
            case ["stopped", str(key)]:
                remember(self.stopped, key)
            case _:
                self.unreadable += 1


def read(path: str) -> Past:
    """Replay a journal. The last line may be torn and any line may be damaged: it is skipped and counted."""
    past = Past()
    for line in files.read(path).split(b"\n"):
        if line:
            _apply_text(past, line)
    return past


def _apply_text(past: Past, text: bytes) -> None:
    try:
        past.apply(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        past.unreadable += 1


def _write_new(path: str, text: bytes) -> int:
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.close(fd)
        raise
    return fd
