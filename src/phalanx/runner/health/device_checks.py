"""Checks of NVIDIA devices through NVML: lost, uncorrectable memory errors, critical Xid errors.

All of it blocks and belongs into a thread. Xid errors are events, not a state: a device counts as failed for a while
after the last one. Devices are known by their UUID, because indexes change when one falls off the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pynvml

from phalanx.core.model.resources import Device
from phalanx.runner.health.standing import CheckResult

EVENTS_MAX = 1000  # in one look
NVML = "NVIDIA driver"


class DeviceChecks:
    """The devices of one node."""

    def __init__(
        self,
        devices: Sequence[Device],
        xids_ignored: frozenset[int],
        xid_s: float,
        monotonic: Callable[[], float],
        nvml: Any = pynvml,
    ) -> None:
        self._devices = [device for device in devices if device.uuid]
        self._ignored = xids_ignored
        self._xid_s = xid_s
        self._monotonic = monotonic
        self._nvml = nvml
        self._is_open = False
        self._events: Any = None
        self._registered: set[str] = set()
        self._xids: dict[str, tuple[int, float]] = {}  # the last critical one of each device, and when

    @property
    def is_needed(self) -> bool:
        return bool(self._devices)

    def look(self) -> list[CheckResult]:
        """A finding for the driver, and one for each device if it answers."""
        try:
            if not self._is_open:
                self._nvml.nvmlInit()
                self._is_open = True
            handles = {device.uuid: self._handle(device.uuid) for device in self._devices}
        except self._nvml.NVMLError as error:
            self._close()
            return [CheckResult(NVML, f"{NVML}: {error}")]
        self._listen(handles)
        found = [CheckResult(NVML)]
        found += [self._check(device, handles[device.uuid]) for device in self._devices]
        if all(handle is None for handle in handles.values()):
            self._close()  # the driver may have been loaded anew: what we have of it is of no use then
        return found

    def _handle(self, uuid: str) -> Any:
        """None if it is gone. Other errors concern the driver as a whole."""
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except (self._nvml.NVMLError_GpuIsLost, self._nvml.NVMLError_NotFound):
            return None

    def _check(self, device: Device, handle: Any) -> CheckResult:
        check = f"GPU {device.index}"
        reason = "" if handle is not None else f"{check} fell off the bus: NVML does not find {device.uuid}"
        if not reason:
            try:
                reason = self._wrong_with(check, device, handle)
            except self._nvml.NVMLError as error:
                reason = f"{check} does not answer: {error}"
        return CheckResult(check, reason, device.index)

    def _wrong_with(self, check: str, device: Device, handle: Any) -> str:
        nvml = self._nvml
        nvml.nvmlDeviceGetMemoryInfo(handle)  # one that is lost says so
        unknown = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
        )  # by this device, or this driver
        with suppress(*unknown):
            count = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            if count:
                return f"{check} has {count} uncorrectable ECC errors since the driver was loaded"
        with suppress(*unknown):
            if nvml.nvmlDeviceGetRemappedRows(handle)[3]:
                return f"{check} could not remap a bad row of its memory"
        xid, at = self._xids.get(device.uuid, (0, 0.0))
        if xid and self._monotonic() - at < self._xid_s:
            return f"{check} had a critical error: Xid {xid}"
        return ""

    def _listen(self, handles: dict[str, Any]) -> None:
        """Take the Xid errors since the last look. A driver that cannot tell them is no failure."""
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
            for uuid, handle in handles.items():
                if handle is not None and uuid not in self._registered:
                    self._registered.add(uuid)
                    with suppress(nvml.NVMLError):
                        nvml.nvmlDeviceRegisterEvents(
                            handle, nvml.nvmlEventTypeXidCriticalError, self._events
                        )
            for _ in range(EVENTS_MAX):
                self._note(nvml.nvmlEventSetWait_v2(self._events, 0))  # ends with a timeout

    def _note(self, event: Any) -> None:
        xid = int(event.eventData)
        if event.eventType != self._nvml.nvmlEventTypeXidCriticalError or xid in self._ignored:
            return
        uuid = self._nvml.nvmlDeviceGetUUID(event.device)
        name = uuid.decode("utf-8", "replace") if isinstance(uuid, bytes) else uuid
        self._xids[name] = xid, self._monotonic()

    def _close(self) -> None:
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        with suppress(nvml.NVMLError):
            if self._is_open:
                nvml.nvmlShutdown()
        self._is_open, self._events, self._registered = False, None, set()
