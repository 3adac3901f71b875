"""The files of attempts: where each writes its streams and its result, and how they are opened.

They belong to tasks, so nothing is believed about them: they are opened folder by folder without following links.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from msgspec import Struct

STREAMS = ("stdout", "stderr")
RESULT, ARTIFACTS = "result", "artifacts"
NUMBER_MAX = 1 << 53
_JOB = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62})")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LogPath(Struct, frozen=True):
    """Where one stream of one attempt is written: `root/job/position.attempt.stream`."""

    root: Path
    job: str
    name: str

    def __fspath__(self) -> str:
        return f"{self.root}/{self.job}/{self.name}"

    def __str__(self) -> str:
        return self.__fspath__()


def log_path(root: Path, job: str, position: int, attempt: int, stream: str) -> LogPath:
    """The path for these, or ValueError: no text from outside may name another file."""
    if _JOB.fullmatch(job) is None:
        raise ValueError(f"{job[:80]!r} is not a job id")
    if not (0 <= position <= NUMBER_MAX and 0 <= attempt <= NUMBER_MAX):
        raise ValueError(f"task {position} or attempt {attempt} is out of range")
    if stream not in (*STREAMS, RESULT, ARTIFACTS):
        raise ValueError(f"{stream[:80]!r} is not a stream: expected {' or '.join(STREAMS)}")
    return LogPath(root, job, f"{int(position)}.{int(attempt)}.{stream}")


def open_file(path: LogPath) -> int:
    """Open one that is a plain file in our folder, with one name; FileNotFoundError if there is none, else OSError."""
    root = os.open(path.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        job = os.open(path.job, _FLAGS | os.O_DIRECTORY, dir_fd=root)
    finally:
        os.close(root)
    try:
        fd = os.open(path.name, _FLAGS | os.O_NONBLOCK, dir_fd=job)  # a planted FIFO must not block us
    finally:
        os.close(job)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is not a plain file")
