"""Who leaves together: a task that stands alone, a member that its gang can do without, a whole gang, promises.

A set of evictions is a list of these; what it costs is counted here as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column
from phalanx.core.placement.preempt.victims import Loss, Price, Victims


class EvictionUnit(Struct, frozen=True):
    """Tenants of one job that leave together. `spare` says how many members of each group its gang could do without."""

    loss: Loss
    job: JobId
    priority: int
    lost: float
    tenants: tuple[Tenant, ...]  # in the order of their keys
    spare: tuple[tuple[int, int], ...] = ()

    @property
    def value(self) -> tuple[float, float, float]:
        """The most valuable first."""
        return -self.loss, -self.priority, -self.lost


def bundled(
    victims: Victims, losses: Column, places: Column
) -> tuple[dict[int, EvictionUnit], list[EvictionUnit]]:
    """The victims at these places with all who have to leave with them: by place who leaves alone, and the others."""
    losses = losses[places]
    job = victims.job[places]
    whole = set(job[(losses == Loss.WORK) & victims.is_gang[job]].tolist())
    alone: dict[int, EvictionUnit] = {}
    others: dict[tuple[Loss, int], EvictionUnit] = {}
    columns = (places, job, losses, victims.lost[places], victims.priority[job])
    for at, number, loss, lost, priority in zip(*(column.tolist() for column in columns), strict=True):
        if number in whole or loss == Loss.PROMISE:
            kind = Loss.WORK if number in whole else Loss.PROMISE
            if (kind, number) not in others:
                others[kind, number] = _together(victims, kind, number)
        elif loss >= 0:
            tenant = victims.tenant(at)
            alone[at] = EvictionUnit(Loss(loss), tenant.job, priority, lost, (tenant,))
    return alone, list(others.values())


def total(bundles: Iterable[EvictionUnit]) -> Price:
    """What it costs that all these leave."""
    losses: dict[JobId, Loss] = {}
    displaced: set[JobId] = set()
    priorities: dict[JobId, int] = {}
    lost, tenants = 0.0, 0
    for bundle in bundles:
        lost += bundle.lost
        tenants += len(bundle.tenants)
        if len(bundle.tenants) > 1 and any(tenant.is_promise for tenant in bundle.tenants):
            displaced.add(bundle.job)
        if bundle.loss is Loss.PROMISE:
            displaced.add(bundle.job)
        else:
            losses[bundle.job] = bundle.loss
            priorities[bundle.job] = bundle.priority
    broken = sum(loss is Loss.WORK for loss in losses.values())
    ranks = tuple(sorted(priorities.values(), reverse=True))
    return Price(broken, len(losses) - broken, len(displaced), ranks, lost, tenants)


def _together(victims: Victims, kind: Loss, job: int) -> EvictionUnit:
    """The whole of a gang, or all promises of a job."""
    places = np.flatnonzero(victims.job == job)
    if kind is Loss.PROMISE:
        places = places[victims.promise[places]]
    mine = sorted(map(victims.tenant, places.tolist()), key=lambda tenant: tenant.key)
    lost, priority = float(victims.lost[places].sum()), int(victims.priority[job])
    spare = () if kind is Loss.PROMISE else victims.spare_of(job)
    return EvictionUnit(kind, mine[0].job, priority, lost, tuple(mine), spare)
