"""Logs of ended attempts in the place for files: read by offset or by lines, as if they were still on their node.

A log is kept as runs: each is a file whose path is the offset of its first byte, so that what was not kept between two
of them is known. Standard output is copied last, even if it is empty while the other stream is not: where a run of it
is, all of the attempt's output is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from phalanx.api.schema.jobs import LogChunk
from phalanx.coordinator.files import PIECE_BYTES, FileStore
from phalanx.core.model.files import LOG_KINDS, LOG_RUNS_MAX, FileKey, FileKind, folder_of, read_name
from phalanx.core.model.log_times import TIMES, LogRow, read_rows
from phalanx.core.model.orders import AttemptKey

TAIL_BYTES_MAX = 4 << 20
TIMES_BYTES_MAX = 8 << 20
Run = tuple[int, int]  # offset, size


class KeptLogs:
    """The logs that have been copied."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    async def runs(self, key: AttemptKey, stream: FileKind) -> list[Run] | None:
        """What is kept of a stream, in order; None if the output of this attempt was not copied."""
        found = await self._runs(key, stream)
        if stream == "stdout":
            return found or None
        return found if await self._runs(key, "stdout") else None

    async def read(
        self, key: AttemptKey, stream: FileKind, runs: list[Run], *, offset: int | None, lines: int | None
    ) -> AsyncIterator[LogChunk]:
        """The bytes from `offset` on, or of the last lines, or all."""
        size = sum(runs[-1]) if runs else 0
        start = (
            await self._tail(key, stream, runs, lines)
            if offset is None and lines is not None
            else offset or 0
        )
        at = min(max(0, start), size)
        is_sent = False
        for begin, length in runs:
            end = begin + length
            if end <= at:
                continue
            gap, at = max(0, begin - at), max(at, begin)
            name = FileKey(key, stream, str(begin)).name
            async for piece in self._files.read(name, length, start=at - begin):
                at += len(piece)
                is_sent = True
                yield LogChunk(at - len(piece), piece, size, key[2], at >= size, gap)
                gap = 0
        if not is_sent:
            yield LogChunk(at, b"", size, key[2], True)

    async def times(self, key: AttemptKey) -> list[LogRow] | None:
        """When the logs were written, None if they were not copied; of one that was written at once, its copy tells."""
        written_at = 0.0
        async for listed in self._files.listed(folder_of(key, "stdout")):
            for each in listed:
                named = read_name(each.name)
                if named is not None and named.path == TIMES:
                    return read_rows(await self._files.get(each.name, TIMES_BYTES_MAX))
                written_at = max(written_at, each.written_at)
        out, err = [sum(runs[-1]) if (runs := await self._runs(key, kind)) else 0 for kind in LOG_KINDS]
        return [LogRow(written_at, out, err or None)] if written_at else None

    async def _runs(self, key: AttemptKey, stream: FileKind) -> list[Run]:
        found: list[Run] = []
        async for listed in self._files.listed(folder_of(key, stream)):
            for each in listed:
                named = read_name(each.name)
                if named is not None and named.path.isdecimal() and len(named.path) <= 16:
                    found.append((int(named.path), each.size))
        return sorted(found)[:LOG_RUNS_MAX]

    async def _tail(self, key: AttemptKey, stream: FileKind, runs: list[Run], lines: int) -> int:
        """Where the last lines begin, within the last run and its last bytes."""
        if not runs:
            return 0
        begin, length = runs[-1]
        name, end = FileKey(key, stream, str(begin)).name, begin + length
        if lines <= 0:
            return end
        floor, at, wanted = max(0, length - TAIL_BYTES_MAX), length, lines
        while at > floor:
            start = max(floor, at - PIECE_BYTES)
            block = await self._files.get_range(name, start, at - start)
            found = block.count(b"\n", 0, -1 if at == length else len(block))
            if found >= wanted:
                position = len(block) - (1 if at == length else 0)
                for _ in range(wanted):
                    position = block.rindex(b"\n", 0, position)
                return begin + start + position + 1
            wanted, at = wanted - found, start
        return begin + floor
