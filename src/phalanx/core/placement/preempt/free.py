"""What nodes would have free if some of the victims left, counted in slots for each group that asks.

One calculation over the columns answers for all nodes, or for those of one domain. The counts are exact but for nodes
that several groups share: what each could take alone, they may not be able to take together (`node_fit.py`).

An offer is the next slot of a node, or the next few that come together, and the price of the victims that leave for it.
Prices are estimates, made in one calculation over all nodes: which victims leave is decided when members have places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from phalanx.core.model.amounts import Rows
from phalanx.core.model.columns import Matrix, slots_each
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tree import Column, Mask, before, begins
from phalanx.core.model.waiting import Part
from phalanx.core.placement.preempt.node_fit import NodeFit
from phalanx.core.placement.preempt.victims import Victims

Prices = NDArray[np.float64]
Weights = NDArray[np.float64]  # amounts to be added up, which is exact as long as sums are below 2^53


class FreeAfter:
    """Some nodes and the victims on them: `at` has their numbers in `Victims`, `row` indexes of nodes in `rows`."""

    def __init__(self, measure: Measure, rows: Column, at: Column, row: Column) -> None:
        self.measure = measure
        self.rows = rows
        self.at = at
        self.row = row
        self._free = measure.free[:, rows]
        self._freed = measure.freed[:, at]

    @staticmethod
    def over(measure: Measure, rows: Column, at: Column) -> FreeAfter:
        """These node rows, with those of the victims `at` that are on them."""
        index = np.full(len(measure.nodes), -1, dtype=np.int64)
        index[rows] = np.arange(len(rows))
        row = index[measure.victims.node[at]]
        return FreeAfter(measure, rows, at[row >= 0], row[row >= 0])

    def free(self, leaving: Mask | None = None) -> Matrix:
        """What every row has free when these have left; without any, now."""
        if leaving is None:
            return self._free
        chosen = np.flatnonzero(leaving)
        return self._free + self._summed(self.row[chosen], chosen, len(self.rows))

    def slots(self, leaving: Mask | None = None) -> list[Column]:
        """How many members of each group every row could take when these have left; never more than are needed."""
        free = self.free(leaving)
        found = []
        for group, wanted in enumerate(self.measure.wanted):
            slots = self.measure.slots(free, group) * self.measure.ever[group][self.rows]
            if wanted.request.target is not None:
                self._ask_target(wanted.request, slots, leaving)
            found.append(slots)
        return found

    def beside(self, leaving: Mask, rows: Column, counts: Column) -> Matrix:
        """What these rows would have left beside so many members of the first group, when these victims have left."""
        return self.free(leaving)[:, rows] - np.outer(self.measure.asked[0], counts)

    def exceeds(self, amounts: Matrix) -> Mask:
        """Which victims hold more of anything than these amounts of their rows."""
        mask: Mask = np.logical_or.reduce(self._freed > amounts[:, self.row])
        return mask

    def slots_in_turn(self, order: Column) -> Column:
        """For the first group, the slots of a victim's row once it and those before it on the row have left.

        `order` lists victims row by row.
        """
        row = self.row[order]
        freed = self._freed[:, order].astype(np.int64)
        free = self._free[:, row] + freed + np.array([before(row, amount) for amount in freed])
        return self.measure.slots(free, 0) * self.measure.ever[0][self.rows[row]]

    def use_of(self, victims: Column) -> Column:
        """How useful it is that these leave, given that everybody else does.

        By the slots that would be lost if one of them stayed, then by those of its row, then by how much it holds of
        what is asked for. None are of use where there is no room in any case.
        """
        free = self.free(np.ones(len(self.at), dtype=np.bool_))[:, self.row[victims]]
        freed = self._freed[:, victims].astype(np.int64)
        use: Column = np.zeros(len(victims), dtype=np.int64)
        for group, wanted in enumerate(self.measure.wanted):
            ever = self.measure.ever[group][self.rows[self.row[victims]]]
            every = self.measure.slots(free, group) * ever
            without = self.measure.slots(free - freed, group) * ever
            parts = [
                100 * np.minimum(amount, asked) // asked
                for amount, asked in zip(freed, self.measure.asked[group], strict=True)
                if asked
            ]
            use += ((every - without) * (wanted.need + 1) + every) * 1000 + sum(parts) * (every > 0)
        return use

    def pairs(self, item: Column) -> tuple[Column, Column, Matrix]:
        """What each item frees on each row: (item, row) of every pair, and the amounts. Victims of item −1 stay."""
        chosen = np.flatnonzero(item >= 0)
        keys = item[chosen] * len(self.rows) + self.row[chosen]
        found, inverse = np.unique(shortened(keys), return_inverse=True)
        return found // len(self.rows), found % len(self.rows), self._summed(inverse, chosen, len(found))

    def column(self, values: Column) -> Column:
        """Values of these rows as a column over all nodes."""
        column = np.zeros(len(self.measure.nodes), dtype=np.int64)
        column[self.rows] = values
        return column

    def _summed(self, into: Column, chosen: Column, size: int) -> Matrix:
        """What these victims hold, added up into so many sums."""
        sums = [np.bincount(into, amount[chosen], minlength=size) for amount in self._freed]
        return np.array(sums).astype(np.int64)

    def _ask_target(self, request: Request, slots: Column, leaving: Mask | None) -> None:
        """A request that names devices or a NUMA node is counted by the node itself; there is only one."""
        for at in np.flatnonzero(slots).tolist():
            here = self.at[:0] if leaving is None else self.at[leaving & (self.row == at)]
            gone = [self.measure.victims.tenant(each) for each in here.tolist()]
            ledger = self.measure.nodes.ledgers[self.rows[at]]
            while slots[at] and not NodeFit(ledger, [(request, int(slots[at]))], gone).holds():
                slots[at] -= 1


class Measure:
    """The amounts that decide: cores, memory and each kind of device that a part asks for."""

    def __init__(self, nodes: NodeTable, wanted: Sequence[Part], victims: Victims) -> None:
        self.nodes = nodes
        self.wanted = wanted
        self.victims = victims
        # The nodes that could take any member of each part at all.
        self.ever = [nodes.ever(each.request)[0] > 0 for each in wanted]
        rows = Rows(each.request for each in wanted)
        self.free: Matrix = nodes.columns.free_of(rows)
        self.freed: Weights = self._held(rows).astype(np.float64)
        self.asked = [rows.ask(each.request) for each in wanted]

    def slots(self, free: Matrix, group: int) -> Column:
        """How many members of a group fit into each of these amounts, its target left aside."""
        return slots_each(free, self.asked[group], self.wanted[group].need)

    def share(self, free: Matrix, most: Sequence[Column]) -> NDArray[np.float64]:
        """How much of all that is needed these amounts could hold, if members could be cut into pieces.

        It is never less than what they really hold, and a victim adds to it no more than if it left alone.
        """
        total = np.zeros(free.shape[1])
        for group, limit in enumerate(most):
            parts = [
                np.clip(amount / asked, 0, limit)
                for amount, asked in zip(free, self.asked[group], strict=True)
                if asked
            ]
            if parts:
                total += sum(parts) / (len(parts) * self.wanted[group].need)
        return total

    def progress(self, free: Matrix, most: Sequence[Column]) -> NDArray[np.float64]:
        """The same in whole members; what is still a part of one counts for very little, to break ties."""
        total = 1e-3 * self.share(free, most)
        for group, limit in enumerate(most):
            total += np.minimum(self.slots(free, group), limit) / self.wanted[group].need
        return total

    def missing(self, free: Matrix, most: Sequence[Column]) -> float:
        """What is left until all these amounts together hold every member, in shares of what is needed."""
        counts = [np.minimum(self.slots(free, group), limit).sum() for group, limit in enumerate(most)]
        shares = [count / wanted.need for count, wanted in zip(counts, self.wanted, strict=True)]
        return sum(max(0.0, 1.0 - float(share)) for share in shares)

    def _held(self, rows: Rows) -> Matrix:
        """What would become free with each victim: of a promise, no device that a tenant holds."""
        victims, nodes = self.victims, self.nodes
        held = victims.tenants.amounts(rows, victims.slot, nodes.columns)
        for at in np.flatnonzero(victims.promise & (victims.gpus > 0)).tolist() if rows.kinds else ():
            grant, row = victims.tenant(at).grant, int(victims.node[at])
            free = set(grant.devices) - nodes.ledgers[row].devices_held
            held[:, at] = nodes.columns.of_grant(rows, row, structs.replace(grant, devices=tuple(free)))
        return held


def shortened(keys: Column) -> NDArray[np.integer]:
    """The same numbers in half the space, if they are small enough: these are sorted in half the time."""
    return keys.astype(np.int32) if keys.max(initial=0) < np.iinfo(np.int32).max else keys


class Offers:
    """The offers of all these nodes, for one part. `slots` is what is free now and costs nothing."""

    def __init__(self, free_after: FreeAfter, leaving: Mask, price: Prices) -> None:
        self._size = len(free_after.rows)
        self.slots: Column = free_after.slots()[0]
        chosen = np.flatnonzero(leaving)
        order = chosen[np.lexsort((price[chosen], free_after.row[chosen]))]
        row = free_after.row[order]
        slots = free_after.slots_in_turn(order)
        before = np.concatenate([[0], slots[:-1]])
        starts = begins(row)
        before[starts] = self.slots[row[starts]]
        paid = _within(price[order].cumsum(), starts, len(row))
        at = np.flatnonzero(slots > before)
        self._row, self._gain = row[at], (slots - before)[at]
        starts = begins(self._row)
        paid = paid[at]
        earlier = np.concatenate([[0.0], paid[:-1]])
        earlier[starts] = 0.0
        self._unit = (paid - earlier) / self._gain
        self._starts = starts
        self.total = np.bincount(self._row, paid - earlier, minlength=self._size)

    def cheapest(self, need: int) -> Column:
        """Slots on every row, at least `need` in all: the free ones and the cheapest of the others."""
        missing = need - int(self.slots.sum())
        if missing <= 0:
            return self.slots
        rank = np.empty(len(self._unit), dtype=np.int64)
        rank[np.lexsort((self._row, self._unit))] = np.arange(len(rank))
        order = np.argsort(self._in_order(rank), kind="stable")
        taken = order[: int(np.searchsorted(self._gain[order].cumsum(), missing)) + 1]
        more = np.bincount(self._row[taken], self._gain[taken], minlength=self._size)
        slots: Column = self.slots + more.astype(np.int64)
        return slots

    def _in_order(self, rank: Column) -> Column:
        """No offer of a row may come before an earlier one of the same row."""
        segment = np.zeros(len(rank), dtype=np.int64)
        segment[self._starts] = 1
        lift = segment.cumsum() * (len(rank) + 1)
        lifted: Column = np.maximum.accumulate(rank + lift) - lift
        return lifted


def _within(run: Prices, starts: Column, size: int) -> Prices:
    """A running sum, begun anew at each start."""
    base = np.concatenate([[0.0], run])[starts]
    anew: Prices = run - np.repeat(base, np.diff(np.append(starts, size)))
    return anew
