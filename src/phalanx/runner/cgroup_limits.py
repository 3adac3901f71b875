"""What is written into a cgroup for a task's limits: memory, CPUs and their memory nodes, CPU time, processes, devices.

One description serves v1 and v2; each hierarchy takes what its controllers can hold. Which folders a task is in is
decided in `cgroups.py` and `limits.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.amounts import MEMORY_BYTES_MIN, MILLI, MILLICORES
from phalanx.core.model.resources import Cores
from phalanx.runner.device_filter import DeviceFilter, DeviceNode

# What starts in a cgroup whose time is used up waits for the next period, and the keeper with it: so periods are short,
# except for shares that are too small for that.
CPU_PERIOD_US, CPU_PERIOD_LONG_US = 10_000, 100_000
CPU_QUOTA_US_MIN = 1000  # the kernel takes no less
PIDS_MIN = 16  # the keeper itself is inside for the moment of a spawn


class TaskLimits(Struct, frozen=True):
    """The limits of one cgroup. What is 0 or empty is not limited."""

    memory_bytes: int = 0
    cores: Cores = 0  # of CPU time
    cpus: tuple[int, ...] = ()
    mems: tuple[int, ...] = ()  # memory nodes
    pids: int = 0
    denied: tuple[DeviceNode, ...] = ()


NO_LIMITS = TaskLimits()


def write_limits(
    folder: Path,
    controllers: frozenset[str],
    is_v2: bool,
    limits: TaskLimits,
    former: TaskLimits = NO_LIMITS,
    devices: DeviceFilter | None = None,
) -> None:
    """Set the limits that these controllers hold. `former` is what the folder has already. Raises OSError."""
    if "memory" in controllers and limits.memory_bytes != former.memory_bytes:
        _limit_memory(folder, is_v2, limits.memory_bytes)
    if "cpuset" in controllers:
        if limits.mems != former.mems or not (is_v2 or former.cpus):
            _write(folder, "cpuset.mems", as_list(limits.mems) or _inherited(folder, "cpuset.mems", is_v2))
        if limits.cpus != former.cpus or not (is_v2 or former.cpus):
            _write(folder, "cpuset.cpus", as_list(limits.cpus) or _inherited(folder, "cpuset.cpus", is_v2))
    if "cpu" in controllers and limits.cores != former.cores:
        _limit_time(folder, is_v2, limits.cores)
    if "pids" in controllers and limits.pids != former.pids:
        _write(folder, "pids.max", str(max(limits.pids, PIDS_MIN)) if limits.pids else "max")
    if "devices" in controllers and limits.denied != former.denied:
        _deny(folder, limits.denied)
    elif devices is not None and is_v2 and limits.denied != former.denied:
        devices.attach(folder, limits.denied, former.denied)


def as_list(numbers: Sequence[int]) -> str:
    """Numbers as the kernel writes lists of CPUs: `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def quota(cores: Cores) -> tuple[int, int]:
    """Microseconds of CPU time in a period, and the period."""
    short = MILLICORES[cores] * CPU_PERIOD_US // MILLI
    if short >= CPU_QUOTA_US_MIN:
        return short, CPU_PERIOD_US
    return max(CPU_QUOTA_US_MIN, MILLICORES[cores] * CPU_PERIOD_LONG_US // MILLI), CPU_PERIOD_LONG_US


def _limit_memory(folder: Path, is_v2: bool, memory_bytes: int) -> None:
    # Jobs that older coordinators took may ask for less. The keeper, too, is inside at the start.
    limit = str(max(memory_bytes, MEMORY_BYTES_MIN))
    if is_v2:
        _write(folder, "memory.max", limit)
        _write_if_there(folder, "memory.swap.max", "0")
    else:
        _write(folder, "memory.limit_in_bytes", limit)
        _write_if_there(folder, "memory.memsw.limit_in_bytes", limit)


def end_as_a_whole(folder: Path) -> None:
    """A task that lost one process to the OOM killer may hang or give wrong results; on v2 it is ended as a whole."""
    _write_if_there(folder, "memory.oom.group", "1")


def _limit_time(folder: Path, is_v2: bool, cores: Cores) -> None:
    time_us, period_us = quota(cores) if cores else (0, CPU_PERIOD_LONG_US)
    if is_v2:
        _write(folder, "cpu.max", f"{time_us or 'max'} {period_us}")
        return
    _write(folder, "cpu.cfs_quota_us", "-1")  # or the period might not fit the former quota
    _write(folder, "cpu.cfs_period_us", str(period_us))
    if time_us:
        _write(folder, "cpu.cfs_quota_us", str(time_us))


def _deny(folder: Path, denied: tuple[DeviceNode, ...]) -> None:
    _write(folder, "devices.allow", "a")
    for node in denied:
        kind = "b" if node.is_block else "c"
        _write(folder, "devices.deny", f"{kind} {node.major}:{node.minor} rwm")


def _inherited(folder: Path, name: str, is_v2: bool) -> str:
    """What stands for "all that the cgroup above has": nothing on v2, the same list on v1."""
    return "\n" if is_v2 else (folder.parent / name).read_text().strip()


def _write(folder: Path, name: str, text: str) -> None:
    """For every task with a limit, so without the costs of a text file."""
    fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _write_if_there(folder: Path, name: str, text: str) -> None:
    with contextlib.suppress(OSError):
        _write(folder, name, text)
