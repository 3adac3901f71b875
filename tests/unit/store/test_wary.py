"""A store that knows less than this coordinator has seen is not served; nothing is written to find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, Candidate
from phalanx.store.wary import EpochsSeen, WaryStore

pytestmark = pytest.mark.anyio
ME, OTHER = Candidate("me"), Candidate("other")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def a_store(path: Path, memory: Memory) -> WaryStore:
    return WaryStore(MemoryStore(memory), EpochsSeen(path / "epoch-seen", "etcd://h/prefix"))


async def test_epochs_that_grow_are_served_over_restarts(tmp_path: Path):
    memory = Memory()
    for expected in (1, 2, 3):
        store = a_store(tmp_path, memory)
        assert (await store.elect(ME, 6.0)).epoch == expected
        await store.load()


async def test_an_emptied_store_is_refused_and_says_what_to_do(tmp_path: Path):
    memory = Memory()
    for _ in range(3):
        await a_store(tmp_path, memory).elect(ME, 6.0)
    emptied = Memory()
    store = a_store(tmp_path, emptied)
    with pytest.raises(ConfigError, match=r"knows epoch 0.*and this coordinator has seen epoch 3") as caught:
        await store.elect(ME, 6.0)
    assert "epoch-seen" in caught.value.hint
    with pytest.raises(ConfigError):
        await store.load()


async def test_trying_again_and_again_does_not_make_it_right(tmp_path: Path):
    await a_store(tmp_path, Memory()).elect(ME, 6.0)
    emptied = Memory()
    for _ in range(3):
        with pytest.raises(ConfigError):
            await a_store(tmp_path, emptied).elect(ME, 6.0)
    assert emptied.epoch == 0


async def test_a_standby_does_not_follow_who_leads_another_cluster(tmp_path: Path):
    memory, another = Memory(), Memory()
    for _ in range(3):
        await a_store(tmp_path, memory).elect(ME, 6.0)
    await MemoryStore(another).elect(OTHER, 6.0)
    with pytest.raises(ConfigError, match="knows epoch 1"):
        await a_store(tmp_path, another).leader()


async def test_what_a_standby_sees_is_remembered(tmp_path: Path):
    memory = Memory()
    for _ in range(4):
        await MemoryStore(memory).elect(OTHER, 6.0)
    await a_store(tmp_path, memory).leader()
    with pytest.raises(ConfigError, match="has seen epoch 4"):
        await a_store(tmp_path, Memory()).load()


async def test_without_a_readable_file_nothing_is_refused(tmp_path: Path):
    (tmp_path / "epoch-seen").write_text("torn")
    assert (await a_store(tmp_path, Memory()).elect(ME, 6.0)).epoch == 1


async def test_a_log_that_has_become_shorter_is_refused(tmp_path: Path):
    """The epoch is the same: a part of the log is gone, as when a WAL was deleted."""
    memory = Memory()
    store = a_store(tmp_path, memory)
    epoch = (await store.elect(ME, 6.0)).epoch
    for revision in (1, 2, 3):
        await store.append(epoch, Batch(revision, b"batch"), [])
    assert len((await a_store(tmp_path, memory).load()).batches) == 3
    del memory.batches[-1]
    with pytest.raises(ConfigError, match=r"epoch 1, revision 2.*has seen epoch 1, revision 3"):
        await a_store(tmp_path, memory).load()


async def test_a_restored_backup_is_shorter_and_believed(tmp_path: Path):
    """Its epochs begin far above all that anybody has seen."""
    store = a_store(tmp_path, Memory())
    epoch = (await store.elect(ME, 6.0)).epoch
    for revision in (1, 2, 3):
        await store.append(epoch, Batch(revision, b"batch"), [])
    restored = Memory()
    await MemoryStore(restored).open_term(1_000_000)
    again = a_store(tmp_path, restored)
    await again.load()
    assert (await again.elect(ME, 6.0)).epoch == 1_000_001
    await a_store(tmp_path, restored).load()


async def test_the_number_that_an_older_version_wrote_is_read(tmp_path: Path):
    (tmp_path / "epoch-seen").write_text("7\n")
    with pytest.raises(ConfigError, match="has seen epoch 7, revision 0"):
        await a_store(tmp_path, Memory()).load()


async def test_a_folder_that_takes_nothing_stops_nobody(tmp_path: Path):
    store = a_store(tmp_path / "not-there", Memory())
    assert (await store.elect(ME, 6.0)).epoch == 1
    await store.load()
