"""The health checks of one node, made again and again; what they find goes to the coordinator with a heartbeat.

Nothing here is done per task: every check is made once in an interval, in a thread or as a process, with a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from phalanx.clock import Clock
from phalanx.logger import logger
from phalanx.runner.health.background import BackgroundCall
from phalanx.runner.health.command import CommandCheck
from phalanx.runner.health.device_checks import NVML, DeviceChecks
from phalanx.runner.health.machine_checks import check_disks, check_memory
from phalanx.runner.health.standing import CheckResult, CheckStanding
from phalanx.runner.turn import RunnerEngine
from phalanx.settings_health import HealthSettings

log = logger("runner")
ANSWER_WITHIN_S = 10.0  # of a disk or of the driver
Look = Callable[[], Awaitable[list[CheckResult]]]


class HealthMonitor:
    """Checks of one node, and what is known of each."""

    def __init__(
        self,
        settings: HealthSettings,
        folders: Sequence[Path],
        engine: RunnerEngine,
        clock: Clock,
        environment: Mapping[str, str],
        beat: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._command = None
        if command := settings.health_command:
            self._command = CommandCheck(command, settings.health_timeout_s, environment)
        self._engine = engine
        self._beat = beat
        self._standing = CheckStanding(settings.health_passes, evict=settings.health_evict)
        self._looks: list[Look] = []
        is_failing = self._standing.is_failing
        if free_min := settings.health_disk_free_bytes:
            self._add("disk", lambda: check_disks(folders, free_min, is_failing))
        if memory_min := settings.health_memory_free_bytes:
            self._add("memory", lambda: [check_memory(memory_min, is_failing)])
        devices = DeviceChecks(
            engine.capacity.devices, settings.xids_ignored, settings.health_xid_s, clock.monotonic
        )
        if settings.health_nvml and devices.is_needed:
            self._add(NVML, devices.look)

    def _add(self, name: str, call: Callable[[], list[CheckResult]]) -> None:
        background = BackgroundCall(f"health {name}", call, ANSWER_WITHIN_S)

        async def look() -> list[CheckResult]:
            """A call that hangs is a finding under the same name each time; one that answers passes it."""
            answers = f"{name} answers"
            try:
                return [CheckResult(answers), *await background.ask()]
            except TimeoutError:
                return [CheckResult(answers, f"{name} does not answer within {ANSWER_WITHIN_S:g} s")]
            except OSError as error:
                return [CheckResult(answers, f"{name}: {error.strerror or error}")]

        self._looks.append(look)

    async def keep(self) -> None:
        """As long as the runner lives."""
        while True:
            await self.check(with_command=True)
            await asyncio.sleep(self._settings.health_interval_s)

    async def check(self, *, with_command: bool) -> None:
        """Make every check once. The operator's command may take long, and is left out before the first hello."""
        for look in self._looks:
            for found in await look():
                self._standing.note(found)
        if with_command and self._command is not None:
            self._standing.note(await self._command.ask())
        self._tell()

    def _tell(self) -> None:
        health = self._standing.health
        if health == self._engine.health:
            return
        self._engine.health = health
        if health is None:
            log.info("health checks pass again")
        else:
            failed = {each.index: each.reason for each in health.devices}
            log.error("a health check fails", reason=health.reason, devices=failed, evict=health.evict)
        self._beat()
