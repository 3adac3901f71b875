"""All that faults can reach in one run."""

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
    """All that faults can reach."""

    def __init__(
        self,
        world: World,
        office: SimulatedCoordinators,
        vault: Vault,
        trap: Trap,
        network: Network,
        nodes: list[Node],
        checkers: Checkers,
    ) -> None:
        self.world = world
        self.office = office
        self.vault = vault
        self.trap = trap
        self.network = network
        self.nodes = nodes
        self.checkers = checkers
        self.dice = world.dice("faults")

    def a_node(self) -> Node:
        return self.dice.choice(self.nodes)

    def leader(self) -> SimulatedCoordinator | None:
        """Who leads, if it is not paused already."""
        found = self.office.leader()
        return None if found is None or found.is_paused else found

    def etcd(self) -> Etcd | None:
        """The model of etcd, in a run that is on one."""
        return self.vault.etcd if isinstance(self.vault, EtcdVault) else None
