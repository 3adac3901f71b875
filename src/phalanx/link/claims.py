"""What a runner says of its node, and numbers and texts of its messages: what cannot be true of them, in words.

Each function gives the field, its value and what would be right; empty: nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.core.model.resources import DEVICES_MAX, INDEX_MAX, Capacity

# What a node may say of itself. Sums over many nodes stay within 64 bits.
CORES_MAX = 1 << 24
BYTES_MAX = 1 << 50
NUMA_MAX, CPUS_MAX, LABELS_MAX = 1025, 65_536, 256
WORD_MAX = 512  # characters of a name, a label, an address
TIME_MAX = 1e12  # seconds, before or after any clock's beginning


def wrong_capacity(capacity: Capacity) -> Iterator[str]:
    cores, numa, devices = capacity.cores, capacity.numa, capacity.devices
    yield wrong_count("capacity.cores", cores, CORES_MAX)
    if cores != round(cores, 3):
        yield f"capacity.cores = {cores}: expected at most three decimals"
    yield wrong_count("capacity.memory_bytes", capacity.memory_bytes, BYTES_MAX)
    yield wrong_count("the number of capacity.numa", len(numa), NUMA_MAX)
    yield wrong_count("the number of capacity.devices", len(devices), DEVICES_MAX)
    yield wrong_count("the number of capacity.labels", len(capacity.labels), LABELS_MAX)
    yield wrong_count("the number of CPUs in capacity.numa", sum(len(each.cpus) for each in numa), CPUS_MAX)
    for at, part in enumerate(numa):
        yield wrong_count(f"capacity.numa[{at}].id", part.id, INDEX_MAX)
        yield wrong_count(f"capacity.numa[{at}].cores", part.cores, CORES_MAX)
        for cpu in (min(part.cpus), max(part.cpus)) if part.cpus else ():
            yield wrong_count(f"capacity.numa[{at}].cpus", cpu, INDEX_MAX)
    for at, device in enumerate(devices):
        name = f"capacity.devices[{at}]"
        yield wrong_count(f"{name}.index", device.index, INDEX_MAX)
        yield wrong_count(f"{name}.memory_bytes", device.memory_bytes, BYTES_MAX)
        yield wrong_count(f"{name}.numa", device.numa or 0, INDEX_MAX)
        words = ("kind", device.kind), ("uuid", device.uuid), ("name", device.name)
        yield from wrong_texts(WORD_MAX, *((f"{name}.{key}", word) for key, word in words))
    yield from _doubled("capacity.numa: id", [each.id for each in numa])
    yield from _doubled("capacity.devices: index", [each.index for each in devices])
    for key, value in capacity.labels.items():
        yield from wrong_texts(WORD_MAX, ("capacity.labels", key), (f"capacity.labels[{key[:80]!r}]", value))
        if not key:
            yield "capacity.labels = '': expected a name"


def wrong_count(name: str, value: float, most: int) -> str:
    if 0 <= value <= most:
        return ""
    return f"{name} = {value if abs(value) < TIME_MAX else f'{value:.6g}'}: expected 0 to {most}"


def wrong_times(*given: tuple[str, float]) -> Iterator[str]:
    for name, value in given:
        if not -TIME_MAX <= value <= TIME_MAX:
            yield f"{name} = {value}: expected seconds"


def wrong_texts(most: int, *given: tuple[str, str]) -> Iterator[str]:
    for name, value in given:
        if len(value) > most or not value.isprintable():
            yield f"{name} = {value[:80]!r}: expected at most {most} characters, all printable"


def _doubled(name: str, numbers: list[int]) -> Iterator[str]:
    if len(set(numbers)) < len(numbers):
        twice = next(each for each in numbers if numbers.count(each) > 1)
        yield f"{name} {twice} is there twice: expected each once"
