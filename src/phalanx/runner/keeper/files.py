"""Small files of /proc and /sys, read whole; and the keeper's own in its state folder, which tasks can write to.

A file that cannot be read is empty. Something else under the name of a file of ours is set aside: nothing in the
folder can block us (a FIFO), lead us elsewhere (a link) or keep us from starting (a folder).
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from . import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ASIDE = ".set-aside"
RENAMED = "{} is not a regular file, and was set aside\n"
renamed: list[str] = []  # what was set aside so far, to be logged again when there is a log
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: str, bytes_max: int = 16 << 20) -> bytes:
    """The file's content, or that much of it; empty when it cannot be read, because its process is gone."""
    try:
        return _read(path, bytes_max)
    except OSError:
        return b""


def read_surely(path: str, bytes_max: int = 16 << 20) -> bytes:
    """The same, but raises OSError where only descriptors or memory are lacking, so the process may exist."""
    try:
        return _read(path, bytes_max)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return b""


def _read(path: str, bytes_max: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | _SAFE)
    parts: list[bytes] = []
    size = 0
    try:
        while size < bytes_max and (part := os.read(fd, 65536)):
            parts.append(part)
            size += len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def open_own(path: str, flags: int) -> int:
    """Open a file of ours, created if needed; raises OSError."""
    set_aside(path, unless=stat.S_ISREG)
    fd = os.open(path, flags | os.O_CREAT | _SAFE, 0o600)
    if stat.S_ISFIFO(os.fstat(fd).st_mode):  # it was created just now
        os.close(fd)
        raise OSError(f"{path} is a FIFO")
    return fd


def set_aside(path: str, unless: Callable[[int], bool]) -> None:
    """Rename what is there, unless it is of the right kind or a device, which no task can make; raises OSError."""
    try:
        mode = os.lstat(path).st_mode
        if unless(mode) or is_device(mode):
            return
    except FileNotFoundError:
        return
    if path not in renamed:  # tasks can do it again and again
        renamed.append(path)
        sys.stderr.write(RENAMED.format(path))
    try:
        os.rename(path, path + ASIDE)  # noqa: PTH104 (the keeper imports no pathlib)
    except OSError:  # that name is taken by something that cannot be replaced
        os.rename(path, f"{path}{ASIDE}.{clock.tick()}")  # noqa: PTH104


def is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def write(path: str, text: bytes) -> None:
    """Write to a control file; raises OSError, also where it is a FIFO that would block."""
    fd = os.open(path, os.O_WRONLY | _SAFE)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def parent(path: str) -> str:
    return path.rpartition("/")[0]
