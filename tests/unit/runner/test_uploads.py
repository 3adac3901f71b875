"""The runner's side of uploads: pieces, answers, logs that are copied once, and ends that wait for files."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.link import wire
from phalanx.runner import uploads as module
from phalanx.runner.log_files import folder_of, log_path
from phalanx.runner.uploads import RunnerUploads, UploadFailed, uncopied
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
JOB = "01jcm3k8t0z9x5v7b2n4d6f8gh"
KEY = (JOB, 0, 1)
Answer = Callable[[wire.PutFile], wire.FileTaken | None]


class FakeCoordinator:
    """Takes pieces, unless told otherwise, and remembers whole files."""

    def __init__(self, uploads: RunnerUploads) -> None:
        self.uploads = uploads
        self.pieces: list[wire.PutFile] = []
        self.answer: Answer = lambda piece: wire.FileTaken(piece.id)
        uploads.opened(self.send, 1 << 30)

    def send(self, message: wire.Message) -> None:
        assert isinstance(message, wire.PutFile)
        assert wire.why_wrong(message) == ""
        self.pieces.append(message)
        if (said := self.answer(message)) is not None:
            asyncio.get_running_loop().call_soon(self.uploads.taken, said)

    @property
    def files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for piece in self.pieces:
            name = f"{piece.kind}/{piece.path}"
            found[name] = (found.get(name, b"") if piece.offset else b"") + piece.data
        return found


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunnerUploads:
    monkeypatch.setattr(module, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(module, "GATHER_S", 0.0)
    return RunnerUploads(tmp_path, 1 << 20)


def a_log(root: Path, name: str, data: bytes) -> Path:
    path = root / folder_of(JOB) / f"{JOB}.{name}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def from_bytes(data: bytes) -> Callable[[int, int], bytes]:
    return lambda at, size: data[at : at + size]


async def test_a_file_is_sent_in_pieces_with_its_digest_last(uploads: RunnerUploads):
    coordinator, data = FakeCoordinator(uploads), os.urandom(600_000)
    sha256 = await uploads.put(KEY, "artifacts", "a", len(data), from_bytes(data))
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert [len(piece.data) for piece in coordinator.pieces] == [262_144, 262_144, 75_712]
    assert [piece.sha256 for piece in coordinator.pieces] == ["", "", sha256]
    assert coordinator.files == {"artifacts/a": data}


async def test_refusals_and_a_lost_connection_are_told_apart(uploads: RunnerUploads):
    with pytest.raises(UploadFailed, match="takes no files now"):
        await uploads.put(KEY, "artifacts", "a", 5, from_bytes(b"hello"))
    coordinator = FakeCoordinator(uploads)
    coordinator.answer = lambda piece: wire.FileTaken(piece.id, "no", retry=False)
    with pytest.raises(UploadFailed, match="no") as refused:
        await uploads.put(KEY, "artifacts", "a", 5, from_bytes(b"hello"))
    assert not refused.value.retry
    coordinator.answer = lambda _: None
    sending = asyncio.ensure_future(uploads.put(KEY, "artifacts", "a", 5, from_bytes(b"hello")))
    await until(lambda: len(coordinator.pieces) == 2)
    uploads.lost()
    with pytest.raises(UploadFailed, match="the connection was lost") as lost:
        await sending
    assert lost.value.retry


async def test_a_file_that_shrinks_or_is_too_large_is_not_sent(uploads: RunnerUploads):
    FakeCoordinator(uploads)
    with pytest.raises(UploadFailed, match="became shorter"):
        await uploads.put(KEY, "artifacts", "a", 6, from_bytes(b"hello"))
    with pytest.raises(UploadFailed, match="at most 1073741824 are kept"):
        await uploads.put(KEY, "artifacts", "a", 1 << 31, from_bytes(b""))


async def test_logs_are_copied_once_and_empty_ones_never(uploads: RunnerUploads, tmp_path: Path):
    out = a_log(tmp_path, "0.1.stdout", b"out\n")
    a_log(tmp_path, "0.1.stderr", b"")
    a_log(tmp_path, "1.1.stdout", b"")
    a_log(tmp_path, "2.1.stderr", b"err\n" * 100_000)
    a_log(tmp_path, "3.1.stdout", b"it runs\n")
    assert set(uncopied(tmp_path, {(JOB, 3, 1)}, 0.0)) == {KEY, (JOB, 2, 1)}
    coordinator = FakeCoordinator(uploads)
    keeping = asyncio.ensure_future(uploads.keep(lambda: {(JOB, 3, 1)}, out.stat().st_mtime))
    await until(lambda: uncopied(tmp_path, {(JOB, 3, 1)}, 0.0) == [])
    assert await uploads.drained(5.0)
    sent = list(dict.fromkeys((piece.key[1], piece.kind) for piece in coordinator.pieces))
    assert set(sent) == {(0, "stdout"), (2, "stderr"), (2, "stdout")}
    assert sent.index((2, "stdout")) > sent.index((2, "stderr"))
    count = len(coordinator.pieces)
    uploads.add([KEY, (JOB, 1, 1)])
    assert await uploads.drained(5.0)
    assert len(coordinator.pieces) == count
    keeping.cancel()


async def test_a_log_that_was_refused_for_now_is_sent_again(uploads: RunnerUploads, tmp_path: Path):
    a_log(tmp_path, "0.1.stdout", b"out\n")
    coordinator, refusals = FakeCoordinator(uploads), [3]

    def full(piece: wire.PutFile) -> wire.FileTaken:
        refusals[0] -= 1
        return wire.FileTaken(piece.id, "full", retry=True) if refusals[0] >= 0 else wire.FileTaken(piece.id)

    coordinator.answer = full
    keeping = asyncio.ensure_future(uploads.keep(set, 0.0))
    uploads.add([KEY])
    assert await uploads.drained(10.0)
    assert len(coordinator.pieces) == 4
    assert coordinator.files == {"stdout/0": b"out\n"}
    keeping.cancel()


async def test_logs_of_an_earlier_version_are_copied_as_well(uploads: RunnerUploads, tmp_path: Path):
    path = Path(log_path(tmp_path, *KEY, "stderr").former)
    path.parent.mkdir()
    path.write_bytes(b"old")
    assert uncopied(tmp_path, set(), 0.0) == [KEY]
    coordinator = FakeCoordinator(uploads)
    keeping = asyncio.ensure_future(uploads.keep(set, 0.0))
    uploads.add([KEY])
    assert await uploads.drained(10.0)
    assert coordinator.files["stderr/0"] == b"old"
    assert uncopied(tmp_path, set(), 0.0) == []
    keeping.cancel()


async def test_links_in_the_place_of_logs_are_not_followed(uploads: RunnerUploads, tmp_path: Path):
    path = log_path(tmp_path, *KEY, "stdout")
    for planted in (Path(path), Path(path.former)):
        planted.parent.mkdir()
        planted.symlink_to("/etc/passwd")
    assert uncopied(tmp_path, set(), 0.0) == []
    coordinator = FakeCoordinator(uploads)
    keeping = asyncio.ensure_future(uploads.keep(set, 0.0))
    uploads.add([KEY])
    assert await uploads.drained(5.0)
    assert coordinator.pieces == []
    keeping.cancel()
