"""One node that is to hold members, counted exactly: do they fit, and would they still if a victim came back?

Cores and memory are counted, devices are a set, since members of different groups may want different ones of them.
Nothing is changed in the node's ledger.

`Trim` puts units back one after another, the most valuable first. One that does not fit back now will not fit later
either, for room only shrinks, so one pass leaves a set from which nothing can be taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from msgspec import structs

from phalanx.core.model.amounts import MILLICORES, add, fixed, use
from phalanx.core.model.job import JobId, QueueUser
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.queues import Asked, Queues
from phalanx.core.model.resources import Request, Target
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.placement.preempt.victims import EvictionUnit, Loss

CHOICES_MAX = 64  # how many ways to spare members of one gang are tried
_Demand = tuple[frozenset[int], int]  # so many of these devices


class NodeFit:
    """What a node has left beside its members, once the victims have left."""

    __slots__ = ("_demands", "_free", "_is_shared", "_is_whole", "_left", "_numa", "_unused")

    def __init__(self, ledger: Ledger, asked: Sequence[Asked], leaving: Iterable[Tenant]) -> None:
        self._left = ledger.free.copy()
        # Thousandths of cores left on NUMA nodes that are asked for by number.
        self._numa: dict[int, int] = {}
        for request, count in asked:
            add(self._left, request, -count)
            if (numa := _numa(request)) is not None:
                left = self._numa.get(numa, ledger.numa_free.get(numa, -1))
                self._numa[numa] = left - MILLICORES[request.cores] * count
        leaving = list(leaving)
        self._is_whole = any(request.exclusive for request, _ in asked)
        members = sum(count for _, count in asked) if self._is_whole else 0
        self._is_shared = self._is_whole and (members > 1 or ledger.holders > len(leaving))
        for tenant in leaving:
            self._count(tenant, 1)
        self._demands = _demands(ledger, asked)
        self._free = _free(ledger, leaving) if self._demands else set()  # devices that members could be given
        self._unused = 0  # how many of them nobody needs, if all need the same
        if len(self._demands) == 1:
            suits, needed = self._demands[0]
            self._free &= suits
            self._unused = len(self._free) - needed

    def holds(self) -> bool:
        """Whether all members fit."""
        return self.admits(())

    def admits(self, tenants: Sequence[Tenant]) -> bool:
        """Whether all members would still fit if these came back."""
        if self._is_whole and (self._is_shared or tenants):
            return False
        left, free, devices = self._left.copy(), self._free, 0
        for tenant in tenants:
            add(left, tenant.grant, -1)
            for device in tenant.grant.devices:
                devices += device in free
        if min(left) < 0:
            return False
        if self._demands and not (
            devices <= self._unused if len(self._demands) == 1 else self._can_divide(tenants)
        ):
            return False
        return not self._numa or self._has_numa(tenants)

    def readmit(self, tenants: Sequence[Tenant]) -> None:
        """They came back."""
        for tenant in tenants:
            self._count(tenant, -1)
            for device in tenant.grant.devices:
                if device in self._free:
                    self._free.discard(device)
                    self._unused -= 1

    def weight(self, tenant: Tenant) -> tuple[object, ...]:
        """Tenants of equal weight can take each other's place: it does not matter which of them comes back."""
        grant = tenant.grant
        devices = frozenset(grant.devices) & self._free
        which = devices if len(self._demands) > 1 else len(devices)
        return *fixed(grant), which, grant.numa_cores if self._numa else ()

    def _can_divide(self, tenants: Sequence[Tenant]) -> bool:
        return divisible(self._free.difference(*(tenant.grant.devices for tenant in tenants)), self._demands)

    def _count(self, tenant: Tenant, sign: int) -> None:
        grant = tenant.grant
        add(self._left, grant, sign)
        if self._numa:
            for numa, cores in grant.numa_cores:
                if numa in self._numa:
                    self._numa[numa] += sign * MILLICORES[cores]

    def _has_numa(self, tenants: Sequence[Tenant]) -> bool:
        left = dict(self._numa)
        for tenant in tenants:
            for numa, cores in tenant.grant.numa_cores:
                if numa in left:
                    left[numa] -= MILLICORES[cores]
        return all(cores >= 0 for cores in left.values())


def _demands(ledger: Ledger, asked: Sequence[Asked]) -> list[_Demand]:
    total: dict[frozenset[int], int] = {}
    for request, count in asked:
        if request.gpus:
            devices = suitable(ledger, request)
            total[devices] = total.get(devices, 0) + request.gpus * count
    return list(total.items())


