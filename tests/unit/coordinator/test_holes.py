"""A batch that is missing from the log leaves a hole in the revisions, and is never skipped in silence."""

from __future__ import annotations

import pytest

from phalanx.coordinator.restore import restore
from phalanx.core.cluster.events import Event, TermOpened, decode, encode
from phalanx.core.cluster.state import Timers
from phalanx.errors import NotFound
from phalanx.store.check import Chain, check_store
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, LogHole

pytestmark = pytest.mark.anyio


def a_batch(revision: int, events: int = 1) -> Batch:
    body: list[Event] = [TermOpened(at=1.0, cause="a test", epoch=revision) for _ in range(events)]
    return Batch(revision, encode(body))


async def a_store(*batches: Batch) -> MemoryStore:
    store = MemoryStore(Memory())
    epoch = await store.open_term()
    for batch in batches:
        await store.append(epoch, batch, [])
    return store


async def test_a_whole_log_has_no_hole():
    store = await a_store(a_batch(1), a_batch(3, 2), a_batch(7, 0), a_batch(8))
    assert (await check_store(store, "memory:")).is_good
    assert restore(await store.load(), Timers()).skipped == 0


async def test_a_missing_batch_is_found_by_the_check_and_at_the_start():
    store = await a_store(a_batch(1), a_batch(9, 2), a_batch(10))
    checked = await check_store(store, "memory:")
    assert checked.broken == ["the log has a hole: 6 events before revision 9 are missing"]
    with pytest.raises(LogHole, match="from revision 2 to 7"):
        restore(await store.load(), Timers())


def test_after_a_batch_that_cannot_be_read_nothing_is_known():
    chain = Chain()
    chain.follow(a_batch(1), decode(a_batch(1).body))
    chain.follow(a_batch(5), None)
    chain.follow(a_batch(9), decode(a_batch(9).body))
    assert chain.holes == []


async def test_a_place_where_no_cluster_ever_was_is_not_called_good():
    with pytest.raises(NotFound, match="no cluster in etcd://e1/typo"):
        await check_store(MemoryStore(Memory()), "etcd://e1/typo")
