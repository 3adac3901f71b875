"""What is free on every node, as columns that follow the ledgers, and a note of every row that changed.

Whoever keeps something that follows from the columns (`table.py`, `score.py`) asks which rows have changed since it
last looked, so that a change costs the same however many nodes there are and whoever is interested in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.amounts import (
    ADDRESSES,
    FIXED,
    SLOTS_MAX,
    WHOLE,
    DeviceKind,
    Rows,
    device_kind,
    fixed,
    matching,
)
from phalanx.core.model.ledger import MIXED, Ledger
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.tree import Column, Mask

KINDS_MAX = 256
SELECTORS_MAX = 256
CHANGES_KEPT = 1 << 16
FEW = 24  # so many rows are sooner read one by one than all at once
Selector = tuple[
    tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]
]  # labels, names, names left out
_Cell = TypeVar("_Cell", bound=np.generic)
_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")


Matrix = NDArray[np.int64]  # a row for each resource, a column for each node or tenant


class Changes:
    """Rows in the order in which they changed; old ones are forgotten."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._forgotten = 0

    @property
    def mark(self) -> int:
        """Where one stands who has seen everything."""
        return self._forgotten + len(self._rows)

    def note(self, row: int) -> None:
        rows = self._rows
        rows.append(row)
        if len(rows) > 2 * CHANGES_KEPT:
            del rows[:CHANGES_KEPT]
            self._forgotten += CHANGES_KEPT

    def forget(self) -> None:
        """Rows mean other nodes from now on: whoever looked before has to read all of them again."""
        self._forgotten += len(self._rows) + 1
        self._rows.clear()

    def since(self, mark: int) -> set[int] | None:
        """The rows that changed after a mark, or None if that is too long ago to know."""
        return None if mark < self._forgotten else set(self._rows[mark - self._forgotten :])


