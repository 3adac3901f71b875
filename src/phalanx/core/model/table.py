"""All nodes as columns, so that one calculation asks every node at once.

The columns follow the ledgers: each take and give_back touches one row. A row that says yes is only a
candidate; the node's own ledger gives the exact grant or the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Capacity, Grant, Request

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]
KINDS_MAX = 256
_Kind = tuple[str | None, int]  # device type asked for, memory asked for


class NodeTable:
    """Ledgers by name, and the columns over them. A node keeps its row for good; a lost one is not `open`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.ledgers: list[Ledger] = []
        self.rows: dict[str, int] = {}
        self.open: Mask = np.zeros(0, dtype=np.bool_)  # may take new work
        self.cores: Column = np.zeros(0, dtype=np.int64)
        self.memory: Column = np.zeros(0, dtype=np.int64)
        self._devices: dict[_Kind, Column] = {}
        self._cores_all: Column = np.zeros(0, dtype=np.int64)
        self._memory_all: Column = np.zeros(0, dtype=np.int64)
        self._devices_all: dict[_Kind, Column] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self.ledgers)

    def ledger(self, name: str) -> Ledger:
        return self.ledgers[self.rows[name]]

    def put(self, name: str, capacity: Capacity) -> None:
        """Add a node, or replace one whose hardware changed while nothing was held on it."""
        ledger = Ledger(name, capacity)
        row = self.rows.setdefault(name, len(self.names))
        if row == len(self.names):
            self.names.append(name)
            self.ledgers.append(ledger)
            self._grow()
        else:
            self.ledgers[row] = ledger
        self._cores_all[row], self._memory_all[row] = capacity.cores, capacity.memory_bytes
        for kind, column in self._devices_all.items():
            column[row] = len(ledger.matching(_asking(kind)))
        self._refresh(row)
        for kind, column in self._devices.items():
            column[row] = _free(ledger, kind)

    def set_open(self, name: str, is_open: bool) -> None:
        self.open[self.rows[name]] = is_open

    def is_open(self, name: str) -> bool:
        return bool(self.open[self.rows[name]])

    def take(self, row: int, grant: Grant) -> None:
        self.ledgers[row].take(grant)
        self._refresh(row)
        if grant.devices:
            self._refresh_devices(row)

    def give_back(self, row: int, grant: Grant) -> None:
        self.ledgers[row].give_back(grant)
        self._refresh(row)
        if grant.devices:
            self._refresh_devices(row)

    def candidates(self, request: Request) -> Mask:
        """Open nodes with enough free cores, memory and fitting devices. Their ledgers have the last word."""
        mask = self.open & (self.cores >= request.cores)
        if request.memory_bytes:
            mask &= self.memory >= request.memory_bytes
        if request.gpus:
            mask &= self._device_column(request) >= request.gpus
        return self._only_target(mask, request)

    def could_ever(self, request: Request) -> bool:
        """Whether any node, empty, could hold this; nodes that are away count, for they may come back."""
        mask = self._cores_all >= request.cores
        if request.memory_bytes:
            mask &= self._memory_all >= request.memory_bytes
        if request.gpus:
            mask &= self._device_column(request, every=True) >= request.gpus
        if not request.target:
            return bool(mask.any())
        rows = np.flatnonzero(self._only_target(mask, request))
        return any(self.ledgers[row].never(request) is None for row in rows)

    def _only_target(self, mask: Mask, request: Request) -> Mask:
        if request.target is None:
            return mask
        only = np.zeros_like(mask)
        row = self.rows.get(request.target.host)
        if row is not None:
            only[row] = mask[row]
        return only

    def _device_column(self, request: Request, every: bool = False) -> Column:
        kind = (request.gpu_type, request.gpu_memory_bytes)
        if kind not in self._devices:
            if len(self._devices) >= KINDS_MAX:  # users choose the kinds, so their number is bounded
                self._devices.clear()
                self._devices_all.clear()
            asking = _asking(kind)
            self._devices[kind] = np.array([_free(ledger, kind) for ledger in self.ledgers], dtype=np.int64)
            totals = [len(ledger.matching(asking)) for ledger in self.ledgers]
            self._devices_all[kind] = np.array(totals, dtype=np.int64)
        return (self._devices_all if every else self._devices)[kind]

    def _refresh(self, row: int) -> None:
        ledger = self.ledgers[row]
        self.cores[row] = ledger.cores_free
        self.memory[row] = ledger.memory_free

    def _refresh_devices(self, row: int) -> None:
        for kind, column in self._devices.items():
            column[row] = _free(self.ledgers[row], kind)

    def _grow(self) -> None:
        for name in ("cores", "memory", "_cores_all", "_memory_all"):
            setattr(self, name, np.append(getattr(self, name), 0))
        self.open = np.append(self.open, False)
        for columns in (self._devices, self._devices_all):
            for kind in columns:
                columns[kind] = np.append(columns[kind], 0)


def _asking(kind: _Kind) -> Request:
    return Request(gpus=1, gpu_type=kind[0], gpu_memory_bytes=kind[1])


def _free(ledger: Ledger, kind: _Kind) -> int:
    return sum(device.index in ledger.devices_free for device in ledger.matching(_asking(kind)))
