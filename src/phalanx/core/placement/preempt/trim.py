"""Who comes back: of all who could leave, only those stay away without whom the members would not fit.

Bundles are put back one after another, the most valuable first: whole jobs, then single tasks, then members that a
gang can do without, then promises. A bundle that does not fit back now will not fit later either, for room only
shrinks, so one pass leaves a set from which nothing can be taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice, product

from phalanx.core.model.amounts import use
from phalanx.core.model.ids import JobId
from phalanx.core.model.queue import Asked, Queues
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.placement.preempt.node_fit import NodeFit
from phalanx.core.placement.preempt.units import EvictionUnit
from phalanx.core.placement.preempt.victims import Loss

CHOICES_MAX = 64  # how many ways to spare members of one gang are tried


class QuotaLeft:
    """What a queue may still hold beside the members, once those of it who were asked to leave have gone."""

    def __init__(self, queues: Queues, queue: str, asked: Iterable[Asked], leaving: Iterable[Tenant]) -> None:
        self._queue = queue
        self._left = queues.left(queue, asked)
        self._add(leaving, 1)

    def holds(self) -> bool:
        return self._left is None or min(self._left) >= 0

    def admits(self, tenants: Iterable[Tenant]) -> bool:
        """Whether the members would still be within the quota if these came back."""
        if self._left is None:
            return True
        before = self._left
        self._add(tenants, -1)
        after, self._left = self._left, before
        return min(after) >= 0

    def counts(self, tenant: Tenant) -> bool:
        """Whether it matters to the quota if this one leaves."""
        return self._left is not None and tenant.queue == self._queue

    def readmit(self, tenants: Iterable[Tenant]) -> None:
        if self._left is not None:
            self._add(tenants, -1)

    def _add(self, tenants: Iterable[Tenant], sign: int) -> None:
        for tenant in tenants:
            if self._left is not None and tenant.queue == self._queue:
                self._left = self._left.copy()
                use(self._left, tenant.grant, sign)


class Trim:
    """The chosen nodes with their members, and those who are away."""

    def __init__(self, stands: Mapping[int, NodeFit], quota: QuotaLeft) -> None:
        self._stands = stands
        self._quota = quota

    def holds(self) -> bool:
        """Whether the members fit when everybody is away."""
        return self._quota.holds() and all(stand.holds() for stand in self._stands.values())

    def keep_out(self, bundles: Iterable[EvictionUnit]) -> list[EvictionUnit]:
        """Put back whom one can; the bundles that have to stay away, the most valuable first."""
        out: list[EvictionUnit] = []
        for job in _by_job(bundles):
            if not self._put_back([tenant for bundle in job for tenant in bundle.tenants]):
                out += job
        kept: list[EvictionUnit] = []
        for bundle in sorted(out, key=lambda each: each.value):
            if not self._put_back(bundle.tenants):
                kept += self._spared(bundle) if bundle.spare else [bundle]
        return kept

    def _put_back(self, tenants: Sequence[Tenant]) -> bool:
        here: dict[int, Sequence[Tenant]] = {}
        if len(tenants) == 1:
            here[tenants[0].node_row] = tenants
        else:
            here = self._on_rows(tenants)
        if not self._quota.admits(tenants):
            return False
        stands = self._stands
        for row, mine in here.items():
            if row in stands and not stands[row].admits(mine):
                return False
        self._quota.readmit(tenants)
        for row, mine in here.items():
            if row in stands:
                stands[row].readmit(mine)
        return True

    def _on_rows(self, tenants: Iterable[Tenant]) -> dict[int, Sequence[Tenant]]:
        found: dict[int, list[Tenant]] = {}
        for tenant in tenants:
            if tenant.node_row in self._stands:
                found.setdefault(tenant.node_row, []).append(tenant)
        return {**found}

    def _spared(self, bundle: EvictionUnit) -> list[EvictionUnit]:
        """A whole gang that has to leave; or only members of it that it can do without, where these are enough."""
        for away in self._surplus(bundle) if self._may_spare(bundle) else ():
            if not self._put_back([tenant for tenant in bundle.tenants if tenant.key not in away]):
                continue
            share = bundle.lost / len(bundle.tenants)
            singles = [
                EvictionUnit(Loss.SURPLUS, bundle.job, bundle.priority, share, (tenant,))
                for tenant in bundle.tenants
                if tenant.key in away
            ]
            return [single for single in singles if not self._put_back(single.tenants)]
        return [bundle]

    def _may_spare(self, bundle: EvictionUnit) -> bool:
        """Whether it is worth trying: on no node do more members have to stay away than the gang can do without.

        Only asked where those on a node are alike, so that it does not matter which of them come back.
        """
        spare = sum(count for _, count in bundle.spare)
        for row, mine in self._on_rows(bundle.tenants).items():
            stand = self._stands[row]
            is_even = len({stand.weight(tenant) for tenant in mine}) == 1
            if is_even and not stand.admits(mine[spare:]):
                return False
        return True

    def _surplus(self, bundle: EvictionUnit) -> Iterable[set[TenantKey]]:
        """Choices of members that a gang could do without, as many of each group as it can; only useful ones."""
        by_group = []
        for group, spare in bundle.spare:
            mine = [
                tenant.key
                for tenant in bundle.tenants
                if tenant.group == group and not tenant.is_promise and self._is_of_use(tenant)
            ]
            by_group.append(combinations(sorted(mine), min(spare, len(mine))))
        for choice in islice(product(*by_group), CHOICES_MAX):
            yield {key for keys in choice for key in keys}

    def _is_of_use(self, tenant: Tenant) -> bool:
        return tenant.node_row in self._stands or self._quota.counts(tenant)


def _by_job(bundles: Iterable[EvictionUnit]) -> list[list[EvictionUnit]]:
    """Bundles of one job and loss together, the most valuable job first."""
    jobs: dict[tuple[Loss, JobId], list[EvictionUnit]] = {}
    for bundle in sorted(bundles, key=lambda each: each.tenants[0].key):
        jobs.setdefault((bundle.loss, bundle.job), []).append(bundle)
    return sorted(jobs.values(), key=lambda mine: (-mine[0].loss, -mine[0].priority, mine[0].job))
