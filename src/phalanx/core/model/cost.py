"""What work costs: the price of a node for the time it takes, by the share of the node that it holds.

A task that holds one of eight devices costs an eighth of the node, one that holds a device and all cores costs all of
it: nobody else could use the rest. The price is what the node's operator has set, or 1 an hour.
"""

from __future__ import annotations

from phalanx.core.model.proxies import cost
from phalanx.core.model.resources import Capacity, Cores, Grant

_HOUR_S = 3600.0


def held_rate(capacity: Capacity, held: Grant) -> float:
    """What a second costs of what was granted on a node."""
    return cost_rate(capacity, held.cores, held.memory_bytes, len(held.devices))


def cost_rate(capacity: Capacity, cores: Cores, memory_bytes: int, devices: int) -> float:
    """What a second costs on a node of which so much is held."""
    share = 1.0 if capacity.slots else 0.0
    if capacity.cores:
        share = max(share, cores / capacity.cores)
    if capacity.memory_bytes and memory_bytes:
        share = max(share, memory_bytes / capacity.memory_bytes)
    if devices and capacity.devices:
        share = max(share, devices / len(capacity.devices))
    return cost(capacity) * min(share, 1.0) / _HOUR_S
