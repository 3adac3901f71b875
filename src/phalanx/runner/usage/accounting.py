"""What cgroups account for: processor time, memory now and at most, and bytes read and written, on v1 and v2.

Only folders that belong to one attempt alone are read; slots of the keeper are used again, and their counters with
them. Which hierarchies there are is not asked: whatever file a folder has is read, and what is missing stays unknown.

The page cache is left out of memory: it grows with whatever a task reads and is given up when others need room, so it
says nothing about what the task needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from phalanx.runner.keeper import system


class CgroupCounters(Struct):
    """The counters of one attempt's cgroups; None: not accounted for there."""

    cpu_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


def read_counters(folders: Iterable[str]) -> CgroupCounters:
    """The counters of an attempt, from all the folders it is in."""
    found = CgroupCounters()
    for folder in folders:
        _read_cpu(folder, found)
        _read_memory(folder, found)
        _read_io(folder, found)
    return found


def _read_cpu(folder: str, found: CgroupCounters) -> None:
    usage_us = _fields(f"{folder}/cpu.stat").get(b"usage_usec")
    if usage_us is not None:
        found.cpu_s = max(found.cpu_s or 0.0, usage_us / 1e6)
    elif (usage_ns := _number(f"{folder}/cpuacct.usage")) is not None:
        found.cpu_s = max(found.cpu_s or 0.0, usage_ns / 1e9)


def _read_memory(folder: str, found: CgroupCounters) -> None:
    for now, most in (
        ("memory.current", "memory.peak"),
        ("memory.usage_in_bytes", "memory.max_usage_in_bytes"),
    ):
        used = _number(f"{folder}/{now}")
        if used is None:
            continue
        cache = page_cache_bytes(folder)
        found.memory_bytes = max(0, used - cache)
        peak = _number(f"{folder}/{most}")
        if peak is not None:
            # How much of the peak was cache is not kept; what is there now is the nearest that can be known.
            found.memory_peak_bytes = max(0, peak - cache)


def page_cache_bytes(folder: str) -> int:
    """The cached pages of files; what is in shared memory counts as the task's own."""
    stat = _fields(f"{folder}/memory.stat")
    if b"total_cache" in stat:  # v1
        return max(0, stat[b"total_cache"] - stat.get(b"total_shmem", 0))
    return max(0, stat.get(b"file", 0) - stat.get(b"shmem", 0))


def _read_io(folder: str, found: CgroupCounters) -> None:
    text = system.read(f"{folder}/io.stat")
    read = written = 0
    for word in text.split():
        name, _, number = word.partition(b"=")
        if name in (b"rbytes", b"wbytes") and number.isdigit():
            read, written = (
                (read + int(number), written) if name == b"rbytes" else (read, written + int(number))
            )
    if text:
        found.read_bytes, found.written_bytes = read, written


def _fields(path: str) -> dict[bytes, int]:
    """A file of names and numbers, one to a line."""
    found = {}
    for line in system.read(path).splitlines():
        name, _, number = line.partition(b" ")
        if number.isdigit():
            found[name] = int(number)
    return found


def _number(path: str) -> int | None:
    text = system.read(path).strip()
    return int(text) if text.isdigit() else None
