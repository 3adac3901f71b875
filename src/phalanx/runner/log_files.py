"""The files of attempts: where each writes its output and its result, and how they are opened.

Both streams go into one file, under the name of the first, as with `2>&1`: so their order is exact. A job with
`split_output` has two, and so have attempts of earlier versions.

They belong to tasks, so nothing is believed about them: they are opened folder by folder without following links.

Jobs that were submitted within half a minute share a folder for their logs, and so do all stages of a workflow: on
ext4 a new folder with a file in it costs a millisecond of CPU, a file in a folder that exists 0.02. Most
tasks give no result and leave no artifacts, so those have a small folder of their own: to find out that a file is not
there costs 0.04 ms in a large one. Earlier versions made a folder for every job; what they have left is still found.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.log_times import TIMES
from phalanx.core.model.orders import AttemptKey

STREAMS = ("stdout", "stderr")
RESULT, ARTIFACTS, HOSTS = "result", "artifacts", "hosts"
NUMBER_MAX = 1 << 53
FOLDER_SIGNS = 7  # of a job's id, which begins with its time in milliseconds: those before the last 15 bits
RESULTS_FOLDER = "results"  # with results and artifacts of all jobs; never removed
# In the folder for artifacts, the result of a task of another account, which may write nowhere else.
INNER_RESULT = ".phalanx-result"
_JOB = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62})")
_KINDS = "|".join((*STREAMS, TIMES, RESULT, ARTIFACTS, HOSTS))
_NAME = re.compile(rf"(?:({_JOB.pattern})\.)?([0-9]{{1,16}})\.([0-9]{{1,16}})\.({_KINDS})")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LogPath(Struct, frozen=True):
    """Where one stream of one attempt is written: `root/folder/job.position.attempt.stream`."""

    root: Path
    folder: str
    name: str

    @property
    def former(self) -> LogPath:
        """Where earlier versions wrote it: `root/job/position.attempt.stream`."""
        job, _, name = self.name.partition(".")
        return LogPath(self.root, job, name)

    def __fspath__(self) -> str:
        return f"{self.root}/{self.folder}/{self.name}"

    def __str__(self) -> str:
        return self.__fspath__()


def log_path(root: Path, job: str, position: int, attempt: int, stream: str) -> LogPath:
    """The path for these, or ValueError: no text from outside may name another file."""
    if _JOB.fullmatch(job) is None:
        raise ValueError(f"{job[:80]!r} is not a job id")
    if not (0 <= position <= NUMBER_MAX and 0 <= attempt <= NUMBER_MAX):
        raise ValueError(f"task {position} or attempt {attempt} is out of range")
    if stream not in (*STREAMS, TIMES, RESULT, ARTIFACTS, HOSTS):
        raise ValueError(f"{stream[:80]!r} is not a stream: expected {' or '.join(STREAMS)}")
    is_log = stream in STREAMS or stream == TIMES
    folder = folder_of(job) if is_log else HOSTS if stream == HOSTS else RESULTS_FOLDER
    return LogPath(root, folder, f"{job}.{int(position)}.{int(attempt)}.{stream}")


class AttemptPaths(Struct, frozen=True):
    """All files of one attempt; with one log for both streams, their paths are the same."""

    stdout: str
    stderr: str
    result: str
    artifacts: str


def attempt_paths(
    root: Path | str, key: AttemptKey, inner_result: bool = False, split: bool = True
) -> AttemptPaths:
    """Where `log_path` has them, found at once; of a job whose id was checked."""
    job, position, attempt = key
    logs = f"{root}/{folder_of(job)}/{job}.{position}.{attempt}"
    results = f"{root}/{RESULTS_FOLDER}/{job}.{position}.{attempt}"
    artifacts = f"{results}.{ARTIFACTS}"
    result = f"{artifacts}/{INNER_RESULT}" if inner_result else f"{results}.{RESULT}"
    stdout = f"{logs}.stdout"
    return AttemptPaths(stdout, f"{logs}.stderr" if split else stdout, result, artifacts)


def inner_result(artifacts: LogPath) -> LogPath:
    """Where the result is that a task of another account has written."""
    return LogPath(artifacts.root, artifacts.folder, f"{artifacts.name}/{INNER_RESULT}")


def folder_of(job: str) -> str:
    """The folder that has the logs of a job."""
    return job[:FOLDER_SIGNS]


def read_name(folder: str, name: str) -> tuple[AttemptKey, str] | None:
    """The attempt that a file belongs to, and its stream; None if it is none of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return (found[1] or folder, int(found[2]), int(found[3])), found[4]


def open_file(path: LogPath) -> int:
    """Open one that is a plain file in our folder, with one name; FileNotFoundError if there is none, else OSError."""
    try:
        return _open(path)
    except FileNotFoundError:
        return _open(path.former)


def _open(path: LogPath) -> int:
    root = os.open(path.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = os.open(path.folder, _FLAGS | os.O_DIRECTORY, dir_fd=root)
    finally:
        os.close(root)
    try:
        fd = os.open(path.name, _FLAGS | os.O_NONBLOCK, dir_fd=folder)  # a planted FIFO must not block us
    finally:
        os.close(folder)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is not a plain file")
