"""Simulated hardware: a node with invented cores, memory, devices and labels, for trying and testing anywhere.

    gpus=8,type=h100,memory=80GiB,numa=2,cpus=64,ram=512GiB,labels=zone=a;rack=r1

Only the numbers are invented: attempts really run here. A simulated NUMA node has a share of the machine's own CPUs,
so that binding to it can be seen. What is not understood is refused, with the key, its value and what would be right.
Real hardware is found in `devices.py`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence

from phalanx.core.model.amounts import describe_bytes, parse_bytes
from phalanx.core.model.resources import Capacity, Device, NumaNode
from phalanx.runner.devices import real_memory_bytes
from phalanx.runner.labels import parse_labels

TEXT_MAX = 4096
DEVICES_MAX = 1024
NUMA_MAX = 64
CORES_MAX = 65_536
BYTES_MIN, BYTES_MAX = 1 << 20, 1 << 50
DEVICE_MEMORY_BYTES = 80 << 30
KEYS = ("gpus", "type", "memory", "numa", "cpus", "ram", "labels")
_KIND = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


def parse_pretend(text: str, node: str, cpus: Sequence[int] | None = None) -> Capacity:
    """The capacity this text describes, or ValueError. `cpus` are the real ones to divide."""
    given = _pairs(text)
    real = sorted(cpus if cpus is not None else os.sched_getaffinity(0))
    cores = _count(given, "cpus", 1, CORES_MAX, len(real))
    numa = _count(given, "numa", 0, NUMA_MAX, 0)
    gpus = _count(given, "gpus", 0, DEVICES_MAX, 0)
    if numa > cores:
        raise _wrong("numa", given["numa"], f"at most one NUMA node for each of the {cores} cores")
    for key in ("type", "memory"):
        if key in given and not gpus:
            raise _wrong(key, given[key], "gpus= of at least 1 beside it")
    return Capacity(
        cores,
        _size(given, "ram", real_memory_bytes),
        _numa_nodes(numa, cores, real),
        _devices(gpus, given, node, numa),
        parse_labels(given.get("labels", "")),
    )


def _pairs(text: str) -> dict[str, str]:
    if len(text) > TEXT_MAX:
        raise ValueError(f"simulated hardware is described in at most {TEXT_MAX} characters, not {len(text)}")
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise ValueError(f"pretend: {part[:80]!r} is not key=value, such as gpus=8")
        if key not in KEYS:
            raise ValueError(f"pretend: unknown key {key[:80]!r} (value {value[:80]!r}){_suggestion(key)}")
        if key in given:
            raise _wrong(key, value, "each key once")
        given[key] = value.strip()
    return given


def _suggestion(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; the keys are {', '.join(KEYS)}"


def _count(given: dict[str, str], key: str, least: int, most: int, default: int) -> int:
    if key not in given:
        return default
    text = given[key]
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and least <= int(text) <= most):
        raise _wrong(key, text, f"a whole number from {least} to {most}")
    return int(text)


def _size(given: dict[str, str], key: str, default: Callable[[], int]) -> int:
    if key not in given:
        return default()
    right = f"a size from {describe_bytes(BYTES_MIN)} to {describe_bytes(BYTES_MAX)}, such as 80GiB"
    try:
        size = parse_bytes(given[key])
    except ValueError:
        raise _wrong(key, given[key], right) from None
    if not BYTES_MIN <= size <= BYTES_MAX:
        raise _wrong(key, given[key], right)
    return size


def _numa_nodes(count: int, cores: int, real: Sequence[int]) -> tuple[NumaNode, ...]:
    """Equal shares of the invented cores and of the real CPUs; with fewer CPUs than nodes, they are shared in turn."""
    return tuple(
        NumaNode(
            index,
            _share(cores, index, count).stop - _share(cores, index, count).start,
            tuple(real[at] for at in _share(len(real), index, count)) or (real[index % len(real)],),
        )
        for index in range(count)
    )


def _devices(count: int, given: dict[str, str], node: str, numa: int) -> tuple[Device, ...]:
    if not count:
        return ()
    kind = given.get("type", "gpu")
    if _KIND.fullmatch(kind) is None:
        raise _wrong("type", kind, "a name of lower-case letters, digits, '.', '_' or '-', such as h100")
    memory_bytes = _size(given, "memory", lambda: DEVICE_MEMORY_BYTES)
    near = {at: node for node in range(numa) for at in _share(count, node, numa)}
    return tuple(
        Device(index, kind, memory_bytes, near.get(index), f"GPU-pretend-{node}-{index}")
        for index in range(count)
    )


def _share(total: int, index: int, count: int) -> range:
    """The index-th of `count` consecutive blocks; the first ones are larger by one where it does not divide evenly."""
    size, larger = divmod(total, count)
    start = index * size + min(index, larger)
    return range(start, start + size + (index < larger))


def _wrong(key: str, value: str, right: str) -> ValueError:
    return ValueError(f"pretend: {key}={value[:80]!r} is invalid: expected {right}")
