"""Files of runners: what is taken, and what a node may not send."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec import structs

from phalanx.coordinator import uploads as module
from phalanx.coordinator.file_retention import FileRetention, FileUse
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.uploads import Uploads
from phalanx.core.model.files import FileKey
from phalanx.core.model.job import ulid
from phalanx.core.model.orders import AttemptKey
from phalanx.errors import NotFound, Unavailable
from phalanx.link import wire
from tests.support.clocks import ManualClock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
KEY = (ulid(1_700_000_000_000, 7), 0, 1)
CHILD = ulid(1_700_000_000_000, 8)


class FakeLink:
    """Remembers what is sent to the runner."""

    def __init__(self) -> None:
        self.said: list[wire.Message] = []

    def send(self, messages: list[wire.Message]) -> None:
        self.said += messages


class Rig:
    def __init__(self, folder: Path, keep_bytes: int = 1 << 20, max_bytes: int = 1 << 20) -> None:
        self.files = FileStore.folder(folder)
        retention = FileRetention(self.files, 1e6, keep_bytes, ManualClock(), lambda _: FileUse.JOB_ENDED)
        self.uploads = Uploads(self.files, retention, self.node_of, self.part_of, max_bytes)
        self.link = FakeLink()

    async def node_of(self, key: AttemptKey) -> str | None:
        if key[0] != KEY[0]:
            raise NotFound("no such job")
        return "n1"

    def part_of(self, key: AttemptKey, job: str) -> AttemptKey | None:
        return (job, 0, 2) if (key, job) == (KEY, CHILD) else None

    async def answer(self, piece: wire.PutFile, node: str = "n1") -> wire.FileTaken:
        before = len(self.link.said)
        self.uploads.arrived(self.link, node, piece)
        await until(lambda: len(self.link.said) > before)
        taken = self.link.said[-1]
        assert isinstance(taken, wire.FileTaken)
        return taken


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def a_file(data: bytes = b"hello", path: str = "a.txt") -> wire.PutFile:
    return wire.PutFile(1, KEY, "artifacts", path, len(data), 0, data, hashlib.sha256(data).hexdigest())


async def test_the_result_of_a_merged_job_is_kept_as_its_own(rig: Rig):
    part = structs.replace(a_file(b"[7]", f"{CHILD}.json"), kind="result")
    assert await rig.answer(part) == wire.FileTaken(1)
    assert await rig.files.get(FileKey((CHILD, 0, 2), "result", "result.json").name, 10) == b"[7]"
    other = structs.replace(part, path=f"{ulid(1_700_000_000_000, 9)}.json")
    refused = await rig.answer(other)
    assert "is no part of attempt 1" in refused.error and not refused.retry


def in_pieces(data: bytes, size: int) -> list[wire.PutFile]:
    whole = a_file(data)
    parts = [
        structs.replace(whole, offset=at, data=data[at : at + size], sha256="")
        for at in range(0, len(data), size)
    ]
    parts[-1] = structs.replace(parts[-1], sha256=whole.sha256)
    return parts


async def test_a_file_of_one_piece_and_an_empty_one_are_taken(rig: Rig):
    for data in (b"hello", b""):
        assert await rig.answer(a_file(data)) == wire.FileTaken(1)
        assert await rig.files.get(FileKey(KEY, "artifacts", "a.txt").name, 10) == data


async def test_a_file_in_pieces_is_there_after_the_last(rig: Rig):
    *parts, last = in_pieces(bytes(range(250)) * 1000, 100_000)
    for part in parts:
        assert await rig.answer(part) == wire.FileTaken(1)
    name = FileKey(KEY, "artifacts", "a.txt").name
    with pytest.raises(NotFound):
        await rig.files.size(name)
    assert await rig.answer(last) == wire.FileTaken(1)
    assert await rig.files.get(name, 1 << 20) == bytes(range(250)) * 1000


@pytest.mark.parametrize("pieces", [1, 3])
async def test_a_digest_that_differs_is_said_and_nothing_is_kept(rig: Rig, pieces: int):
    *parts, last = in_pieces(bytes(300), 300 // pieces)
    for part in parts:
        await rig.answer(part)
    said = await rig.answer(structs.replace(last, data=b"\1" * len(last.data)))
    assert f"its runner read {last.sha256}" in said.error and said.retry
    assert [found async for found in rig.files.listed(KEY[0][:5])] == []


@pytest.mark.parametrize(
    ("change", "said", "retry"),
    [
        ({"path": "../../token"}, "none of them . or ..", False),
        ({"path": "/etc/passwd"}, "names between single slashes", False),
        ({"key": ("../../x", 0, 1)}, "is not a job id", False),
        ({"key": (ulid(1, 1), 0, 1)}, "no such job", False),
        ({"kind": "result", "size": 70_000, "sha256": ""}, "has 70000 bytes, at most 65536 are kept", False),
        ({"size": (1 << 20) + 1, "sha256": ""}, "at most 1048576 are kept", False),
    ],
)
async def test_what_a_node_may_not_send(rig: Rig, change: dict[str, object], said: str, retry: bool):
    answer = await rig.answer(structs.replace(a_file(), **change))
    assert said in answer.error and answer.retry is retry
    assert [found async for found in rig.files.listed("")] == []


async def test_a_node_sends_only_files_of_its_own_attempts(rig: Rig):
    assert "node n2 did not have attempt 1" in (await rig.answer(a_file(), node="n2")).error


async def test_a_full_place_asks_to_try_again(tmp_path: Path):
    rig = Rig(tmp_path, keep_bytes=100)
    answer = await rig.answer(a_file(bytes(126)))
    assert "the place for files is full" in answer.error and answer.retry
    with pytest.raises(Unavailable) as no:
        await rig.uploads._check("n1", a_file(bytes(126)))
    assert no.value.reason == "FilesFull"


async def test_a_connection_that_ends_leaves_nothing(rig: Rig):
    first, *_ = in_pieces(bytes(300), 100)
    await rig.answer(first)
    rig.uploads.closed(rig.link)
    await until(lambda: len(rig.link.said) == 2)
    assert rig.link.said[-1] == wire.FileTaken(1, "its runner went away", True)
    assert [found async for found in rig.files.listed("")] == []


async def test_a_runner_that_does_not_wait_is_cut_off(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LINK_BYTES_MAX", 250)
    first, second, third = in_pieces(bytes(300), 100)
    rig.uploads.arrived(rig.link, "n1", first)
    rig.uploads.arrived(rig.link, "n1", second)
    with pytest.raises(wire.WireError, match="300 bytes were sent without waiting"):
        rig.uploads.arrived(rig.link, "n1", third)
    with pytest.raises(wire.WireError, match="expected its bytes from 300 on"):
        rig.uploads.arrived(rig.link, "n1", second)


@pytest.mark.parametrize(
    "change",
    [{"id": -1}, {"size": -1}, {"size": 4}, {"offset": 6}, {"sha256": ""}, {"sha256": "x" * 64}, {"size": 9}],
)
def test_pieces_that_cannot_be_true(change: dict[str, object]):
    assert wire.why_wrong(structs.replace(a_file(), **change)) != ""
    assert wire.why_wrong(a_file()) == ""
