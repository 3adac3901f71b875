"""What FlowMesh's score takes for the throughput and the cost of a node: numbers that follow from its hardware."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.columns import Columns
from phalanx.core.model.resources import Capacity

Numbers = NDArray[np.float64]
GIB = 1 << 30
COST = 1.0  # an hour of a node that does not say what it costs


def throughput(capacity: Capacity) -> float:
    """A proxy for how much a node gets done: its devices first, then memory and cores.

    Memory that devices share with their machine is counted once, as theirs.
    """
    vram = sum(device.memory_bytes for device in capacity.devices) / GIB
    is_shared = any(device.shares_memory for device in capacity.devices)
    ram = 0.0 if is_shared else capacity.memory_bytes / GIB
    return 100.0 * len(capacity.devices) + vram + ram / 2 + 0.5 * capacity.cores


def cost(capacity: Capacity) -> float:
    return COST if capacity.cost_per_hour is None else capacity.cost_per_hour


class Proxies:
    """Both of every node, by row; worked out anew when nodes have joined, changed or gone."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._mark = -1
        self._throughputs: Numbers = np.zeros(0)
        self._costs: Numbers = np.zeros(0)

    def columns(self) -> tuple[Numbers, Numbers]:
        mark = self._columns.joined.mark
        if self._mark != mark or len(self._costs) != len(self._columns):
            capacities = [ledger.capacity for ledger in self._columns.ledgers]
            self._throughputs = np.array([throughput(each) for each in capacities], dtype=np.float64)
            self._costs = np.array([cost(each) for each in capacities], dtype=np.float64)
            self._mark = mark
        return self._throughputs, self._costs
