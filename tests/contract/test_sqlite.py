"""Tests of a store on a disk only: it survives a restart, damage, a kill, and a failing disk."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.store.protocol import Batch, Candidate, History, StoreError
from phalanx.store.sqlite import file
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import a_batch, bodies
from tests.contract.writers import a_batch as a_large_batch

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
PYTHON = f'"{sys.executable}"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Where a small disk can be mounted, if we may."""
    folder = tmp_path / "disk"
    folder.mkdir()
    tried = subprocess.run(inside(f'mount -t tmpfs tmpfs "{folder}"'), capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    return folder


async def test_a_store_that_opens_beside_the_first_election_leaves_it_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both saw a new file; the first one leads already when the second one writes its tables."""
    first = SqliteStore(path)
    await first.elect(Candidate("first"), 60.0)
    monkeypatch.setattr(file, "_check_schema", lambda _db, _path: 0)
    second = SqliteStore(path)
    monkeypatch.undo()
    leader = await second.leader()
    assert leader is not None and leader.candidate.name == "first"


async def test_the_leader_is_read_at_one_instant(path: Path, monkeypatch: pytest.MonkeyPatch):
    """The schema that says where to look is raised while another one looks."""
    looking, other = SqliteStore(path), SqliteStore(path)
    schema_of = looking._schema

    def schema_before_the_election() -> int:
        found = schema_of()
        with sqlite3.connect(path) as db:
            file.raise_schema(db)
        return found

    monkeypatch.setattr(looking, "_schema", schema_before_the_election)
    assert await looking.leader() is None
    assert (await other.elect(Candidate("other"), 60.0)).candidate.name == "other"


async def test_a_flipped_byte_in_a_record_is_told_until_it_is_set_aside(path: Path):
    store = SqliteStore(path)
    epoch = await store.open_term()
    for revision in range(1, 6):
        await store.append(epoch, Batch(revision, b"<record %d>" % revision, ("j1",)), [])
    await store.close()
    flip(path, b"<record 3>")
    store = SqliteStore(path)
    good = [b"<record %d>" % revision for revision in (1, 2, 4, 5)]
    for batches in ((await store.load()).batches, (await store.load()).batches, await store.since(0, 10)):
        assert [batch.revision for batch in batches if batch.is_damaged] == [3]
        assert [batch.body for batch in batches if not batch.is_damaged] == good
    assert [batch.revision for batch in await store.story("j1", 0, 10)] == [1, 2, 4, 5]
    assert quarantined(path) == []
    await store.set_aside(epoch, [2, 3])
    assert bodies(await store.load()) == good
    assert quarantined(path) == [("log", "3")]


async def test_a_damaged_image_gives_way_to_the_one_before_it(path: Path):
    store = SqliteStore(path)
    epoch = await store.open_term()
    for revision in (1, 2, 3):
        await store.append(epoch, a_batch(revision), [])
        await store.save_image(epoch, revision, b"<image %d>" % revision)
    await store.append(epoch, a_batch(4), [])
    await store.close()
    flip(path, b"<image 3>")
    store = SqliteStore(path)
    loaded = await store.load()
    assert (loaded.image, loaded.quarantined) == (b"<image 2>", 1)
    assert bodies(loaded) == [b"batch 3", b"batch 4"]


async def test_without_a_good_image_the_whole_log_is_read(path: Path):
    store = SqliteStore(path)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [])
    await store.save_image(epoch, 1, b"<image 1>")
    await store.close()
    flip(path, b"<image 1>")
    loaded = await SqliteStore(path).load()
    assert (loaded.image, bodies(loaded), loaded.quarantined) == (None, [b"batch 1"], 1)


async def test_a_damaged_record_of_the_past_is_left_out(path: Path):
    store = SqliteStore(path)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [History("j1", b"<job 1>"), History("j2", b"<job 2>")])
    await store.close()
    flip(path, b"<job 1>")
    store = SqliteStore(path)
    assert await store.history("j1") is None
    assert await store.past(None, 10) == [History("j2", b"<job 2>")]


async def test_a_batch_is_kept_with_all_its_records_or_not_at_all(path: Path):
    store = SqliteStore(path)
    epoch = await store.open_term()
    nameless = History(["not", "a", "name"], b"record")  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await store.append(epoch, a_batch(1, "j1"), [History("j0", b"record"), nameless])
    assert (await store.load()).batches == []
    assert await store.history("j0") is None
    await store.append(epoch, a_batch(1, "j1"), [])


def test_a_file_of_another_version_is_refused_in_so_many_words(path: Path):
    SqliteStore(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    with pytest.raises(StoreError, match="has schema 99, this Phalanx reads schema"):
        SqliteStore(path)


def test_a_file_that_is_no_database_is_refused_by_name(path: Path):
    path.write_bytes(b"this is not a database at all, but it is long enough to look like one" * 100)
    with pytest.raises(StoreError, match=str(path)):
        SqliteStore(path)


def test_a_folder_that_does_not_exist_is_refused_by_name(tmp_path: Path):
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(tmp_path / "nowhere" / "store.db")


@pytest.mark.parametrize("after", [1, 8, 30])
async def test_a_kill_in_the_middle_of_an_append_loses_nothing_acknowledged(path: Path, after: int):
    with a_writer("for-ever", path) as writer:
        assert writer.stdout is not None
        for _ in range(after):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().splitlines()
    acknowledged = after + len(rest)
    store = SqliteStore(path)
    loaded = await store.load()
    kept = len(loaded.batches)
    assert kept in (acknowledged, acknowledged + 1), "the last one may have been written and not yet said"
    assert loaded.quarantined == 0
    assert bodies(loaded) == [a_large_batch(revision).body for revision in range(1, kept + 1)]
    assert len(await store.story("n1", 0, 10_000)) == kept
    assert len(await store.past(None, 10_000)) == kept
    assert await store.open_term() == 2


async def test_a_file_that_may_not_grow_refuses_clearly_and_keeps_nothing_by_half(path: Path):
    with a_writer("small-files", path) as writer:
        said, _ = writer.communicate()
    await assert_nothing_is_half_written(path, said)


async def test_a_full_disk_refuses_clearly_and_keeps_nothing_by_half(disk: Path, path: Path):
    """The disk is full when the writer asks for that, and larger when it asks for the end of it."""
    writing = (
        f'{PYTHON} -m tests.contract.writers when-told "{disk}/store.db" && cp "{disk}"/* "{path.parent}"'
    )
    with a_process(inside(f'mount -t tmpfs -o size=1500k tmpfs "{disk}" && {writing}')) as writer:
        said = talk(writer, disk)
    await assert_nothing_is_half_written(path, said)


@pytest.mark.parametrize("there", ["nothing", "a store"])
def test_a_read_only_folder_is_refused_at_the_start(disk: Path, there: str):
    before = "true" if there == "nothing" else f'{PYTHON} -m tests.contract.writers once "{disk}/store.db"'
    writing = f'{PYTHON} -m tests.contract.writers once "{disk}/store.db"'
    mounts = f'mount -t tmpfs tmpfs "{disk}" && {before} && mount -o remount,ro "{disk}"'
    with a_process(inside(f"{mounts} && {writing}")) as writer:
        _, errors = writer.communicate()
        assert writer.returncode != 0
    assert "StoreError" in errors
    assert f"{disk}/store.db" in errors
    assert "is the disk full or the folder read-only?" in errors


async def assert_nothing_is_half_written(path: Path, said: str) -> None:
    refused = next(line for line in said.splitlines() if line.startswith("refused"))
    assert "store.db" in refused
    assert "is the disk full or the folder read-only?" in refused
    acknowledged = int(said.rsplit(maxsplit=1)[-1])
    store = SqliteStore(path)
    loaded = await store.load()
    assert bodies(loaded) == [a_large_batch(revision).body for revision in range(1, acknowledged + 1)]
    assert loaded.quarantined == 0
    assert len(await store.past(None, 1000)) == max(0, acknowledged - 2), (
        "the first and the last carry no record"
    )


def talk(writer: subprocess.Popen[str], disk: Path) -> str:
    """Answer the writer's questions, with a larger disk when it has seen enough, and return its output."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    said = ""
    for line in writer.stdout:
        said += line
        if line == "end\n":
            grow = ["mount", "-o", "remount,size=64m", str(disk)]
            subprocess.run(["nsenter", "--mount", "--target", str(writer.pid), *grow], check=True)
        if line in ("begin\n", "end\n"):
            writer.stdin.write("\n")
            writer.stdin.flush()
    return said


def inside(script: str) -> list[str]:
    """A script in its own mount namespace, so that no mount is left behind."""
    return ["unshare", "--mount", "/bin/sh", "-c", script]


def a_writer(what: str, path: Path) -> subprocess.Popen[str]:
    return a_process([sys.executable, "-m", "tests.contract.writers", what, str(path)])


def a_process(command: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def flip(path: Path, marker: bytes) -> None:
    """Change one bit of a record as it lies on the disk."""
    data = bytearray(path.read_bytes())
    assert data.count(marker) == 1
    data[data.index(marker) + 1] ^= 1
    path.write_bytes(data)


def quarantined(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as db:
        return db.execute("SELECT source, key FROM quarantine").fetchall()


async def test_a_file_whose_pages_were_overwritten_is_told_with_the_way_out(tmp_path: Path):
    path = tmp_path / "phalanx.db"
    path.write_bytes(b"this was a database once" * 1000)
    with pytest.raises(StoreError, match="not a database") as caught:
        SqliteStore(path)
    assert "phalanx store restore" in caught.value.hint
    assert "full" not in str(caught.value)
