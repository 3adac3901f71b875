"""What a coordinator's leadership needs from outside: a listener for what happened, and the check of its cluster."""

from __future__ import annotations

from typing import Protocol

from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState
from phalanx.store.protocol import Batch, Loaded


class ClusterCheck(Protocol):
    """The check that a coordinator belongs to its cluster."""

    def check(self) -> None:
        """Raise if this coordinator must not lead: it is not of this cluster."""
        ...

    def inputs(self) -> list[Input]:
        """What every term begins with."""
        ...


class Listener(Protocol):
    """Receives what is durable and is to be sent, and when to stop sending."""

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
        """The state was read again; the log may hold events that were not published yet."""
        ...
