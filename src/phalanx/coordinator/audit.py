"""The audit: JSON lines at the end of a file that only we may read, one for every change and every refusal.

Refusals of people we do not know are limited, so that strangers cannot fill the disk; how many were left out stands in
the next line. A file that has grown large is put aside under the next number. Nothing is ever deleted here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import MsgspecError, json

from phalanx.api.schema.cluster import AuditLine
from phalanx.clock import Clock
from phalanx.errors import ConfigError
from phalanx.logger import logger

log = logger("coordinator")
FILE_BYTES_MAX = 64 << 20
REFUSALS_AT_ONCE = 100  # that may be written one after another,
REFUSALS_PER_S = 1.0  # and how fast room for more comes back
_BLOCK = 64 * 1024
_encode = json.Encoder().encode


class AuditFile:
    """Writes lines, and reads the newest of them."""

    def __init__(self, path: Path, clock: Clock, bytes_max: int = FILE_BYTES_MAX) -> None:
        self._path = path
        self._clock = clock
        self._bytes_max = bytes_max
        self._room = float(REFUSALS_AT_ONCE)
        self._room_at = clock.monotonic()
        self._left_out = 0
        self._is_failing = False
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def note(self, line: AuditLine) -> None:
        """Write one line. A disk that is full must not stop the work; the log says so instead."""
        if line.status in (401, 403, 429) and not self._has_room():
            self._left_out += 1
            return
        line.at, line.left_out = round(self._clock.now(), 3), self._left_out
        body = _encode(line) + b"\n"
        try:
            if self._size + len(body) > self._bytes_max:
                self._put_aside()
            os.write(self._file, body)
        except OSError as error:
            if not self._is_failing:
                log.error("cannot write the audit log", path=str(self._path), error=str(error))
            self._is_failing = True
            return
        self._size += len(body)
        self._left_out, self._is_failing = 0, False

    def tail(self, count: int) -> list[AuditLine]:
        """The newest lines, oldest first; what cannot be read is passed over."""
        found: list[AuditLine] = []
        for path in (self._path, *reversed(self._aside())):
            for text in _backwards(path):
                if len(found) == count:
                    break
                try:
                    found.append(json.decode(text, type=AuditLine))
                except MsgspecError:
                    continue
        return found[::-1]

    def close(self) -> None:
        os.close(self._file)

    def _has_room(self) -> bool:
        now = self._clock.monotonic()
        self._room = min(REFUSALS_AT_ONCE, self._room + (now - self._room_at) * REFUSALS_PER_S)
        self._room_at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            os.fchmod(file, 0o600)
        except OSError as error:
            raise ConfigError(
                f"coordinator.audit_file {self._path} cannot be written: {error.strerror}"
            ) from error
        return file

    def _put_aside(self) -> None:
        names = [int(path.name.rpartition(".")[2]) for path in self._aside()]
        aside = self._path.with_name(f"{self._path.name}.{max(names, default=0) + 1}")
        os.fsync(self._file)
        self._path.rename(aside)
        os.close(self._file)
        self._file, self._size = self._open(), 0

    def _aside(self) -> list[Path]:
        """Older files, oldest first."""
        found = [
            path
            for path in self._path.parent.glob(f"{self._path.name}.*")
            if path.name.rpartition(".")[2].isdecimal()
        ]
        return sorted(found, key=lambda path: int(path.name.rpartition(".")[2]))


def _backwards(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last first, without reading more of it than is asked for."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        at, rest = file.seek(0, os.SEEK_END), b""
        while at:
            step = min(_BLOCK, at)
            at -= step
            file.seek(at)
            rest, *lines = (file.read(step) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest
