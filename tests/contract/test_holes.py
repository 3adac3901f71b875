"""One flipped bit at every record of a log: every coordinator finds it before anything is decided or written,
and whatever an operator chooses, no finished job runs again unless they said so (R29)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phalanx.clock import SteadyClock
from phalanx.coordinator.leadership import Leadership, LeadershipConfig, Role
from phalanx.coordinator.restore import restore
from phalanx.core.cluster.events import LogSettled, NodeDrained, NodeResumed, TermOpened, encode
from phalanx.core.cluster.state import Timers
from phalanx.errors import Conflict, Unavailable
from phalanx.store.check import check_store
from phalanx.store.contents import epoch_of
from phalanx.store.protocol import Batch, Candidate, LogHole, Store
from phalanx.store.repair import repair, survey
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.backends import Backend, SqliteBackend, a_backend, revisions
from tests.contract.logs import Lived, placed_afterwards
from tests.support.candidates import Listener

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def lived() -> Lived:
    return Lived()


@pytest.fixture(params=["sqlite", "redis", "etcd"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path):
    found = a_backend(request.param, tmp_path)
    yield found
    await found.close()


def a_member(store: Store, name: str = "a") -> Leadership:
    return Leadership(store, Candidate(name), LeadershipConfig(), SteadyClock(), Listener())


async def test_a_flipped_bit_in_any_record_is_found_before_anything_is_written(
    backend: Backend, lived: Lived
):
    store = await backend.store()
    await lived.keep(store)
    epoch, log = await epoch_of(store), revisions(await store.since(0, 1000))
    needed = [revision for revision in log if revision > lived.image[0]]
    assert len(needed) > 20, "there is something to flip"
    for revision in needed:
        await backend.flip("log", str(revision))
        opened = await backend.store()
        for _ in range(2):  # it stays what it is, however often one looks
            with pytest.raises(LogHole) as found:
                await a_member(opened).open()
            assert found.value.upto == revision
            assert found.value.count > 0
        assert (await epoch_of(opened), revisions(await opened.since(0, 1000))) == (epoch, log)
        assert await opened.leader() is None
        await backend.flip("log", str(revision))  # the same bit again: it is whole
    assert restore(await store.load(), Timers()).revision == log[-1]


async def test_what_an_image_covers_stops_nobody(backend: Backend, lived: Lived):
    """R18: stories have a gap, the record is reported, and the start succeeds."""
    store = await backend.store()
    await lived.keep(store)
    covered = [at for at in revisions(await store.since(0, 1000)) if at <= lived.image[0]]
    await backend.flip("log", str(covered[3]))
    member = a_member(await backend.store())
    await member.open()
    assert member.role is Role.ACTIVE
    assert [each.key for each in (await check_store(store, "it")).damaged] == [str(covered[3])]


async def test_a_standby_does_not_lead_over_a_hole(backend: Backend, lived: Lived):
    """It follows, the leader writes on and dies, and one of the records it has not read yet is damaged."""
    store = await backend.store()
    await lived.keep(store)
    leading, following = a_member(await backend.store(), "leader"), a_member(await backend.store(), "standby")
    await leading.open()
    await following.open()
    assert following.role is Role.STANDBY
    known = following.state.revision
    epoch = await epoch_of(store)
    written = await backend.store()
    await written.load()
    for batch in _more(known):
        await written.append(epoch, batch, [])
    await backend.flip("log", str(known + 1))
    await store.resign(epoch)
    with pytest.raises(LogHole):
        await following._won()
    assert await store.leader() is None
    assert revisions(await store.since(known, 10)) == [known + 1, known + 2], "nothing was written after it"
    following._outage.meet(LogHole(known, known + 1, (), 3))
    with pytest.raises(Unavailable, match=r"hole.*3 jobs") as told:
        await following.ready()
    assert told.value.reason == "StoreDamaged"
    with pytest.raises(Unavailable, match="hole"):
        following.require_active()


def _more(after: int) -> list[Batch]:
    drained = NodeDrained(at=9e3, node="n1", reason="a test")
    resumed = NodeResumed(at=9e3, node="n1")
    return [Batch(after + 1, encode([drained]), ("n1",)), Batch(after + 2, encode([resumed]), ("n1",))]


async def test_with_the_jobs_held_no_finished_job_runs_again(tmp_path: Path, lived: Lived):
    """R29, for every record: what can be read is kept, and the jobs that may have ended wait for an operator."""
    backend = SqliteBackend(tmp_path / "store.db")
    await lived.keep(await backend.store())
    await backend.close()
    waiting = next(job.id for job in lived.jobs if job.name == "waiting")
    for batch in [each for each in lived.batches() if each.revision > lived.image[0]]:
        copy = SqliteBackend(tmp_path / f"{batch.revision}.db")
        shutil.copy(backend.path, copy.path)
        await copy.flip("log", str(batch.revision))
        store = await copy.store()
        done = await repair(store, "a copy", "hold", 9e3)
        assert done.set_aside == [batch.revision]
        state = restore(await store.load(), Timers())
        held = {id for id, job in state.jobs.items() if job.held_because}
        assert held == set(done.held)
        assert waiting not in held or waiting in batch.subjects, "a job without a part in it may run"
        again = placed_afterwards(state, lived.cluster.now) & lived.ended
        assert again == set(), f"after damage at {batch.revision}"
        assert (await check_store(store, "a copy")).is_good
        member = a_member(await copy.store())
        await member.open()
        assert member.role is Role.ACTIVE
        await copy.close()


async def test_where_the_index_names_nobody_every_job_that_had_not_ended_is_held(
    backend: Backend, lived: Lived
):
    store = await backend.store()
    await lived.keep(store)
    last_end = [batch for batch in lived.batches() if b"AttemptEnded" in batch.body][-1]
    await backend.flip("log", str(last_end.revision))
    done = await repair(await backend.store(), "it", "hold", 9e3)
    state = restore(await store.load(), Timers())
    assert placed_afterwards(state, lived.cluster.now) & lived.ended == set()
    assert done.held and all(state.jobs[id].held_because for id in done.held)


async def test_going_back_says_first_what_it_costs(backend: Backend, lived: Lived):
    store = await backend.store()
    await lived.keep(store)
    after = [batch.revision for batch in lived.batches() if batch.revision > lived.image[0]]
    await backend.flip("log", str(after[4]))
    told = await survey(await backend.store(), "it")
    assert [hole.after for hole in told.holes] == [after[3]]
    assert told.forgotten, "jobs were accepted since"
    assert revisions(await store.since(0, 1000))[-1] == after[-1], "nothing is changed by asking"
    await repair(store, "it", "to-image", 9e3)
    state = restore(await store.load(), Timers())
    assert state.revision == after[-1] + 1, "revisions only grow"
    assert not set(told.forgotten) & set(state.jobs)
    assert (await survey(store, "it")).is_good
    with pytest.raises(Conflict, match="no hole"):
        await repair(store, "it", "hold", 9e3)


async def test_who_follows_begins_anew_after_a_repair(lived: Lived, tmp_path: Path):
    """A standby that had read everything before it was damaged must not continue from what the operator gave up."""
    backend = SqliteBackend(tmp_path / "store.db")
    await lived.keep(await backend.store())
    leader, follower = a_member(await backend.store(), "leader"), a_member(await backend.store(), "standby")
    await leader.open()
    await follower.open()
    after = [batch.revision for batch in lived.batches() if batch.revision > lived.image[0]]
    await backend.flip("log", str(after[4]))
    store = await backend.store()
    await store.resign(await epoch_of(store))
    done = await repair(store, "it", "to-image", 9e3)
    await follower._follow()
    assert follower.state.revision == done.revision
    assert len(follower.state.jobs) < len(leader.state.jobs)
    await backend.close()


async def test_an_empty_batch_hides_no_missing_one(tmp_path: Path):
    """It may skip numbers, but it records after which revision."""
    store = SqliteStore(tmp_path / "store.db")
    epoch = await store.open_term()
    term = encode([TermOpened(at=1.0, epoch=epoch)])
    settled = encode([LogSettled(at=1.0, after=2)])
    for batch in (Batch(1, term), Batch(2, term), Batch(7, settled), Batch(8, term)):
        await store.append(epoch, batch, [])
    assert restore(await store.load(), Timers()).revision == 8
    store._db.execute("DELETE FROM log WHERE revision = 2")
    with pytest.raises(LogHole, match="from revision 2 to 2"):
        restore(await store.load(), Timers())
    await store.close()
