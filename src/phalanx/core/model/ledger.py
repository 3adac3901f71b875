"""One node's account: what is free, and the exact grant a request would get.

`fit` answers with a Grant or with the first Reason: the labels asked for, then in KohakuRiver's order NUMA, devices,
cores, memory. The same function places, validates at submit, and explains; `slots` says how often it would say yes.
What is taken is held until it is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from phalanx.core.model import amounts, reason
from phalanx.core.model.amounts import CORES, MILLICORES, SLOTS_MAX, describe_bytes, fixed, magnitude, written
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import ISOLATED, Capacity, Cores, Device, Grant, Request

MIXED = -1  # instead of a size: the devices of a node have several
SIZE_BITS = 11  # how exactly sizes of devices are compared: no two of one type report quite the same
_NONE: frozenset[int] = frozenset()


class LedgerError(AssertionError):
    """Something was granted twice or given back twice: a defect of ours, never of a user."""


class Ledger:
    """What one node has and what of it is free."""

    __slots__ = (
        "_indexes", "capacity", "device_size", "devices", "devices_free", "devices_held", "devices_promised", "free",
        "name", "numa_free", "promises",
    )  # fmt: skip

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.capacity = capacity
        self.free = list(fixed(capacity))  # cores in thousandths, bytes of memory
        self.numa_free = {numa.id: MILLICORES[numa.cores] for numa in capacity.numa}
        self.devices = {device.index: device for device in capacity.devices}
        self._indexes = frozenset(self.devices)
        self.devices_free = set(self.devices)
        sizes = {_size(device) for device in capacity.devices} or {0}
        self.device_size = sizes.pop() if len(sizes) == 1 else MIXED  # how much memory each device has
        self.devices_held: set[int] = set()
        self.devices_promised: set[int] = set()
        self.promises = 0  # while there are any, what is free may be less than nothing

    @property
    def cores_free(self) -> Cores:
        """For people; what is free is counted in `free`."""
        return written(self.free[CORES])

    @property
    def memory_free(self) -> int:
        return self.free[1]

    def copied(self) -> Ledger:
        """The same account, to try something in."""
        other = Ledger.__new__(Ledger)
        for name in Ledger.__slots__:
            setattr(other, name, getattr(self, name))
        other.free, other.numa_free = list(self.free), dict(self.numa_free)
        other.devices_free = set(self.devices_free)
        other.devices_held, other.devices_promised = set(self.devices_held), set(self.devices_promised)
        return other

    def fit(self, request: Request) -> Grant | Reason:
        """The grant this request would get right now, or why it gets none."""
        if request.labels and (lacking := self._labels_lacking(request)):
            return self._unlike(lacking)
        numa = request.target.numa if request.target else None
        if numa is not None and numa not in self.numa_free:
            return reason.numa_not_found(self.name, numa, sorted(self.numa_free))
        devices: tuple[int, ...] = ()
        if request.gpus:
            chosen = self._choose_devices(request, numa)
            if isinstance(chosen, Reason):
                return chosen
            devices = chosen
        if (numa is not None or not amounts.holds(self.free, request)) and (no := self._lacks(request, numa)):
            return no
        if self.capacity.slots:
            return self._whole(request, devices, numa)
        near = self.devices[devices[0]].numa if devices and numa is None else numa
        cores = self._choose_cores(request.cores, near) if self.numa_free and request.cores else ()
        return Grant(request.cores, request.memory_bytes, devices, numa, cores)

    def _whole(self, request: Request, devices: tuple[int, ...], numa: int | None) -> Grant | Reason:
        """All cores and memory of a node that runs one task at a time."""
        has = self.capacity
        if not self.is_empty:
            return reason.not_enough_cores(self.name, has.cores, self.cores_free, has.cores)
        cores = tuple((each.id, each.cores) for each in has.numa)
        return Grant(has.cores, has.memory_bytes, devices, numa, cores)

    def slots(self, request: Request) -> int:
        """How many tasks with this request would find room here, one after another."""
        if request.labels and self._labels_lacking(request):
            return 0
        most, free = SLOTS_MAX, self.free
        if self.capacity.slots:
            return int(isinstance(self.fit(request), Grant))
        if request.gpus:
            target = request.target
            if target is not None and target.devices:
                return int(isinstance(self.fit(request), Grant))
            most = self.free_of(request) // request.gpus
        if request.target is not None and request.target.numa is not None:
            free = [min(free[CORES], self.numa_free.get(request.target.numa, -1)), *free[1:]]
        return amounts.slots(free, request, most)

    def never(self, request: Request) -> Reason | None:
        """Why even the empty node could not hold this, or None if it could."""
        answer = self.emptied().fit(request)
        return answer if isinstance(answer, Reason) else None

    def emptied(self) -> Ledger:
        """The account of the same node if nobody held anything."""
        return self if self.is_empty else Ledger(self.name, self.capacity)

    @property
    def is_empty(self) -> bool:
        return (
            tuple(self.free) == fixed(self.capacity)
            and len(self.devices_free) == len(self.devices)
            and not self.promises
        )

    def has_room(self, grant: Grant) -> bool:
        """True if exactly this grant could be taken now."""
        has_devices = self.devices_free.issuperset(grant.devices)
        return has_devices and amounts.take_grant(list(self.free), dict(self.numa_free), grant)

    def take(self, grant: Grant) -> None:
        """Hold a grant. Taking what is not free is a defect and stops everything."""
        devices = set(grant.devices) if grant.devices else _NONE
        if not (devices <= self.devices_free and amounts.take_grant(self.free, self.numa_free, grant)):
            raise LedgerError(f"{self.name}: {grant} is not free")
        if devices:
            self.devices_free -= devices
            self.devices_held |= devices

    def give_back(self, grant: Grant) -> None:
        """End a grant. Devices that are promised to somebody do not become free for all."""
        if grant.devices:
            devices = set(grant.devices)
            if not devices <= self.devices_held:
                raise LedgerError(f"{self.name}: {grant} was given back twice")
            self.devices_held -= devices
            devices &= self._indexes  # a node may have come back with fewer of them
            self.devices_free |= devices - self.devices_promised if self.devices_promised else devices
        amounts.add_grant(self.free, self.numa_free, grant, 1)

    def retake(self, grant: Grant) -> None:
        """Undo a give_back, on a node that may be overdrawn: what had been held is held again, room or none."""
        amounts.add_grant(self.free, self.numa_free, grant, -1)
        self.devices_held.update(grant.devices)
        self.devices_free.difference_update(grant.devices)

    def promise(self, grant: Grant) -> None:
        """Set a grant aside for somebody before its holders have left: nobody else will be given any of it."""
        if not self.devices_promised.isdisjoint(grant.devices):
            raise LedgerError(f"{self.name}: {grant} is promised twice")
        amounts.add_grant(self.free, self.numa_free, grant, -1)
        self.devices_free.difference_update(grant.devices)
        self.devices_promised.update(grant.devices)
        self.promises += 1

    def withdraw(self, grant: Grant) -> None:
        """Take a promise back."""
        amounts.add_grant(self.free, self.numa_free, grant, 1)
        self.devices_promised.difference_update(grant.devices)
        free = (device for device in grant.devices if device not in self.devices_held)
        self.devices_free.update(device for device in free if device in self.devices)
        self.promises -= 1

    def matching(self, request: Request) -> Sequence[Device]:
        """The devices, free or not, that are of the type and size asked for."""
        if request.gpu_type is None and not request.gpu_memory_bytes:
            return self.capacity.devices
        return amounts.matching(self.capacity.devices, amounts.device_kind(request))

    def free_of(self, request: Request) -> int:
        """How many free devices are of the type and size asked for."""
        if request.gpu_type is None and not request.gpu_memory_bytes:
            return len(self.devices_free)
        return sum(device.index in self.devices_free for device in self.matching(request))

    def size_for(self, request: Request) -> int:
        """The size of the largest device that a task would be given now, as `fit` chooses them."""
        if self.device_size != MIXED:
            return self.device_size
        free = [device for device in self.matching(request) if device.index in self.devices_free]
        if len(free) < request.gpus:
            return 0
        return max(_size(device) for device in _smallest(free, request.gpus)[: request.gpus])

    def _unlike(self, lacking: list[str]) -> Reason:
        """Why it is not the kind of node that is asked for."""
        others = [each for each in lacking if each != "=".join(ISOLATED)]
        if others:
            return reason.no_matching_labels(self.name, ", ".join(others), others)
        isolation = self.capacity.isolation
        missing = ["limits"] if isolation is None else isolation.lacking
        return reason.not_isolated(self.name, ", ".join(missing) or "limits", missing)

    def _labels_lacking(self, request: Request) -> list[str]:
        mine = self.capacity.labels
        return [f"{name}={value}" for name, value in request.labels if mine.get(name) != value]

    def _choose_devices(self, request: Request, numa: int | None) -> tuple[int, ...] | Reason:
        if request.target and request.target.devices:
            return self._named_devices(request, request.target.devices)
        fitting, mine = self.matching(request), self.devices_free
        free = [device for device in fitting if device.index in mine]
        if len(free) < request.gpus:
            kind = _describe_kind(request)
            return reason.not_enough_gpus(self.name, request.gpus, len(free), len(fitting), kind)
        if self.device_size == MIXED:
            free = _smallest(free, request.gpus)
        return _close_together(free, request.gpus, numa)

    def _named_devices(self, request: Request, named: tuple[int, ...]) -> tuple[int, ...] | Reason:
        fitting = {device.index for device in self.matching(request)}
        if bad := [index for index in named if index not in fitting]:
            return reason.gpu_index_invalid(self.name, bad, sorted(fitting))
        if busy := [index for index in named if index not in self.devices_free]:
            return reason.gpus_busy(self.name, busy)
        return named

    def _lacks(self, request: Request, numa: int | None) -> Reason | None:
        ask, free = fixed(request), self.free
        if numa is not None and ask[CORES] > self.numa_free[numa]:
            total = next(each.cores for each in self.capacity.numa if each.id == numa)
            left = written(self.numa_free[numa])
            return reason.not_enough_cores(self.name, request.cores, left, total, f" NUMA {numa}")
        if ask[CORES] > free[CORES]:
            return reason.not_enough_cores(self.name, request.cores, self.cores_free, self.capacity.cores)
        if ask[1] > free[1]:
            return reason.not_enough_memory(self.name, ask[1], free[1], self.capacity.memory_bytes)
        return None

    def _choose_cores(self, cores: Cores, near: int | None) -> tuple[tuple[int, Cores], ...]:
        """Cores by NUMA node: the near one, else the fullest one that holds them all, else several."""
        left = MILLICORES[cores]
        if near is not None and self.numa_free.get(near, 0) >= left:
            return ((near, cores),)
        whole = [(free, numa) for numa, free in self.numa_free.items() if free >= left]
        if whole:
            return ((min(whole)[1], cores),)
        parts: list[tuple[int, Cores]] = []
        for numa, free in sorted(self.numa_free.items(), key=itemgetter(1), reverse=True):
            part = min(free, left)
            if part > 0:  # where more is promised than there is, less than nothing is free
                parts.append((numa, written(part)))
                left -= part
        return tuple(parts)


def _size(device: Device) -> int:
    return magnitude(device.memory_bytes, SIZE_BITS)


def _smallest(free: list[Device], count: int) -> list[Device]:
    """Those of the smallest size of which there are enough; else the smallest ones, in the order of their size."""
    sizes: dict[int, list[Device]] = {}
    for device in free:
        sizes.setdefault(_size(device), []).append(device)
    for size in sorted(sizes):
        if len(sizes[size]) >= count:
            return sizes[size]
    return [device for size in sorted(sizes) for device in sizes[size]][:count]


def _close_together(free: list[Device], count: int, numa: int | None) -> tuple[int, ...]:
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


def _describe_kind(request: Request) -> str:
    kind = request.gpu_type or "GPUs"
    if request.gpu_memory_bytes:
        return f"{kind} with {describe_bytes(request.gpu_memory_bytes)}"
    return kind
