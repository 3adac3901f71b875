"""Device nodes: which belong to which device, and which a task must not open."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from phalanx.core.model.resources import Capacity, Device
from phalanx.runner.device_filter import DeviceNode
from phalanx.runner.device_nodes import find_nodes, parse_nodes

FULL, ZERO, NULL = DeviceNode(1, 7), DeviceNode(1, 5), DeviceNode(1, 3)
TWO = Capacity(1, 1, devices=(Device(0, "gpu", uuid="GPU-a"), Device(1, "gpu", uuid="GPU-b")))


def test_a_task_must_not_open_the_nodes_of_other_devices():
    nodes = find_nodes(TWO, "0=/dev/full;1=/dev/zero")
    assert nodes
    assert nodes.denied(()) == (ZERO, FULL)
    assert nodes.denied((0,)) == (ZERO,)
    assert nodes.denied((0, 1)) == ()


def test_a_node_that_two_devices_share_is_open_to_both():
    nodes = find_nodes(TWO, "0=/dev/full,/dev/null;1=/dev/zero,/dev/null")
    assert nodes.denied((0,)) == (ZERO,)
    assert nodes.denied(()) == (NULL, ZERO, FULL)


def test_nvidias_nodes_are_numbered_by_the_driver_not_by_nvml(tmp_path: Path):
    for name, target in (("nvidia4", "/dev/full"), ("nvidia2", "/dev/zero")):
        (tmp_path / name).symlink_to(target)
    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMinorNumber=lambda handle: {0: 4, 1: 2}[handle],
    )
    assert find_nodes(TWO, None, tmp_path, nvml).denied((0,)) == (ZERO,)


def test_a_machine_without_devices_or_their_nodes_has_none(tmp_path: Path):
    assert not find_nodes(Capacity(1, 1))
    pretended = Capacity(1, 1, devices=(Device(0, "gpu", uuid="GPU-pretend-n1-0"),))
    assert not find_nodes(pretended)
    assert not find_nodes(TWO, f"0={tmp_path}/gone;1={tmp_path}")


@pytest.mark.parametrize("text", ["0", "0=full", "x=/dev/full", "0=/dev/full;0=/dev/zero", "0=/a,,/b"])
def test_what_is_no_list_of_nodes_is_refused_with_the_part_that_is_wrong(text: str):
    with pytest.raises(ValueError, match=r"runner\.device_nodes"):
        parse_nodes(text)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device 7 does not exist here"):
        find_nodes(TWO, "7=/dev/full")


def test_too_many_nodes_of_one_device_are_refused():
    with pytest.raises(ValueError, match="at most 16"):
        parse_nodes("0=" + ",".join(["/dev/full"] * 17))
