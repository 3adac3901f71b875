"""The files of an attempt: its folders for artifacts and scratch, made before it starts, and which files it has left.

The runner looks only at those that are named here, so that the many tasks that leave none cost it nothing. The folder
of an attempt that left no artifacts is taken for the next one: to rename a folder costs a tenth of removing it and
making another. It is taken for one beside it, since the kernel lets only one process of the machine at a time move a
folder into another one. Whether anything was put into one is told by its time of change, which is set to a time that
no change gives; only if that is another one it is looked into.
"""

from __future__ import annotations

import os
import stat

from . import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt

STDOUT, STDERR, RESULT, ARTIFACTS, SCRATCH = 1, 2, 4, 8, 16  # what an attempt has left, added up
SPARE_MAX = 4096
_EMPTY_FOLDER = stat.S_IFDIR | 0o700
_UNCHANGED_NS = 1_000_000_007_123_456_789  # long ago, and no round time, such as that of an unpacked archive


class LeftFiles:
    """Makes the folders of one keeper's attempts, and looks at what is left of them."""

    def __init__(self) -> None:
        self._spare: dict[str, list[str]] = {}  # by the folder that they are in

    def make(self, attempt: KeptAttempt) -> None:
        """Make its folders; raises OSError."""
        for path in (attempt.artifacts, attempt.scratch):
            if path:
                self._make(attempt, path)

    def _make(self, attempt: KeptAttempt, path: str) -> None:
        if attempt.account is not None:
            system.set_aside(path, unless=lambda _: False)
            os.makedirs(path, 0o700)  # noqa: PTH103 (the keeper imports no pathlib)
            os.chown(path, attempt.account.uid, attempt.account.gid)
            return
        try:
            if spare := self._spare.get(system.parent(path)):
                os.rename(spare.pop(), path)  # noqa: PTH104
            else:
                os.mkdir(path, 0o700)  # noqa: PTH102
                _set_unchanged(path)
        except OSError:  # it exists, or something else does, or the folder above it is missing
            system.set_aside(path, unless=stat.S_ISDIR)
            os.makedirs(path, 0o700, exist_ok=True)  # noqa: PTH103

    def left(self, attempt: KeptAttempt) -> int:
        """What it has left, now that nothing of it runs any more."""
        found = 0 if _is_empty(attempt.out) else STDOUT
        if attempt.err != attempt.out and not _is_empty(attempt.err):
            found |= STDERR
        if attempt.result and os.access(attempt.result, os.F_OK, follow_symlinks=False):
            found |= RESULT
        return found | self.close(attempt)

    def close(self, attempt: KeptAttempt) -> int:
        """Take its folders for another one, if nothing is in them; returns those with something in them."""
        found = 0
        if attempt.artifacts and self._take_again(attempt, attempt.artifacts) is False:
            found |= ARTIFACTS
        if attempt.scratch and not self._take_again(attempt, attempt.scratch):
            found |= SCRATCH if os.path.lexists(attempt.scratch) else 0
        return found

    def _take_again(self, attempt: KeptAttempt, path: str) -> bool | None:
        """True if nothing is in it, False if something is, None if it is not as it was made."""
        try:
            found = os.lstat(path)
            is_usual = found.st_mode == _EMPTY_FOLDER and attempt.account is None
            if not is_usual or found.st_mtime_ns != _UNCHANGED_NS:
                own = attempt.result.removeprefix(f"{path}/")  # may be in the folder, and is no artifact
                names = os.listdir(path)  # noqa: PTH208
                if stat.S_ISDIR(found.st_mode) and any(name != own for name in names):
                    return False
                if attempt.account is not None:
                    os.rmdir(path)  # noqa: PTH106
                    return True
                if not is_usual or names:
                    return None
                _set_unchanged(path)
        except OSError:  # the task has removed it, or put something else in its place
            return None
        spare = self._spare.setdefault(system.parent(path), [])
        if len(spare) < SPARE_MAX:
            spare.append(path)
        return True


def _set_unchanged(path: str) -> None:
    os.utime(path, ns=(_UNCHANGED_NS, _UNCHANGED_NS))


def _is_empty(path: str) -> bool:
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and not about.st_size
