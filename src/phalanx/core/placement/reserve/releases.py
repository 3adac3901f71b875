"""Which tenants are expected to leave when, and what is free on every node once they have.

A tenant leaves when its time limit ends it, one without a limit perhaps never (its end is infinite), and one that is
overdue may leave at any moment. What the draft itself has placed leaves in its turn. Everything is counted in one
matrix, a row for each resource and a column for each node, so that an instant is tried with a few sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.amounts import SLOTS_MAX, Rows
from phalanx.core.model.columns import Matrix, slots_each
from phalanx.core.model.job import JobId
from phalanx.core.model.plan import Placement, Policy
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column
from phalanx.core.placement.draft import Draft


class Scale:
    """What is counted for some requests on every node."""

    def __init__(self, nodes: NodeTable, requests: Iterable[Request]) -> None:
        self.nodes = nodes
        self.rows = Rows(requests, others=True)

    def ask(self, request: Request) -> Column:
        """A request, by row."""
        return np.array(self.rows.ask(request), dtype=np.int64)

    def grant(self, row: int, grant: Grant) -> Column:
        """A grant on a node, by row."""
        return self.nodes.columns.of_grant(self.rows, row, grant)

    def free(self, promised: Iterable[int]) -> Matrix:
        """What is free now. On nodes where places are promised, devices may be held by one and lack for another."""
        nodes = self.nodes
        free = nodes.columns.free_of(self.rows)
        for row in promised if self.rows.kinds else ():
            twice = nodes.ledgers[row].devices_held & nodes.ledgers[row].devices_promised
            free[: -1 if self.rows.has_whole else None, row] -= self.grant(row, Grant(0, 0, tuple(twice)))[
                : -1 if self.rows.has_whole else None
            ]
        return free

    def slots(self, free: Matrix, request: Request) -> Column:
        """How many tasks with this request every open node could take."""
        slots = slots_each(free, self.rows.ask(request), SLOTS_MAX)
        could = self.nodes.open.copy()
        if request.is_choosy:
            could &= self.nodes.columns.labelled(request)
        if request.target is not None:
            could &= np.arange(len(slots)) == self.nodes.rows.get(request.target.host, -1)
        return np.where(could, slots, 0)


class Releases:
    """Every tenant: where it is, how much it holds, and until when one has to reckon with it."""

    def __init__(self, draft: Draft, policy: Policy, runs_s: Mapping[JobId, float], scale: Scale) -> None:
        self.now = draft.now
        self._scale = scale
        self.score = policy.score
        self._assumed_run_s = policy.assumed_run_s
        tenants = draft.tenants
        slots = np.flatnonzero(draft.here)
        own = list(_started(draft))
        node = np.array([draft.nodes.rows[each.node] for each in own], dtype=np.int64)
        until = np.array([draft.now + runs_s[each.job] for each in own])
        grants = [scale.grant(row, each.grant) for row, each in zip(node.tolist(), own, strict=True)]
        held = np.array(grants, dtype=np.int64).reshape(len(own), scale.rows.size).T
        self.node: Column = np.concatenate([tenants.node[slots], node])
        ends = np.maximum(tenants.ends_at[slots], draft.now)
        self.ends: NDArray[np.float64] = np.concatenate([ends, until])
        self.held: Matrix = np.concatenate(
            [tenants.amounts(scale.rows, slots, draft.nodes.columns), held], axis=1
        )
        promised = tenants.node[tenants.used & tenants.promise]
        self.free = scale.free(np.unique(promised).tolist())  # before anybody has left

    def ends_at(self, tenant: Tenant) -> float:
        """When this tenant has left at the latest."""
        return max(tenant.ends_at, self.now)

    def not_before(self, rows: Column) -> float:
        """Until when one has to reckon with tenants of these nodes, those without a limit staying on for a while."""
        here = self.ends[np.isin(self.node, rows)].tolist()
        return max(map(self.reckoned, here), default=self.now)

    def reckoned(self, end: float) -> float:
        """Until when one has to reckon with whoever leaves at this end: without a limit, for a while."""
        return self.now + self._assumed_run_s if end == inf else end

    def everybody(self) -> Matrix:
        """What is free when all have left."""
        return self._after(self.free, np.arange(len(self.node)))

    def first(self, fits: Callable[[Matrix], bool]) -> tuple[float, Matrix] | None:
        """The earliest instant at which it fits, and what is free then; None if it does not when all have left.

        Half of the tenants left to look at is decided in each round, so all rounds together cost about as much as
        looking at all of them twice.
        """
        before, after = self.free, self.everybody()
        if not fits(after):
            return None
        if fits(before):
            return self.now, before
        rest = np.arange(len(self.node))
        while (early := self._earlier_half(rest)) is not None:
            trial = self._after(before, rest[early])
            if fits(trial):
                after, rest = trial, rest[early]
            else:
                before, rest = trial, rest[~early]
        return float(self.ends[rest].max()), after

    def _earlier_half(self, rest: Column) -> NDArray[np.bool_] | None:
        """Which of these leave first, about half of them; None if they all leave at one instant."""
        ends = self.ends[rest]
        if ends.min() == ends.max():
            return None
        middle = (len(ends) - 1) // 2
        median = float(np.partition(ends, middle)[middle])
        return ends <= median if median < ends.max() else ends < median

    def _after(self, free: Matrix, leaving: Column) -> Matrix:
        size, node = free.shape[1], self.node[leaving]
        back = [np.bincount(node, weights=amount[leaving], minlength=size) for amount in self.held]
        return free + np.array(back, dtype=np.int64).reshape(free.shape)


def _started(draft: Draft) -> Iterator[Placement]:
    """What the draft has placed with a grant of its own."""
    yield from (each for each in draft.placements if each.lane is None)
    for gang_placement in draft.gang_placements:
        yield from gang_placement.members
