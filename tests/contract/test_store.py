"""The contract of every store: the log, images, stories and ended jobs. The leadership is in test_leadership.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, Fenced, History, Loaded, Moved, Pruned, Regressed, Store, StoreError
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import Backend, a_batch, bodies, revisions

pytestmark = pytest.mark.anyio


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


async def test_a_second_coordinator_sees_what_the_first_wrote_and_fences_it(backend: Backend):
    one, two = await backend.store(), await backend.store()
    first = await one.open_term()
    await one.append(first, a_batch(1), [])
    second = await two.open_term()
    assert bodies(await two.load()) == [b"batch 1"]
    with pytest.raises(Fenced):
        await one.append(first, a_batch(2), [])
    await two.append(second, a_batch(2), [])
    assert bodies(await one.load()) == [b"batch 1", b"batch 2"]


async def test_everything_is_there_when_the_store_is_opened_again(backend: Backend):
    store = await backend.store()
    first = await store.open_term()
    await store.append(first, a_batch(1, "j1"), [History("j0", b"record")])
    await store.save_image(first, 1, b"image")
    await store.append(first, a_batch(2, "j1"), [])
    again = await backend.store()
    assert await again.open_term() > first
    loaded = await again.load()
    assert (loaded.image, bodies(loaded)) == (b"image", [b"batch 2"])
    assert revisions(await again.story("j1", 0, 10)) == [1, 2]
    assert await again.history("j0") == b"record"


async def test_a_log_that_moved_on_since_the_load_is_not_written(backend: Backend):
    """As when our own write, whose answer was lost, took effect after all."""
    ours, late = await backend.store(), await backend.store()
    epoch = await ours.open_term()
    await ours.load()
    await late.load()
    await late.append(epoch, a_batch(1), [])
    with pytest.raises(Moved):
        await ours.append(epoch, a_batch(2, "j1"), [History("j1", b"record")])
    assert await ours.history("j1") is None
    assert bodies(await ours.load()) == [b"batch 1"]
    await ours.append(epoch, a_batch(2), [])


async def test_once_anything_was_appended_a_late_write_can_no_longer_take_effect(backend: Backend):
    ours, late = await backend.store(), await backend.store()
    epoch = await ours.open_term()
    await late.load()
    await ours.load()
    await ours.append(epoch, a_batch(1), [])
    with pytest.raises(Moved):
        await late.append(epoch, a_batch(2), [])
    assert bodies(await ours.load()) == [b"batch 1"]


async def test_a_revision_is_written_once_and_a_refused_batch_leaves_no_trace(store: Store):
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1, "j1"), [])
    with pytest.raises(StoreError):
        await store.append(epoch, Batch(1, b"again", ("j2",)), [History("j2", b"record")])
    assert bodies(await store.load()) == [b"batch 1"]
    assert await store.history("j2") is None
    assert await store.story("j2", 0, 10) == []


async def test_batches_are_followed_with_their_subjects(store: Store):
    epoch = await store.open_term()
    for revision in (2, 5, 6):
        await store.append(epoch, a_batch(revision, "n1", f"j{revision}"), [])
    found = await store.since(2, 10)
    assert revisions(found) == [5, 6]
    assert found[0].body == b"batch 5"
    assert sorted(found[0].subjects) == ["j5", "n1"]
    assert revisions(await store.since(0, 2)) == [2, 5]
    assert await store.since(6, 10) == []


async def test_who_knows_more_than_the_log_is_told(store: Store):
    """The store was replaced or restored: a standby must not take it for the one that it has followed."""
    epoch = await store.open_term()
    await store.append(epoch, a_batch(3), [])
    assert await store.since(3, 10) == []
    with pytest.raises(Regressed, match="ends at revision 3, and it was at 4") as caught:
        await store.since(4, 10)
    assert caught.value.end == 3
    await store.save_image(epoch, 7, b"image")
    assert await store.since(7, 10) == []


async def test_a_log_is_pruned_only_where_an_image_covers_it(store: Store):
    epoch = await store.open_term()
    for revision in range(1, 7):
        await store.append(epoch, a_batch(revision, "j1"), [])
    await store.prune(epoch, before=6, keep_jobs=10)
    assert revisions(await store.since(0, 10)) == [1, 2, 3, 4, 5, 6]
    await store.save_image(epoch, 3, b"image 3")
    await store.prune(epoch, before=6, keep_jobs=10)
    assert revisions((await store.load()).batches) == [4, 5, 6]
    assert revisions(await store.story("j1", 0, 10)) == [4, 5, 6]


async def test_who_follows_a_log_that_was_pruned_is_told(store: Store):
    epoch = await store.open_term()
    for revision in range(1, 5):
        await store.append(epoch, a_batch(revision), [])
    await store.save_image(epoch, 4, b"image")
    await store.prune(epoch, before=2, keep_jobs=10)
    with pytest.raises(Pruned):
        await store.since(1, 10)
    assert revisions(await store.since(2, 10)) == [3, 4]


async def test_a_log_that_was_pruned_whole_goes_on_where_it_ended(backend: Backend):
    store = await backend.store()
    epoch = await store.open_term()
    for revision in (1, 2):
        await store.append(epoch, a_batch(revision), [])
    await store.save_image(epoch, 2, b"image")
    await store.prune(epoch, before=2, keep_jobs=10)
    again = await backend.store()
    assert await again.load() == Loaded(b"image", 2, [])
    with pytest.raises(StoreError):
        await again.append(epoch, a_batch(2), [])
    await again.load()
    await again.append(epoch, a_batch(3), [])
    assert revisions((await again.load()).batches) == [3]


async def test_only_the_newest_records_of_jobs_are_kept(store: Store):
    epoch = await store.open_term()
    ids = [f"{number:03}" for number in range(250)]
    for revision, at in enumerate(range(0, 250, 50), start=1):
        await store.append(epoch, a_batch(revision), [History(id, b"x") for id in ids[at : at + 50]])
    await store.prune(epoch, before=0, keep_jobs=3)
    assert [record.job for record in await store.past(None, 10)] == ["249", "248", "247"]
    assert await store.history("246") is None


async def test_nobody_prunes_under_an_old_epoch(store: Store):
    old = await store.open_term()
    await store.append(old, a_batch(1), [History("j1", b"record")])
    await store.save_image(old, 1, b"image")
    await store.open_term()
    with pytest.raises(Fenced):
        await store.prune(old, before=1, keep_jobs=0)
    assert revisions(await store.since(0, 10)) == [1]
    assert await store.history("j1") == b"record"


async def test_large_batches_images_and_records_come_back_whole(store: Store):
    """Larger than one request to etcd may be."""
    epoch = await store.open_term()
    body = bytes(range(256)) * 12_000
    await store.append(epoch, Batch(1, body, ("j1",)), [History("j0", body[1:])])
    await store.save_image(epoch, 1, body[2:])
    await store.append(epoch, Batch(2, body[3:], tuple(f"j{at}" for at in range(300))), [])
    loaded = await store.load()
    assert (loaded.image, bodies(loaded)) == (body[2:], [body[3:]])
    assert await store.history("j0") == body[1:]
    assert (await store.story("j1", 0, 1))[0].body == body
    assert revisions(await store.story("j299", 0, 10)) == [2]


async def test_many_batches_are_read_in_order_and_in_pages(store: Store):
    epoch = await store.open_term()
    for revision in range(1, 451):
        await store.append(epoch, a_batch(revision, "n1"), [])
    assert revisions((await store.load()).batches) == list(range(1, 451))
    assert revisions(await store.since(10, 430)) == list(range(11, 441))
    assert revisions(await store.story("n1", 5, 420)) == list(range(6, 426))


subjects = st.lists(st.sampled_from(("j1", "j2", "n1")), max_size=2, unique=True).map(tuple)
effects = st.sampled_from(("term", "append", "append", "append", "stale", "image"))
steps = st.lists(st.tuples(effects, subjects, st.sampled_from("abc")), max_size=20)


@given(steps)
def test_the_fake_answers_as_the_real_one_does(steps: list[tuple[str, tuple[str, ...], str]]):
    answers = [
        run(play(kept, steps)) for kept in (MemoryStore(), SqliteStore(Path(":memory:"), durable=False))
    ]
    assert answers[0] == answers[1]


async def play(store: Store, steps: list[tuple[str, tuple[str, ...], str]]) -> list[object]:
    """Do all that, and ask every question."""
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