class Recent(Generic[_Key, _Kept]):
    """What was asked last of something that follows the columns, of each key; as many as their cells allow."""

    def __init__(self, columns: Columns, least: int, most: int, cells: int) -> None:
        self._columns = columns
        self._least, self._most, self._cells = least, most, cells
        self._kept: dict[_Key, _Kept] = {}  # the one asked last stands last

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: _Key, make: Callable[[], _Kept], catch_up: Callable[[_Kept], None]) -> _Kept:
        """What is kept for a key, up to date, or what is made anew."""
        found = self._kept.pop(key, None)
        if found is None:
            most = max(self._least, min(self._most, self._cells // max(1, len(self._columns))))
            while len(self._kept) >= most:
                del self._kept[next(iter(self._kept))]
            found = make()
        else:
            catch_up(found)
        self._kept[key] = found
        return found


class Alike:
    """How many nodes there are of each size of device: whether one is better than another at all."""

    def __init__(self) -> None:
        self._sizes: list[int | None] = []  # by row; None: it has no devices
        self._counts: dict[int | None, int] = {}
        self.has_devices = False  # whether any node has some
        self.has_mixed = False  # whether any node has devices of several sizes
        self.has_sizes = False  # whether devices of several sizes are there at all

    def put(self, row: int, ledger: Ledger) -> None:
        size = ledger.device_size if ledger.devices else None
        if row < len(self._sizes):
            self._drop(self._sizes[row])
            self._sizes[row] = size
        else:
            self._sizes.append(size)
        self._counts[size] = self._counts.get(size, 0) + 1
        self._look()

    def remove(self, row: int, last: int) -> None:
        """A node is gone; the last one takes its row."""
        self._drop(self._sizes[row])
        self._sizes[row] = self._sizes[last]
        self._sizes.pop()
        self._look()

    def _drop(self, size: int | None) -> None:
        self._counts[size] -= 1
        if not self._counts[size]:
            del self._counts[size]

    def _look(self) -> None:
        sizes = len(self._counts) - (None in self._counts)
        self.has_mixed = MIXED in self._counts
        self.has_devices, self.has_sizes = sizes > 0, sizes > 1 or self.has_mixed


class Columns:
    """One row per node. `changes` has every row that changed in any way, `joined` those of new hardware or labels."""

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.changes = Changes()
        self.joined = Changes()
        self._open: Mask = np.zeros(64, dtype=np.bool_)
        self._whole: Mask = np.zeros(64, dtype=np.bool_)
        self._numbers: Matrix = np.zeros((2 * FIXED + 1, 64), dtype=np.int64)
        self.alike = Alike()
        self._devices: dict[DeviceKind, _Devices] = {}
        self._labelled: dict[Selector, _Labelled] = {}
        self._show()

    def __len__(self) -> int:
        return len(self.ledgers)

    def put(self, row: int, ledger: Ledger) -> None:
        """A node's ledger, in a new row or instead of the one that was there."""
        if row == len(self.ledgers):
            self.ledgers.append(ledger)
            self._grow()
        else:
            self.ledgers[row] = ledger
        for column, amount in zip(self.every, fixed(ledger.capacity), strict=True):
            column[row] = amount
        self.device_size[row] = ledger.device_size
        self.whole[row] = bool(ledger.capacity.slots)
        self.alike.put(row, ledger)
        self.joined.note(row)
        self.refresh(row)

    def remove(self, row: int) -> None:
        """A node is gone; the last one takes its row."""
        last = len(self.ledgers) - 1
        self.ledgers[row] = self.ledgers[last]
        self.ledgers.pop()
        for column in (self._open, self._whole, *self._numbers):
            column[row] = column[last]
            column[last] = 0
        self._show()
        self.alike.remove(row, last)
        self._devices.clear()
        self._labelled.clear()
        self.changes.forget()
        self.joined.forget()

    def refresh(self, row: int) -> None:
        """What is free on a node has changed."""
        millis, memory, addresses = self.free
        millis[row], memory[row], addresses[row] = self.ledgers[row].free
        self.changes.note(row)

    def set_open(self, row: int, is_open: bool) -> None:
        self.open[row] = is_open
        self.changes.note(row)

    def devices(self, request: Request, *, every: bool = False) -> Column:
        """How many devices of the kind asked for are free on each node; with `every`, how many there are."""
        return self.of_kind(device_kind(request), every=every)

    def of_kind(self, kind: DeviceKind, *, every: bool = False) -> Column:
        """The same for a kind of device."""
        found = self._devices.get(kind)
        if found is None:
            if len(self._devices) >= KINDS_MAX:  # users choose the kinds, so their number is bounded
                self._devices.clear()
            found = self._devices[kind] = _Devices(kind)
        found.catch_up(self)
        return found.every if every else found.free

    def labelled(self, request: Request) -> Mask:
        """The nodes that carry the labels asked for, and are among those that may be used."""
        wanted = request.labels, request.nodes, request.exclude
        found = self._labelled.get(wanted)
        if found is None:
            if len(self._labelled) >= SELECTORS_MAX:
                self._labelled.clear()
            found = self._labelled[wanted] = _Labelled(wanted)
        found.catch_up(self)
        return found.mask

    def slots(self, request: Request, rows: Column | None = None, *, every: bool = False) -> Column:
        """How many tasks with this request (its target is ignored) each node could take; with `every`, were it empty.

        Nodes that take no work have none, unless every node is asked. With `rows` only those are answered for.
        """
        at = slice(None) if rows is None else rows
        free, ask = [column[at] for column in (self.every if every else self.free)], list(fixed(request))
        if request.gpus:
            free.append(self.devices(request, every=every)[at])
            ask.append(request.gpus)
        found = slots_each(free, ask, SLOTS_MAX)
        if request.is_choosy:
            found[~self.labelled(request)[at]] = 0
        if request.exclusive:
            np.minimum(found, 1, out=found)
            if not every:
                found[self.holders[at] > 0] = 0
        if self.whole.any():
            np.minimum(found, 1, out=found, where=self.whole[at])
            if not every:
                found[self.whole[at] & (self.free[0][at] < self.every[0][at])] = 0
        if not every:
            found[~self.open[at]] = 0
        return found

    @property
    def holders(self) -> Column:
        """How many hold or were promised something on each node. Read from the ledgers: it is seldom asked for."""
        return np.fromiter((each.holders for each in self.ledgers), dtype=np.int64, count=len(self.ledgers))

    def slots_of(self, row: int, request: Request) -> int:
        """The same for one node."""
        return self.ledgers[row].slots(request) if self.open[row] else 0

    def free_of(self, rows: Rows) -> Matrix:
        """What is free on every node now, by row."""
        whole = (WHOLE - self.holders,) if rows.has_whole else ()
        return np.stack([*self.free, *map(self.of_kind, rows.kinds), *whole])

    def of_grant(self, rows: Rows, row: int, grant: Grant) -> Column:
        """A grant on a node, by row."""
        return np.array(rows.of_grant(grant, self.ledgers[row].capacity.devices), dtype=np.int64)

    def _grow(self) -> None:
        """Twice as many cells when they are used up, so that a node that joins costs the same at any size."""
        if len(self.ledgers) > len(self._open):
            self._open = np.concatenate([self._open, np.zeros_like(self._open)])
            self._whole = np.concatenate([self._whole, np.zeros_like(self._whole)])
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)], axis=1)
        self._show()

    def _show(self) -> None:
        """The columns are the first part of longer ones."""
        size = len(self.ledgers)
        self.open: Mask = self._open[:size]  # may take new work
        self.whole: Mask = self._whole[:size]  # given to one task at a time
        numbers = [column[:size] for column in self._numbers]
        self.free: list[Column] = numbers[:FIXED]  # less than nothing where more is promised than there is
        self.every: list[Column] = numbers[FIXED : 2 * FIXED]  # what there is, free or not
        self.device_size: Column = numbers[-1]  # how large each device is, or MIXED


