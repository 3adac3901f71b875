"""Lines of the coordinator's own log about events that an operator should find there."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.core.cluster.events import (
    BrakeReleased,
    BrakeSet,
    Event,
    NodeDisabled,
    NodeEnabled,
    NodeLost,
    NodeNeeded,
)
from phalanx.core.cluster.exclusion_events import NodeExcluded
from phalanx.core.explain.story import sentence
from phalanx.logger import logger

log = logger("coordinator")
ALARMS = (BrakeSet, BrakeReleased, NodeExcluded, NodeLost)
ELASTIC = (NodeDisabled, NodeEnabled, NodeNeeded)


def log_events(events: Iterable[Event]) -> None:
    """Write down what the operator has to know of a durable turn."""
    for event in events:
        if type(event) in ALARMS:
            log.warning(sentence(event))
        elif type(event) in ELASTIC:
            log.info(sentence(event))
