"""What nodes cost: the time that each counted, by its price and by a guess of its power.

A node counts while it is neither lost nor disabled (`is_counted`). Nothing is measured here: the cost is the price
that the node's operator has set (1.0 an hour if none) times that time, and the energy is the nominal power of its
cores and devices times that time, as if all of them were busy.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.resources import Capacity

COST_ASSUMED = 1.0  # per hour, of a node whose runner says nothing
WATTS_PER_CORE = 5.0  # of a server of recent years under load
# Nominal board power of devices by the kind that targets name, in watts.
WATTS_OF_DEVICES = {
    "a10": 150, "a100": 400, "a30": 165, "a40": 300, "b200": 1000, "h100": 700, "h200": 700, "l4": 72, "l40": 300,
    "l40s": 350, "mi250x": 560, "mi300x": 750, "rtx-3090": 350, "rtx-4090": 450, "rtx-5090": 575, "rtx-a6000": 300,
    "t4": 70, "v100": 300,
}  # fmt: skip


def is_counted(node: NodeState) -> bool:
    """Whether the time that passes now counts in a node's cost and energy."""
    return not node.lost and node.disabled_reason is None


def is_disabled(node: NodeState) -> bool:
    """Whether a node is there and yet does not count."""
    return not node.lost and not is_counted(node)


class Power(Struct, frozen=True):
    """Nominal power of a node. `is_whole` is False if it has devices whose power is not known."""

    cpu_watts: float
    gpu_watts: float
    is_whole: bool


def power_of(capacity: Capacity) -> Power:
    known = [WATTS_OF_DEVICES.get(device.kind) for device in capacity.devices]
    return Power(capacity.cores * WATTS_PER_CORE, float(sum(filter(None, known))), None not in known)


class NodeAccount(Struct):
    """The time of one node that has counted, and since when it counts again (None: it does not)."""

    counted_s: float = 0.0
    cost: float = 0.0
    cpu_joules: float = 0.0
    gpu_joules: float = 0.0
    since: float | None = None
    price: float = COST_ASSUMED
    power: Power = Power(0.0, 0.0, True)
    is_registered: bool = False

    def settle(self, at: float) -> None:
        """Add what has passed by now."""
        if self.since is None:
            return
        seconds, self.since = max(0.0, at - self.since), at
        self.counted_s += seconds
        self.cost += seconds / 3600 * self.price
        self.cpu_joules += seconds * self.power.cpu_watts
        self.gpu_joules += seconds * self.power.gpu_watts

    def add(self, other: NodeAccount) -> None:
        self.counted_s += other.counted_s
        self.cost += other.cost
        self.cpu_joules += other.cpu_joules
        self.gpu_joules += other.gpu_joules


class NodeAccounts:
    """One account for every node that there is; those of removed nodes are kept as one sum."""

    def __init__(self) -> None:
        self.by_node: dict[str, NodeAccount] = {}
        self.removed = NodeAccount()
        self.registered = 0
        self.unregistered = 0
        self.active = 0  # how many nodes count

    def open(self, state: ClusterState, at: float) -> None:
        """The state was read: what is there counts from now on, without having registered here."""
        for name in [name for name in self.by_node if name not in state.nodes]:
            self._close(name, at)
        for node in state.nodes.values():
            account = self.by_node.setdefault(node.name, NodeAccount(is_registered=not node.lost))
            self._look(account, node, at)

    def joined(self, name: str) -> None:
        account = self.by_node.setdefault(name, NodeAccount())
        if not account.is_registered:
            account.is_registered = True
            self.registered += 1

    def left(self, name: str) -> None:
        account = self.by_node.get(name)
        if account is not None and account.is_registered:
            account.is_registered = False
            self.unregistered += 1

    def changed(self, name: str, state: ClusterState, at: float) -> None:
        """Something happened to a node: settle, and see whether it counts from now on."""
        node = state.nodes.get(name)
        if node is None:
            self._close(name, at)
        else:
            self._look(self.by_node.setdefault(name, NodeAccount()), node, at)

    def settle(self, at: float) -> None:
        for account in self.by_node.values():
            account.settle(at)

    def total(self) -> NodeAccount:
        """Of all nodes, removed ones too."""
        total = NodeAccount()
        for account in (self.removed, *self.by_node.values()):
            total.add(account)
        return total

    def _close(self, name: str, at: float) -> None:
        account = self.by_node.pop(name, None)
        if account is not None:
            account.settle(at)
            self.active -= account.since is not None
            self.removed.add(account)

    def _look(self, account: NodeAccount, node: NodeState, at: float) -> None:
        account.settle(at)
        was_counted, is_now = account.since is not None, is_counted(node)
        self.active += is_now - was_counted
        account.since = at if is_now else None
        price = node.capacity.cost_per_hour
        account.price = COST_ASSUMED if price is None else price
        account.power = power_of(node.capacity)
