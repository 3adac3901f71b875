"""A store that knows less than this coordinator has seen is not served; nothing is written to find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Candidate
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
    with pytest.raises(ConfigError, match="knows epoch 0, and this coordinator has seen epoch 3") as caught:
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
