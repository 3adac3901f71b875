"""Two versions at one store: until the newer one leads the older may; after that it never does, also if it was running.

Version 0.2 passes over events that it cannot read, so it must not lead on top of them (R19). What its standbys look at
before they take the office is written down here: a row, a key, or the schema that they have seen.
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
from tests.contract.worlds import EtcdWorld, RedisWorld, SqliteWorld, World, a_batch, a_world, bodies

pytestmark = pytest.mark.anyio
FORMER = {"sqlite": 2, "redis": 1, "etcd": 1}
ADA, BEN, OLD = Candidate("ada"), Candidate("ben"), Candidate("old")


@pytest.fixture(params=["sqlite", "redis", "etcd"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A store that version 0.2 has made."""
    found = a_world(request.param, tmp_path)
    await found.store()
    await found.set_schema(FORMER[request.param])
    yield found
    await found.close()


async def former_holder(world: World) -> str | None:
    """Who holds the office in the eyes of a standby of version 0.2 that has been running."""
    if isinstance(world, SqliteWorld):
        with sqlite3.connect(world.path) as db:
            row = db.execute("SELECT name FROM office WHERE until > 1e12").fetchone()
        db.close()
        return str(row[0]) if row else None
    if isinstance(world, RedisWorld):
        async with client_of(world.place, StoreAccess()) as client:
            name = await client.hget(f"{{{world.place.prefix}}}:office", "name")
        return name.decode() if isinstance(name, bytes) else None
    assert isinstance(world, EtcdWorld)
    async with world._client() as client:  # it takes the office only if the schema is the one it saw
        (entry,) = (await client.range(EtcdKeys(world.place.prefix).schema)).entries
    return None if entry.value == b"1" else LEFT_BEHIND.name


async def hold_formerly(world: World) -> None:
    """A coordinator of version 0.2 leads."""
    if isinstance(world, SqliteWorld):
        with sqlite3.connect(world.path) as db:
            db.execute("INSERT OR REPLACE INTO office VALUES (1, 'old', '', '', 1e12)")
        db.close()
    elif isinstance(world, RedisWorld):
        async with client_of(world.place, StoreAccess()) as client:
            office = f"{{{world.place.prefix}}}:office"
            await client.hset(office, mapping={"name": "old", "address": "", "link": "", "epoch": "1"})


async def test_once_a_newer_version_has_led_standbys_of_0_2_never_lead(world: World):
    store = await world.store()
    assert await former_holder(world) is None
    won = await store.elect(ADA, 60.0)
    assert won.candidate == ADA
    assert await former_holder(world) == LEFT_BEHIND.name
    await store.resign(won.epoch)
    assert await store.leader() is None
    assert await former_holder(world) == LEFT_BEHIND.name
    assert LEFT_BEHIND.name.startswith(MIGRATED), "a standby of 0.2 tells where the store went"


async def test_to_fill_a_store_keeps_version_0_2_away_as_well(world: World):
    store = await world.store()
    await store.open_term()
    assert await former_holder(world) == LEFT_BEHIND.name
    assert (await store.elect(ADA, 60.0)).candidate == ADA


async def test_a_standby_that_was_there_before_the_schema_was_raised_leads_after_it(world: World):
    store, standby = await world.store(), await world.store()
    assert await standby.leader() is None
    assert bodies(await standby.load()) == []
    won = await store.elect(ADA, 60.0)
    await store.append(won.epoch, a_batch(1), [])
    assert (await standby.elect(BEN, 60.0)).candidate == ADA
    await store.resign(won.epoch)
    assert (await standby.elect(BEN, 60.0)).candidate == BEN
    assert bodies(await standby.load()) == [b"batch 1"]


async def test_while_version_0_2_leads_nobody_else_does(world: World):
    if isinstance(world, EtcdWorld):  # there its key is the same
        store = await world.store()
        await store.elect(OLD, 60.0)
        await world.set_schema(1)
    else:
        store = await world.store()
        await hold_formerly(world)
    assert (await store.elect(ADA, 60.0)).candidate == OLD
    found = await store.leader()
    assert found is not None and found.candidate == OLD
    assert (await store.elect(OLD, 60.0)).candidate == OLD, "the same one, upgraded, goes on at once"
    assert await former_holder(world) == LEFT_BEHIND.name


async def test_a_standby_does_not_lead_where_a_newer_version_has_led(world: World):
    store = await world.store()
    await world.set_schema(99)
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await store.elect(ADA, 60.0)
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await store.open_term()
