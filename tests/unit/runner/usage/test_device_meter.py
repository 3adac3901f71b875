# ruff: noqa: N802 (the names are those of NVML)
"""Devices read through NVML: what answers, what does not, and a driver that hangs."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.runner.usage import device_meter
from phalanx.runner.usage.device_meter import PASSED_OVER, DeviceMeter, DeviceReading

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class NVMLError(Exception):
    """The root of what NVML raises."""


class FakeNvml:
    """Devices by UUID, each with a utilisation, memory in use, and processes or none that are told."""

    NVMLError = NVMLError

    def __init__(self, **devices: tuple[int, int, dict[int, int | None] | None]) -> None:
        self.devices = devices
        self.opened = 0
        self.at_init: Exception | None = None
        self.hangs: threading.Event | None = None

    def nvmlInit(self) -> None:
        self.opened += 1
        if self.at_init:
            raise self.at_init

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if self.hangs is not None:
            self.hangs.wait(10.0)
        if uuid not in self.devices:
            raise NVMLError("not found")
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        if handle not in self.devices:
            raise NVMLError("is lost")
        return SimpleNamespace(gpu=self.devices[handle][0])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=self.devices[handle][1])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        told = self.devices[handle][2]
        if told is None:
            raise NVMLError("not supported")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in told.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        raise NVMLError("not supported")


async def test_each_device_that_answers_is_read():
    nvml = FakeNvml(a=(93, 4096, {7: 1000, 8: None}), b=(0, 10, None))
    found = await DeviceMeter(nvml).read(["a", "b", "gone"])
    assert found == {"a": DeviceReading(0.93, 4096, {7: 1000}), "b": DeviceReading(0.0, 10)}


async def test_a_device_that_falls_off_the_bus_is_left_out_and_found_again():
    nvml = FakeNvml(a=(50, 1, {}), b=(60, 2, {}))
    meter = DeviceMeter(nvml)
    assert set(await meter.read(["a", "b"])) == {"a", "b"}
    lost = nvml.devices.pop("a")
    assert set(await meter.read(["a", "b"])) == {"b"}
    nvml.devices["a"] = lost
    assert set(await meter.read(["a", "b"])) == {"a", "b"}


async def test_without_a_driver_it_is_asked_only_now_and_then():
    nvml = FakeNvml()
    nvml.at_init = NVMLError("no driver")
    meter = DeviceMeter(nvml)
    for _ in range(PASSED_OVER + 1):
        assert await meter.read(["a"]) == {}
    assert nvml.opened == 1
    assert await meter.read(["a"]) == {}
    assert nvml.opened == 2


async def test_a_driver_that_hangs_holds_up_nobody_and_is_asked_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_meter, "ANSWER_WITHIN_S", 0.05)
    nvml = FakeNvml(a=(50, 1, {}))
    nvml.hangs = threading.Event()
    meter = DeviceMeter(nvml)
    before = set(threading.enumerate())  # some of other tests may end meanwhile
    assert await meter.read(["a"]) == {}
    assert await meter.read(["a"]) == {}
    assert len(set(threading.enumerate()) - before) == 1
    nvml.hangs.set()
    monkeypatch.setattr(device_meter, "ANSWER_WITHIN_S", 5.0)
    assert set(await meter.read(["a"])) == {"a"}
