"""Scratch folders: one for each attempt, for files that are not needed when it has ended; removed then with all in it.

A task finds its folder in `PHALANX_SCRATCH_DIR`, and in `TMPDIR` where the path is short enough for sockets in it. With
a size (`runner.scratch_max_bytes`) and as root the folder has a project quota where the filesystem has them
(`project_quota.py`), else it is a tmpfs of that size, whose files count as memory of the task. Without the right to
mount, the folder is looked at every few seconds, and what has become too large is said in the node's log and with the
end of the task. Without a size it is a plain folder. After a crash, folders, mounts and limits that belong to no
attempt are removed when the runner starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

from phalanx.core.model.amounts import describe_bytes
from phalanx.core.model.orders import AttemptKey
from phalanx.logger import logger
from phalanx.runner.project_quota import ProjectQuotas, project_of, who_is_held
from phalanx.runner.trees import remove_tree, size_of

log = logger("runner")
VARIABLE = "PHALANX_SCRATCH_DIR"
MOUNTS = Path("/proc/self/mountinfo")
PATH_BYTES_MAX = 70  # sockets have paths of at most 107 bytes, and programs put them into folders of TMPDIR
AT_END_MAX = 1000  # entries that are looked at at the end of an attempt, when others wait
SOURCE = "phalanx-scratch"
_NOSUID_NODEV, _DETACH = 2 | 4, 2


class ScratchFolders:
    """The scratch folders of one node, in a folder of their own."""

    def __init__(
        self,
        root: Path,
        size_max: int = 0,
        may_mount: bool | None = None,
        quotas_hold: str | None = None,
        has_accounts: bool = False,
    ) -> None:
        """What may be done here is tried, unless it is said: whether to mount, and whose files quotas hold.

        With accounts no task is root, unless its user is mapped to root.
        """
        self._root = root
        self._path = str(root)
        self._room = (
            PATH_BYTES_MAX - len(os.fsencode(root)) - 1
        )  # for a name, which has no other letters than ASCII
        self._size_max = size_max
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)  # tasks of other accounts reach their own folders through it
        self._mounts = size_max > 0 and (can_mount(root) if may_mount is None else may_mount)
        holds = (who_is_held(root) if quotas_hold is None else quotas_hold) if self._mounts else "nobody"
        self._quotas = ProjectQuotas(root) if holds != "nobody" else None
        self._holds_root = holds == "all"
        self._has_accounts = has_accounts
        self._projects: dict[str, int] = {}  # by the name of a folder
        self._seen: dict[str, int] = {}  # the largest size seen of those that are watched
        self._removing: set[asyncio.Task[None]] = set()

    @property
    def held_by(self) -> str:
        """By what folders are kept to their size: quota, tmpfs, watched, or nothing where there is no limit."""
        if self._quotas is not None and (self._holds_root or self._has_accounts):
            return "quota"
        return "" if not self._size_max else "tmpfs" if self._mounts else "watched"

    @property
    def are_plain(self) -> bool:
        """Whether they are folders and no more, which a keeper can make and take again."""
        return not self._size_max

    def variables(self, key: AttemptKey) -> dict[str, str]:
        """The variables by which an attempt finds its folder."""
        name = _name(key)
        folder = f"{self._path}/{name}"
        return {VARIABLE: folder, "TMPDIR": folder} if len(name) <= self._room else {VARIABLE: folder}

    def make(self, key: AttemptKey, owner: tuple[int, int] | None = None) -> dict[str, str]:
        """Make the folder of an attempt, for its account; the variables by which it finds it. Raises OSError."""
        folder = self._root / _name(key)
        folder.mkdir(exist_ok=True, mode=0o700)
        if self._size_max:
            self._hold(folder, is_root=owner is None or owner[0] == 0)
        if owner is not None:
            os.chown(folder, *owner)
        return self.variables(key)

    def _hold(self, folder: Path, is_root: bool) -> None:
        """Hold a folder to its size."""
        if self._quotas is not None and (self._holds_root or not is_root):
            if folder.name not in self._projects:
                self._projects[folder.name] = self._quotas.give(folder, self._size_max)
        elif self._mounts:
            if not folder.is_mount():
                mount_tmpfs(folder, self._size_max)
        else:
            self._seen.setdefault(folder.name, 0)

    def close(self, key: AttemptKey) -> str:
        """The attempt has ended: remove its folder, in a thread if anything is in it; what is to be said of it."""
        folder = self._root / _name(key)
        said = self._note(folder)
        if not self._mounts and _is_empty(folder):
            with contextlib.suppress(OSError):
                folder.rmdir()
        elif os.path.lexists(folder):
            removing = asyncio.ensure_future(asyncio.to_thread(self._remove, folder))
            self._removing.add(removing)
            removing.add_done_callback(self._removing.discard)
        return said

    async def settled(self) -> None:
        """Wait until all that is being removed is gone."""
        if self._removing:
            await asyncio.wait(self._removing)
        with contextlib.suppress(OSError):
            for folder in self._root.iterdir():  # empty ones that keepers had taken again
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def sweep(self, living: Collection[AttemptKey]) -> None:
        """Remove what belongs to no living attempt: folders, and what is mounted on them."""
        kept = {_name(key) for key in living}
        for folder in self._root.iterdir():
            if folder.name not in kept:
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        project = self._projects.pop(folder.name, 0)
        if self._quotas is not None and not project:  # of an earlier runner
            project = project_of(folder)
        remove(folder)
        if self._quotas is not None and project:
            self._quotas.take_back(project)

    async def look(self) -> None:
        """Look at folders that can grow beyond their size."""
        for name in [*self._seen]:
            self._see(name, await asyncio.to_thread(size_of, self._root / name))

    def _see(self, name: str, size: int) -> None:
        if size > self._size_max >= self._seen.get(name, 0):
            log.warning(
                "a scratch folder is larger than it may be", attempt=name, size=size, limit=self._size_max
            )
        if name in self._seen:
            self._seen[name] = max(self._seen[name], size)

    def _note(self, folder: Path) -> str:
        if folder.name not in self._seen:
            return ""
        size = max(self._seen.pop(folder.name), size_of(folder, AT_END_MAX))
        if size <= self._size_max:
            return ""
        had, may = describe_bytes(size), describe_bytes(self._size_max)
        return f"its scratch folder had {had}, more than the {may} it may have"


def remove(folder: Path) -> None:
    """Remove a folder with all in it, and what is mounted on it. What cannot be removed is logged."""
    unmount(folder)
    try:
        if folder.is_dir() and not folder.is_symlink():
            remove_tree(folder)
        else:
            folder.unlink(missing_ok=True)
    except OSError as error:
        log.warning("a scratch folder cannot be removed", folder=str(folder), error=str(error))


def mount_tmpfs(folder: Path, size: int) -> None:
    """Mount a tmpfs of this size; raises OSError."""
    options = f"size={size},mode=0700"
    _call("mount", SOURCE.encode(), os.fsencode(folder), b"tmpfs", _NOSUID_NODEV, options.encode())


def unmount(folder: Path, mounts: Path = MOUNTS) -> None:
    """Unmount all that is mounted on a folder or in it, the innermost first."""
    for path in sorted(mounted_below(folder, mounts), key=len, reverse=True):
        with contextlib.suppress(OSError):
            _call("umount2", os.fsencode(path), _DETACH)


def mounted_below(folder: Path, mounts: Path = MOUNTS) -> list[str]:
    """Where something is mounted, of this folder and those in it."""
    found = []
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        path = _unescaped(line.split()[4])
        if path == str(folder) or path.startswith(f"{folder}/"):
            found.append(path)
    return found


def _unescaped(path: str) -> str:
    """The kernel writes blanks and backslashes of a path as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def can_mount(root: Path) -> bool:
    """Whether a tmpfs can be mounted here: tried, since root in a container may not."""
    trial = root / ".trial"
    try:
        trial.mkdir(exist_ok=True)
        mount_tmpfs(trial, 1 << 16)
    except OSError:
        return False
    finally:
        unmount(trial)
        with contextlib.suppress(OSError):
            trial.rmdir()
    return True


def _call(name: str, *arguments: bytes | int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _is_empty(folder: Path) -> bool:
    """Whether another attempt can have the folder: it is as it was made."""
    try:
        about = folder.lstat()
        if about.st_mode != stat.S_IFDIR | 0o700 or about.st_uid != os.geteuid():
            return False
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _name(key: AttemptKey) -> str:
    return f"{key[0]}-{key[1]}-{key[2]}"
