"""The device nodes of a node's devices: what a task without a device must not open.

NVIDIA's are found through NVML, which knows the number in `/dev/nvidiaN`; nodes that all devices share (nvidiactl,
nvidia-uvm) stay open, since they give no access to a device whose own node is closed. Other accelerators, and tests,
name theirs in the setting `runner.device_nodes`: `0=/dev/dri/renderD128,/dev/dri/card0;1=/dev/dri/renderD129`. The
kernel's numbers of a node are compared, so another path to the same device is closed, too.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pynvml

from phalanx.core.model.resources import Capacity
from phalanx.runner.device_filter import DeviceNode

DEV = Path("/dev")
NODES_PER_DEVICE_MAX = 16
_ONE = re.compile(r"([0-9]{1,5})=(/[^;,]*(?:,/[^;,]*)*)")


class DeviceNodes:
    """The nodes of each device, by its index."""

    def __init__(
        self, nodes: dict[int, tuple[DeviceNode, ...]], paths: dict[int, list[str]] | None = None
    ) -> None:
        self._nodes = nodes
        self._paths = paths or {}

    def paths_of(self, index: int) -> list[str]:
        """Where the nodes of a device are."""
        return self._paths.get(index, [])

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def denied(self, granted: Iterable[int]) -> tuple[DeviceNode, ...]:
        """The nodes that a task with these devices must not open: those of the others, but not what they share."""
        given = set(granted)
        own = {node for index in given for node in self._nodes.get(index, ())}
        others = {node for index, nodes in self._nodes.items() if index not in given for node in nodes}
        return tuple(sorted(others - own))


def find_nodes(
    capacity: Capacity, setting: str | None = None, dev_root: Path = DEV, nvml: Any = pynvml
) -> DeviceNodes:
    """The nodes of all devices of this node: those of the setting, else those of NVIDIA's devices."""
    paths = parse_nodes(setting) if setting else _nvidia(capacity, dev_root, nvml)
    known = {device.index for device in capacity.devices}
    if strange := sorted(set(paths) - known):
        raise ValueError(
            f"runner.device_nodes: device {strange[0]} does not exist here, expected {sorted(known) or 'no device'}"
        )
    found = {index: tuple(filter(None, map(_node, each))) for index, each in paths.items()}
    return DeviceNodes({index: nodes for index, nodes in found.items() if nodes}, paths)


def parse_nodes(text: str) -> dict[int, list[str]]:
    """The setting's paths by the index of their device, or ValueError with the part that is wrong."""
    paths: dict[int, list[str]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        match = _ONE.fullmatch(part)
        if match is None or int(match.group(1)) in paths:
            raise ValueError(
                f"runner.device_nodes: {part[:80]!r} is invalid: expected INDEX=/dev/PATH,/dev/PATH, each index once"
            )
        paths[int(match.group(1))] = given = match.group(2).split(",")
        if len(given) > NODES_PER_DEVICE_MAX:
            raise ValueError(
                f"runner.device_nodes: device {match.group(1)} has {len(given)} nodes, at most {NODES_PER_DEVICE_MAX}"
            )
    return paths


def _nvidia(capacity: Capacity, dev_root: Path, nvml: Any) -> dict[int, list[str]]:
    """NVML may count devices otherwise than the driver numbers them."""
    real = {device.index for device in capacity.devices if device.uuid and "pretend" not in device.uuid}
    if not real:
        return {}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}
    try:
        minors = {
            index: int(nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(index)))
            for index in real
        }
    except nvml.NVMLError:
        return {}
    finally:
        nvml.nvmlShutdown()
    return {index: [str(dev_root / f"nvidia{minor}")] for index, minor in minors.items()}


def _node(path: str) -> DeviceNode | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - links lead to the node that is meant
    except OSError:
        return None
    if not stat.S_ISCHR(found.st_mode) and not stat.S_ISBLK(found.st_mode):
        return None
    return DeviceNode(os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_ISBLK(found.st_mode))
