"""Who may write, who may send, and whose lease counts: checked in the log and on the wire.

An epoch has one writer. A coordinator that another seat has replaced sends nothing any more, because its own clock
tells it that its lease may be over. One that a second process of its own seat has replaced had its lease taken while
it ran, and learns it when it renews, whichever seat leads by then. A node's lease generation only grows, over every
term. While the brake is set, no node is declared lost for its silence.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.cluster.exclusion_events import NodeExcluded
from phalanx.core.model.orders import Disposition
from phalanx.link import wire
from phalanx.sim.violation import Violation

STALE = (Disposition.STALE_EPOCH, Disposition.STALE_LEASE, Disposition.STALE_ATTEMPT)


class Fences:
    """What the fences of a run have let through, and what they have refused."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._seats = {0: ""}  # by epoch, oldest first: the seat that leads under it
        self._writers: dict[int, str] = {}
        self._generations: dict[str, int] = {}
        self._is_braked = False

    def term_opened(self, epoch: int, seat: str) -> None:
        self._seats[epoch] = seat

    def wrote(self, process: str, epoch: int) -> None:
        """An append of this process took effect."""
        first = self._writers.setdefault(epoch, process)
        if first != process:
            raise Violation("epochs", f"{process} wrote under epoch {epoch}, which belongs to {first}")

    def sent(self, seat: str, message: wire.Message) -> None:
        """A coordinator sent something to a runner."""
        if isinstance(message, wire.Dispositions):
            for _, disposition in message.items:
                if disposition in STALE:
                    self._count("fenced report")
                    self._count(f"report refused as {disposition.name}")
        epoch: int | None = getattr(message, "epoch", None)
        if epoch is None or isinstance(message, wire.HelloMessage):
            return
        after = next(((each, other) for each, other in self._seats.items() if each > epoch), None)
        if after is not None and after[1] != seat:
            kind = type(message).__name__
            raise Violation(
                "leader", f"{seat} sends {kind} under epoch {epoch} while {after[1]} holds {after[0]}"
            )

    def note(self, event: e.Event) -> None:
        """What the log says about leases."""
        match event:
            case e.NodeJoined() | e.NodeLost():
                self._leased(event.node, event.generation)
            case e.TermOpened():
                self._is_braked = False  # every lease starts anew, and so does the count of silent nodes
            case e.BrakeSet():
                self._count("brake")
                self._is_braked = True
            case e.BrakeReleased():
                self._is_braked = False
            case NodeExcluded():
                self._count("node excluded")
        if isinstance(event, e.NodeLost) and self._is_braked and event.cause == "lease over":
            raise Violation("brake", f"{event.node} was declared lost while the brake is set")

    def _leased(self, node: str, generation: int) -> None:
        before = self._generations.get(node, 0)
        if generation <= before:
            raise Violation("generations", f"the lease of {node} is generation {generation} after {before}")
        self._generations[node] = generation
