# ruff: noqa: N802 (the names are those of NVML)
"""Finding hardware: NUMA from an invented sysfs, devices from a fake NVML."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from phalanx.core.model.resources import Device, NumaNode, device_kind
from phalanx.link.claims import wrong_capacity
from phalanx.runner.devices import (
    discover,
    numa_nodes,
    nvidia_devices,
    parse_cpulist,
    pci_numa,
    real_memory_bytes,
)


class NVMLError(Exception):
    """The root of what NVML raises."""


class LibraryNotFound(NVMLError):
    """No driver is installed."""


class NotSupported(NVMLError):
    """The device has no such thing."""


class Nvml:
    """Two devices, as nvidia-ml-py reports them; older versions give bytes where newer ones give text."""

    NVMLError = NVMLError
    NVMLError_LibraryNotFound = LibraryNotFound
    NVMLError_NotSupported = NotSupported

    def __init__(
        self,
        at_init: Exception | None = None,
        at_count: Exception | None = None,
        sizes: tuple[int | None, int | None] = (80 << 30, 80 << 30),
    ) -> None:
        self.at_init, self.at_count, self.sizes = at_init, at_count, sizes
        self.open = 0

    def nvmlInit(self) -> None:
        if self.at_init:
            raise self.at_init
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.at_count:
            raise self.at_count
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return "NVIDIA A100-SXM4-80GB" if handle else b"NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if (size := self.sizes[handle]) is None:
            raise NotSupported
        return SimpleNamespace(total=size)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:3{handle}:00.0")

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"


def test_a_name_that_no_coordinator_takes_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nvml = Nvml()
    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lambda handle: f"\x00NVIDIA\x07A100\n{'x' * 600}")
    told = discover(tmp_path, tmp_path, [0], nvml)
    assert {device.name[:11] for device in told.devices} == {"NVIDIA A100"}
    assert not any(wrong_capacity(told))


def a_sysfs(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]),
        ("5", [5]),
        ("", []),
        ("\n", []),
        ("3-1", []),
        ("0-999999999", []),
        ("0-99999", []),
        ("a", []),
        ("0,,1", []),
        ("1,1-2", [1, 2]),
    ],
)
def test_the_kernels_lists_of_cpus(text: str, cpus: list[int]):
    assert parse_cpulist(text) == cpus


def test_numa_nodes_count_only_cpus_we_may_use(tmp_path: Path):
    folder = "devices/system/node/node"
    a_sysfs(tmp_path, {f"{folder}1/cpulist": "4-7", f"{folder}0/cpulist": "0-3", f"{folder}2/cpulist": "8-9"})
    a_sysfs(tmp_path, {f"{folder}x/cpulist": "0", "devices/system/node/possible": "0-2"})
    assert numa_nodes(tmp_path, {0, 1, 2, 5}) == (NumaNode(0, 3, (0, 1, 2)), NumaNode(1, 1, (5,)))


def test_a_machine_that_tells_nothing_has_no_numa_nodes(tmp_path: Path):
    assert numa_nodes(tmp_path, {0, 1}) == ()


def test_devices_come_with_kind_memory_place_and_uuid(tmp_path: Path):
    a_sysfs(tmp_path, {"bus/pci/devices/0000:31:00.0/numa_node": "1\n"})
    nvml = Nvml()
    assert nvidia_devices(tmp_path, nvml, 0) == (
        Device(0, "a100", 80 << 30, None, "GPU-0", "NVIDIA A100-SXM4-80GB"),
        Device(1, "a100", 80 << 30, 1, "GPU-1", "NVIDIA A100-SXM4-80GB"),
    )
    assert nvml.open == 0


@pytest.mark.parametrize("size", [0, None])
def test_a_device_without_memory_of_its_own_has_a_part_of_the_machines(tmp_path: Path, size: int | None):
    a_sysfs(tmp_path, {"meminfo": "MemTotal: 8388608 kB\n"})
    first, second = discover(tmp_path, tmp_path, {0}, Nvml(sizes=(size, 80 << 30))).devices
    assert (first.memory_bytes, first.shares_memory) == (4 << 30, True)
    assert (second.memory_bytes, second.shares_memory) == (80 << 30, False)


def test_without_the_library_there_are_no_devices_and_no_complaint(caplog: pytest.LogCaptureFixture):
    assert nvidia_devices(Path("/nowhere"), Nvml(at_init=LibraryNotFound()), 0) == ()
    assert caplog.records == []


@pytest.mark.parametrize("nvml", [Nvml(at_init=NVMLError("mismatch")), Nvml(at_count=NVMLError("mismatch"))])
def test_a_broken_driver_is_told(nvml: Nvml, caplog: pytest.LogCaptureFixture):
    assert nvidia_devices(Path("/nowhere"), nvml, 0) == ()
    assert "mismatch" in caplog.text
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("Tesla V100-PCIE-32GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("", "gpu"),
        ("NVIDIA", "nvidia"),
    ],
)
def test_a_product_name_becomes_a_short_kind(name: str, kind: str):
    assert device_kind(name) == kind


@pytest.mark.parametrize("text", ["-1\n", "", "x", "99999"])
def test_a_device_near_no_numa_node_has_none(tmp_path: Path, text: str):
    a_sysfs(tmp_path, {"bus/pci/devices/0000:30:00.0/numa_node": text})
    assert pci_numa(tmp_path, "00000000:30:00.0") is None
    assert pci_numa(tmp_path, "../../etc") is None


def test_memory_is_what_the_tightest_cgroup_allows(tmp_path: Path):
    proc = a_sysfs(tmp_path / "proc", {"meminfo": "MemTotal:       1000000 kB\n", "self/cgroup": "0::/a/b\n"})
    cgroup = tmp_path / "sys" / "fs" / "cgroup"
    assert real_memory_bytes(tmp_path / "sys", proc) == 1_024_000_000
    a_sysfs(cgroup, {"cgroup.controllers": "memory", "a/memory.max": "500000000\n"})
    a_sysfs(cgroup, {"a/b/memory.max": "max\n", "a/b/cgroup.procs": ""})
    assert real_memory_bytes(tmp_path / "sys", proc) == 500_000_000


def test_this_machine_has_something():
    capacity = discover()
    assert capacity.cores >= 1
    assert capacity.memory_bytes > 1 << 28
    assert all(node.cores == len(node.cpus) for node in capacity.numa)
