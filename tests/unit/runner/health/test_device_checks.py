"""Checks of devices: the real binding of NVML over a small library of invented devices, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nvml_stub import NvmlStub

PROGRAM = """
import json, sys
from phalanx.core.model.resources import Device
from phalanx.runner.health.device_checks import DeviceChecks
now = [0.0]
devices = [Device(0, "h100", 1, None, "GPU-stub-0"), Device(1, "h100", 1, None, "GPU-stub-1")]
checks = DeviceChecks(devices, frozenset({13, 31}), 60.0, lambda: now[0])
for line in sys.stdin:
    now[0] += float(line)
    print(json.dumps([[each.check, each.reason, each.device] for each in checks.look()]), flush=True)
"""


class Looks:
    """A process that looks whenever it is told to."""

    def __init__(self, nvml: NvmlStub) -> None:
        environment = os.environ | nvml.environment
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, env=environment, text=True
        )

    def after(self, seconds: float = 1.0) -> dict[str, str]:
        """What fails, after so many seconds more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return {check: reason for check, reason, _ in json.loads(self.process.stdout.readline()) if reason}


@pytest.fixture
def nvml(tmp_path: Path) -> NvmlStub:
    return NvmlStub(tmp_path / "nvml")


def test_lost_devices_memory_errors_and_xids_fail_one_device_each(nvml: NvmlStub) -> None:
    looks = Looks(nvml)
    well = (False, 0, 0, 0)
    with looks.process:
        assert looks.after() == {}
        nvml.fails(well, (True, 0, 0, 0))
        assert list(found := looks.after()) == ["GPU 1"]
        assert "fell off the bus" in found["GPU 1"]
        nvml.fails((False, 2, 0, 0), well)
        assert "2 uncorrectable ECC errors" in looks.after()["GPU 0"]
        nvml.fails(well, (False, 0, 31, 1))
        assert looks.after() == {}, "Xid 31 is the fault of a program"
        nvml.fails(well, (False, 0, 79, 2))
        assert "Xid 79" in looks.after()["GPU 1"]
        assert "Xid 79" in looks.after(50.0)["GPU 1"]
        assert looks.after(20.0) == {}, "its time is over, and no other came"
        nvml.fails((True, 0, 0, 0), (True, 0, 0, 0))
        assert list(looks.after()) == ["GPU 0", "GPU 1"]
        nvml.fails(well, well)
        assert looks.after() == {}
        looks.process.kill()
