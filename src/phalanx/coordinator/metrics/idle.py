"""Devices that are held and idle, for `/metrics`: by node now, and seconds by queue since this process began."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.metrics.survey import NODES_MAX, OTHER, queue_labels
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.waiting import DEFAULT


class IdleSamples(Struct):
    by_node: dict[str, int] = {}
    seconds: dict[str, float] = {}


def idle_samples(idle: IdleDevices, state: ClusterState) -> IdleSamples:
    """Labels are nodes (the first 10,000) and declared queues; of all other queues one sum is shown."""
    seconds, queues = {DEFAULT: 0.0}, queue_labels(state)
    for queue, spent_s in idle.seconds.items():
        label = queue if queue in queues else OTHER
        seconds[label] = seconds.get(label, 0.0) + spent_s
    return IdleSamples(dict(islice(sorted(idle.counts().items()), NODES_MAX)), seconds)
