"""The device nodes of a node's devices: what a task without a device must not open.

NVIDIA's are found through NVML, which knows the number in `/dev/nvidiaN` and the card's PCI address; sysfs lists the
nodes of that card below `/dev/dri`. Nodes that all devices share (nvidiactl, nvidia-uvm) stay open, since they give no
access to a device whose own node is closed. Other accelerators, and tests, name theirs in the setting
`runner.device_nodes`: `0=/dev/dri/renderD128,/dev/dri/card0;1=/dev/dri/renderD129`. The kernel's numbers of a node are
compared, so another path to the same device is closed, too. Devices are closed only if the nodes of all are known:
a driver may make a node that is missing later.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

from phalanx.core.model.resources import Capacity, Device
from phalanx.runner.device_filter import DeviceNode
from phalanx.runner.devices import SYS, pci_folder

DEV = Path("/dev")
NODES_PER_DEVICE_MAX = 16
_NUMBERS = re.compile(r"([0-9]{1,7}):([0-9]{1,7})")
_ONE = re.compile(r"([0-9]{1,5})=(/[^;,]*(?:,/[^;,]*)*)")


class DeviceNodes:
    """The nodes of each device, by its index."""

    def __init__(
        self,
        nodes: dict[int, tuple[DeviceNode, ...]],
        paths: dict[int, list[str]] | None = None,
        missing: Iterable[str] = (),
    ) -> None:
        self._nodes = nodes
        self._paths = paths or {}
        self._missing = sorted(missing)  # paths where no device node is

    def paths_of(self, index: int) -> list[str]:
        """Where the nodes of a device are."""
        return self._paths.get(index, [])

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def why_open(self, devices: Iterable[Device]) -> str:
        """Why some of these devices can be opened by tasks that were not given them; empty if none can."""
        unknown = [str(device.index) for device in devices if device.index not in self._nodes]
        if self._missing:
            return f"no device node at {', '.join(self._missing[:4])}"
        return f"the device nodes of device {', '.join(unknown[:4])} are not known" if unknown else ""

    def denied(self, granted: Iterable[int]) -> tuple[DeviceNode, ...]:
        """The nodes that a task with these devices must not open: those of the others, but not what they share."""
        given = set(granted)
        own = {node for index in given for node in self._nodes.get(index, ())}
        others = {node for index, nodes in self._nodes.items() if index not in given for node in nodes}
        return tuple(sorted(others - own))


def find_nodes(
    capacity: Capacity,
    setting: str | None = None,
    dev_root: Path = DEV,
    nvml: Any = pynvml,
    sys_root: Path = SYS,
) -> DeviceNodes:
    """The nodes of all devices of this node: those of the setting, else those of NVIDIA's devices."""
    cards = {} if setting else _nvidia(capacity, nvml)
    paths = (
        parse_nodes(setting)
        if setting
        else {index: [str(dev_root / f"nvidia{minor}")] for index, (minor, _) in cards.items()}
    )
    known = {device.index for device in capacity.devices}
    if strange := sorted(set(paths) - known):
        raise ValueError(
            f"runner.device_nodes: device {strange[0]} does not exist here, expected {sorted(known) or 'no device'}"
        )
    at = {path: _node(path) for each in paths.values() for path in each}
    found = {index: tuple(node for path in each if (node := at[path])) for index, each in paths.items()}
    for index, (_, bus_id) in cards.items():
        found[index] += _of_card(sys_root, bus_id)
    missing = [path for path, node in at.items() if node is None]
    return DeviceNodes({index: nodes for index, nodes in found.items() if nodes}, paths, missing)


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


def _nvidia(capacity: Capacity, nvml: Any) -> dict[int, tuple[int, str | bytes]]:
    """The driver's number of each device, which NVML may count otherwise, and its PCI address."""
    real = {device.index for device in capacity.devices if device.uuid and "pretend" not in device.uuid}
    if not real:
        return {}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}
    try:
        handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in sorted(real)}
        return {
            index: (int(nvml.nvmlDeviceGetMinorNumber(handle)), nvml.nvmlDeviceGetPciInfo(handle).busId)
            for index, handle in handles.items()
        }
    except nvml.NVMLError:
        return {}
    finally:
        nvml.nvmlShutdown()


def _of_card(sys_root: Path, bus_id: str | bytes) -> tuple[DeviceNode, ...]:
    """The nodes below `/dev/dri` of a PCI device, by the numbers that sysfs has for them."""
    folder = pci_folder(sys_root, bus_id)
    found = []
    for path in sorted((folder / "drm").glob("*/dev")) if folder is not None else ():
        with suppress(OSError):
            if match := _NUMBERS.fullmatch(path.read_text().strip()):
                found.append(DeviceNode(int(match.group(1)), int(match.group(2))))
    return tuple(found)


def _node(path: str) -> DeviceNode | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - links lead to the node that is meant
    except OSError:
        return None
    if not stat.S_ISCHR(found.st_mode) and not stat.S_ISBLK(found.st_mode):
        return None
    return DeviceNode(os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_ISBLK(found.st_mode))
