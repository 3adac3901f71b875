"""One node's account: what is free, and the exact grant a request would get.

`fit` answers with a Grant or with the first Reason in seed 000's order: NUMA, devices, cores, memory. The
same function places, validates at submit, and explains. What is taken is held until it is given back.
"""

from __future__ import annotations

from phalanx.core.model import reason
from phalanx.core.model.quantity import describe_bytes
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity, Device, Grant, Request


class LedgerError(AssertionError):
    """Something was granted twice or given back twice: a defect of ours, never of a user."""


class Ledger:
    """What one node has and what of it is free."""

    __slots__ = ("capacity", "cores_free", "devices", "devices_free", "memory_free", "name", "numa_free")

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.capacity = capacity
        self.cores_free = capacity.cores
        self.memory_free = capacity.memory_bytes
        self.numa_free = {numa.id: numa.cores for numa in capacity.numa}
        self.devices = {device.index: device for device in capacity.devices}
        self.devices_free = set(self.devices)

    def fit(self, request: Request) -> Grant | Reason:
        """The grant this request would get right now, or why it gets none."""
        numa = request.target.numa if request.target else None
        if numa is not None and numa not in self.numa_free:
            return reason.numa_not_found(self.name, numa, sorted(self.numa_free))
        devices: tuple[int, ...] = ()
        if request.gpus:
            chosen = self._choose_devices(request, numa)
            if isinstance(chosen, Reason):
                return chosen
            devices = chosen
        if no := self._lacks(request, numa):
            return no
        near = numa if numa is not None else self._numa_of(devices)
        return Grant(
            request.cores, request.memory_bytes, devices, numa, self._choose_cores(request.cores, near)
        )

    def never(self, request: Request) -> Reason | None:
        """Why even the empty node could not hold this, or None if it could."""
        empty = self if self.is_empty else Ledger(self.name, self.capacity)
        answer = empty.fit(request)
        return answer if isinstance(answer, Reason) else None

    @property
    def is_empty(self) -> bool:
        return (
            self.cores_free == self.capacity.cores
            and self.memory_free == self.capacity.memory_bytes
            and len(self.devices_free) == len(self.devices)
        )

    def has_room(self, grant: Grant) -> bool:
        """True if exactly this grant could be taken now."""
        return (
            grant.cores <= self.cores_free
            and grant.memory_bytes <= self.memory_free
            and self.devices_free.issuperset(grant.devices)
            and all(cores <= self.numa_free.get(numa, -1) for numa, cores in grant.numa_cores)
        )

    def take(self, grant: Grant) -> None:
        """Hold a grant. Taking what is not free is a defect and stops everything."""
        if not self.has_room(grant):
            raise LedgerError(f"{self.name}: {grant} is not free")
        self.cores_free -= grant.cores
        self.memory_free -= grant.memory_bytes
        for numa, cores in grant.numa_cores:
            self.numa_free[numa] -= cores
        self.devices_free.difference_update(grant.devices)

    def give_back(self, grant: Grant) -> None:
        """End a grant."""
        if not self.devices_free.isdisjoint(grant.devices):
            raise LedgerError(f"{self.name}: {grant} was given back twice")
        self.cores_free += grant.cores
        self.memory_free += grant.memory_bytes
        for numa, cores in grant.numa_cores:
            self.numa_free[numa] += cores
        self.devices_free.update(grant.devices)

    def matching(self, request: Request) -> list[Device]:
        """The devices, free or not, that are of the type and size asked for."""
        kind, size = request.gpu_type, request.gpu_memory_bytes
        return [
            d for d in self.capacity.devices if (kind is None or d.kind == kind) and d.memory_bytes >= size
        ]

    def _choose_devices(self, request: Request, numa: int | None) -> tuple[int, ...] | Reason:
        if request.target and request.target.devices:
            return self._named_devices(request, request.target.devices)
        fitting = self.matching(request)
        free = [device for device in fitting if device.index in self.devices_free]
        if len(free) < request.gpus:
            kind = _describe_kind(request)
            return reason.not_enough_gpus(self.name, request.gpus, len(free), len(fitting), kind)
        return _close_together(free, request.gpus, numa)

    def _named_devices(self, request: Request, named: tuple[int, ...]) -> tuple[int, ...] | Reason:
        fitting = {device.index for device in self.matching(request)}
        if bad := [index for index in named if index not in fitting]:
            return reason.gpu_index_invalid(self.name, bad, sorted(fitting))
        if busy := [index for index in named if index not in self.devices_free]:
            return reason.gpus_busy(self.name, busy)
        return named

    def _lacks(self, request: Request, numa: int | None) -> Reason | None:
        if numa is not None and request.cores > self.numa_free[numa]:
            total = next(each.cores for each in self.capacity.numa if each.id == numa)
            where = f" NUMA {numa}"
            return reason.not_enough_cores(self.name, request.cores, self.numa_free[numa], total, where)
        if request.cores > self.cores_free:
            return reason.not_enough_cores(self.name, request.cores, self.cores_free, self.capacity.cores)
        if request.memory_bytes > self.memory_free:
            total = self.capacity.memory_bytes
            return reason.not_enough_memory(self.name, request.memory_bytes, self.memory_free, total)
        return None

    def _numa_of(self, devices: tuple[int, ...]) -> int | None:
        return self.devices[devices[0]].numa if devices else None

    def _choose_cores(self, cores: int, near: int | None) -> tuple[tuple[int, int], ...]:
        """Cores by NUMA node: the near one, else the fullest one that holds them all, else several."""
        if not cores or not self.numa_free:
            return ()
        if near is not None and self.numa_free.get(near, 0) >= cores:
            return ((near, cores),)
        whole = [(free, numa) for numa, free in self.numa_free.items() if free >= cores]
        if whole:
            return ((min(whole)[1], cores),)
        parts: list[tuple[int, int]] = []
        for numa, free in sorted(self.numa_free.items(), key=lambda item: -item[1]):
            part = min(free, cores)
            if part:
                parts.append((numa, part))
                cores -= part
        return tuple(parts)


def _close_together(free: list[Device], count: int, numa: int | None) -> tuple[int, ...]:
    """Devices of one NUMA node if one has enough (the asked one, else the tightest fit), else the lowest ones."""
    by_numa: dict[int | None, list[int]] = {}
    for device in free:
        by_numa.setdefault(device.numa, []).append(device.index)
    enough = [indexes for place, indexes in by_numa.items() if len(indexes) >= count and place is not None]
    if numa is not None and len(by_numa.get(numa, ())) >= count:
        return tuple(by_numa[numa][:count])
    if enough:
        return tuple(min(enough, key=lambda indexes: (len(indexes), indexes))[:count])
    return tuple(device.index for device in free[:count])


def _describe_kind(request: Request) -> str:
    kind = request.gpu_type or "GPUs"
    if request.gpu_memory_bytes:
        return f"{kind} with {describe_bytes(request.gpu_memory_bytes)}"
    return kind
