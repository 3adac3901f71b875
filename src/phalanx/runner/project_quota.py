"""Folders with a size on the disk itself: project quotas of ext4 and XFS.

A folder gets a project id that all made in it inherits, and the filesystem refuses to let the files of a project grow
beyond its limit. The kernel has it from 5.14 on by the descriptor of any file (`quotactl_fd`); the filesystem must have
been mounted with `prjquota`. Whether that holds is tried, with a process of an ordinary account, since ext4 lets
processes with CAP_SYS_RESOURCE pass: there it holds tasks with accounts, and not those of root.

Ids are taken from a range that follows from the folder, and never one that has files or a limit already. The owner of
a file may give it another project, so this holds accidents, not a program that wants to evade it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FIRST_ID = 0x5048_0000  # of all runners; what others use is found in /etc/projects, and is mostly small
RANGES, IDS = 1 << 10, 1 << 16  # ranges of ids, and ids in each
TRIES_MAX = 1000
TRIAL_BYTES = 1 << 20  # XFS wants more room for a new file than it has in the end
NOBODY = 65534
TRIAL_WITHIN_S = 10.0
_QUOTACTL_FD = 443  # the same number on every architecture
_GET, _SET, _PROJECT = 0x800007, 0x800008, 2
_BLOCK_LIMITS = 1  # which fields of a quota are set
_QUOTA = struct.Struct("=8QI4x")  # limits and use of blocks and inodes, times, and which of them are valid
_BLOCK = 1024
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_ATTRIBUTES = struct.Struct("=5I8x")  # flags, extent size, extents, project, and size of copied extents
_INHERIT = 0x200
_libc = ctypes.CDLL(None, use_errno=True)


class ProjectUse(NamedTuple):
    """The limit of a project, and what it uses, in bytes."""

    limit_bytes: int
    used_bytes: int


class ProjectQuotas:
    """The project ids of the folders in one folder."""

    def __init__(self, root: Path) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._first = FIRST_ID + zlib.crc32(os.fsencode(root)) % RANGES * IDS
        self._next = 0

    def close(self) -> None:
        os.close(self._fd)

    def give(self, folder: Path, size: int) -> int:
        """Hold a new, empty folder to this size; its project id. Raises OSError, and then nothing has changed."""
        for _ in range(TRIES_MAX):
            id = self._first + self._next
            self._next = (self._next + 1) % IDS
            if self.use(id) == (0, 0):
                self._limit(id, size)
                try:
                    set_project(folder, id)
                except OSError:
                    self._limit(id, 0)
                    raise
                return id
        raise OSError(errno.EAGAIN, f"no project id is free from {self._first} on")

    def take_back(self, id: int) -> None:
        """The folder is gone: its id may be used again. Ids of others are left alone."""
        if self._first <= id < self._first + IDS:
            with suppress(OSError):
                self._limit(id, 0)

    def use(self, id: int) -> ProjectUse:
        """Of a project; raises OSError where there are no quotas."""
        quota = ctypes.create_string_buffer(_QUOTA.size)
        try:
            self._call(_GET, id, quota)
        except FileNotFoundError:  # XFS knows no project that never had a file or a limit
            return ProjectUse(0, 0)
        limit, _, used, *_ = _QUOTA.unpack(quota.raw)
        return ProjectUse(limit * _BLOCK, used)

    def _limit(self, id: int, size: int) -> None:
        blocks = (size + _BLOCK - 1) // _BLOCK
        packed = _QUOTA.pack(blocks, blocks, 0, 0, 0, 0, 0, 0, _BLOCK_LIMITS)
        self._call(_SET, id, ctypes.create_string_buffer(packed, _QUOTA.size))

    def _call(self, command: int, id: int, quota: ctypes.Array[ctypes.c_char]) -> None:
        if _libc.syscall(_QUOTACTL_FD, self._fd, ctypes.c_uint(command << 8 | _PROJECT), id, quota) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"quotactl_fd: {os.strerror(number)}")


def set_project(folder: Path, id: int) -> None:
    """Make a folder one of this project, and all that is made in it later."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = fcntl.ioctl(fd, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
        flags, extent, extents, _, copied = _ATTRIBUTES.unpack(found)
        fcntl.ioctl(fd, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags | _INHERIT, extent, extents, id, copied))
    finally:
        os.close(fd)


def project_of(folder: Path) -> int:
    """The project id of a folder; 0 if it has none."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(_ATTRIBUTES.unpack(fcntl.ioctl(fd, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))[3])
    except OSError:
        return 0
    finally:
        os.close(fd)


def who_is_held(root: Path) -> str:
    """Whose files quotas hold in this folder: all, accounts (all but root's), or nobody's; tried."""
    trial = root / ".quota-trial"
    try:
        quotas = ProjectQuotas(root)
    except OSError:
        return "nobody"
    id = 0
    try:
        trial.mkdir(exist_ok=True, mode=0o711)
        id = quotas.give(trial, TRIAL_BYTES)
        if not _is_refused(trial / "account", NOBODY):
            return "nobody"
        return "all" if _is_refused(trial / "own", None) else "accounts"
    except (OSError, subprocess.SubprocessError):
        return "nobody"
    finally:
        for name in ("account", "own"):
            (trial / name).unlink(missing_ok=True)
        with suppress(OSError):
            trial.rmdir()
        if id:
            quotas.take_back(id)
        quotas.close()


def _is_refused(file: Path, uid: int | None) -> bool:
    """Whether a process of this user cannot write more than the limit to a file that is open for it."""
    try:
        output = file.open("wb")
    except OSError as error:  # what was written before has left no room for another file
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    with output:
        writing = subprocess.run(
            [
                shutil.which("head", path="/usr/bin:/bin") or "/usr/bin/head",
                "-c",
                str(4 * TRIAL_BYTES),
                "/dev/zero",
            ],
            stdout=output,
            stderr=subprocess.DEVNULL,
            user=uid,
            timeout=TRIAL_WITHIN_S,
            check=False,
        )
    return writing.returncode != 0 or file.stat().st_size <= TRIAL_BYTES
