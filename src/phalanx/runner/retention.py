"""How long logs stay on a node: each for so many days, and all of them within so many bytes, the oldest go first.

Artifacts that could not be sent are treated in the same way.

Only logs of attempts that have ended are removed. The keeper limits what is written while an attempt runs
(`keeper/logs.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from phalanx.clock import Clock
from phalanx.core.model.orders import AttemptKey
from phalanx.logger import logger, told
from phalanx.runner.log_files import RESULTS_FOLDER, read_name
from phalanx.runner.trees import remove_tree, size_of

log = logger("runner")
FIRST_AFTER_S, EVERY_S = 60.0, 600.0
SETTLED_S = (
    60.0  # a log that was written to just now may be of an attempt that has started since `live` was read
)
_BLOCK = 512


class Limits(Struct, frozen=True):
    """What is kept; 0 for no limit."""

    age_s: float
    size_bytes: int


class _Log(Struct, frozen=True, order=True):
    written_at: float
    disk_bytes: int
    path: str
    key: AttemptKey
    is_folder: bool = False  # of artifacts, or what a task has made in place of a file


async def keep_swept(root: Path, limits: Limits, live: Callable[[], set[AttemptKey]], clock: Clock) -> None:
    """Sweep periodically, as long as the runner lives."""
    pause_s = FIRST_AFTER_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = EVERY_S
        try:
            removed, freed = await asyncio.to_thread(sweep, root, limits, live(), clock.now())
        except (OSError, RuntimeError) as error:  # RuntimeError: no room for another thread
            log.warning("old logs could not be removed, trying again later", **told(error))
            continue
        if removed:
            log.info("old logs were removed", files=removed, bytes=freed)


def sweep(root: Path, limits: Limits, live: set[AttemptKey], now: float) -> tuple[int, int]:
    """Remove what is too old, then the oldest until the others fit; returns the files and bytes removed."""
    logs = sorted(_logs(root))
    kept_bytes = sum(each.disk_bytes for each in logs)
    removed = freed = 0
    for each in logs:
        age_s = now - each.written_at
        is_old = 0 < limits.age_s < age_s
        is_too_much = 0 < limits.size_bytes < kept_bytes and age_s > SETTLED_S
        if not (is_old or is_too_much) or each.key in live:
            continue
        with suppress(OSError):
            if each.is_folder:
                remove_tree(each.path)
            else:
                os.unlink(each.path)  # noqa: PTH108 - a hundred thousand of them
            removed, freed, kept_bytes = removed + 1, freed + each.disk_bytes, kept_bytes - each.disk_bytes
    if removed:
        _remove_empty(root)
    return removed, freed


def _logs(root: Path) -> Iterator[_Log]:
    """Every log below the root. What has not the name of one is left alone, and no link is followed."""
    for folder in _folders(root):
        with suppress(OSError):  # a task can take away our right to read it, or the folder itself
            yield from _logs_of(folder)


def _logs_of(folder: os.DirEntry[str]) -> Iterator[_Log]:
    with os.scandir(folder.path) as files:
        for file in files:
            is_folder = file.is_dir(follow_symlinks=False)
            named = read_name(folder.name, file.name)
            if named is None:
                continue
            with suppress(OSError):  # it went away meanwhile
                found = file.stat(follow_symlinks=False)
                size = size_of(Path(file.path)) if is_folder else found.st_blocks * _BLOCK
                yield _Log(found.st_mtime, size, file.path, named[0], is_folder)


def _remove_empty(root: Path) -> None:
    for folder in _folders(root):
        if folder.name == RESULTS_FOLDER:
            continue
        with suppress(OSError):  # it still holds logs
            os.rmdir(folder.path)  # noqa: PTH106


def _folders(root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return [each for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:  # there is none yet, or its name is taken by something else
        return []
