"""Limits a process to one core: by a cgroup of version 2 or 1 where one may be made, else by its affinity."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD_US = 100_000
ROOT = Path("/sys/fs/cgroup")


@contextmanager
def held_to_one_core(pid: int, name: str) -> Iterator[str]:
    """Within this block; yields how it is limited."""
    made = _made(name)
    if made is None:
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
        yield "affinity"
        return
    folder, how = made
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        yield how
    finally:
        _remove(folder)


def _made(name: str) -> tuple[Path, str] | None:
    for folder, how, limits in (
        (ROOT / name, "cgroup v2", {"cpu.max": f"{PERIOD_US} {PERIOD_US}"}),
        (ROOT / "cpu" / name, "cgroup v1", {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": PERIOD_US}),
    ):
        if how == "cgroup v2" and not (ROOT / "cgroup.controllers").exists():
            continue
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            for file, value in limits.items():
                (folder / file).write_text(str(value))
            return folder, how
    return None


def _remove(folder: Path) -> None:
    """An ended process may take a moment to leave."""
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            folder.rmdir()