class _Devices:
    """Devices of one kind, on every node."""

    def __init__(self, kind: DeviceKind) -> None:
        self._kind = kind
        self._asking = Request(gpus=1, gpu_type=kind[0], gpu_memory_bytes=kind[1])
        self._marks = 0, 0
        self.every: Column = np.zeros(0, dtype=np.int64)
        self.free: Column = np.zeros(0, dtype=np.int64)

    def catch_up(self, columns: Columns) -> None:
        ledgers, asking = columns.ledgers, self._asking
        self.every, self.free = lengthened(self.every, len(columns)), lengthened(self.free, len(columns))
        joined, changed = columns.joined.since(self._marks[0]), columns.changes.since(self._marks[1])
        for row in range(len(columns)) if joined is None else joined:
            self.every[row] = len(matching(ledgers[row].capacity.devices, self._kind))
        for row in range(len(columns)) if changed is None else changed:
            self.free[row] = ledgers[row].free_of(asking)
        self._marks = columns.joined.mark, columns.changes.mark


class _Labelled:
    """Which nodes carry some labels and have one of some names."""

    def __init__(self, wanted: Selector) -> None:
        self._labels, nodes, exclude = wanted
        self._nodes, self._exclude = frozenset(nodes), frozenset(exclude)
        self._mark = 0
        self.mask: Mask = np.zeros(0, dtype=np.bool_)

    def catch_up(self, columns: Columns) -> None:
        self.mask = lengthened(self.mask, len(columns))
        joined = columns.joined.since(self._mark)
        for row in range(len(columns)) if joined is None else joined:
            ledger = columns.ledgers[row]
            has, name = ledger.capacity.labels, ledger.name
            is_chosen = name not in self._exclude and (not self._nodes or name in self._nodes)
            self.mask[row] = is_chosen and all(has.get(key) == value for key, value in self._labels)
        self._mark = columns.joined.mark


def lengthened(column: NDArray[_Cell], size: int) -> NDArray[_Cell]:
    """The same column with zeros for those who came later."""
    if len(column) == size:
        return column
    return np.concatenate([column, np.zeros(size - len(column), dtype=column.dtype)])


def slots_each(
    free: Sequence[NDArray[np.int64]] | Matrix, ask: Sequence[int], most: int
) -> NDArray[np.int64]:
    """The same for many nodes: `free` has a column over nodes for each row. Devices matter only to those who ask."""
    found = np.full(len(free[0]), most, dtype=np.int64)
    for row, (left, asked) in enumerate(zip(free, ask, strict=True)):
        if asked:
            np.minimum(found, left // asked, out=found)
        elif row < ADDRESSES:
            found[left < 0] = 0
    return np.maximum(found, 0, out=found)
