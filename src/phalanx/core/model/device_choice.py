"""Which of the free devices of a node a task is given: of one size, and close together."""

from __future__ import annotations

from phalanx.core.model.amounts import magnitude
from phalanx.core.model.resources import Device

SIZE_BITS = 11  # how exactly sizes of devices are compared: no two of one type report quite the same


def size_of(device: Device) -> int:
    """How much memory it has, as far as sizes are told apart."""
    return magnitude(device.memory_bytes, SIZE_BITS)


def smallest(free: list[Device], count: int) -> list[Device]:
    """Those of the smallest size of which there are enough; else the smallest ones, in the order of their size."""
    sizes: dict[int, list[Device]] = {}
    for device in free:
        sizes.setdefault(size_of(device), []).append(device)
    for size in sorted(sizes):
        if len(sizes[size]) >= count:
            return sizes[size]
    return [device for size in sorted(sizes) for device in sizes[size]][:count]


def close_together(free: list[Device], count: int, numa: int | None) -> tuple[int, ...]:
    """Devices of one NUMA node if one has enough (the asked one, else the tightest fit), else the lowest ones."""
    if len(free) == count:
        return tuple([device.index for device in free])
    by_numa: dict[int | None, list[int]] = {}
    for device in free:
        if device.numa in by_numa:
            by_numa[device.numa].append(device.index)
        else:
            by_numa[device.numa] = [device.index]
    enough = [indexes for place, indexes in by_numa.items() if len(indexes) >= count and place is not None]
    if numa is not None and len(by_numa.get(numa, ())) >= count:
        return tuple(by_numa[numa][:count])
    if enough:
        return tuple(min(enough, key=lambda indexes: (len(indexes), indexes))[:count])
    return tuple(device.index for device in free[:count])
