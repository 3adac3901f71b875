"""Two versions on one store: until the newer one leads the older may; after that it never does, also if it was
running.

Version 0.2 skips events that it cannot read, so it must not lead on top of them (R19). What its standbys check before
they take the leadership is repeated here: a row, a key, or the schema that they have seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.store.address import StoreAccess
from phalanx.store.copy import MIGRATED
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.protocol import LEFT_BEHIND, Candidate, StoreError
from phalanx.store.redis.server import client_of
from tests.contract.backends import (
    Backend,
    EtcdBackend,
    RedisBackend,
    SqliteBackend,
    a_backend,
    a_batch,
    bodies,
)

pytestmark = pytest.mark.anyio
FORMER = {"sqlite": 2, "redis": 1, "etcd": 1}
ADA, BEN, OLD = Candidate("ada"), Candidate("ben"), Candidate("old")


@pytest.fixture(params=["sqlite", "redis", "etcd"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """A store that version 0.2 has made."""
    found = a_backend(request.param, tmp_path)
    await found.store()
    await found.set_schema(FORMER[request.param])
    yield found
    await found.close()


async def former_holder(backend: Backend) -> str | None:
    """The leader, as a running standby of version 0.2 sees it."""
    if isinstance(backend, SqliteBackend):
        with sqlite3.connect(backend.path) as db:
            row = db.execute("SELECT name FROM office WHERE until > 1e12").fetchone()
        db.close()
        return str(row[0]) if row else None
    if isinstance(backend, RedisBackend):
        async with client_of(backend.place, StoreAccess()) as client:
            name = await client.hget(f"{{{backend.place.prefix}}}:office", "name")
        return name.decode() if isinstance(name, bytes) else None
    assert isinstance(backend, EtcdBackend)
    async with backend._client() as client:  # it takes the leadership only if the schema is the one it saw
        (entry,) = (await client.range(EtcdKeys(backend.place.prefix).schema)).entries
    return None if entry.value == b"1" else LEFT_BEHIND.name


async def hold_formerly(backend: Backend) -> None:
    """A coordinator of version 0.2 leads."""
    if isinstance(backend, SqliteBackend):
        with sqlite3.connect(backend.path) as db:
            db.execute("INSERT OR REPLACE INTO office VALUES (1, 'old', '', '', 1e12)")
        db.close()
    elif isinstance(backend, RedisBackend):
        async with client_of(backend.place, StoreAccess()) as client:
            office = f"{{{backend.place.prefix}}}:office"
            await client.hset(office, mapping={"name": "old", "address": "", "link": "", "epoch": "1"})


async def test_once_a_newer_version_has_led_standbys_of_0_2_never_lead(backend: Backend):
    store = await backend.store()
    assert await former_holder(backend) is None
    won = await store.elect(ADA, 60.0)
    assert won.candidate == ADA
    assert await former_holder(backend) == LEFT_BEHIND.name
    await store.resign(won.epoch)
    assert await store.leader() is None
    assert await former_holder(backend) == LEFT_BEHIND.name
    assert LEFT_BEHIND.name.startswith(MIGRATED), "a standby of 0.2 tells where the store went"


async def test_to_fill_a_store_keeps_version_0_2_away_as_well(backend: Backend):
    store = await backend.store()
    await store.open_term()
    assert await former_holder(backend) == LEFT_BEHIND.name
    assert (await store.elect(ADA, 60.0)).candidate == ADA


async def test_a_standby_that_was_there_before_the_schema_was_raised_leads_after_it(backend: Backend):
    store, standby = await backend.store(), await backend.store()
    assert await standby.leader() is None
    assert bodies(await standby.load()) == []
    won = await store.elect(ADA, 60.0)
    await store.append(won.epoch, a_batch(1), [])
    assert (await standby.elect(BEN, 60.0)).candidate == ADA
    await store.resign(won.epoch)
    assert (await standby.elect(BEN, 60.0)).candidate == BEN
    assert bodies(await standby.load()) == [b"batch 1"]


async def test_while_version_0_2_leads_nobody_else_does(backend: Backend):
    if isinstance(backend, EtcdBackend):  # there its key is the same
        store = await backend.store()
        await store.elect(OLD, 60.0)
        await backend.set_schema(1)
    else:
        store = await backend.store()
        await hold_formerly(backend)
    assert (await store.elect(ADA, 60.0)).candidate == OLD
    found = await store.leader()
    assert found is not None and found.candidate == OLD
    assert (await store.elect(OLD, 60.0)).candidate == OLD, "the same one, upgraded, goes on at once"
    assert await former_holder(backend) == LEFT_BEHIND.name


async def test_a_standby_does_not_lead_where_a_newer_version_has_led(backend: Backend):
    store = await backend.store()
    await backend.set_schema(99)
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await store.elect(ADA, 60.0)
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await store.open_term()