def _numa(request: Request) -> int | None:
    return request.target.numa if request.target else None


def suitable(ledger: Ledger, request: Request) -> frozenset[int]:
    """The devices of a node, free or not, that a member with this request could be given."""
    if request.gpu_type is None and not request.gpu_memory_bytes and not request.target:
        return frozenset(ledger.devices)
    fitting = frozenset(device.index for device in ledger.matching(request))
    named = request.target.devices if request.target else ()
    return fitting & frozenset(named) if named else fitting


def divisible(free: set[int], demands: Sequence[_Demand]) -> bool:
    """Whether all members can be given devices that suit. By Hall's theorem no set of demands may be too large."""
    if len(demands) == 1:
        devices, count = demands[0]
        return len(devices & free) >= count
    return all(
        sum(count for _, count in some)
        <= len(free & frozenset[int]().union(*(devices for devices, _ in some)))
        for size in range(1, len(demands) + 1)
        for some in combinations(demands, size)
    )


def in_turn(ledger: Ledger, asked: Sequence[Asked]) -> Iterator[tuple[int, Request]]:
    """(index in `asked`, request) of every member, such that the ledger can grant one after the other.

    Members that ask for a NUMA node by number go first, or others may have used up its cores. Where members want
    different devices, each request names those that leave enough for the others.
    """
    order = sorted(range(len(asked)), key=lambda at: _numa(asked[at][0]) is None)
    sets = [suitable(ledger, request) for request, _ in asked if request.gpus]
    if len(set(sets)) <= 1:
        for at in order:
            yield from [(at, asked[at][0])] * asked[at][1]
        return
    dealt = _deal(ledger, asked)
    for at in order:
        request, count = asked[at]
        for member in range(count):
            named = tuple(sorted(dealt[at][member * request.gpus : (member + 1) * request.gpus]))
            target = Target(ledger.name, _numa(request), named) if named else request.target
            yield at, structs.replace(request, target=target)


def _deal(ledger: Ledger, asked: Sequence[Asked]) -> list[list[int]]:
    """Devices for every request, found one by one; a member with another choice leaves a device to one without."""
    holder: dict[int, int] = {}
    choices = [sorted(suitable(ledger, request) & ledger.devices_free) for request, _ in asked]

    def give(at: int, seen: set[int]) -> bool:
        for device in choices[at]:
            if device not in seen:
                seen.add(device)
                if device not in holder or give(holder[device], seen):
                    holder[device] = at
                    return True
        return False

    for at in sorted(range(len(asked)), key=lambda at: len(choices[at])):
        for _ in range(asked[at][0].gpus * asked[at][1]):
            give(at, set())
    return [sorted(device for device, owner in holder.items() if owner == at) for at in range(len(asked))]


def _free(ledger: Ledger, leaving: Sequence[Tenant]) -> set[int]:
    """The devices that are free when neither a holder nor anybody they are promised to stays."""
    if not ledger.promises:
        return ledger.devices_free.union(*(tenant.grant.devices for tenant in leaving))
    held, promised = set(ledger.devices_held), set(ledger.devices_promised)
    for tenant in leaving:
        (promised if tenant.is_promise else held).difference_update(tenant.grant.devices)
    return set(ledger.devices).difference(held, promised)


class QuotaLeft:
    """What a queue and the user may still hold there beside the members, once their victims have left."""

    def __init__(
        self, queues: Queues, whose: QueueUser, asked: Iterable[Asked], leaving: Iterable[Tenant]
    ) -> None:
        self._whose = whose
        self._left = queues.left(whose, asked)
        self._add(leaving, 1)

    def holds(self) -> bool:
        return all(min(left) >= 0 for _, left in self._left)

    @property
    def is_users_alone(self) -> bool:
        """Whether the queue may hold the members and the user may not."""
        return not self.holds() and all(min(left) >= 0 for user, left in self._left if user is None)

    def admits(self, tenants: Iterable[Tenant]) -> bool:
        """Whether the members would still be within the limits if these came back."""
        if not self._left:
            return True
        before = self._left
        self._add(tenants, -1)
        holds, self._left = self.holds(), before
        return holds

    def counts(self, tenant: Tenant) -> bool:
        """Whether it matters to a limit if this one leaves."""
        return bool(self._left) and tenant.queue == self._whose[0]

    def readmit(self, tenants: Iterable[Tenant]) -> None:
        self._add(tenants, -1)

    def _add(self, tenants: Iterable[Tenant], sign: int) -> None:
        if not self._left:
            return
        self._left = [(user, left.copy()) for user, left in self._left]
        for tenant in tenants:
            if tenant.queue == self._whose[0]:
                for user, left in self._left:
                    if user is None or tenant.user == user:
                        use(left, tenant.grant, sign)


