"""Which domains could be cleared for a unit, the most promising first, and what clearing them would cost.

A must rule makes every domain of its layer a site; without one the whole cluster is the only site, and for a single
task every node is one. For all sites at once the least number of jobs is worked out that would have to give way if
members could be cut into pieces: no site can do with fewer, so one that needs more than the best found is not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.tree import Column
from phalanx.core.placement.preempt.eviction_plan import EvictionDomain, EvictionPlan
from phalanx.core.placement.preempt.free import FreeAfter, Measure, shortened
from phalanx.core.placement.preempt.goal import Goal
from phalanx.core.placement.preempt.victims import Loss, Victims

SITES_MAX = 8  # how many sites are worked out in full,
EFFORT_MAX = 10.0  # as long as that is quick (in about as many milliseconds),
MISSES_MAX = 60.0  # and how long to go on if none of them holds the unit after all
LOCKED_MAX = 8  # nodes that are tried first for members of gangs that cannot leave whole


class EvictionDomains:
    """The domains of the layer that has to hold all of the unit."""

    def __init__(self, aim: Goal, victims: Victims) -> None:
        self._aim = aim
        self._victims = victims
        self._tree = aim.draft.nodes.tree
        self._level = aim.top
        self._measure = Measure(aim.draft.nodes, aim.wanted, victims)
        self._room = FreeAfter.over(
            self._measure, np.flatnonzero(aim.draft.nodes.open), np.arange(len(victims))
        )
        self._domain = self._tree.up(self._tree.node_level, self._room.rows, self._level)
        self._losses = self._losses_on(self._room, is_everywhere=False)
        self._loss = self._losses[self._room.at]
        self._most = self._room.slots(np.ones(len(self._room.at), dtype=np.bool_))

    def clearings(self) -> Iterator[EvictionPlan]:
        """Ways to make room on the sites that promise the most."""
        if self._aim.is_within_quota:
            yield from self._worked_out(None)
            return
        # The queue holds too much already: who leaves for the room should free quota as well, if that is enough.
        mine = np.fromiter(self._victims.of_queue(self._aim.gang.job.queue), dtype=np.int64)
        found = list(self._worked_out(mine, is_own_only=True))
        yield from found or self._worked_out(mine)

    def best(self) -> tuple[int, tuple[str, ...]]:
        """How many members find room in the best domain when everybody has left, and its path."""
        total = np.zeros(self._tree.size(self._aim.rules.top or 0), dtype=np.int64)
        domain = self._tree.up(self._tree.node_level, self._room.rows, self._aim.rules.top or 0)
        for slots, shape in zip(self._most, self._aim.needed, strict=True):
            total += np.minimum(self._summed(slots, domain, len(total)), shape.need)
        if (pinned := self._aim.pinned) is not None:
            total[np.isin(np.arange(len(total)), list(pinned), invert=True)] = 0
        if not len(total):
            return 0, ()
        at = int(total.argmax())
        return int(total[at]), self._tree.path(self._aim.rules.top or 0, at)

    def trigger(self, clearing: EvictionPlan) -> int:
        """The position of the first member that finds no room on the same site as long as nobody leaves."""
        row = next(row for counts in clearing.seats for row, _ in counts)
        home = self._tree.up(self._tree.node_level, np.array([row]), self._level)[0]
        now = self._room.slots()
        for slots, shape in zip(now, self._aim.needed, strict=True):
            free = int(slots[self._domain == home].sum())
            if free < shape.need:
                return self._aim.positions(shape)[free]
        return self._aim.positions(self._aim.needed[-1])[0]

    def _sites(self, domain: int, among: Column | None, elsewhere: Column | None) -> Iterator[EvictionDomain]:
        """One site, and the same with other members of gangs that cannot leave whole."""
        if self._level == 0 and elsewhere is None:
            room, losses = self._room, self._losses
        else:
            begins, by_home = self._homes
            at = self._room.at[by_home[begins[domain] : begins[domain + 1]]]
            if among is not None:
                at = np.intersect1d(at, among)
            room = FreeAfter.over(self._measure, self._room.rows[self._domain == domain], at)
            losses = self._losses_on(room, elsewhere is not None)
        yield EvictionDomain(self._aim, room, losses, elsewhere)
        locked = self._victims.locked
        for row in np.unique(self._victims.node[locked[np.isin(locked, room.at)]])[:LOCKED_MAX].tolist():
            yield EvictionDomain(
                self._aim, room, self._losses_on(room, elsewhere is not None, row), elsewhere
            )

    @cached_property
    def _homes(self) -> tuple[Column, Column]:
        """The victims in the order of their domains, and where each domain begins."""
        home = self._domain[self._room.row]
        order = np.argsort(home, kind="stable")
        return np.searchsorted(home[order], np.arange(self._tree.size(self._level) + 1)), order

    def _losses_on(self, room: FreeAfter, is_everywhere: bool, before_all: int = -1) -> Column:
        """What each leaving means, if gangs give up members where that makes room for others; one row before all."""
        use = np.full(len(self._victims), int(is_everywhere), dtype=np.int64)
        if len(self._victims.spare):
            here = np.flatnonzero(self._victims.is_spare[room.at])
            use[room.at[here]] += room.use_of(here)
            use[(self._victims.node == before_all) & (use > 0)] += use.max()
        return self._victims.losses(use)

    def _worked_out(self, elsewhere: Column | None, is_own_only: bool = False) -> Iterator[EvictionPlan]:
        best = tried = 0
        effort = 0.0
        for domain, fewest in self._in_order():
            if effort > (EFFORT_MAX if tried else MISSES_MAX) or (
                tried and (tried == SITES_MAX or fewest > best)
            ):
                return
            found: list[EvictionPlan] = []
            for site in self._sites(domain, elsewhere if is_own_only else None, elsewhere):
                found = list(site.clearings())
                effort += site.effort
                if found:
                    break
            if found:
                broken = min(clearing.price.broken for clearing in found)
                best = min(best, broken) if tried else broken
                tried += 1
                yield from found

    def _in_order(self) -> Iterator[tuple[int, int]]:
        """(domain, fewest jobs that have to give way) of every site that could hold the unit, the best first."""
        size = self._tree.size(self._level)
        could = np.ones(size, dtype=np.bool_)
        spare = np.zeros(size, dtype=np.int64)
        for slots, shape in zip(self._most, self._aim.needed, strict=True):
            total = self._summed(slots, self._domain, size)
            could &= total >= shape.need
            spare += total
        if (pinned := self._aim.pinned) is not None and self._level == self._aim.rules.top:
            could &= np.isin(np.arange(size), list(pinned)) & (len(pinned) == 1)
        domains = np.flatnonzero(could)
        if len(domains) <= 1:
            yield from ((int(domain), 0) for domain in domains)
            return
        fewest, urgency = self._bounds(size)
        place = self._tree.place if self._level == self._tree.node_level else np.arange(size)
        order = np.lexsort((place[domains], spare[domains], urgency[domains], fewest[domains]))
        yield from zip(domains[order].tolist(), fewest[domains[order]].tolist(), strict=True)

    def _bounds(self, size: int) -> tuple[Column, Column]:
        """For every domain: how many jobs have to be broken at the least, and the sum of their priorities."""
        room, measure, victims = self._room, self._measure, self._victims
        soft = (self._loss == Loss.PROMISE) | (self._loss == Loss.SURPLUS)
        item = np.where(self._loss == Loss.WORK, victims.job[room.at], -1)
        items, rows, amounts = room.pairs(item)
        free = room.free(soft)
        now = measure.share(free, self._most)
        gain = measure.share(free[:, rows] + amounts, [most[rows] for most in self._most]) - now[rows]
        missing = len(self._most) - np.bincount(self._domain, now, minlength=size)
        domain, job, gains = self._domain[rows], items, gain.astype(np.float64)
        if self._level < self._tree.node_level:
            width = max(1, victims.jobs)
            keys, inverse = np.unique(shortened(domain * width + items), return_inverse=True)
            domain, job = keys // width, keys % width
            gains = np.bincount(inverse, gain, minlength=len(keys)).astype(np.float64)
        order = np.lexsort((-gains, domain))
        domain, gains, job = domain[order], gains[order], job[order]
        needed = _before(domain, gains) < missing[domain] - 1e-9
        fewest = np.bincount(domain[needed], minlength=size)
        urgency = np.bincount(domain[needed], victims.priority[job[needed]], minlength=size)
        return fewest, urgency.astype(np.int64)

    @staticmethod
    def _summed(slots: Column, domain: Column, size: int) -> Column:
        total: Column = np.bincount(domain, slots, minlength=size).astype(np.int64)
        return total


def _before(segment: Column, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the values before each, within its segment; segments lie side by side."""
    run = values.cumsum() - values
    starts = np.flatnonzero(np.concatenate([[True], segment[1:] != segment[:-1]])[: len(segment)])
    anew: NDArray[np.float64] = run - np.repeat(run[starts], np.diff(np.append(starts, len(values))))
    return anew
