"""What this node really has: cores, memory, NUMA nodes and accelerators.

The runner may have less than the machine: only CPUs it may run on and memory its cgroups allow are counted. Devices
come from NVML, through nvidia-ml-py; a machine without it has no devices, and that is no error. Simulated hardware is
in `pretend.py`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pynvml

from phalanx.core.model.resources import Capacity, Device, NumaNode, device_kind
from phalanx.runner import cgroups

log = logging.getLogger(__name__)
SYS = Path("/sys")
PROC = Path("/proc")
CPU_MAX = 65_535
NUMA_MAX = 1024
NAME_MAX = 200  # characters of the name of a device; coordinators take 512
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def discover(
    sys_root: Path = SYS, proc_root: Path = PROC, cpus: Collection[int] | None = None, nvml: Any = pynvml
) -> Capacity:
    """The capacity of this node, without labels."""
    usable = set(cpus if cpus is not None else os.sched_getaffinity(0))
    memory_bytes = real_memory_bytes(sys_root, proc_root)
    return Capacity(
        len(usable),
        memory_bytes,
        numa_nodes(sys_root, usable),
        nvidia_devices(sys_root, nvml, memory_bytes),
    )


def real_memory_bytes(sys_root: Path = SYS, proc_root: Path = PROC) -> int:
    """The machine's memory, or what the cgroups of the runner allow of it."""
    limit = cgroups.memory_limit(sys_root / "fs" / "cgroup", proc_root)
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", _text(proc_root / "meminfo"), re.MULTILINE)
    total = int(match.group(1)) * 1024 if match else 0
    return min(total, limit) if limit is not None and total else total or limit or 0


def numa_nodes(sys_root: Path, cpus: Collection[int]) -> tuple[NumaNode, ...]:
    """The NUMA nodes that have a usable CPU; empty where the kernel does not list them."""
    nodes = []
    for folder in (sys_root / "devices" / "system" / "node").glob("node[0-9]*"):
        number = folder.name.removeprefix("node")
        own = [cpu for cpu in parse_cpulist(_text(folder / "cpulist")) if cpu in cpus]
        if number.isdecimal() and int(number) <= NUMA_MAX and own:
            nodes.append(NumaNode(int(number), len(own), tuple(own)))
    return tuple(sorted(nodes, key=lambda node: node.id))


def parse_cpulist(text: str) -> list[int]:
    """Parse the kernel's `0-3,8,10-11`. What is not such a list, or names an impossible CPU, gives none."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return []
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if not first <= last <= CPU_MAX:
            return []
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def nvidia_devices(sys_root: Path, nvml: Any, machine_bytes: int) -> tuple[Device, ...]:
    """All devices NVML knows, in its order; those without memory of their own have equal parts of the machine's."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        return ()
    except nvml.NVMLError as error:
        log.warning("the NVIDIA driver cannot be used, so this node offers no devices: %s", error)
        return ()
    try:
        count = nvml.nvmlDeviceGetCount()
        return tuple(_device(sys_root, nvml, index, machine_bytes // count) for index in range(count))
    except nvml.NVMLError as error:
        log.warning("NVIDIA devices cannot be read, so this node offers none: %s", error)
        return ()
    finally:
        nvml.nvmlShutdown()


def _printable(name: str) -> str:
    """A name as a coordinator takes it; what a driver says is not always text."""
    return "".join(each if each.isprintable() else " " for each in name)[:NAME_MAX].strip()


def _device(sys_root: Path, nvml: Any, index: int, part_bytes: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, own_bytes = _printable(_as_text(nvml.nvmlDeviceGetName(handle))), _own_bytes(nvml, handle)
    return Device(
        index,
        device_kind(name),
        own_bytes or part_bytes,
        pci_numa(sys_root, _as_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        _as_text(nvml.nvmlDeviceGetUUID(handle)),
        name,
        shares_memory=not own_bytes,
    )


def _own_bytes(nvml: Any, handle: Any) -> int:
    """The memory of a device; 0 if it has none of its own, as on a GB10 or a Jetson, where CPU and GPU share it."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError_NotSupported:
        return 0


def pci_numa(sys_root: Path, bus_id: str) -> int | None:
    """The NUMA node of a PCI device."""
    folder = pci_folder(sys_root, bus_id)
    text = _text(folder / "numa_node").strip() if folder is not None else ""
    return int(text) if text.isdecimal() and int(text) <= NUMA_MAX else None


def pci_folder(sys_root: Path, bus_id: str | bytes) -> Path | None:
    """Where sysfs describes a PCI device; it writes the device's domain with four digits, NVML with eight."""
    match = _PCI.fullmatch(_as_text(bus_id).lower())
    if match is None:
        return None
    return sys_root / "bus" / "pci" / "devices" / f"{int(match.group(1), 16):04x}:{match.group(2)}"


def _as_text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
