"""Utilisation and memory of devices, read through NVML in a thread of its own.

A driver that hangs must not hold up the runner: what does not answer in time is not known, and is asked again when it
has answered. Nothing here knows attempts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pynvml
from msgspec import Struct

from phalanx.logger import logger

log = logger("runner")
ANSWER_WITHIN_S = 2.0
PASSED_OVER = 12  # readings that are passed over after NVML could not be opened


class DeviceReading(Struct, frozen=True):
    """One device now; `processes` has the memory of each process that NVML tells."""

    use: float  # from 0 to 1
    memory_bytes: int
    processes: dict[int, int] = {}


class DeviceMeter:
    """Reads devices by their UUID."""

    def __init__(self, nvml: Any = pynvml) -> None:
        self._nvml = nvml
        self._handles: dict[str, Any] = {}
        self._is_open = False
        self._passed_over = 0
        self._reading: asyncio.Future[dict[str, DeviceReading]] | None = None

    async def read(self, uuids: Sequence[str]) -> dict[str, DeviceReading]:
        """Those that answer, by UUID."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_future()
            arguments = list(uuids), asyncio.get_running_loop(), self._reading
            threading.Thread(target=self._run, args=arguments, name="nvml", daemon=True).start()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await asyncio.shield(self._reading)
        except TimeoutError:
            return {}

    def read_now(self, uuids: Sequence[str]) -> dict[str, DeviceReading]:
        """The same, as long as it takes."""
        if not self._opened():
            return {}
        found = {}
        for uuid in uuids:
            try:
                found[uuid] = self._read_one(uuid)
            except (self._nvml.NVMLError, self._mismatch):
                self._handles.pop(uuid, None)  # it fell off the bus, or the driver was loaded anew
        if uuids and not found:
            self._close()
        return found

    def _run(
        self,
        uuids: list[str],
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[dict[str, DeviceReading]],
    ) -> None:
        found: dict[str, DeviceReading] = {}
        try:
            found = self.read_now(uuids)
        finally:  # whatever happens here, the next reading begins anew
            with suppress(RuntimeError):  # the runner has stopped meanwhile
                loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(found))

    def _opened(self) -> bool:
        if self._is_open:
            return True
        if self._passed_over:
            self._passed_over -= 1
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            self._passed_over = PASSED_OVER
            return False
        self._is_open = True
        return True

    def _close(self) -> None:
        self._is_open, self._handles = False, {}
        self._passed_over = PASSED_OVER
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read_one(self, uuid: str) -> DeviceReading:
        nvml = self._nvml
        if uuid not in self._handles:
            self._handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
        handle = self._handles[uuid]
        use = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return DeviceReading(min(1.0, max(0.0, use)), memory_bytes, self._processes(handle))

    def _processes(self, handle: Any) -> dict[int, int]:
        """Not every driver tells, and not every process's memory is known."""
        found: dict[int, int] = {}
        for kind in ("Compute", "Graphics"):
            for each in self._processes_of(f"nvmlDeviceGet{kind}RunningProcesses", handle):
                if each.usedGpuMemory is not None:
                    found[int(each.pid)] = max(found.get(int(each.pid), 0), int(each.usedGpuMemory))
        return found

    def _processes_of(self, name: str, handle: Any) -> list[Any]:
        """The binding is newer than some drivers, and refuses to call theirs unless it is told the version."""
        for version in ("", "_v2"):
            if (ask := getattr(self._nvml, f"{name}{version}", None)) is not None:
                with suppress(self._nvml.NVMLError, self._mismatch):
                    return list(ask(handle))
        return []

    @property
    def _mismatch(self) -> type[Exception]:
        found: type[Exception] = getattr(self._nvml, "NVMLLibraryMismatchError", self._nvml.NVMLError)
        return found
