"""Device nodes: which belong to which device, and which a task must not open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from phalanx.core.model.resources import Capacity, Device
from phalanx.runner.device_filter import DeviceNode
from phalanx.runner.device_nodes import find_nodes, parse_nodes
from tests.support.nvml_stub import NvmlStub

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


NVML = SimpleNamespace(
    NVMLError=RuntimeError,
    nvmlInit=lambda: None,
    nvmlShutdown=lambda: None,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetMinorNumber=lambda handle: {0: 4, 1: 2}[handle],
    nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{handle}A:00.0".encode()),
)


def a_dev(folder: Path, *names: str) -> Path:
    """A folder with nodes of these names."""
    for name, target in zip(names, ("/dev/full", "/dev/zero"), strict=False):
        (folder / name).symlink_to(target)
    return folder


def test_nvidias_nodes_are_numbered_by_the_driver_not_by_nvml(tmp_path: Path):
    nodes = find_nodes(TWO, None, a_dev(tmp_path, "nvidia4", "nvidia2"), NVML, tmp_path / "sys")
    assert nodes.denied((0,)) == (ZERO,)
    assert nodes.why_open(TWO.devices) == ""


def test_devices_are_open_while_a_node_of_one_is_missing(tmp_path: Path):
    nodes = find_nodes(TWO, None, a_dev(tmp_path, "nvidia4"), NVML, tmp_path / "sys")
    assert nodes.denied(()) == (FULL,), "what is known is closed all the same"
    assert nodes.why_open(TWO.devices) == f"no device node at {tmp_path}/nvidia2"
    named = find_nodes(TWO, "0=/dev/full")
    assert named.why_open(TWO.devices) == "the device nodes of device 1 are not known"
    partly = find_nodes(TWO, f"0=/dev/full,{tmp_path}/gone;1=/dev/zero")
    assert partly.why_open(TWO.devices) == f"no device node at {tmp_path}/gone"


def test_nodes_of_a_card_below_dri_are_closed_with_it(tmp_path: Path):
    drm = tmp_path / "sys/bus/pci/devices/0000:1a:00.0/drm"
    for name, numbers in (("card1", "226:1\n"), ("renderD129", "226:129\n"), ("broken", "x")):
        (drm / name).mkdir(parents=True)
        (drm / name / "dev").write_text(numbers)
    (drm / "version").write_text("drm 1.1.0")
    nodes = find_nodes(TWO, None, a_dev(tmp_path, "nvidia4", "nvidia2"), NVML, tmp_path / "sys")
    assert nodes.denied((0,)) == (ZERO, DeviceNode(226, 1), DeviceNode(226, 129))
    assert nodes.denied((1,)) == (FULL,)
    assert nodes.paths_of(1) == [f"{tmp_path}/nvidia2"], "a container is given none of them"


FIND = """
import json, sys
from pathlib import Path
from phalanx.runner.device_nodes import find_nodes
from phalanx.runner.devices import discover
root = Path(sys.argv[1])
capacity = discover(root / "sys")
nodes = find_nodes(capacity, None, root / "dev", sys_root=root / "sys")
print(json.dumps([[[each.major, each.minor] for each in nodes.denied((index,))] for index in (0, 1)]))
print(nodes.why_open(capacity.devices))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the library that stands for NVIDIA's is compiled")
def test_the_real_binding_of_nvml_leads_to_the_nodes_of_each_card(tmp_path: Path):
    """The second card has no nodes below /dev/dri; the library numbers the cards 5 and 4."""
    (tmp_path / "dev").mkdir()
    a_dev(tmp_path / "dev", "nvidia5", "nvidia4")
    drm = tmp_path / "sys/bus/pci/devices/0000:31:00.0/drm/renderD128"
    drm.mkdir(parents=True)
    (drm / "dev").write_text("226:128\n")
    environment = {**os.environ, **NvmlStub(tmp_path / "nvml").environment}
    command = [sys.executable, "-c", FIND, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    denied, why_open = done.stdout.splitlines()
    assert json.loads(denied) == [[[1, 5]], [[1, 7], [226, 128]]]
    assert why_open == ""


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
