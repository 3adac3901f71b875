"""A store that is behind what this coordinator has seen is not served; nothing is written to find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.store.address import read_address
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, Candidate, Regressed
from phalanx.store.verified import EpochsSeen, VerifiedStore

pytestmark = pytest.mark.anyio
ME, OTHER = Candidate("me"), Candidate("other")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def a_store(path: Path, memory: Memory) -> VerifiedStore:
    return a_store_at("etcd://h/prefix", path, memory)


def a_store_at(address: str, path: Path, memory: Memory) -> VerifiedStore:
    return VerifiedStore(MemoryStore(memory), EpochsSeen(path, read_address(address, path)))


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
    with pytest.raises(ConfigError, match=r"is at epoch 0.*but this coordinator has seen epoch 3") as caught:
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
    with pytest.raises(ConfigError, match="is at epoch 1"):
        await a_store(tmp_path, another).leader()


async def test_what_a_standby_sees_is_remembered(tmp_path: Path):
    memory = Memory()
    for _ in range(4):
        await MemoryStore(memory).elect(OTHER, 6.0)
    await a_store(tmp_path, memory).leader()
    with pytest.raises(ConfigError, match="has seen epoch 4"):
        await a_store(tmp_path, Memory()).load()


async def a_log(memory: Memory, *revisions: int) -> None:
    writer = MemoryStore(memory)
    epoch = (await writer.elect(OTHER, 6.0)).epoch
    for revision in revisions:
        await writer.append(epoch, Batch(revision, b""), [])


async def a_follower_of(memory: Memory, path: Path) -> VerifiedStore:
    """A standby that has read a log up to revision 7, in epoch 1."""
    await a_log(memory, 1, 2, 7)
    standby = a_store(path, memory)
    await standby.load()
    return standby


async def test_what_a_standby_followed_is_remembered_over_a_restart(tmp_path: Path):
    memory = Memory()
    await a_log(memory, 1, 2)
    standby = a_store(tmp_path, memory)
    await standby.leader()
    await standby.load()
    memory.batches.append(Batch(7, b""))
    await standby.since(2, 10)
    del memory.batches[-1]
    with pytest.raises(ConfigError, match=r"is at epoch 1, revision 2, but .* has seen epoch 1, revision 7"):
        await a_store(tmp_path, memory).load()


async def test_nobody_is_elected_over_a_log_that_has_lost_its_end(tmp_path: Path):
    memory = Memory()
    standby = await a_follower_of(memory, tmp_path)
    del memory.batches[-1]
    memory.holder = None
    with pytest.raises(ConfigError, match="revision 2, but this coordinator has seen epoch 1, revision 7"):
        await standby.elect(ME, 6.0)
    assert memory.epoch == 1, "nothing was written to find out"


async def test_a_new_leader_does_not_make_the_end_of_the_log_forgotten(tmp_path: Path):
    memory = Memory()
    standby = await a_follower_of(memory, tmp_path)
    await MemoryStore(memory).open_term()
    await a_log(memory)
    await standby.leader()
    del memory.batches[-1]
    with pytest.raises(ConfigError, match="has seen epoch 3, revision 7"):
        await a_store(tmp_path, memory).load()


async def test_a_restored_backup_is_followed_though_its_log_is_shorter(tmp_path: Path):
    memory = Memory()
    standby = await a_follower_of(memory, tmp_path)
    del memory.batches[-1]
    await MemoryStore(memory).open_term()
    await a_log(memory)
    await standby.leader()
    with pytest.raises(Regressed):
        await standby.since(7, 10)
    assert [batch.revision for batch in (await standby.load()).batches] == [1, 2]


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
    """Its epochs start far above all that was ever seen."""
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
        await a_store_at("sqlite:", tmp_path, Memory()).load()
    await a_store(tmp_path, Memory()).load()  # it counts for the folder's own file alone


async def test_a_folder_that_takes_nothing_stops_nobody(tmp_path: Path):
    store = a_store(tmp_path / "not-there", Memory())
    assert (await store.elect(ME, 6.0)).epoch == 1
    await store.load()


async def terms(address: str, path: Path, memory: Memory, count: int) -> None:
    for _ in range(count):
        await a_store_at(address, path, memory).elect(ME, 6.0)


@pytest.mark.parametrize(
    "other", ["sqlite:", "sqlite:/elsewhere/b.db", "redis://h/prefix", "etcd://g/prefix"]
)
async def test_what_was_seen_of_one_store_says_nothing_about_another(tmp_path: Path, other: str):
    first, second = Memory(), Memory()
    await terms("sqlite:/elsewhere/a.db", tmp_path, first, 12)
    await terms(other, tmp_path, second, 1)
    assert second.epoch == 1
    for address, epoch in (("sqlite:/elsewhere/a.db", 12), (other, 1)):
        with pytest.raises(ConfigError, match=f"has seen epoch {epoch}"):
            await a_store_at(address, tmp_path, Memory()).elect(ME, 6.0)


async def test_a_mistyped_prefix_makes_no_new_cluster(tmp_path: Path):
    await terms("etcd://h1,h2/prefix", tmp_path, Memory(), 3)
    mistyped = Memory()
    with pytest.raises(ConfigError, match=r"no cluster in etcd://h2:2379/prefiks.*is the prefix right"):
        await terms("etcd://h2/prefiks", tmp_path, mistyped, 1)
    assert mistyped.epoch == 0
    another = Memory()
    await MemoryStore(another).elect(OTHER, 6.0)
    await a_store_at("etcd://h2/another", tmp_path, another).load()


async def test_servers_that_join_or_leave_are_the_same_store(tmp_path: Path):
    await terms("etcd://h1,h2,h3/prefix", tmp_path, Memory(), 3)
    with pytest.raises(ConfigError, match="has seen epoch 3"):
        await terms("etcds://h3,h4/prefix", tmp_path, Memory(), 1)


async def test_a_folder_that_is_moved_takes_what_was_seen_of_its_own_file_along(tmp_path: Path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    await terms(f"sqlite:{before / 'phalanx.db'}", before, Memory(), 3)
    before.rename(after)
    with pytest.raises(ConfigError, match="has seen epoch 3"):
        await terms("sqlite:", after, Memory(), 1)


async def test_a_file_is_the_same_store_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    await terms("sqlite:a b.db", tmp_path, Memory(), 3)
    with pytest.raises(ConfigError, match="has seen epoch 3"):
        await terms(f"sqlite:{tmp_path}/x/../a b.db", tmp_path, Memory(), 1)


async def test_a_torn_line_spoils_no_other(tmp_path: Path):
    (tmp_path / "epoch-seen").write_text("torn")
    await terms("sqlite:/elsewhere/a.db", tmp_path, Memory(), 3)
    await terms("etcd://h/prefix", tmp_path, Memory(), 2)
    await terms("sqlite:", tmp_path, Memory(), 4)
    for address, epoch in (("sqlite:/elsewhere/a.db", 3), ("etcd://h/prefix", 2), ("sqlite:", 4)):
        with pytest.raises(ConfigError, match=f"has seen epoch {epoch}"):
            await a_store_at(address, tmp_path, Memory()).load()
