"""The keeper's log: it stays small whatever goes wrong repeatedly.

At most one line a minute of each kind, which has the number of those left out. A file that has grown large becomes the
one older file. Tasks can cause many of the lines, and the keeper and its watchdog live for weeks.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from . import system

NAME = "keeper.log"
OLDER = ".1"
BYTES_MAX = 1 << 20
EVERY_S = 60.0
_path = ""
_next_at: dict[str, float] = {}  # by kind: when it may be written again
_left_out: dict[str, int] = {}


def begin(state_dir: str) -> None:
    """Redirect stderr to the log of this folder; raises OSError."""
    global _path  # noqa: PLW0603 (one log for each process, as there is one stderr)
    _path = f"{state_dir}/{NAME}"
    _open()


def write(kind: str, text: str) -> None:
    """Write a line, unless one of its kind was written less than a minute ago."""
    now = system.since_boot()
    if now < _next_at.get(kind, 0.0):
        _left_out[kind] = _left_out.get(kind, 0) + 1
        return
    _next_at[kind] = now + EVERY_S
    count = _left_out.pop(kind, 0)
    more = f" (and {count} more like it were left out)" if count else ""
    with contextlib.suppress(OSError):
        if _path and os.fstat(2).st_size > BYTES_MAX:
            _open()
    sys.stderr.write(f"{text}{more}\n")


def _open() -> None:
    """Keeper and watchdog both do this: the one that finds a small file has come second."""
    with contextlib.suppress(OSError):
        if os.lstat(_path).st_size > BYTES_MAX:
            system.set_aside(_path + OLDER, unless=stat.S_ISREG)
            os.replace(_path, _path + OLDER)  # noqa: PTH105 (the keeper imports no pathlib)
    fd = system.open_own(_path, os.O_WRONLY | os.O_APPEND)
    if fd != 2:
        os.dup2(fd, 2)
        os.close(fd)
