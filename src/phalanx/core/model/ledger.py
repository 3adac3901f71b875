"""One node's account: what is free, and the exact grant a request would get.

`fit` answers with a Grant or with the first Reason: the labels asked for, then in KohakuRiver's order NUMA, devices,
cores, memory, address. The same function places, validates at submit, and explains; `slots` says how often it would
say yes. What is taken is held until it is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Literal

from phalanx.core.model import amounts, reason
from phalanx.core.model.amounts import (
    ADDRESSES,
    CORES,
    MILLICORES,
    SLOTS_MAX,
    describe_bytes,
    fixed,
    written,
)
from phalanx.core.model.containers import CONTAINERS, MOUNTS, OF_RUNTIMES, ROOTFS
from phalanx.core.model.device_choice import close_together, size_of, smallest
from phalanx.core.model.device_types import is_pattern
from phalanx.core.model.overlay import AddressBlock
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import ISOLATED, Capacity, Cores, Device, Grant, Request

MIXED = -1  # instead of a size: the devices of a node have several
_NONE: frozenset[int] = frozenset()
AddressChange = Literal["reserve", "unreserve", "rest", "end_rest"]
_GrantChange = Literal["take", "undo_take", "give_back", "retake", "promise", "withdraw"]


class LedgerError(AssertionError):
    """Something was granted twice or given back twice: a defect of ours, never of a user."""


class Ledger:
    """What one node has and what of it is free."""

    __slots__ = (
        "_indexes", "addresses", "capacity", "device_size", "devices", "devices_free", "devices_held",
        "devices_promised", "free", "holders", "name", "numa_free", "promises",
    )  # fmt: skip

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.capacity = capacity
        self.free = list(fixed(capacity))  # cores in thousandths, bytes of memory, addresses
        self.addresses = AddressBlock(capacity.block) if capacity.block else None
        self.numa_free = {numa.id: MILLICORES[numa.cores] for numa in capacity.numa}
        self.devices = {device.index: device for device in capacity.devices}
        self._indexes = frozenset(self.devices)
        self.devices_free = set(self.devices)
        sizes = {size_of(device) for device in capacity.devices} or {0}
        self.device_size = sizes.pop() if len(sizes) == 1 else MIXED  # how much memory each device has
        self.devices_held: set[int] = set()
        self.devices_promised: set[int] = set()
        self.promises = 0  # while there are any, what is free may be less than nothing
        self.holders = 0  # grants that are held or promised, also those of nothing

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
        other.addresses = None if self.addresses is None else self.addresses.copied()
        return other

    def fit(self, request: Request) -> Grant | Reason:
        """The grant this request would get right now, or why it gets none."""
        if (request.labels or request.nodes or request.exclude) and (unlike := self._unlike(request)):
            return unlike
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
        address = ""
        if request.addresses or request.address:
            own = self._choose_address(request)
            if isinstance(own, Reason):
                return own
            address = own
        if self.capacity.slots or request.exclusive:
            return self._whole(request, devices, numa, address)
        near = self.devices[devices[0]].numa if devices and numa is None else numa
        cores = self._choose_cores(request.cores, near) if self.numa_free and request.cores else ()
        return Grant(request.cores, request.memory_bytes, devices, numa, cores, address)

    def _whole(
        self, request: Request, devices: tuple[int, ...], numa: int | None, address: str
    ) -> Grant | Reason:
        """All cores and memory of a node that runs one task at a time; exclusively, its devices too."""
        has = self.capacity
        if request.exclusive and self.holders:
            return reason.not_empty(self.name, self.holders, amounts.plural(self.holders, "other task"))
        if not self.is_empty:
            return reason.not_enough_cores(self.name, has.cores, self.cores_free, has.cores)
        cores = tuple((each.id, each.cores) for each in has.numa)
        if request.exclusive:
            return Grant(has.cores, has.memory_bytes + 1, tuple(self.devices), numa, cores, address, True)
        return Grant(has.cores, has.memory_bytes, devices, numa, cores, address)

    def _choose_address(self, request: Request) -> str | Reason:
        """The address reserved for this task, or the lowest that is free."""
        if self.addresses is None:
            return reason.no_addresses(self.name)
        if not request.address:
            return self.addresses.choose() or reason.not_enough_addresses(
                self.name, 0, self.capacity.addresses
            )
        if not self.addresses.owns(request.address):
            return reason.address_elsewhere(self.name, request.address, self.capacity.block)
        if not self.addresses.is_free_for_its_task(request.address):
            return reason.address_busy(self.name, request.address)
        return request.address

    def slots(self, request: Request) -> int:
        """How many tasks with this request would find room here, one after another."""
        if (request.labels or request.nodes or request.exclude) and self._unlike(request):
            return 0
        most, free = SLOTS_MAX, self.free
        if self.capacity.slots or request.address or request.exclusive:
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
        is_untouched = self.addresses is None or self.addresses.is_untouched
        return self if self.is_empty and is_untouched else Ledger(self.name, self.capacity)

    @property
    def is_empty(self) -> bool:
        """Whether nobody holds anything; addresses may rest or be reserved."""
        return (
            tuple(self.free[:ADDRESSES]) == fixed(self.capacity)[:ADDRESSES]
            and len(self.devices_free) == len(self.devices)
            and not self.promises
        )

    def has_room(self, grant: Grant) -> bool:
        """True if exactly this grant could be taken now."""
        has_devices = self.devices_free.issuperset(grant.devices)
        if grant.address and (self.addresses is None or not self.addresses.has_room(grant.address)):
            return False
        if grant.exclusive:
            return has_devices and not self.holders
        return has_devices and amounts.take_grant(list(self.free), dict(self.numa_free), grant)

    def take(self, grant: Grant) -> None:
        """Hold a grant. Taking what is not free is a defect and stops everything."""
        devices = set(grant.devices) if grant.devices else _NONE
        if grant.address:
            self._change_addresses("take", grant.address, must_be_free=True)
        if grant.exclusive and not self.holders:
            amounts.add_grant(self.free, self.numa_free, grant, -1)
        elif not (devices <= self.devices_free and amounts.take_grant(self.free, self.numa_free, grant)):
            raise LedgerError(f"{self.name}: {grant} is not free")
        self.holders += 1
        if devices:
            self.devices_free -= devices
            self.devices_held |= devices

    def undo_take(self, grant: Grant) -> None:
        """Undo a take that nobody has seen: unlike after a give_back, its address need not rest."""
        self.give_back(grant)
        if grant.address and self.addresses is not None:
            self.addresses.resting.discard(grant.address)
            self._change_addresses("undo_take", grant.address)

    def give_back(self, grant: Grant) -> None:
        """End a grant. Devices that are promised to somebody do not become free for all, and its address rests."""
        if grant.address:
            self._change_addresses("give_back", grant.address)
        if grant.devices:
            devices = set(grant.devices)
            if not devices <= self.devices_held:
                raise LedgerError(f"{self.name}: {grant} was given back twice")
            self.devices_held -= devices
            devices &= self._indexes  # a node may have come back with fewer of them
            self.devices_free |= devices - self.devices_promised if self.devices_promised else devices
        amounts.add_grant(self.free, self.numa_free, grant, 1)
        self.holders -= 1

    def retake(self, grant: Grant) -> None:
        """Undo a give_back, on a node that may be overdrawn: what had been held is held again, room or none."""
        amounts.add_grant(self.free, self.numa_free, grant, -1)
        self.holders += 1
        if grant.address:
            self._change_addresses("retake", grant.address)
        self.devices_held.update(grant.devices)
        self.devices_free.difference_update(grant.devices)

    def promise(self, grant: Grant) -> None:
        """Set a grant aside for somebody before its holders have left: nobody else will be given any of it."""
        if not self.devices_promised.isdisjoint(grant.devices):
            raise LedgerError(f"{self.name}: {grant} is promised twice")
        if grant.address:
            self._change_addresses("promise", grant.address)
        amounts.add_grant(self.free, self.numa_free, grant, -1)
        self.devices_free.difference_update(grant.devices)
        self.devices_promised.update(grant.devices)
        self.promises += 1
        self.holders += 1

    def withdraw(self, grant: Grant) -> None:
        """Take a promise back."""
        if grant.address:
            self._change_addresses("withdraw", grant.address)
        amounts.add_grant(self.free, self.numa_free, grant, 1)
        self.devices_promised.difference_update(grant.devices)
        free = (device for device in grant.devices if device not in self.devices_held)
        self.devices_free.update(device for device in free if device in self.devices)
        self.promises -= 1
        self.holders -= 1

    def change_address(self, change: AddressChange, address: str) -> None:
        """Reserve an address, let it rest, or end either. One of a former block is no longer known here."""
        self._change_addresses(change, address)

    def _change_addresses(
        self, change: AddressChange | _GrantChange, address: str, *, must_be_free: bool = False
    ) -> None:
        block = self.addresses
        if must_be_free and (block is None or not block.has_room(address)):
            raise LedgerError(f"{self.name}: address {address} is not free")
        if block is None:
            return
        change_of: Callable[[str], None] = getattr(block, change)
        change_of(address)
        self.free[ADDRESSES] = block.free

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
        return max(size_of(device) for device in smallest(free, request.gpus)[: request.gpus])

    def _unlike(self, request: Request) -> Reason | None:
        """Why it is not one of the nodes that are asked for, or not of their kind; None if it is."""
        if (request.nodes and self.name not in request.nodes) or self.name in request.exclude:
            return reason.not_chosen(self.name, [self.name])
        lacking = self._labels_lacking(request)
        return self._lacks_labels(lacking, request) if lacking else None

    def _lacks_labels(self, lacking: list[str], request: Request) -> Reason:
        ours = ["=".join(each) for each in (ISOLATED, *OF_RUNTIMES)]
        others = [each for each in lacking if each not in ours]
        if others:
            return reason.no_matching_labels(self.name, ", ".join(others), others)
        if because := self._cannot_contain(lacking, request):
            return reason.no_containers(self.name, because, lacking)
        isolation = self.capacity.isolation
        missing = ["limits"] if isolation is None else isolation.lacking
        return reason.not_isolated(self.name, ", ".join(missing) or "limits", missing)

    def _cannot_contain(self, lacking: list[str], request: Request) -> str:
        """What its runtime cannot do for a container of this request; empty if nothing of that is lacking."""
        containers, rootfs, mounts = ("=".join(each) in lacking for each in (CONTAINERS, ROOTFS, MOUNTS))
        has = self.capacity.containers
        if containers:
            return has.removeprefix("none: ") or "it has no runtime"
        if rootfs and request.wants_address:
            return f"only podman gives a container an address of its own, and it has {has}"
        if rootfs:
            return f"only podman takes a folder (rootfs:), and it has {has}"
        return f"only podman mounts files for users with accounts, and it has {has}" if mounts else ""

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
            free = smallest(free, request.gpus)
        return close_together(free, request.gpus, numa)

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
            if free[1] == -1 and self.holders == 1:
                return reason.held_whole(self.name)
            return reason.not_enough_memory(self.name, ask[1], free[1], self.capacity.memory_bytes)
        if ask[ADDRESSES] > free[ADDRESSES]:
            if self.addresses is None:
                return reason.no_addresses(self.name)
            return reason.not_enough_addresses(self.name, free[ADDRESSES], self.capacity.addresses)
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


def _describe_kind(request: Request) -> str:
    kind = request.gpu_type or "GPUs"
    if is_pattern(kind):
        kind = f"GPUs of type {kind}"
    if request.gpu_memory_bytes:
        return f"{kind} with {describe_bytes(request.gpu_memory_bytes)}"
    return kind
