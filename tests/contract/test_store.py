"""What every store owes, asked of each: the fake in memory and the real one on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, Fenced, History, Loaded, Store
from phalanx.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")


def a_batch(revision: int, *subjects: str) -> Batch:
    return Batch(revision, b"batch %d" % revision, subjects)


async def test_an_empty_store_loads_as_nothing(store: Store):
    assert await store.load() == Loaded(None, 0, [])
    assert await store.history("j1") is None
    assert await store.past(None, 10) == []
    assert await store.story("j1", 0, 10) == []


async def test_epochs_only_grow(store: Store):
    epochs = [await store.open_term() for _ in range(5)]
    assert epochs == sorted(set(epochs))
    assert epochs[0] > 0


async def test_an_append_under_an_old_epoch_is_fenced_and_keeps_nothing(store: Store):
    old = await store.open_term()
    await store.append(old, a_batch(1, "j1"), [])
    new = await store.open_term()
    with pytest.raises(Fenced) as caught:
        await store.append(old, a_batch(2, "j1"), [History("j0", b"record")])
    with pytest.raises(Fenced):
        await store.save_image(old, 2, b"image")
    assert (caught.value.mine, caught.value.current) == (old, new)
    assert bodies(await store.load()) == [b"batch 1"]
    assert (await store.load()).image is None
    assert await store.history("j0") is None
    assert len(await store.story("j1", 0, 10)) == 1
    await store.append(new, a_batch(2), [])


async def test_an_epoch_that_was_never_opened_may_not_write_either(store: Store):
    epoch = await store.open_term()
    with pytest.raises(Fenced):
        await store.append(epoch + 1, a_batch(1), [])


async def test_a_term_is_confirmed_until_another_begins(store: Store):
    epoch = await store.open_term()
    await store.confirm(epoch)
    newer = await store.open_term()
    await store.confirm(newer)
    with pytest.raises(Fenced):
        await store.confirm(epoch)


async def test_batches_come_back_in_order(store: Store):
    epoch = await store.open_term()
    for revision in (1, 3, 4, 10, 200):  # a batch is numbered by its last event, so numbers may leap
        await store.append(epoch, a_batch(revision), [])
    loaded = await store.load()
    assert [batch.revision for batch in loaded.batches] == [1, 3, 4, 10, 200]
    assert bodies(loaded)[-1] == b"batch 200"
    assert loaded.quarantined == 0


async def test_a_load_begins_at_the_newest_image(store: Store):
    epoch = await store.open_term()
    for revision in range(1, 7):
        await store.append(epoch, a_batch(revision, "j1"), [])
        if revision in (2, 4):
            await store.save_image(epoch, revision, b"image %d" % revision)
    loaded = await store.load()
    assert (loaded.image, loaded.image_revision) == (b"image 4", 4)
    assert bodies(loaded) == [b"batch 5", b"batch 6"]
    assert len(await store.story("j1", 0, 10)) == 6, "an image forgets nothing that a story tells"


async def test_a_story_is_told_by_subject_and_in_pages(store: Store):
    epoch = await store.open_term()
    for revision in range(1, 10):
        await store.append(epoch, a_batch(revision, "all", "odd" if revision % 2 else "even"), [])
    first = await store.story("odd", 0, 3)
    rest = await store.story("odd", first[-1].revision, 10)
    assert [batch.revision for batch in first] == [1, 3, 5]
    assert [batch.revision for batch in rest] == [7, 9]
    assert rest[0].body == b"batch 7"
    assert len(await store.story("all", 0, 100)) == 9
    assert await store.story("nobody", 0, 100) == []


async def test_the_past_is_listed_newest_first_by_prefix_and_page(store: Store):
    epoch = await store.open_term()
    ids = ["01a", "01b", "02a", "02b", "02c"]
    await store.append(epoch, a_batch(1), [History(id, id.encode()) for id in ids])
    assert [record.job for record in await store.past(None, 10)] == ids[::-1]
    assert [record.job for record in await store.past(None, 2)] == ["02c", "02b"]
    assert [record.job for record in await store.past("02b", 2)] == ["02a", "01b"]
    assert [record.job for record in await store.past(None, 10, "02")] == ["02c", "02b", "02a"]
    assert [record.job for record in await store.past("02c", 10, "02")] == ["02b", "02a"]
    assert await store.past(None, 10, "03") == []
    assert await store.history("01b") == b"01b"


async def test_a_record_written_again_is_the_newer_one(store: Store):
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [History("j1", b"first")])
    await store.append(epoch, a_batch(2), [History("j1", b"second")])
    assert await store.history("j1") == b"second"
    assert await store.past(None, 10) == [History("j1", b"second")]


subjects = st.lists(st.sampled_from(("j1", "j2", "n1")), max_size=2, unique=True).map(tuple)
deeds = st.sampled_from(("term", "append", "append", "append", "stale", "image"))
steps = st.lists(st.tuples(deeds, subjects, st.sampled_from("abc")), max_size=20)


@given(steps)
def test_the_fake_answers_as_the_real_one_does(steps: list[tuple[str, tuple[str, ...], str]]):
    answers = [
        run(play(kept, steps)) for kept in (MemoryStore(), SqliteStore(Path(":memory:"), durable=False))
    ]
    assert answers[0] == answers[1]


async def play(store: Store, steps: list[tuple[str, tuple[str, ...], str]]) -> list[object]:
    """Do all that, and answer every question there is."""
    epoch, said = await store.open_term(), list[object]()
    for revision, (what, names, job) in enumerate(steps, start=1):
        try:
            match what:
                case "term":
                    epoch = await store.open_term()
                case "image":
                    await store.save_image(epoch, revision, b"image %d" % revision)
                case _:
                    batch = a_batch(revision, *names)
                    await store.append(epoch - (what == "stale"), batch, [History(job, batch.body)])
        except Fenced as error:
            said.append((error.mine, error.current))
    loaded = await store.load()
    said += [epoch, loaded.image, loaded.image_revision, bodies(loaded)]
    said += [[each.body for each in await store.story(name, 3, 4)] for name in ("j1", "j2", "n1")]
    said += [await store.past("c", 2), await store.past(None, 9, "b"), await store.history("a")]
    await store.close()
    return said


def run(coroutine):
    """Neither store ever waits, so a coroutine of theirs ends at its first step."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited for something")


def bodies(loaded: Loaded) -> list[bytes]:
    return [batch.body for batch in loaded.batches]
