"""Damage and versions, asked of every store that keeps anything: a damaged record is reported, the others can be read.

`test_holes.py` tests what a coordinator does with a damaged batch.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from phalanx.store.address import StoreAccess
from phalanx.store.check import Inspected
from phalanx.store.open import open_to_read
from phalanx.store.protocol import Batch, History, Store, StoreError
from phalanx.store.record import Damage
from tests.contract.backends import Backend, a_backend, a_batch, bodies, revisions

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "redis", "etcd"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path):
    found = a_backend(request.param, tmp_path)
    yield found
    await found.close()


async def test_of_a_hundredth_damaged_each_is_told_until_it_is_set_aside(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in range(1, 301):
        await store.append(epoch, a_batch(revision, "j1"), [])
    bad = sorted(random.Random(7).sample(range(1, 301), 3))
    for revision in bad:
        await backend.flip("log", str(revision))
    assert await named(store) == [("log", at, False) for at in sorted(map(str, bad))]
    good = [revision for revision in range(1, 301) if revision not in bad]
    again = await backend.store()
    for _ in range(2):  # for every reader, and as often as it is read
        for batches in ((await again.load()).batches, await again.since(0, 400)):
            assert revisions([batch for batch in batches if batch.is_damaged]) == bad
            assert revisions([batch for batch in batches if not batch.is_damaged]) == good
    assert revisions(await again.story("j1", 0, 400)) == good
    await again.set_aside(epoch, [*bad, good[0]])
    assert revisions((await again.load()).batches) == good, "a good one stays"
    assert await named(again) == [("log", at, True) for at in sorted(map(str, bad))]
    assert revisions(await again.story("j1", 0, 400)) == good


async def test_of_a_tenth_of_the_past_damaged_the_start_succeeds(backend: Backend):
    """R18: images and records of ended jobs."""
    store = await backend.store()
    epoch = await store.open_term()
    records = [History(f"j{number:02}", b"<job %d>" % number) for number in range(20)]
    await store.append(epoch, a_batch(1), records)
    await store.save_image(epoch, 1, b"<image 1>")
    for bad in ("j03", "j11"):
        await backend.flip("history", bad)
    await backend.flip("image", "1")
    loaded = await (await backend.store()).load()
    assert (loaded.image, bodies(loaded), loaded.quarantined) == (None, [b"batch 1"], 1)
    assert len(await store.past(None, 40)) == 18
    assert await named(store) == [("history", "j03", False), ("history", "j11", False), ("image", "1", True)]


async def test_a_damaged_image_gives_way_to_the_one_before_it(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2, 3):
        await store.append(epoch, a_batch(revision), [])
        await store.save_image(epoch, revision, b"<image %d>" % revision)
    await store.append(epoch, a_batch(4), [])
    await backend.flip("image", "3")
    loaded = await (await backend.store()).load()
    assert (loaded.image, loaded.image_revision, loaded.quarantined) == (b"<image 2>", 2, 1)
    assert bodies(loaded) == [b"batch 3", b"batch 4"]


async def test_the_log_is_kept_for_the_image_before_the_newest(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2, 3):
        await store.append(epoch, a_batch(revision), [])
        await store.save_image(epoch, revision, b"<image %d>" % revision)
    await store.prune(epoch, before=3, keep_jobs=10)
    await backend.flip("image", "3")
    loaded = await (await backend.store()).load()
    assert (loaded.image, bodies(loaded)) == (b"<image 2>", [b"batch 3"])


async def test_without_a_good_image_the_whole_log_is_read(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [])
    await store.save_image(epoch, 1, b"<image 1>")
    await backend.flip("image", "1")
    loaded = await (await backend.store()).load()
    assert (loaded.image, bodies(loaded), loaded.quarantined) == (None, [b"batch 1"], 1)


async def test_a_part_of_a_state_is_not_taken_for_the_whole(backend: Backend):
    """No good image, and the beginning of the log is gone: starting from that would forget running tasks."""
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2):
        await store.append(epoch, a_batch(revision), [])
    await store.save_image(epoch, 1, b"<image 1>")
    await store.prune(epoch, before=1, keep_jobs=10)
    await backend.flip("image", "1")
    with pytest.raises(StoreError, match="phalanx store restore"):
        await (await backend.store()).load()


async def test_a_damaged_record_of_the_past_is_left_out_and_named(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [History("j1", b"<job 1>"), History("j2", b"<job 2>")])
    await backend.flip("history", "j1")
    assert await store.history("j1") is None
    assert await store.past(None, 10) == [History("j2", b"<job 2>")]
    assert ("history", "j1", False) in await named(store)


async def test_after_damage_at_the_end_of_the_log_was_set_aside_writing_goes_on(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2):
        await store.append(epoch, a_batch(revision), [])
    await backend.flip("log", "2")
    again = await backend.store()
    epoch = await again.open_term()
    assert [batch.is_damaged for batch in (await again.load()).batches] == [False, True]
    await again.append(epoch, Batch(3, b"another"), [])
    await again.set_aside(epoch, [2])
    assert bodies(await again.load()) == [b"batch 1", b"another"]


async def test_the_index_names_whom_damaged_batches_were_about(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in range(1, 5):
        await store.append(epoch, a_batch(revision, f"j{revision}", "n1"), [])
    await backend.flip("log", "2")
    expected = [] if backend.place.kind == "etcd" else ["j2", "j3", "n1"]  # etcd's is written down later
    assert await (await backend.store()).concerned(1, 3) == expected


async def test_who_only_looks_sets_nothing_aside(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2):
        await store.append(epoch, a_batch(revision), [])
    await backend.flip("log", "1")
    reader = await open_to_read(backend.place, StoreAccess())
    assert [batch.is_damaged for batch in (await reader.load()).batches] == [True, False]
    with pytest.raises(StoreError):
        await reader.set_aside(epoch, [1])
    with pytest.raises(StoreError):
        await reader.open_term()
    await reader.close()
    assert await named(store) == [("log", "1", False)]


async def test_a_newer_schema_is_refused_and_nothing_is_changed(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [])
    await backend.set_schema(99)
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await backend.store()
    with pytest.raises(StoreError, match=r"99.*use a newer version"):
        await open_to_read(backend.place, StoreAccess())
    await backend.set_schema(3 if backend.place.kind == "sqlite" else 2)
    again = await backend.store()
    await again.confirm(epoch)
    assert bodies(await again.load()) == [b"batch 1"]


async def named(store: Store) -> list[tuple[str, str, bool]]:
    assert isinstance(store, Inspected)
    found: list[Damage] = await store.damaged()
    return sorted((each.source, each.key, each.set_aside) for each in found)
