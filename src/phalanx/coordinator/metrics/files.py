"""The metrics on disk, where a folder is set: metrics.json, events.log, the density series and a report at the end.

Files are replaced whole, by a rename, at most every few seconds and only if something happened. events.log grows to
10 MiB and is then put aside as events.log.1, of which there are three. A disk that cannot be written to is logged once
and tried again; it stops nothing. The density series goes on from the file that is there at the start.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec import json, structs

from phalanx.clock import Clock
from phalanx.coordinator.metrics.board import MetricsBoard
from phalanx.coordinator.metrics.density import Density, WrittenDensity, iso
from phalanx.errors import ConfigError, PhalanxError
from phalanx.logger import logger

log = logger("coordinator")
EVERY_S = 5.0
LOG_BYTES_MAX = 10 << 20
LOGS_KEPT = 3
DENSITY = "task_worker_density.json"
DENSITY_BYTES_MAX = 64 << 20  # a full one has about 6 MiB


class MetricsFiles:
    def __init__(self, folder: Path, board: MetricsBoard, clock: Clock, every_s: float = EVERY_S) -> None:
        self._folder = folder
        self._board = board
        self._clock = clock
        self._every_s = every_s
        self._written = -1  # how many events there had been
        self._is_failing = False
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise ConfigError(
                f"coordinator.metrics_dir {folder} cannot be written: {error.strerror}"
            ) from error
        if board.recorder.density is not None:
            _go_on(board.recorder.density, folder / DENSITY)

    async def keep(self) -> None:
        """Write again and again until cancelled; then once more, with the report of the end."""
        try:
            while True:
                await self._write()
                await asyncio.sleep(self._every_s)
        finally:
            await self.close()

    async def close(self) -> None:
        """The process ends."""
        density, now = self._board.recorder.density, self._clock.now()
        if density is not None:
            density.end(now)
        self._written = -1
        await self._write(finalized_at=iso(now))

    async def _write(self, finalized_at: str | None = None) -> None:
        recorder = self._board.recorder
        seen = recorder.events
        if seen == self._written:
            return
        try:
            report = await self._board.metrics_report()
        except PhalanxError:  # nothing has been read yet
            return
        files = {"metrics.json": _spelled(report)}
        if finalized_at is not None:
            files["final_report.json"] = _spelled(structs.replace(report, finalized_at=finalized_at))
        if recorder.density is not None:
            files[DENSITY] = _spelled(recorder.density.document(self._clock.now()))
        lines = recorder.task_events.take() if recorder.task_events is not None else []
        try:
            await asyncio.to_thread(self._put, files, lines)
        except OSError as error:
            if not self._is_failing:
                log.error("cannot write metrics", folder=str(self._folder), error=str(error))
            self._is_failing = True
            return
        self._written, self._is_failing = seen, False

    def _put(self, files: dict[str, bytes], lines: list[bytes]) -> None:
        for name, body in files.items():
            fresh = self._folder / f".{name}.new"
            fresh.write_bytes(body)
            fresh.replace(self._folder / name)
        if lines:
            self._append(self._folder / "events.log", b"".join(lines))

    def _append(self, path: Path, body: bytes) -> None:
        if path.exists() and path.stat().st_size + len(body) > LOG_BYTES_MAX:
            for number in range(LOGS_KEPT, 0, -1):
                older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
                if older.exists():
                    older.replace(path.with_name(f"{path.name}.{number}"))
        with path.open("ab") as file:
            file.write(body)


def _go_on(density: Density, path: Path) -> None:
    """Continue the series in the file; one that cannot be used is logged, and replaced by a new one."""
    try:
        with path.open("rb") as file:
            raw = file.read(DENSITY_BYTES_MAX + 1)
        if len(raw) > DENSITY_BYTES_MAX:
            raise ValueError(f"it has more than {DENSITY_BYTES_MAX} bytes")
        density.go_on(json.decode(raw, type=WrittenDensity))
    except FileNotFoundError:
        return
    except (OSError, ValueError, OverflowError) as error:
        log.warning("the density series begins anew", file=str(path), error=str(error)[:200])


def _spelled(document: object) -> bytes:
    return json.format(json.encode(document), indent=2) + b"\n"
