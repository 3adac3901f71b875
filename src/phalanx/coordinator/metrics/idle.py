"""Devices that are held and idle, for `/metrics`: by node now, and seconds by queue since this process began."""

from __future__ import annotations

from msgspec import Struct

from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.metrics.survey import OTHER, queue_labels
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.queues import DEFAULT


class IdleSamples(Struct):
    by_node: dict[str, int] = {}
    seconds: dict[str, float] = {}


def idle_samples(idle: IdleDevices, state: ClusterState) -> IdleSamples:
    """Declared queues have a label; of all others one sum is shown. Which nodes are shown is the survey's to say."""
    seconds, queues = {DEFAULT: 0.0}, queue_labels(state)
    for queue, spent_s in idle.seconds.items():
        label = queue if queue in queues else OTHER
        seconds[label] = seconds.get(label, 0.0) + spent_s
    return IdleSamples(idle.counts(), seconds)
