"""Logs in the place for files are read as on their node: by offset, by lines, with the gaps between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.coordinator import kept_logs
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.kept_logs import KeptLogs
from phalanx.core.model.files import FileKey, FileKind
from phalanx.core.model.job import ulid
from phalanx.core.model.log_times import LogRow, pack_rows

pytestmark = pytest.mark.anyio
KEY = (ulid(1_700_000_000_000, 7), 0, 1)
TEXT = b"".join(b"line %d\n" % number for number in range(1000))


class Rig:
    def __init__(self, folder: Path) -> None:
        self.files = FileStore.folder(folder)
        self.logs = KeptLogs(self.files)

    async def keep(self, stream: FileKind, offset: int, data: bytes) -> None:
        await self.files.put(FileKey(KEY, stream, str(offset)).name, data)

    async def read(
        self, stream: FileKind = "stdout", **wanted: int | None
    ) -> list[tuple[int, bytes, int, bool]]:
        runs = await self.logs.runs(KEY, stream)
        assert runs is not None
        asked = {"offset": None, "lines": None} | wanted
        return [
            (each.offset, each.data, each.gap, each.end)
            async for each in self.logs.read(KEY, stream, runs, offset=asked["offset"], lines=asked["lines"])
        ]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_a_whole_log(rig: Rig):
    await rig.keep("stdout", 0, TEXT)
    assert await rig.read() == [(0, TEXT, 0, True)]
    assert await rig.read(offset=100) == [(100, TEXT[100:], 0, True)]
    assert await rig.read(offset=len(TEXT) + 5) == [(len(TEXT), b"", 0, True)]


@pytest.mark.parametrize("ending", [b"", b"no end"])
@pytest.mark.parametrize("block", [7, 64, 1 << 20])
async def test_the_last_lines(rig: Rig, ending: bytes, block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_logs, "PIECE_BYTES", block)
    text = TEXT + ending
    await rig.keep("stdout", 0, text)
    for lines in (1, 2, 10, 2000):
        ((offset, data, _, _),) = await rig.read(lines=lines)
        assert data == b"".join(text.splitlines(keepends=True)[-lines:])
        assert offset == len(text) - len(data)
    assert await rig.read(lines=0) == [(len(text), b"", 0, True)]


async def test_gaps_are_told_with_what_follows_them(rig: Rig):
    await rig.keep("stdout", 0, b"begin\n")
    await rig.keep("stdout", 1000, b"middle\n")
    await rig.keep("stdout", 5000, b"end\n")
    assert await rig.read() == [
        (0, b"begin\n", 0, False),
        (1000, b"middle\n", 994, False),
        (5000, b"end\n", 3993, True),
    ]
    assert await rig.read(offset=500) == [(1000, b"middle\n", 500, False), (5000, b"end\n", 3993, True)]
    assert await rig.read(lines=5) == [(5000, b"end\n", 0, True)]


async def test_times_are_those_that_were_copied_or_that_of_the_copy(rig: Rig):
    assert await rig.logs.times(KEY) is None
    await rig.keep("stdout", 0, TEXT)
    [row] = await rig.logs.times(KEY) or []
    assert (row.stdout, row.stderr, row.at > 1_700_000_000) == (len(TEXT), None, True)
    rows = [LogRow(5.0, 10), LogRow(9.0, len(TEXT))]
    await rig.files.put(FileKey(KEY, "stdout", "times").name, pack_rows(rows))
    assert await rig.logs.times(KEY) == rows
    assert await rig.read() == [(0, TEXT, 0, True)]


async def test_a_log_is_there_when_standard_output_is(rig: Rig):
    assert await rig.logs.runs(KEY, "stdout") is None
    await rig.keep("stderr", 0, b"bad\n")
    assert await rig.logs.runs(KEY, "stderr") is None
    await rig.keep("stdout", 0, b"")
    assert await rig.read("stdout") == [(0, b"", 0, True)]
    assert await rig.read("stderr") == [(0, b"bad\n", 0, True)]
