"""Tests of Redis only: whether its server may be trusted, lost answers, and what it loses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from phalanx.settings import Secret
from phalanx.store.address import StoreAccess, StoreAddress
from phalanx.store.open import open_at
from phalanx.store.protocol import Batch, Candidate, Fenced, History, Store, StoreError
from phalanx.store.redis.server import client_of
from tests.contract.backends import RedisBackend, a_batch, bodies
from tests.contract.faulty_connections import Proxy
from tests.support.servers import RedisServer, a_prefix, a_redis, shared_redis

pytestmark = pytest.mark.anyio
ADA = Candidate("ada")


@pytest.fixture
async def backend() -> AsyncIterator[RedisBackend]:
    found = RedisBackend()
    yield found
    await found.close()


def at(server: RedisServer, prefix: str | None = None) -> StoreAddress:
    return StoreAddress("redis", hosts=(server.address,), prefix=prefix or a_prefix())


async def test_an_append_whose_answer_was_lost_is_told_by_the_next_load(backend: RedisBackend):
    async with Proxy(shared_redis().address).running() as proxy:
        place = StoreAddress("redis", hosts=(proxy.address,), prefix=backend.place.prefix)
        store = await open_at(place, StoreAccess())
        epoch = await store.open_term()
        await store.append(epoch, a_batch(1), [])
        proxy.swallows = True
        with pytest.raises(StoreError):
            await store.append(epoch, a_batch(2), [History("j1", b"record")])
        assert proxy.swallowed.is_set(), "Redis did answer"
        proxy.swallows = False
        assert bodies(await store.load()) == [b"batch 1", b"batch 2"]
        assert await store.history("j1") == b"record"
        await store.append(epoch, a_batch(3), [])
        await store.close()


async def test_an_election_whose_answer_was_lost_is_won_by_asking_again(backend: RedisBackend):
    async with Proxy(shared_redis().address).running() as proxy:
        place = StoreAddress("redis", hosts=(proxy.address,), prefix=backend.place.prefix)
        store = await open_at(place, StoreAccess())
        before = await store.elect(ADA, 60.0)
        proxy.swallows = True
        with pytest.raises(StoreError):
            await store.elect(ADA, 60.0)
        proxy.swallows = False
        first = await (await backend.store()).leader()
        assert first is not None and first.epoch > before.epoch, "it took effect"
        won = await store.elect(ADA, 60.0)
        assert won.epoch > first.epoch
        with pytest.raises(Fenced):
            await store.append(first.epoch, a_batch(1), [])
        await store.close()


async def test_a_server_that_is_silent_is_given_up_in_seconds_and_the_next_load_tells():
    with a_redis() as server:
        store = await open_at(at(server), StoreAccess())
        epoch = await store.open_term()
        await store.load()
        server.pause()
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreError):
            await store.append(epoch, a_batch(1), [])
        assert asyncio.get_running_loop().time() - began < 6.0
        server.resume()
        seen = len((await store.load()).batches)
        await store.append(epoch, a_batch(2), [])
        assert len((await store.load()).batches) == seen + 1
        await store.close()


async def test_what_was_acknowledged_is_there_after_a_kill():
    with a_redis() as server:
        place = at(server)
        store = await open_at(place, StoreAccess())
        epoch = (await store.elect(ADA, 60.0)).epoch
        asyncio.get_running_loop().call_later(0.2, server.kill)
        acknowledged, _ = await _fill(store, epoch, b"x")
        await store.close()
        server.start()
        server.wait_ready()
        store = await open_at(place, StoreAccess())
        kept = len((await store.load()).batches)
        assert acknowledged > 0
        assert kept in (acknowledged, acknowledged + 1), "the last may have been written and not yet said"
        assert len(await store.past(None, 2_000_000)) == kept
        assert (await store.elect(Candidate("bob"), 1.0)).epoch in (epoch, epoch + 1)
        await store.close()


async def test_who_has_seen_more_than_redis_now_knows_serves_no_longer():
    with a_redis() as server:
        place = at(server)
        store, fresh = await open_at(place, StoreAccess()), None
        await store.open_term(at_least=7)
        async with client_of(place, StoreAccess()) as client:
            await client.flushall()  # as when a replica that lagged behind takes over
        for asked in (
            store.elect(ADA, 1.0),
            store.load(),
            store.since(0, 1),
            store.leader(),
            store.confirm(7),
        ):
            with pytest.raises(StoreError, match=r"lost what it acknowledged: it was at epoch 7"):
                await asked
        fresh = await open_at(place, StoreAccess())
        assert await fresh.leader() is None, "and wrote nothing: a person restarts it"
        await store.close()
        await fresh.close()


async def test_a_log_that_became_shorter_is_noticed_as_well():
    with a_redis() as server:
        place = at(server)
        store = await open_at(place, StoreAccess())
        epoch = await store.open_term()
        for revision in (1, 2):
            await store.append(epoch, a_batch(revision), [])
        async with client_of(place, StoreAccess()) as client:
            await client.zrem(f"{{{place.prefix}}}:order", "2")
        with pytest.raises(StoreError, match=r"revision 2 and now is at 1, 1"):
            await store.append(epoch, a_batch(3), [])
        await store.close()


async def test_a_replica_is_refused():
    with (
        a_redis() as master,
        a_redis(["--replicaof", "127.0.0.1", str(master.port)]) as replica,
        pytest.raises(StoreError, match="is a slave, which may not be written: name the master"),
    ):
        await open_at(at(replica), StoreAccess())


async def test_a_master_that_became_a_replica_answers_no_more():
    with a_redis() as other, a_redis() as server:
        place = at(server)
        store = await open_at(place, StoreAccess())
        epoch = await store.open_term()
        async with client_of(place, StoreAccess()) as client:
            await client.replicaof("127.0.0.1", str(other.port))
        for asked in (store.append(epoch, a_batch(1), []), store.confirm(epoch), store.leader()):
            with pytest.raises(StoreError):
                await asked
        await store.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_policy_that_may_drop_our_keys_is_refused(policy: str):
    with (
        a_redis(["--maxmemory-policy", policy]) as server,
        pytest.raises(StoreError, match=f"{policy}, which may drop our keys: set it to noeviction"),
    ):
        await open_at(at(server), StoreAccess())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--appendfsync", "everysec"], "two seconds of writes"),
        (["--appendonly", "no"], "everything since its last snapshot"),
    ],
)
async def test_a_server_that_does_not_wait_for_the_disk_is_warned_of(
    options: list[str], said: str, caplog: pytest.LogCaptureFixture
):
    with a_redis(options) as server, caplog.at_level(logging.WARNING, "phalanx"):
        store = await open_at(at(server), StoreAccess())
        await store.close()
    assert "Redis may lose what it acknowledged" in caplog.text
    assert said in caplog.text


async def test_a_server_that_waits_for_the_disk_is_not(
    backend: RedisBackend, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "phalanx"):
        await backend.store()
    assert caplog.text == ""


async def test_without_memory_nothing_is_kept_by_half():
    with a_redis(["--maxmemory", "8mb"]) as server:
        store = await open_at(at(server), StoreAccess())
        epoch = (await store.elect(ADA, 60.0)).epoch
        acknowledged, refused = await _fill(store, epoch, bytes(50_000))
        assert "maxmemory" in refused
        await store.renew(epoch, 60.0)
        await store.confirm(epoch)
        loaded = await store.load()
        assert [batch.revision for batch in loaded.batches] == list(range(1, acknowledged + 1))
        assert len(await store.past(None, 10_000)) == acknowledged
        assert len(await store.story("n1", 0, 10_000)) == acknowledged
        await store.close()


async def _fill(store: Store, epoch: int, body: bytes) -> tuple[int, str]:
    """Append until it is refused: returns how much was acknowledged, and the refusal."""
    for revision in range(1, 100_000):
        try:
            await store.append(epoch, Batch(revision, body, ("n1",)), [History(f"j{revision:05}", b"x")])
        except StoreError as error:
            return revision - 1, str(error)
    raise AssertionError("it never was")


async def test_a_password_is_shown_and_a_wrong_one_refused():
    with a_redis(["--requirepass", "open-sesame"]) as server:
        store = await open_at(at(server), StoreAccess(password=Secret("open-sesame")))
        await store.open_term()
        await store.close()
        with pytest.raises(StoreError) as refused:
            await open_at(at(server), StoreAccess(password=Secret("open-barley")))
        assert "open-barley" not in str(refused.value)


async def test_nobody_there_is_said_with_the_address():
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1"):
        await open_at(StoreAddress("redis", hosts=("127.0.0.1:1",)), StoreAccess())
