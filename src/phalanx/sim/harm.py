"""Everything that faults can reach in one run."""

from __future__ import annotations

from phalanx.sim.checkers import Checkers
from phalanx.sim.coordinator import SimulatedCoordinator
from phalanx.sim.coordinators import SimulatedCoordinators
from phalanx.sim.etcd import Etcd
from phalanx.sim.etcd_vault import EtcdVault
from phalanx.sim.network import Network
from phalanx.sim.node import Node
from phalanx.sim.vault import Vault
from phalanx.sim.watched import Trap
from phalanx.sim.world import World


class Harm:
    """The parts of a run that faults act on."""

    def __init__(
        self,
        world: World,
        coordinators: SimulatedCoordinators,
        vault: Vault,
        trap: Trap,
        network: Network,
        nodes: list[Node],
        checkers: Checkers,
    ) -> None:
        self.world = world
        self.coordinators = coordinators
        self.vault = vault
        self.trap = trap
        self.network = network
        self.nodes = nodes
        self.checkers = checkers
        self.dice = world.dice("faults")

    def a_node(self) -> Node:
        return self.dice.choice(self.nodes)

    def leader(self) -> SimulatedCoordinator | None:
        """The leader, unless it is paused already."""
        found = self.coordinators.leader()
        return None if found is None or found.is_paused else found

    def etcd(self) -> Etcd | None:
        """The model of etcd, if the run uses one."""
        return self.vault.etcd if isinstance(self.vault, EtcdVault) else None
