"""The victims: every tenant that is less urgent and not protected, as columns, and what their leaving costs.

A task that stands alone leaves alone. A gang gives up members that it can do without, or leaves whole; the promises
of a job go together: tenants that leave together are one `EvictionUnit`. Which of them leave in the end is chosen by
`make_room.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.amounts import CORES, MILLI
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.tenants import Tenant, TenantKey, Tenants
from phalanx.core.model.tree import Column, Mask, before
from phalanx.core.placement.draft import Draft

SORTED_MAX = 2048  # jobs; equal ones of more than these are told apart by who came first, not by name


class Loss(IntEnum):
    """What a job loses when a tenant of it leaves, the least first."""

    NOTHING = -1  # this tenant stays
    PROMISE = 0  # places it was to have, where nothing runs yet
    SURPLUS = 1  # members that a gang can do without
    WORK = 2  # tasks that stand alone, or a whole gang


class Price(Struct, frozen=True, order=True):
    """What a set of evictions costs; the smaller one is chosen.

    Fewest jobs broken first, then fewest gangs made smaller, fewest promises taken back, lowest priorities, least
    lost work, fewest tenants.
    """

    broken: int = 0
    shrunk: int = 0
    displaced: int = 0
    priorities: tuple[int, ...] = ()  # of the jobs broken or made smaller, the highest first
    lost: float = 0.0  # seconds of running, times the devices held, or the cores where there are none
    tenants: int = 0


class Victims:
    """Columns over all tenants that could be asked to leave for one job, and what ties them together.

    `job` has the number of each one's job here, from 0.
    """

    def __init__(self, draft: Draft, job: Job) -> None:
        tenants = draft.tenants
        here = draft.here
        lower = here & (tenants.priority < job.priority)
        lower[[tenants.slots[key] for key in tenants.of_job.get(job.id, {})]] = False
        may_go = lower & (tenants.evictable_at <= draft.now)
        self.protected = int(lower.sum() - may_go.sum())  # lower in priority, but not to be evicted now
        ties = _Ties(draft, here & ~tenants.leaving, may_go)
        may_go &= _on_open_nodes(draft) | ties.is_bound | _frees_quota(draft, job, may_go)
        may_go &= (
            np.where(tenants.promise, ties.whole_promise[tenants.job], ties.whole[tenants.job])
            | ties.is_spare
        )
        self.tenants = tenants
        self.slot = np.flatnonzero(may_go)
        self.node = tenants.node[self.slot]
        self.gpus = tenants.gpus[self.slot]
        self.promise = tenants.promise[self.slot]
        self.lost = self._lost_work(draft.now) * ~self.promise
        self._ties = ties
        self._number_jobs()
        self.is_spare: Mask = ties.is_spare[self.slot]  # members of groups that have more than they need
        self.spare: Column = np.flatnonzero(self.is_spare)
        numbers = tenants.job[self.slot]
        self._loss = np.where(
            self.promise,
            int(Loss.PROMISE),
            np.where(ties.whole[numbers], int(Loss.WORK), int(Loss.NOTHING)),
        )

    def __len__(self) -> int:
        return len(self.slot)

    def _lost_work(self, now: float) -> NDArray[np.float64]:
        """The seconds that each has run, times the devices it holds, or the cores where there are none."""
        cores = self.tenants.held[CORES, self.slot] / MILLI
        work = np.where(self.gpus > 0, self.gpus, np.where(cores > 0, cores, 1))
        lost: NDArray[np.float64] = np.maximum(now - self.tenants.since[self.slot], 0.0) * work
        return lost

    def losses(self, use: Column) -> Column:
        """What each leaving would mean (`Loss`), if gangs give up members that are of use, the most useful first.

        `use` has a number for each victim, 0 for none. A gang that cannot leave whole loses no more than its surplus:
        its other members stay.
        """
        found = self._loss.copy()
        useful = self.spare[use[self.spare] > 0]
        if len(useful):
            group, spare = self._ties.groups(self.slot[useful])
            order = np.lexsort((self.lost[useful], -use[useful], group))
            ordered = group[order]
            rank = before(ordered, np.ones(len(order), dtype=np.int64))
            found[useful[order[rank < spare[order]]]] = int(Loss.SURPLUS)
        return found

    @property
    def locked(self) -> Column:
        """Members of gangs that cannot leave whole: which of them leave is a choice that rules out others."""
        found: Column = self.spare[self._loss[self.spare] == Loss.NOTHING]
        return found

    def spare_of(self, job: int) -> tuple[tuple[int, int], ...]:
        """(group, members) that a gang can do without."""
        return self._ties.spare_of(self.id(job))

    def tenant(self, at: int) -> Tenant:
        found: Tenant | None = self.tenants.tenants[int(self.slot[at])]
        assert found is not None
        return found

    def of_queue(self, queue: str, user: str | None = None) -> Iterator[int]:
        """The numbers of the victims whose leaving frees quota of a queue, or what one user may hold there."""
        tenants = ((at, self.tenant(at)) for at in range(len(self)))
        return (at for at, each in tenants if each.queue == queue and user in (None, each.user))

    def key(self, at: int) -> TenantKey:
        return self.tenant(at).key

    def _number_jobs(self) -> None:
        """Numbers from 0 for the jobs that have victims, in the order of their ids unless there are too many."""
        numbers = self.tenants.job[self.slot]
        first = np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1]
        known = np.flatnonzero(first >= 0)
        if len(known) <= SORTED_MAX:
            ids = [self.tenant(at).job for at in first[known].tolist()]
            known = known[sorted(range(len(ids)), key=ids.__getitem__)]
        self._first = first[known]
        number_here = np.zeros(len(first), dtype=np.int64)
        number_here[known] = np.arange(len(known))
        self.job: Column = number_here[numbers]
        self.jobs = len(known)
        self.priority: Column = self.tenants.priority[self.slot[self._first]]
        self.is_gang: Mask = self._ties.is_gang[known]

    def id(self, job: int) -> JobId:
        """The id of the job that has this number here."""
        return self.tenant(int(self._first[job])).job


class _Ties:
    """What holds tenants together: some leave only with all others of their job, some can be spared.

    Groups of gangs are counted one after another: those of a job begin at `first`, which is −1 for other jobs.
    """

    def __init__(self, draft: Draft, here: Mask, may_go: Mask) -> None:
        tenants = self._tenants = draft.tenants
        job, lane = tenants.job, ~tenants.promise
        size = int(job.max(initial=-1)) + 1
        gangs = [(id, needed) for id, needed in tenants.needed.items() if id in tenants.numbers]
        self._first: Column = np.full(size, -1, dtype=np.int64)
        widths = np.array([len(needed) for _, needed in gangs], dtype=np.int64)
        self._first[[tenants.numbers[id] for id, _ in gangs]] = widths.cumsum() - widths
        self.is_gang: Mask = self._first >= 0  # by number of the job, as all that follows
        of_gang = self.is_gang[job]
        self.whole: Mask = _equal(job, here & lane, may_go & lane) | ~self.is_gang  # all its lanes may leave
        self.whole_promise: Mask = _equal(job, here & tenants.promise, may_go & tenants.promise)
        self.is_bound: Mask = tenants.promise | of_gang  # leaves with its job, wherever it is
        members = np.flatnonzero(here & lane & of_gang)
        least = np.array([count for _, needed in gangs for count in needed], dtype=np.int64)
        held = np.bincount(self._first[job[members]] + tenants.group[members], minlength=len(least))
        self._spare: Column = held - least
        self._count_draft(draft)
        self.is_spare: Mask = np.zeros(len(tenants.used), dtype=np.bool_)
        leaving = np.flatnonzero(may_go & lane & of_gang)
        self.is_spare[leaving] = self._spare[self._first[job[leaving]] + tenants.group[leaving]] > 0

    def _count_draft(self, draft: Draft) -> None:
        """A gang that was given places in this draft keeps them: it cannot leave whole, but has so many more members.

        A placement does not say of which group it is, so only gangs of one group are known to have more to spare.
        """
        for gang_placement in draft.gang_placements:
            number = self._tenants.numbers.get(gang_placement.job)
            if number is not None and self.is_gang[number]:
                self.whole[number] = False
                if len(self._tenants.needed[gang_placement.job]) == 1:
                    self._spare[self._first[number]] += len(gang_placement.members)

    def groups(self, slot: Column) -> tuple[Column, Column]:
        """The group of each of these tenants, numbered over all gangs, and how many members it can do without."""
        group: Column = self._first[self._tenants.job[slot]] + self._tenants.group[slot]
        return group, self._spare[group]

    def spare_of(self, job: JobId) -> tuple[tuple[int, int], ...]:
        first = int(self._first[self._tenants.numbers[job]])
        counts = self._spare[first : first + len(self._tenants.needed[job])].tolist()
        return tuple((group, count) for group, count in enumerate(counts) if count > 0)


def _equal(job: Column, some: Mask, others: Mask) -> Mask:
    """For each number of a job: whether as many of it are among the ones as among the others."""
    size = int(job.max(initial=-1)) + 1
    found: Mask = np.bincount(job[some], minlength=size) == np.bincount(job[others], minlength=size)
    return found


def _frees_quota(draft: Draft, job: Job, may_go: Mask) -> Mask:
    """Tenants that are of use even on a closed node: they hold quota of the queue, if it has a limit."""
    mask: Mask = np.zeros(len(may_go), dtype=np.bool_)
    if job.queue in draft.queues.quotas:
        tenants = draft.tenants
        closed = np.flatnonzero(may_go & ~_on_open_nodes(draft)).tolist()
        mask[[slot for slot in closed if _queue(tenants, slot) == job.queue]] = True
    return mask


def _on_open_nodes(draft: Draft) -> Mask:
    """Which tenants stand on nodes that take work. A slot without a tenant may name a row that is gone."""
    tenants = draft.tenants
    mask: Mask = np.zeros(len(tenants.used), dtype=np.bool_)
    mask[tenants.used] = draft.nodes.open[tenants.node[tenants.used]]
    return mask


def _queue(tenants: Tenants, slot: int) -> str:
    tenant = tenants.tenants[slot]
    return "" if tenant is None else tenant.queue


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
    victims: Victims, losses: Column, chosen: Column
) -> tuple[dict[int, EvictionUnit], list[EvictionUnit]]:
    """These victims with all that have to leave with them: by number those that leave alone, and the others."""
    losses = losses[chosen]
    job = victims.job[chosen]
    whole = set(job[(losses == Loss.WORK) & victims.is_gang[job]].tolist())
    alone: dict[int, EvictionUnit] = {}
    others: dict[tuple[Loss, int], EvictionUnit] = {}
    columns = (chosen, job, losses, victims.lost[chosen], victims.priority[job])
    for at, number, loss, lost, priority in zip(*(column.tolist() for column in columns), strict=True):
        if number in whole or loss == Loss.PROMISE:
            shared = Loss.WORK if number in whole else Loss.PROMISE
            if (shared, number) not in others:
                others[shared, number] = _together(victims, shared, number)
        elif loss >= 0:
            tenant = victims.tenant(at)
            alone[at] = EvictionUnit(Loss(loss), tenant.job, priority, lost, (tenant,))
    return alone, list(others.values())


def total(units: Iterable[EvictionUnit]) -> Price:
    """What it costs that all these leave."""
    losses: dict[JobId, Loss] = {}
    displaced: set[JobId] = set()
    priorities: dict[JobId, int] = {}
    lost, tenants = 0.0, 0
    for unit in units:
        lost += unit.lost
        tenants += len(unit.tenants)
        if len(unit.tenants) > 1 and any(tenant.is_promise for tenant in unit.tenants):
            displaced.add(unit.job)
        if unit.loss is Loss.PROMISE:
            displaced.add(unit.job)
        else:
            losses[unit.job] = unit.loss
            priorities[unit.job] = unit.priority
    broken = sum(loss is Loss.WORK for loss in losses.values())
    ranks = tuple(sorted(priorities.values(), reverse=True))
    return Price(broken, len(losses) - broken, len(displaced), ranks, lost, tenants)


def _together(victims: Victims, loss: Loss, job: int) -> EvictionUnit:
    """The whole of a gang, or all promises of a job."""
    chosen = np.flatnonzero(victims.job == job)
    if loss is Loss.PROMISE:
        chosen = chosen[victims.promise[chosen]]
    mine = sorted(map(victims.tenant, chosen.tolist()), key=lambda tenant: tenant.key)
    lost, priority = float(victims.lost[chosen].sum()), int(victims.priority[job])
    spare = () if loss is Loss.PROMISE else victims.spare_of(job)
    return EvictionUnit(loss, mine[0].job, priority, lost, tuple(mine), spare)