class Trim:
    """The chosen nodes with their members, and the victims that are away."""

    def __init__(self, fits: Mapping[int, NodeFit], quota: QuotaLeft) -> None:
        self._fits = fits
        self._quota = quota

    def holds(self) -> bool:
        """Whether the members fit when all victims are away."""
        return self._quota.holds() and all(fit.holds() for fit in self._fits.values())

    def keep_out(self, units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
        """Put back the units that fit; those that have to stay away are returned, the most valuable first."""
        out: list[EvictionUnit] = []
        for job in _by_job(units):
            if not self._put_back([tenant for unit in job for tenant in unit.tenants]):
                out += job
        kept: list[EvictionUnit] = []
        for unit in sorted(out, key=lambda each: each.value):
            if not self._put_back(unit.tenants):
                kept += self._spared(unit) if unit.spare else [unit]
        return kept

    def _put_back(self, tenants: Sequence[Tenant]) -> bool:
        here: dict[int, Sequence[Tenant]] = {}
        if len(tenants) == 1:
            here[tenants[0].node_row] = tenants
        else:
            here = self._on_rows(tenants)
        if not self._quota.admits(tenants):
            return False
        fits = self._fits
        for row, mine in here.items():
            if row in fits and not fits[row].admits(mine):
                return False
        self._quota.readmit(tenants)
        for row, mine in here.items():
            if row in fits:
                fits[row].readmit(mine)
        return True

    def _on_rows(self, tenants: Iterable[Tenant]) -> dict[int, Sequence[Tenant]]:
        found: dict[int, list[Tenant]] = {}
        for tenant in tenants:
            if tenant.node_row in self._fits:
                found.setdefault(tenant.node_row, []).append(tenant)
        return {**found}

    def _spared(self, unit: EvictionUnit) -> list[EvictionUnit]:
        """A whole gang that has to leave; or only members of it that it can do without, where these are enough."""
        for away in self._surplus(unit) if self._may_spare(unit) else ():
            if not self._put_back([tenant for tenant in unit.tenants if tenant.key not in away]):
                continue
            share = unit.lost / len(unit.tenants)
            singles = [
                EvictionUnit(Loss.SURPLUS, unit.job, unit.priority, share, (tenant,))
                for tenant in unit.tenants
                if tenant.key in away
            ]
            return [single for single in singles if not self._put_back(single.tenants)]
        return [unit]

    def _may_spare(self, unit: EvictionUnit) -> bool:
        """Whether it is worth trying: on no node do more members have to stay away than the gang can do without.

        Only asked where those on a node are alike, so that it does not matter which of them come back.
        """
        spare = sum(count for _, count in unit.spare)
        for row, mine in self._on_rows(unit.tenants).items():
            fit = self._fits[row]
            is_even = len({fit.weight(tenant) for tenant in mine}) == 1
            if is_even and not fit.admits(mine[spare:]):
                return False
        return True

    def _surplus(self, unit: EvictionUnit) -> Iterable[set[TenantKey]]:
        """Choices of members that a gang could do without, as many of each group as it can; only useful ones."""
        by_group = []
        for group, spare in unit.spare:
            mine = [
                tenant.key
                for tenant in unit.tenants
                if tenant.group == group and not tenant.is_promise and self._is_of_use(tenant)
            ]
            by_group.append(combinations(sorted(mine), min(spare, len(mine))))
        for choice in islice(product(*by_group), CHOICES_MAX):
            yield {key for keys in choice for key in keys}

    def _is_of_use(self, tenant: Tenant) -> bool:
        return tenant.node_row in self._fits or self._quota.counts(tenant)


def _by_job(units: Iterable[EvictionUnit]) -> list[list[EvictionUnit]]:
    """Units of one job and loss together, the most valuable job first."""
    jobs: dict[tuple[Loss, JobId], list[EvictionUnit]] = {}
    for unit in sorted(units, key=lambda each: each.tenants[0].key):
        jobs.setdefault((unit.loss, unit.job), []).append(unit)
    return sorted(jobs.values(), key=lambda mine: (-mine[0].loss, -mine[0].priority, mine[0].job))
