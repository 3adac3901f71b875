"""CDI names of devices: read from the specifications of a node, again when they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.core.model.resources import Capacity, Device
from phalanx.runner.containers.body import docker_body, podman_body
from phalanx.runner.containers.cdi import CdiDevices
from phalanx.runner.containers.found import RuntimeFound
from phalanx.runner.containers.launching import NO_LIBRARIES, ContainerLaunches
from tests.unit.runner.containers.test_body import SPEC

NVIDIA = "nvidia.com/gpu"
FIRST, SECOND = Device(0, "h100", uuid="GPU-5e"), Device(1, "h100", uuid="GPU-6f")


def write(folder: Path, *names: str, kind: str = NVIDIA, file: str = "nvidia.yaml") -> None:
    folder.mkdir(exist_ok=True)
    devices = [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names]
    (folder / file).write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices}))


def test_a_device_is_named_by_its_uuid_or_else_by_its_index(tmp_path: Path) -> None:
    cdi = CdiDevices(NVIDIA, [tmp_path / "missing", tmp_path])
    assert cdi.name_of(FIRST) == ""
    write(tmp_path, "0", "GPU-6f", "all")
    assert (cdi.name_of(FIRST), cdi.name_of(SECOND)) == ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-6f")
    write(tmp_path, "GPU-5e")
    assert (cdi.name_of(FIRST), cdi.name_of(SECOND)) == ("nvidia.com/gpu=GPU-5e", "")


@pytest.mark.parametrize(
    "text",
    ["", "[", "- 1", f"kind: {NVIDIA}", f"kind: {NVIDIA}\ndevices: 3", f"kind: {NVIDIA}\ndevices: [1]"],
)
def test_a_specification_that_is_none_names_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    write(tmp_path, "0", file="other.json")
    assert CdiDevices(NVIDIA, [tmp_path]).name_of(FIRST) == "nvidia.com/gpu=0"


def test_other_kinds_and_none(tmp_path: Path) -> None:
    write(tmp_path, "0", kind="amd.com/gpu")
    assert CdiDevices(NVIDIA, [tmp_path]).name_of(FIRST) == ""
    assert CdiDevices("amd.com/gpu", [tmp_path]).name_of(FIRST) == "amd.com/gpu=0"
    assert CdiDevices("none", [tmp_path]).name_of(FIRST) == ""


def test_runtimes_are_asked_in_their_words() -> None:
    named = {**SPEC, "devices": ["/dev/nvidia1"], "device_names": ["nvidia.com/gpu=0"]}
    paths = [each["path"] for each in podman_body(named, {}, 1)["devices"]]  # type: ignore[arg-type]
    assert paths == ["/dev/nvidia1", "nvidia.com/gpu=0"]
    host = docker_body(named, {})["HostConfig"]  # type: ignore[arg-type]
    assert host["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]
    own = {**named, "device_names": ["GPU-5e"], "device_driver": "nvidia"}
    assert docker_body(own, {})["HostConfig"]["DeviceRequests"] == [  # type: ignore[arg-type]
        {"Driver": "nvidia", "DeviceIDs": ["GPU-5e"], "Capabilities": [["gpu"]]}
    ]
    assert "DeviceRequests" not in docker_body(SPEC, {})["HostConfig"]


def test_a_node_says_that_its_containers_lack_the_libraries(tmp_path: Path) -> None:
    def text(driver: str, *devices: Device) -> str:
        found = RuntimeFound("/s", "podman", "podman 5", driver)
        containers = ContainerLaunches(
            found, "mark", tmp_path, (), 1.0, CdiDevices(NVIDIA, [tmp_path / "cdi"])
        )
        containers.devices = devices
        described = containers.described(Capacity(4, 1 << 30, devices=devices)).containers
        containers.close()
        return described

    assert text("cdi", FIRST) == f"podman 5; {NO_LIBRARIES}"
    assert text("cdi") == text("cdi", Device(0, "h100", uuid="GPU-pretend-0")) == "podman 5"
    assert text("nvidia", FIRST) == "podman 5"
    write(tmp_path / "cdi", "0")
    assert text("cdi", FIRST) == "podman 5"
    assert text("", FIRST) == f"podman 5; {NO_LIBRARIES}"
