"""Numbers of ended jobs: every store finds the id by the number, drops it with the record, and gives none twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phalanx.coordinator.numbers import number_history
from phalanx.core.cluster.events import encode
from phalanx.core.cluster.image import encode_job, encode_state
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.store.archive import Archive, write_archive
from phalanx.store.check import replayed
from phalanx.store.contents import StoreContents
from phalanx.store.copy import fill
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, Candidate, Fenced, History, Store
from phalanx.store.repair import repair
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import a_batch
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster

pytestmark = pytest.mark.anyio
IDS = [f"{at:026}" for at in range(3)]
FIXTURES = Path(__file__).parent / "fixtures"


async def test_a_job_that_left_memory_is_found_by_its_number(store: Store):
    epoch = await store.open_term()
    await store.append(
        epoch, a_batch(1), [History("j1", b"a", 17), History("j2", b"b", 4), History("j3", b"c")]
    )
    assert [await store.numbered(number) for number in (17, 4, 3, 0)] == ["j1", "j2", None, None]
    assert await store.past(None, 1) == [History("j3", b"c")]


async def test_a_number_goes_with_its_record(store: Store):
    epoch = await store.open_term()
    records = [History(f"j{at:03}", b"x", at) for at in range(1, 151)]
    for revision, at in enumerate(range(0, 150, 50), start=1):
        await store.append(epoch, a_batch(revision), records[at : at + 50])
    await store.prune(epoch, 0, 100)
    assert [await store.numbered(number) for number in (1, 50, 51, 150)] == [None, None, "j051", "j150"]
    await store.prune(epoch, 0, 0)
    assert await store.numbered(150) is None


async def test_numbers_are_kept_by_the_leader_alone(store: Store):
    old = await store.open_term()
    await store.keep_numbers(old, {0: "", 5: "j5"})
    await store.open_term()
    with pytest.raises(Fenced):
        await store.keep_numbers(old, {6: "j6"})
    with pytest.raises(Fenced):
        await store.append(old, a_batch(1), [History("j7", b"x", 7)])
    assert [await store.numbered(number) for number in (0, 5, 6, 7)] == ["", "j5", None, None]


async def test_records_without_an_index_are_numbered_once(store: Store):
    epoch = await store.open_term()
    jobs = [JobState(a_job(id=f"{at:026}"), at, [0] * 6) for at in range(1, 301)]
    await store.append(epoch, a_batch(1), [History(job.job.id, encode_job(job)) for job in jobs])
    assert await store.numbered(300) is None
    await number_history(store, epoch)
    assert await store.numbered(300) == jobs[-1].job.id
    assert await store.numbered(1) == jobs[0].job.id
    await store.append(epoch, a_batch(2), [History("0" * 26, b"not numbered")])
    await number_history(store, epoch)  # it is done, and reads nothing again


async def test_an_ended_job_of_version_0_2_gets_its_number(tmp_path: Path):
    path = tmp_path / "phalanx.db"
    shutil.copy(FIXTURES / "schema-2.db", path)
    store = SqliteStore(path)
    assert await store.numbered(1) is None, "there is no index before the first election"
    won = await store.elect(Candidate("ada"), 60.0)
    (record,) = await store.past(None, 10)
    await number_history(store, won.epoch)
    found = [number for number in range(1, 9) if await store.numbered(number) == record.job]
    await store.close()
    assert len(found) == 1


async def test_a_restored_backup_gives_no_number_again(tmp_path: Path):
    cluster = CoreCluster(n1={})
    ids = [cluster.submit(a_job(id=id)).job.id for id in IDS]
    source = MemoryStore()
    epoch = await source.open_term()
    await source.append(epoch, Batch(cluster.state.revision, encode([])), [History("z" * 26, b"x", 9)])
    await source.save_image(epoch, cluster.state.revision, encode_state(cluster.state))
    contents = await StoreContents.read(source, "memory")
    await write_archive(tmp_path / "backup", contents, 0.0, "test", lambda *_: None, force=False)
    target = MemoryStore()
    await fill(target, Archive(tmp_path / "backup"), 100, lambda *_: None, restored_at=5.0)
    state, broken = replayed(await target.load())
    assert broken == []
    assert {state.jobs[id].arrival for id in ids} == {1, 2, 3}, "those that are there keep theirs"
    assert state.next_number() == 100_001


async def test_a_repaired_log_gives_no_number_again():
    """Which events are missing is not known, and each may have been that of a job."""
    cluster = CoreCluster(n1={})
    cluster.submit(a_job(id=IDS[0]))
    store = MemoryStore()
    epoch = await store.open_term()
    await store.append(epoch, Batch(cluster.state.revision, encode([])), [])
    await store.save_image(epoch, cluster.state.revision, encode_state(cluster.state))
    await store.append(epoch, Batch(cluster.state.revision + 7, b"", is_damaged=True), [])
    await repair(store, "memory", "to-image", 1.0)
    state, _ = replayed(await store.load())
    assert state.next_number() == 1 + 7 + 1


async def test_a_number_is_what_its_event_says_though_events_before_it_are_missing():
    cluster, read = CoreCluster(n1={}), ClusterState()
    for id in IDS:
        cluster.submit(a_job(id=id))
    apply(read, cluster.events[-1])
    (job,) = read.jobs.values()
    assert job.arrival == cluster.state.jobs[job.job.id].arrival == 3
