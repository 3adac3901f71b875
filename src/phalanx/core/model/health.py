"""What the health checks of a node found: a node that should get no work, or single devices that should not be used."""

from __future__ import annotations

from msgspec import Struct, structs

from phalanx.core.model.resources import Capacity

REASON_MAX = 300  # characters
FAILED_MAX = 64  # devices that are named with a reason


class DeviceHealth(Struct, frozen=True):
    """One device that failed its check."""

    index: int
    reason: str


class NodeHealth(Struct, frozen=True, omit_defaults=True):
    """Checks that fail. `reason` concerns the whole node and is empty if only devices failed."""

    reason: str = ""
    devices: tuple[DeviceHealth, ...] = ()
    evict: bool = False  # what runs on the node, or holds one of the devices, is to leave

    @property
    def failed(self) -> dict[int, str]:
        """The devices that failed, by index, each with its reason."""
        return {each.index: each.reason for each in self.devices}


WELL = NodeHealth()


def in_service(capacity: Capacity, health: NodeHealth) -> Capacity:
    """What a node has to give while some of its devices are out of service."""
    if not health.devices:
        return capacity
    failed = health.failed
    left = tuple(device for device in capacity.devices if device.index not in failed)
    return structs.replace(capacity, devices=left)


def bounded(health: NodeHealth | None) -> NodeHealth:
    """The same within the sizes that an event may have."""
    if health is None or not (health.reason or health.devices):
        return WELL
    devices = tuple(
        DeviceHealth(each.index, each.reason[:REASON_MAX]) for each in health.devices[:FAILED_MAX]
    )
    return NodeHealth(health.reason[:REASON_MAX], devices, health.evict)
