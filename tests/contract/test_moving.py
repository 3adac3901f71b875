"""Moving a cluster's state: migrations between real stores, backups of a store in use, and restores."""

from __future__ import annotations

import asyncio
import gzip
from itertools import permutations
from pathlib import Path

import pytest

from phalanx.core.cluster.events import TermOpened, encode
from phalanx.errors import BadRequest, Conflict, NotFound
from phalanx.store.archive import FORMER_MAGIC, MAGIC, Archive, write_archive
from phalanx.store.check import check_store
from phalanx.store.contents import StoreContents, epoch_of
from phalanx.store.copy import (
    FILLING,
    MIGRATED,
    check_vacant,
    fill,
    first_epoch,
    is_empty,
    migrate,
    reopen,
    verify,
)
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, Candidate, Fenced, History, LogHole, Store, StoreError
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import Backend, a_backend, a_batch, revisions
from tests.support.waiting import pause_task

pytestmark = pytest.mark.anyio
NAMES = ("sqlite:old", "etcd:new")
JOBS = 150


def quiet(_doing: str, _done: int) -> None:
    """Ignores the progress."""


async def a_used_store(store: Store) -> int:
    """A store that was used: its beginning was pruned, an image covers half of it, jobs moved to the history."""
    epoch = (await store.elect(Candidate("ada"), 60.0)).epoch
    for revision in range(1, 41):
        records = [History(f"j{revision:03}-{at}", b"record %d" % at) for at in range(JOBS // 40 + 1)]
        body = encode([TermOpened(at=1.0, cause="test", epoch=revision)] * 2)
        await store.append(epoch, Batch(revision * 2, body, ("n1", f"j{revision}")), records)
        if revision in (10, 20):
            await store.save_image(epoch, revision * 2, b"image %d" % revision)
    await store.prune(epoch, before=30, keep_jobs=JOBS)
    await store.resign(epoch)
    return epoch


@pytest.mark.parametrize(("old", "new"), list(permutations(("sqlite", "redis", "etcd"), 2)))
async def test_everything_arrives_with_a_higher_epoch_and_the_old_store_is_fenced(
    old: str, new: str, tmp_path: Path
):
    here, there = a_backend(old, tmp_path), a_backend(new, tmp_path)
    source, target = await here.store(), await there.store()
    epoch = await a_used_store(source)
    copied = await migrate(source, target, NAMES, quiet, force=False)
    loaded = await target.load()
    assert (loaded.image, loaded.image_revision) == (b"image 20", 40)
    assert [at for at in revisions(loaded.batches) if at <= 80] == list(range(42, 82, 2))
    assert revisions(await target.story("j30", 0, 10)) == [60]
    assert [record.job for record in await target.past(None, 1000)] == [
        record.job for record in await source.past(None, 1000)
    ]
    assert copied.records == JOBS
    left = await source.leader()
    assert left is not None and left.candidate.name == f"{MIGRATED}{NAMES[1]}"
    with pytest.raises(Fenced):
        await source.append(epoch, a_batch(100), [])
    assert (await source.elect(Candidate("ada"), 60.0)) == left, "no coordinator starts there again"
    won = await target.elect(Candidate("ada"), 60.0)
    assert won.epoch > left.epoch > epoch
    await here.close()
    await there.close()


async def test_the_beginning_of_a_log_that_was_pruned_stays_pruned(backend: Backend):
    source = MemoryStore()
    await a_used_store(source)
    target = await backend.store()
    await migrate(source, target, NAMES, quiet, force=False)
    assert (await StoreContents.read(target, "")).begin == (await StoreContents.read(source, "")).begin > 0


class Interrupted(Exception):
    """The power failed."""


class FailingStore(MemoryStore):
    """A store whose writer dies after so many appends."""

    def __init__(self, memory: Memory, appends: int) -> None:
        super().__init__(memory)
        self._left = appends

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        self._left -= 1
        if self._left < 0:
            raise Interrupted
        await super().append(epoch, batch, history)


@pytest.mark.parametrize("after", [0, 1, 10, 25, 26, 28])
async def test_an_interrupted_migration_is_repeated(after: int):
    source, memory = MemoryStore(), Memory()
    await a_used_store(source)
    with pytest.raises(Interrupted):
        await migrate(source, FailingStore(memory, after), NAMES, quiet, force=False)
    holder = await MemoryStore(memory).leader()
    assert holder is not None and holder.candidate.name == f"{FILLING}{NAMES[0]}", (
        "no coordinator starts there"
    )
    target = MemoryStore(memory)
    copied = await migrate(source, target, NAMES, quiet, force=False)
    assert copied.records == JOBS
    await verify(target, await StoreContents.read(source, ""), quiet)
    assert await target.leader() is None


async def test_an_interrupted_migration_can_be_given_up():
    source = MemoryStore()
    epoch = await a_used_store(source)
    with pytest.raises(Interrupted):
        await migrate(source, FailingStore(Memory(), 3), NAMES, quiet, force=False)
    assert await reopen(source, NAMES[0]) > epoch
    assert (await source.elect(Candidate("ada"), 60.0)).candidate.name == "ada"
    with pytest.raises(Conflict, match="no migration has fenced off"):
        await reopen(source, NAMES[0])


async def test_a_store_that_is_not_empty_is_never_overwritten(backend: Backend):
    source = MemoryStore()
    epoch = await a_used_store(source)
    target = await backend.store()
    await target.append(await target.open_term(), a_batch(1), [])
    with pytest.raises(Conflict, match="etcd:new is not empty"):
        await migrate(source, target, NAMES, quiet, force=True)
    assert await epoch_of(source) == epoch, "and the old one is not fenced for nothing"


async def test_a_cluster_in_use_is_moved_only_by_force():
    source = MemoryStore()
    await a_used_store(source)
    await source.elect(Candidate("ada"), 60.0)
    with pytest.raises(Conflict, match="coordinator ada is active on sqlite:old"):
        await migrate(source, MemoryStore(), NAMES, quiet, force=False)
    await migrate(source, MemoryStore(), NAMES, quiet, force=True)
    with pytest.raises(Conflict, match="was migrated to:etcd:new before"):
        await migrate(source, MemoryStore(), ("sqlite:old", "elsewhere"), quiet, force=True)


async def test_nothing_is_not_worth_a_migration():
    with pytest.raises(NotFound, match="there is nothing in sqlite:old"):
        await migrate(MemoryStore(), MemoryStore(), NAMES, quiet, force=False)


class ForgetfulStore(MemoryStore):
    """It acknowledges everything and loses one record."""

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        await super().append(epoch, batch, history[1:])


async def test_what_does_not_come_back_is_not_believed_to_be_there():
    source = MemoryStore()
    await a_used_store(source)
    with pytest.raises(StoreError, match=r"the record of job .* did not come back as it was written"):
        await migrate(source, ForgetfulStore(), NAMES, quiet, force=False)


async def test_a_backup_is_restored_whole_into_every_store(backend: Backend, tmp_path: Path):
    source = MemoryStore()
    epoch = await a_used_store(source)
    path = await a_backup(source, tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    archive = Archive(path)
    target = await backend.store()
    await check_vacant(target, archive.name, "there")
    await fill(target, archive, archive.epoch + 1000, quiet)
    await verify(target, await StoreContents.read(source, ""), quiet)
    assert (await target.elect(Candidate("ada"), 1.0)).epoch > epoch + 1000


async def test_a_backup_is_made_while_a_coordinator_writes_and_is_one_instant(
    backend: Backend, tmp_path: Path
):
    store, reader = await backend.store(), await backend.store()
    epoch = await store.open_term()
    body = encode([TermOpened(at=1.0, cause="test", epoch=epoch)])
    await store.append(epoch, Batch(1, body, ("n1",)), [])
    stop = asyncio.Event()

    async def write() -> int:
        revision = 1
        while not stop.is_set():
            revision += 1
            batch = Batch(revision, body, ("n1",))
            await store.append(epoch, batch, [History(f"j{revision:06}", b"x")])
            if revision % 50 == 0:
                await store.save_image(epoch, revision, b"image %d" % revision)
                await store.prune(epoch, before=revision - 10, keep_jobs=100)
            await pause_task()
        return revision

    writing = asyncio.ensure_future(write())
    archives = []
    for _ in range(5):
        archives.append(Archive(await a_backup(reader, tmp_path)))
        (tmp_path / "backup").unlink()
    stop.set()
    last = await writing
    for archive in archives:
        assert archive.head <= last
    target = MemoryStore()
    path = await a_backup(reader, tmp_path)
    archive = Archive(path)
    await fill(target, archive, archive.epoch + 1, quiet)
    kept = [at for at in revisions((await target.load()).batches) if at <= last]
    assert kept == list(range(archive.image_revision + 1, last + 1))


async def test_a_backup_of_version_0_2_is_read_and_0_2_reads_none_of_ours(tmp_path: Path):
    store = MemoryStore()
    await a_used_store(store)
    path = await a_backup(store, tmp_path)
    plain = gzip.decompress(path.read_bytes())
    assert plain.startswith(MAGIC) and not plain.startswith(FORMER_MAGIC)
    path.write_bytes(gzip.compress(FORMER_MAGIC + plain.removeprefix(MAGIC)))
    await verify(store, Archive(path), quiet)


def test_epochs_of_a_second_restore_are_above_those_of_the_first():
    first, second = first_epoch(7, 100.0, 1000.0), first_epoch(7, 100.0, 1060.0)
    assert first > 1_000_000
    assert second > first + 60, "so many terms may the first have opened in a minute"
    assert first_epoch(7, 1000.0, 100.0) == 1_000_007, "the clock was wrong"


async def test_a_backup_is_not_replaced_unless_asked(tmp_path: Path):
    store = MemoryStore()
    await a_used_store(store)
    path = await a_backup(store, tmp_path)
    with pytest.raises(Conflict, match="already exists"):
        await a_backup(store, tmp_path)
    await a_backup(store, tmp_path, force=True)
    assert sorted(tmp_path.iterdir()) == [path], "no draft is left behind"


@pytest.mark.parametrize("harm", ["cut", "flipped inside", "not a backup", "cut between records"])
async def test_a_damaged_backup_is_refused_before_anything_is_written(harm: str, tmp_path: Path):
    store = MemoryStore()
    await a_used_store(store)
    path = await a_backup(store, tmp_path)
    whole = path.read_bytes()
    plain = gzip.decompress(whole)
    path.write_bytes(
        {
            "cut": whole[:-20],
            "flipped inside": gzip.compress(plain[:-40] + bytes((plain[-40] ^ 1,)) + plain[-39:]),
            "not a backup": b"hello",
            "cut between records": gzip.compress(plain[: plain.rindex(b"end") - 10]),
        }[harm]
    )
    with pytest.raises(BadRequest, match="is not a whole backup"):
        Archive(path)


async def a_store_without(revision: int, tmp_path: Path) -> SqliteStore:
    """A used store from whose log a record was taken."""
    store = SqliteStore(tmp_path / "source.db")
    await a_used_store(store)
    store._db.execute("DELETE FROM log WHERE revision = ?", (revision,))
    return store


async def test_a_log_from_which_a_record_is_missing_is_not_copied(tmp_path: Path):
    source, target = await a_store_without(60, tmp_path), MemoryStore()
    missing = "the log has a hole: 2 events before revision 62 are missing"
    assert missing in (await check_store(source, "")).broken
    with pytest.raises(LogHole, match="from revision 59 to 60"):
        await a_backup(source, tmp_path)
    assert not (tmp_path / "backup").exists()
    with pytest.raises(Conflict, match="from revision 59 to 60") as refused:
        await migrate(source, target, NAMES, quiet, force=False)
    assert "store repair" in refused.value.hint
    assert await source.leader() is None, "it is not fenced off"
    assert await is_empty(target)
    await source.close()


async def test_what_is_missing_from_stories_alone_is_no_reason_to_refuse_a_copy(tmp_path: Path):
    source, target = await a_store_without(34, tmp_path), MemoryStore()
    await a_backup(source, tmp_path)
    await migrate(source, target, NAMES, quiet, force=False)
    assert (await target.load()).image_revision == 40
    await source.close()


async def test_a_log_that_was_pruned_beyond_the_image_while_it_was_read_is_not_copied(tmp_path: Path):
    store = MemoryStore()
    await a_used_store(store)
    contents = await StoreContents.read(store, "memory:")
    epoch = await store.open_term()
    for revision in (60, 80):
        await store.save_image(epoch, revision, b"later")
    await store.prune(epoch, before=80, keep_jobs=JOBS)
    with pytest.raises(StoreError, match="was pruned up to revision 80 while it was read"):
        await write_archive(tmp_path / "backup", contents, 1.0, "0.1.0", quiet, force=False)


async def test_a_new_store_is_empty_and_one_with_a_past_is_not(backend: Backend):
    store = await backend.store()
    assert await is_empty(store)
    await store.append(await store.open_term(), a_batch(1), [History("j1", b"x")])
    assert not await is_empty(store)


async def a_backup(store: Store, folder: Path, *, force: bool = False) -> Path:
    path = folder / "backup"
    contents = await StoreContents.read(store, "memory:")
    await write_archive(path, contents, 1.0, "0.1.0", quiet, force=force)
    return path
