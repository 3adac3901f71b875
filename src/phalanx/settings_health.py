"""The settings of health checks: what a runner looks at, how often, and what a failing check does."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.errors import ConfigError
from phalanx.settings_types import Argument, Seconds, SizeOrNone, TextOrEmpty

XIDS_OF_PROGRAMS = (13, 31, 43, 45, 68, 109)


class HealthSettings(Struct, frozen=True, kw_only=True):
    """What `phalanx runner` checks of its node."""

    health_interval_s: Annotated[
        Annotated[float, Meta(ge=1, le=SECONDS_MAX)],
        "a duration of at least 1 s",
        "how often disks, memory, NVIDIA devices and the command below are checked",
    ] = 30.0
    health_command: Annotated[
        Annotated[tuple[Argument, ...], Meta(max_length=100)],
        'a list such as ["/usr/local/bin/check-node", "--fast"]',
        "program that checks the node; an exit code other than 0 fails, and its last line is the reason; no shell",
    ] = ()
    health_timeout_s: Annotated[
        Seconds, "how long the command may take; after that it is killed and fails"
    ] = 60.0
    health_disk_free_bytes: Annotated[
        SizeOrNone,
        "a size in bytes, or such as 1GiB, or 0",
        "free space below which a disk fails, at most a twentieth of the disk; 0 = disks are not checked",
    ] = 1 << 30
    health_memory_free_bytes: Annotated[
        SizeOrNone,
        "a size in bytes, or such as 256MiB, or 0",
        "available memory below which the node fails, at most a fiftieth of it; 0 = memory is not checked",
    ] = 256 << 20
    health_nvml: Annotated[
        bool,
        "true or false",
        "whether NVIDIA devices are checked: lost, uncorrectable memory errors, critical Xid errors",
    ] = True
    health_xids_ignored: Annotated[
        TextOrEmpty,
        "numbers separated by commas, or empty",
        "Xid errors that are the fault of programs and say nothing of a device",
    ] = ",".join(map(str, XIDS_OF_PROGRAMS))
    health_xid_s: Annotated[
        Seconds, "how long a device is out of service after a critical Xid error; again with each further one"
    ] = 3600.0
    health_passes: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        "1 to 1000",
        "passes in a row after which a node or device that failed is used again",
    ] = 3
    health_evict: Annotated[
        bool,
        "true or false",
        "whether tasks on a node that fails, or that hold a device that failed, are evicted",
    ] = False

    @property
    def xids_ignored(self) -> frozenset[int]:
        return frozenset(int(each) for each in self.health_xids_ignored.split(",") if each.strip())

    def __post_init__(self) -> None:
        for each in self.health_xids_ignored.split(","):
            if each.strip() and not (each.strip().isdecimal() and len(each.strip()) <= 6):
                raise ConfigError(
                    f"runner.health_xids_ignored = {self.health_xids_ignored!r}: expected numbers separated by"
                    " commas, such as 13,31"
                )
