"""Folders that tasks have filled: how large they are, and how they are removed, whatever is in them.

A task can make folders deeper than any path may be long, more of them than a process may have open, and deeper than
Python can call itself, which `shutil.rmtree` does before 3.13. It can also leave folders that nobody may enter or
change, as package managers do; its account is mostly ours, so we give ourselves the right. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

ENTRIES_MAX = 100_000  # of one folder, in one look
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = 0o700


def remove_tree(path: str | Path) -> None:
    """Remove a folder with all in it; raises OSError with the first thing that cannot be removed.

    The folders inside are first moved up into the outermost one, so that two are open at a time, however deep they are.
    """
    top = _opened(path, None)
    try:
        errors = _Emptying(top).errors()
    finally:
        os.close(top)
    if errors:
        raise errors[0]
    os.rmdir(path)  # noqa: PTH106 - as the rest


class _Emptying:
    """The removal of what is in one folder."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._mark = f".removed-{secrets.token_hex(8)}-"  # no task knows it
        self._moved = 0
        self._waiting: list[str] = []
        self._errors: list[OSError] = []

    def errors(self) -> list[OSError]:
        """Empty the folder; what could not be done."""
        self._empty(self._top)
        while self._waiting:
            name = self._waiting.pop()
            try:
                folder = _opened(name, self._top)
                try:
                    self._empty(folder)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=self._top)
            except OSError as error:
                self._errors.append(error)
        return self._errors

    def _empty(self, folder: int) -> None:
        """Remove what is no folder, and move folders up."""
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            try:
                if is_folder:
                    self._move_up(folder, name)
                else:
                    os.unlink(name, dir_fd=folder)
            except OSError as error:
                self._errors.append(error)

    def _move_up(self, folder: int, name: str) -> None:
        self._moved += 1
        moved = f"{self._mark}{self._moved}"
        try:
            os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:  # its entry of the folder above it changes, which takes the right to write it
            _allow(name, folder)
            os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
        self._waiting.append(moved)


def _opened(name: str | Path, above: int | None) -> int:
    """A folder whose entries we may remove."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        _allow(name, above)
        folder = os.open(name, _FOLDER, dir_fd=above)
    if os.fstat(folder).st_mode & _OURS != _OURS:
        with contextlib.suppress(OSError):  # it is another account's: we may have the right without
            os.fchmod(folder, _OURS)
    return folder


def _allow(name: str | Path, above: int | None) -> None:
    """Give ourselves all rights in a folder, if it is ours."""
    folder = os.open(name, _FOLDER | os.O_PATH, dir_fd=above)
    try:
        Path(f"/proc/self/fd/{folder}").chmod(_OURS)  # a folder that may not be read has no other way
    finally:
        os.close(folder)


def size_of(folder: Path, entries_max: int = ENTRIES_MAX) -> int:
    """The bytes that a folder takes on its disk, as far as one look may count."""
    total, left, waiting = 0, entries_max, [folder]
    while waiting and left > 0:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                left -= 1
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
    return total
