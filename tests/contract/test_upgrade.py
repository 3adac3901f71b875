"""Upgrades: a store of every released schema is opened, read to the last record, and goes on (R19).

`fixtures/schema-1.db` was made by the version that wrote schema 1: two nodes, four jobs, one of them running, an image
and a record of an ended job. `fixtures/schema-2.db` is of version 0.2: a gang for which room was promised, before the
image and again at the end of the log, and which ended as a whole in between; its record; and a node that was excluded.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from phalanx.core.cluster.events import AttemptEnded, JobSettled, RoomPromised, decode
from phalanx.core.cluster.exclusion_events import NodeExcluded
from phalanx.store.check import check_store
from phalanx.store.protocol import Candidate, StoreError
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import a_batch

pytestmark = pytest.mark.anyio
FIXTURES = Path(__file__).parent / "fixtures"
RELEASED = FIXTURES / "schema-1.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shutil.copy(RELEASED, tmp_path / "phalanx.db")
    return tmp_path / "phalanx.db"


async def test_everything_of_schema_1_is_read(path: Path):
    store = SqliteStore(path)
    found = await check_store(store, "schema 1")
    await store.close()
    assert (found.damaged, found.set_aside, found.broken) == ([], [], [])
    assert (found.epoch, found.revision, found.image_revision, found.batches) == (1, 66, 25, 28)
    assert (found.jobs, found.nodes, found.ended_jobs) == (4, 2, 1)


async def test_everything_of_schema_2_is_read(tmp_path: Path):
    path = tmp_path / "phalanx.db"
    shutil.copy(FIXTURES / "schema-2.db", path)
    store = SqliteStore(path)
    found = await check_store(store, "schema 2")
    loaded = await store.load()
    await store.close()
    assert (found.damaged, found.set_aside, found.broken) == ([], [], [])
    assert (found.epoch, found.revision, found.image_revision, found.batches) == (1, 43, 14, 34)
    assert (found.jobs, found.nodes, found.ended_jobs) == (3, 2, 1)
    events = [event for batch in loaded.batches for event in decode(batch.body)]
    assert {RoomPromised, JobSettled, NodeExcluded, AttemptEnded} <= {type(event) for event in events}


async def test_a_store_of_schema_1_has_an_office_and_goes_on_with_a_higher_epoch(path: Path):
    store = SqliteStore(path)
    won = await store.elect(Candidate("ada"), 60.0)
    assert won.epoch == 2
    await store.load()
    await store.append(won.epoch, a_batch(67), [])
    assert await store.leader() == won
    await store.close()


async def test_a_store_of_schema_1_is_not_changed_by_looking(path: Path):
    before = path.read_bytes()
    with pytest.raises(StoreError, match="has schema 1: a coordinator of this version makes it 2"):
        SqliteStore(path, read_only=True)
    assert path.read_bytes() == before


def test_once_upgraded_an_older_version_refuses_it(path: Path):
    """What the version that wrote schema 1 asks before it writes."""
    SqliteStore(path)
    db = sqlite3.connect(path)
    assert db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == (2,)
    db.close()


async def test_a_store_of_schema_2_is_raised_by_whoever_leads_not_by_opening_it(tmp_path: Path):
    path = tmp_path / "phalanx.db"
    shutil.copy(FIXTURES / "schema-2.db", path)
    store = SqliteStore(path)
    looking = SqliteStore(path, read_only=True)
    assert (store._schema(), await looking.leader()) == (2, None)
    won = await store.elect(Candidate("ada"), 60.0)
    assert (store._schema(), won.epoch, await looking.leader()) == (3, 2, won)
    await looking.close()
    await store.close()
