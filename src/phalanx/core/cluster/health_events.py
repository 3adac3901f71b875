"""The decided fact about the health checks of a node; see `events.py`."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import NodeEvent
from phalanx.core.model.health import NodeHealth


class NodeChecked(NodeEvent, frozen=True):
    """Other checks of a node fail than before, or none does. An operator's drain is not touched by it."""

    health: NodeHealth
