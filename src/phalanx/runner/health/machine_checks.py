"""Checks of disks and memory: is there enough left to run tasks?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from phalanx.core.model.amounts import describe_bytes
from phalanx.runner.health.standing import CheckResult

PROC = Path("/proc")
DISK_SHARE, MEMORY_SHARE = (
    20,
    50,
)  # the limit is at most so small a part of the whole: a small disk is never full
MARGIN = 1.2  # what failed passes once there is so much more than the limit
INODES_MIN = 1000
_LINE = re.compile(r"^(MemTotal|MemAvailable):\s+([0-9]{1,15}) kB", re.MULTILINE)
IsFailing = Callable[[str], bool]


def check_disks(folders: Sequence[Path], free_min: int, is_failing: IsFailing) -> list[CheckResult]:
    """One finding for each disk that these folders are on; one that is not there yet counts with its parent."""
    found: dict[int, CheckResult] = {}
    for folder in folders:
        there = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
        device = there.stat().st_dev
        if device not in found:
            found[device] = _check_disk(there, free_min, is_failing)
    return list(found.values())


def _check_disk(folder: Path, free_min: int, is_failing: IsFailing) -> CheckResult:
    check = f"disk {folder}"
    try:
        about = os.statvfs(folder)
    except OSError as error:
        return CheckResult(check, f"{check} cannot be read: {error.strerror}")
    total, free = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
    limit = _limit(free_min, total // DISK_SHARE, is_failing(check))
    if total and free < limit:
        used = 100 - 100 * free // total
        return CheckResult(
            check, f"{check} is {used}% full, {describe_bytes(free)} free of {describe_bytes(total)}"
        )
    if about.f_files and about.f_favail < min(INODES_MIN, about.f_files // DISK_SHARE):
        return CheckResult(check, f"{check} has room for {about.f_favail} more files of {about.f_files}")
    return CheckResult(check)


def check_memory(free_min: int, is_failing: IsFailing, proc_root: Path = PROC) -> CheckResult:
    """Available memory as the kernel counts it: what tasks could still be given without swapping."""
    check = "memory"
    try:
        said = dict(_LINE.findall((proc_root / "meminfo").read_text()))
    except OSError as error:
        return CheckResult(check, f"memory cannot be read: {error.strerror}")
    if len(said) < 2:  # an old kernel does not say what is available
        return CheckResult(check)
    total, free = int(said["MemTotal"]) * 1024, int(said["MemAvailable"]) * 1024
    if free < _limit(free_min, total // MEMORY_SHARE, is_failing(check)):
        return CheckResult(check, f"memory: {describe_bytes(free)} available of {describe_bytes(total)}")
    return CheckResult(check)


def _limit(asked: int, most: int, is_failing: bool) -> int:
    limit = min(asked, most)
    return int(limit * MARGIN) if is_failing else limit
