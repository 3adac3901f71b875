"""Artifacts of an attempt: which files of its folder are kept, and how they are opened.

The folder is the task's own: links, pipes, devices, names with control characters, sparse files and a hundred thousand
files may be in it, and folders as deep as a task likes. No link is followed; what is left out is counted and named.
A task of another account may have moved files into it that the account cannot read, so only its own are kept.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from phalanx.core.model.files import ARTIFACTS_MAX, why_bad_path
from phalanx.runner.log_files import INNER_RESULT, LogPath

ENTRIES_MAX = 200_000  # that are looked at
NAMED_MAX = 20  # of what is left out
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a planted FIFO must not block us


class ArtifactLimits(Struct, frozen=True):
    """What is kept of one attempt."""

    count: int = 10_000
    size_bytes: int = 10 << 30


USUAL_LIMITS = ArtifactLimits()


class Found(Struct):
    """The files to keep, with their sizes, and what is left out."""

    files: list[tuple[str, int]] = []
    left_out: list[str] = []
    left_out_count: int = 0

    def leave_out(self, path: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < NAMED_MAX:
            self.left_out.append(f"{path[:200]!a}: {why}")


def find_artifacts(folder: LogPath, limits: ArtifactLimits) -> Found:
    """The regular files below a folder, in the order of their names, as many as are kept; raises OSError."""
    found, size, owner = Found(), 0, _owner(folder)
    most = min(limits.count, ARTIFACTS_MAX)
    for path, about in _entries(folder, found):
        if path == INNER_RESULT:
            continue
        if why := _why_not(path, about, owner):
            found.leave_out(path, why)
        elif len(found.files) >= most:
            found.leave_out(path, f"more than {most} files")
        elif size + about.st_size > limits.size_bytes:
            found.leave_out(path, f"{about.st_size} bytes, of all at most {limits.size_bytes} are kept")
        else:
            found.files.append((path, about.st_size))
            size += about.st_size
    return found


@contextmanager
def opened(folder: LogPath, path: str) -> Iterator[int]:
    """An artifact, if it is a regular file of the task's own and no link leads to it; raises OSError."""
    *parents, name = path.split("/")
    with _folder(folder, tuple(parents)) as parent:
        file = os.open(name, _FILE, dir_fd=parent)
    try:
        if why := _why_not(path, os.fstat(file), _owner(folder)):
            raise OSError(errno.EINVAL, f"it is {why}")
        yield file
    finally:
        os.close(file)


def _owner(folder: LogPath) -> int:
    """The account whose files are kept."""
    with _folder(folder, ()) as opened_folder:
        return os.fstat(opened_folder).st_uid


def is_foreign(about: os.stat_result, owner: int) -> bool:
    """Whether a file in a folder of another account than ours is not that account's."""
    return about.st_uid != owner != os.geteuid()


def _why_not(path: str, about: os.stat_result, owner: int) -> str:
    if stat.S_ISLNK(about.st_mode):
        return "a link"
    if not stat.S_ISREG(about.st_mode):
        return "not a regular file"
    if is_foreign(about, owner):
        return "another account's file"
    return why_bad_path(path)


def _entries(folder: LogPath, found: Found) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below the folder that is not a folder itself; of each folder in the order of names."""
    waiting: list[tuple[str, ...]] = [()]
    left = ENTRIES_MAX
    while waiting:
        parents = waiting.pop()
        if parents and why_bad_path("/".join(parents)):
            found.leave_out("/".join(parents), "a folder whose name cannot be kept, or too deep")
            continue
        folders: list[tuple[str, ...]] = []
        try:
            listed = _listed(folder, parents, left)
        except PermissionError as error:
            if not parents:
                raise
            found.leave_out("/".join(parents), f"a folder that cannot be read: {error.strerror}")
            continue
        for name, about in listed:
            left -= 1
            if stat.S_ISDIR(about.st_mode):
                folders.append((*parents, name))
            else:
                yield "/".join((*parents, name)), about
        if left <= 0:
            found.leave_out("…", f"more than {ENTRIES_MAX} entries")
            return
        waiting += reversed(folders)


def _listed(folder: LogPath, parents: tuple[str, ...], most: int) -> list[tuple[str, os.stat_result]]:
    listed: list[tuple[str, os.stat_result]] = []
    with _folder(folder, parents) as opened_folder, os.scandir(opened_folder) as entries:
        for entry in entries:
            if len(listed) >= most:
                break
            try:
                listed.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:  # it went away meanwhile
                continue
    return sorted(listed)


@contextmanager
def _folder(folder: LogPath, parents: tuple[str, ...]) -> Iterator[int]:
    """A folder below the attempt's, opened step by step so that no link is followed."""
    at = os.open(folder.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in (folder.folder, folder.name, *parents):
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)
