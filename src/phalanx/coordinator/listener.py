"""What stands round a member of the coordinators: who speaks for it to the world, and what ties it to its cluster."""

from __future__ import annotations

from typing import Protocol

from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState
from phalanx.store.protocol import Batch, Loaded


class ClusterCheck(Protocol):
    """What ties a member to its cluster."""

    def check(self) -> None:
        """Raise if this one must not hold the office: it is not of this cluster."""
        ...

    def inputs(self) -> list[Input]:
        """What every term begins with."""
        ...


class Listener(Protocol):
    """Everything round a member that speaks to the world: it is told what to say, and when to be silent."""

    def opened(self) -> None:
        """The term is open: runners are welcome."""
        ...

    def closed(self) -> None:
        """Not active any more, or not yet: send runners away. Told again when `leader` is another."""
        ...

    def turned(self, turn: Turn) -> None:
        """A turn of ours is durable."""
        ...

    def followed(self, batch: Batch, turn: Turn) -> None:
        """Another's turn was read from the log."""
        ...

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        """The state was read anew; the log may hold what nobody was told yet."""
        ...
