"""The place for files: a folder by its address, the coordinator's own, and S3 over HTTP pass the same suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx import config
from phalanx.coordinator.file_retention import FileRetention, FileUse
from phalanx.coordinator.files import FileStore
from phalanx.core.model.files import FileKey, FileKind, folder_of, read_name
from phalanx.core.model.job import ulid
from phalanx.errors import NotFound, Unavailable
from tests.support.clocks import ManualClock
from tests.support.s3_server import CREDENTIALS, shared_s3

pytestmark = pytest.mark.anyio
JOB = ulid(1_700_000_000_000, 7)
KINDS = ("file", "own", "s3")
ODD = ("a b", "ü/ö", "x#1", "100%", "%23", 'q"<>|&?*', "back\\slash", "…/deep/er/file.txt", "a" * 200)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    flags: dict[str, object] = {"coordinator.state_dir": str(tmp_path / "state")}
    if request.param == "file":
        flags["coordinator.files"] = f"file://{tmp_path}/shared"
    elif request.param == "s3":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        flags["coordinator.files"] = f"s3://{shared_s3().a_bucket()}/some/prefix"
        flags["coordinator.files_endpoint"] = shared_s3().endpoint
    settings = config.load(
        flags, environment={"HOME": str(tmp_path)}, folder=tmp_path, system=tmp_path / "none"
    )
    return FileStore.open(settings.coordinator)


def a_name(path: str = "a.txt", *, job: str = JOB, kind: FileKind = "artifacts") -> str:
    return FileKey((job, 3, 1), kind, path).name


async def names(place: FileStore, prefix: str) -> list[str]:
    return sorted([each.name async for found in place.listed(prefix) for each in found])


async def test_what_is_put_can_be_read_listed_and_deleted(place: FileStore):
    await place.put(a_name(), b"hello")
    assert await place.get(a_name(), 100) == b"hello"
    assert await place.size(a_name()) == 5
    assert await place.get_range(a_name(), 1, 3) == b"ell"
    assert await names(place, folder_of((JOB, 3, 1))) == [a_name()]
    assert await names(place, folder_of((JOB, 3, 2))) == []
    await place.put(a_name(), b"again")
    assert await place.get(a_name(), 100) == b"again"
    await place.delete([a_name(), a_name("never.txt")])
    with pytest.raises(NotFound, match="is not in the place for files"):
        await place.get(a_name(), 100)


async def test_odd_names_are_kept_apart_and_come_back_as_they_were(place: FileStore):
    for path in ODD:
        await place.put(a_name(path), path.encode())
    for path in ODD:
        assert await place.get(a_name(path), 1000) == path.encode()
    found = [read_name(name) for name in await names(place, JOB[:5])]
    assert sorted(each.path for each in found if each) == sorted(ODD)


async def pieces(count: int, *, breaks: bool = False) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * (1 << 20)
    if breaks:
        raise Unavailable("the digest differs")


async def test_a_large_file_appears_whole_or_not_at_all(place: FileStore):
    await place.put_pieces(a_name("model.bin"), pieces(20))
    assert await place.size(a_name("model.bin")) == 20 << 20
    read = [piece async for piece in place.read(a_name("model.bin"), 20 << 20, start=(1 << 20) - 1)]
    assert b"".join(read)[:2] == b"\0\1" and sum(map(len, read)) == (19 << 20) + 1
    with pytest.raises(Unavailable, match="the digest differs"):
        await place.put_pieces(a_name("broken.bin"), pieces(20, breaks=True))
    assert await names(place, JOB[:5]) == [a_name("model.bin")]
    if place.where.startswith("s3://"):
        assert b"<Upload>" not in shared_s3().unfinished(place.where.split("/")[2])


async def test_a_file_larger_than_expected_is_not_read(place: FileStore):
    await place.put(a_name(), bytes(101))
    with pytest.raises(Unavailable, match="has 101 bytes in the place for files, expected at most 100"):
        await place.get(a_name(), 100)


async def test_files_go_when_they_are_old(place: FileStore):
    await place.put(a_name(), b"hello")
    clock = ManualClock()
    (found,) = [each async for listed in place.listed(JOB[:5]) for each in listed]
    clock.at = found.written_at + 99
    retention = FileRetention(place, 100.0, 1 << 20, clock, lambda _: FileUse.JOB_ENDED)
    assert await retention.make_pass()
    assert retention.used_bytes == 5
    clock.at = found.written_at + 101
    assert await retention.make_pass()
    assert retention.used_bytes == 0 and await names(place, JOB[:5]) == []


async def test_the_oldest_jobs_make_room_and_those_that_have_not_ended_go_last(place: FileStore):
    jobs = [ulid(1_700_000_000_000 + day * 86_400_000, 7) for day in range(4)]
    for job in jobs:
        await place.put(a_name(job=job), bytes(100))

    def use_of(job: str) -> FileUse:
        return FileUse.JOB_GOES_ON if job == jobs[0] else FileUse.JOB_ENDED

    retention = FileRetention(place, 1e10, 250, ManualClock(), use_of)
    assert await retention.make_pass()
    left = [read_name(name) for job in jobs for name in await names(place, job[:5])]
    assert [each.attempt[0] for each in left if each] == [jobs[0], jobs[3]]
    assert retention.used_bytes == 200
    assert retention.why_no_room(100) == ""
    assert "is full: it holds 200 bytes" in retention.why_no_room(200)
    tight = FileRetention(place, 1e10, 50, ManualClock(), use_of)
    await tight.make_pass()
    assert tight.used_bytes == 0


async def test_files_of_workflows_that_go_on_are_kept_whatever_their_age_and_make_room_last(
    place: FileStore,
):
    jobs = [ulid(1_700_000_000_000 + day * 86_400_000, 7) for day in range(3)]
    for job in jobs:
        await place.put(a_name(job=job), bytes(100))
    uses = dict(zip(jobs, (FileUse.WORKFLOW_GOES_ON, FileUse.JOB_GOES_ON, FileUse.JOB_ENDED), strict=True))

    async def left() -> list[str]:
        found = [read_name(name) for job in jobs for name in await names(place, job[:5])]
        return [each.attempt[0] for each in found if each]

    for keep_bytes, kept in ((250, jobs[:2]), (150, jobs[:1]), (50, [])):
        await FileRetention(place, 1e10, keep_bytes, ManualClock(), uses.__getitem__).make_pass()
        assert await left() == kept
    for job in jobs:
        await place.put(a_name(job=job), bytes(100))
    late = FileRetention(place, 100.0, 1 << 20, ManualClock(1e11), uses.__getitem__)
    assert await late.make_pass()
    assert (await left(), late.used_bytes) == (jobs[:1], 100)


async def test_one_pass_does_a_bounded_piece_of_the_work(place: FileStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("phalanx.coordinator.file_retention.FILES_PER_PASS", 1)
    for day in range(3):
        await place.put(a_name(job=ulid(1_700_000_000_000 + day * 86_400_000, 7)), bytes(100))
    retention = FileRetention(place, 1e10, 1000, ManualClock(), lambda _: FileUse.JOB_ENDED)
    assert [await retention.make_pass() for _ in range(3)] == [False, False, True]
    assert retention.used_bytes == 300


async def test_what_a_crash_left_is_removed_from_a_folder(tmp_path: Path):
    place = FileStore.folder(tmp_path / "files")
    await place.put(a_name(), b"hello")
    draft = tmp_path / "files" / f"{a_name('b.bin')}#1"
    draft.write_bytes(b"half")
    written_at = draft.stat().st_mtime
    clock = ManualClock(written_at + 3000)
    retention = FileRetention(place, 1e10, 1000, clock, lambda _: FileUse.JOB_ENDED)
    await retention.make_pass()
    assert draft.exists()
    clock.at += 1000
    await retention.make_pass()
    assert not draft.exists() and await place.get(a_name(), 100) == b"hello"


async def test_a_place_that_does_not_answer_says_so_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("phalanx.coordinator.files.TRIES", 0)
    for place in (
        FileStore.bucket("no-such-bucket", "", shared_s3().endpoint, None),
        FileStore.bucket("bucket", "", "http://127.0.0.1:9", None),
    ):
        with pytest.raises(Unavailable, match="the place for files does not answer") as said:
            await place.put(a_name(), b"hello")
        assert said.value.reason == "FilesUnavailable"
        assert "test-secret" not in f"{said.value} {said.value.hint} {place.where}"
