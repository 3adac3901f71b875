"""What the dashboard reads of a coordinator: overview, map, rows, times, and changes as they come."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from phalanx.api.schema.pages import ChangesView, JobRowsQuery, TimesQuery
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.limits import TimeSlice, TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.pages import changed
from phalanx.coordinator.pages.job_index import WORDS_MAX, JobIndex
from phalanx.core.cluster.inputs import Drain, Tick
from phalanx.core.cluster.jobs import JobState
from phalanx.errors import BadRequest, Gone, NotFound, Unavailable
from tests.support.builders import a_job
from tests.support.turns import counted_turns
from tests.support.waiting import until
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio
decode = msgspec.json.Decoder(ChangesView).decode


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def submit(here: Coordinator, user: str = "ada", **fields: Any) -> str:
    request = SubmitRequest(fields.pop("command", ["true"]), **fields)
    return (await here.commands.submit(request, user)).task_ids[0]


async def placed(here: Coordinator, id: str) -> None:
    """Wait until a job holds its place."""
    await until(lambda: here.leadership.state.jobs[id].live)


async def rows(here: Coordinator, **query: Any) -> list[str]:
    here.commands.pages._rows._lists.clear()  # which are taken as they are for a second
    found = await here.commands.job_rows(JobRowsQuery(**query), "ada")
    return [row.name for row in found.rows]


async def test_the_map_names_the_holder_of_each_device():
    async with a_coordinator() as here:
        id = await submit(here, gpus=2, name="train")
        await placed(here, id)
        shown = await here.commands.map()
        (node,) = [each for each in shown.nodes if each.held]
        number = here.leadership.state.jobs[id].arrival
        (held, *_), *_ = [each.devices for each in await here.commands.nodes() if each.name == node.name]
        assert (held.number, held.job_name, held.user) == (str(number), "train", "ada")
        assert sorted(node.held, reverse=True)[:3] == [number, number, 0]
        assert (node.devices, node.jobs, node.tasks) == (8, [number], 1)
        assert [(each.number, each.name, each.user) for each in shown.holders] == [(number, "train", "ada")]
        assert [each.name for each in shown.nodes] == ["n0", "n1", "n2", "n3"]


async def test_rows_are_found_among_more_jobs_than_changes_are_noted_while_others_come(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(changed, "STALE_MAX", 5)
    async with a_coordinator() as here:
        there = [await submit(here, hold=True) for _ in range(8)]
        reads = here.commands.pages._rows
        reads._slices = TimeSlices(SystemClock(), piece_s=0.0)  # a piece is over as soon as it begins
        asked = asyncio.create_task(here.commands.job_rows(JobRowsQuery(), "ada"))
        there += [await submit(here, hold=True) for _ in range(3)]  # while those are looked at
        assert len((await asked).rows) >= 8
        reads._lists.clear()
        assert (await here.commands.job_rows(JobRowsQuery(), "ada")).total == len(there)


async def test_the_overview_counts_why_jobs_wait():
    async with a_coordinator() as here:
        for name in ("a", "b"):
            await submit(here, name=name, hold=True)
        big = await submit(here, gpus=8, targets=["n0"])
        await placed(here, big)
        for _ in range(3):
            await submit(here, gpus=8, targets=["n0"])
        await here.leadership.ask([Drain("n3", "a fan")])
        found = await here.commands.overview()
        assert {each.code: each.jobs for each in found.waiting}["Held"] == 2
        assert sum(each.jobs for each in found.waiting) == 5
        assert (found.jobs.pending, found.jobs.assigned) == (5, 1)
        assert [(each.subject, each.severity) for each in found.alarms] == [("n3", "notice")]
        shown = (await here.commands.job_rows(JobRowsQuery(), "ada")).rows
        assert Counter(row.reason for row in shown if row.status == "Pending") == Counter(
            {each.code: each.jobs for each in found.waiting}
        )
        assert found.use.devices_used[-1] == 8.0
        assert await here.commands.overview() is found  # made once for all who ask in a second


async def test_rows_are_filtered_searched_and_sorted():
    async with a_coordinator() as here:
        await submit(here, name="alpha", priority=1, gpus=1)
        await submit(here, name="beta", priority=3, command=["python", "train.py"])
        await submit(here, user="bob", name="gamma", priority=2, hold=True)
        assert await rows(here) == ["gamma", "beta", "alpha"]
        assert await rows(here, sort="name") == ["alpha", "beta", "gamma"]
        assert await rows(here, sort="-priority") == ["beta", "gamma", "alpha"]
        assert await rows(here, sort="-gpus") == ["alpha", "gamma", "beta"]
        assert await rows(here, user="bob") == ["gamma"]
        assert await rows(here, mine=True) == ["beta", "alpha"]
        assert await rows(here, search="TRAIN.py python") == ["beta"]
        assert await rows(here, search="no such thing") == []
        assert await rows(here, queue="unknown") == []
        assert await rows(here, status="pending", search="gam") == ["gamma"]
        assert await rows(here, offset=1, limit=1) == ["beta"]
        assert await rows(here, offset=100) == []
        assert (await here.commands.job_rows(JobRowsQuery(limit=1), "ada")).total == 3
        with pytest.raises(BadRequest):
            await rows(here, status="Sleeping")


async def test_a_long_search_lets_others_go_on():
    """A few hundred thousand rows and ten words are a second of work, in which everybody else would wait."""
    async with a_coordinator() as here:
        await submit(here, name="a", hold=True)
        index, words = JobIndex(), " ".join(f"word{each}" for each in range(WORDS_MAX))
        (job,) = here.leadership.state.jobs.values()
        index.put(job, "sleep 1")
        index.ids, index.text = index.ids * 100_000, [words] * 100_000
        index.columns = {name: np.resize(column[:1], 100_000) for name, column in index.columns.items()}
        slices = TimeSlices(SystemClock())
        async with counted_turns() as turns:
            found = await index.find(JobRowsQuery(search=words), "ada", slices)
        assert len(found) == 100_000
        assert turns.count > 10
        with pytest.raises(BadRequest):
            await index.find(JobRowsQuery(search=f"{words} more"), "ada", slices)


async def test_a_row_whose_history_is_gone_leaves_the_list():
    async with a_coordinator() as here:
        await submit(here, name="a", hold=True)
        await submit(here, name="b", hold=True)
        reads = here.commands.pages._rows
        assert await rows(here) == ["b", "a"]
        gone = next(id for id, job in here.leadership.state.jobs.items() if job.job.name == "a")
        del here.leadership.state.jobs[gone]
        assert await rows(here) == ["b"]
        assert await rows(here) == ["b"]
        assert reads._index.ids != [] and gone not in reads._index.places


async def test_how_a_job_ended_is_asked_again_after_the_store_was_away(monkeypatch: pytest.MonkeyPatch):
    async with a_coordinator() as here:
        id = await submit(here, name="a", hold=True)
        reads = here.commands.pages._rows
        assert await rows(here) == ["a"]

        async def away(id: str) -> bytes | None:
            raise Unavailable("the store is away")

        job = here.leadership.state.jobs.pop(id)
        reads._changed.stale.add(id)
        with monkeypatch.context() as patch:
            patch.setattr(reads._store, "history", away)
            with pytest.raises(Unavailable):
                await rows(here)
        assert id in reads._changed.stale
        here.leadership.state.jobs[id] = job


async def test_a_row_follows_its_job():
    async with a_coordinator() as here:
        id = await submit(here, name="a", hold=True)
        assert await rows(here, status="Pending") == ["a"]
        await here.commands.cancel(id)
        assert await rows(here, status="Pending") == []
        assert await rows(here, status="Cancelled,Failed") == ["a"]


async def test_a_job_that_left_memory_is_shown_as_it_ended():
    async with a_coordinator() as here:
        id = await submit(here, name="a", hold=True)
        assert await rows(here, status="Pending") == ["a"]
        state = here.leadership.state
        state.rules = structs.replace(state.rules, ended_jobs_max=0)
        await here.commands.cancel(id)
        await until(lambda: id not in state.jobs)
        assert await rows(here, status="Pending") == []
        assert await rows(here, status="Cancelled") == ["a"]
        here.commands.pages._rows._resets = -1  # as after a restart: the history is read again
        await rows(here)
        reading = here.commands.pages._rows._reading
        assert reading is not None
        await reading
        assert await rows(here, search="A") == ["a"]


async def test_values_of_results_in_the_command_of_a_stage_are_not_shown():
    async with a_coordinator() as here:
        state = here.leadership.state
        job = a_job(workflow=("01kx0000000000000000000001", 0), user="bob", name="judge")
        state.add_job(JobState(job, 1, state.counts))  # its workflow has left the memory
        found = await here.commands.job_rows(JobRowsQuery(), "ada")
        assert [row.command for row in found.rows] == ["(hidden)"]
        assert await rows(here, search="judge") == ["judge"]
        assert await rows(here, search="/bin/true") == []


async def test_a_list_stays_as_it_is_for_a_moment():
    async with a_coordinator() as here:
        await submit(here, name="a", hold=True)
        first = await here.commands.job_rows(JobRowsQuery(), "ada")
        await submit(here, name="b", hold=True)
        same = await here.commands.job_rows(JobRowsQuery(), "ada")
        other = await here.commands.job_rows(JobRowsQuery(sort="name"), "ada")
        assert (first.total, same.total, other.total) == (1, 1, 2)
        assert (same.revision, other.revision) == (first.revision, here.leadership.state.revision)
        assert same.revision < other.revision  # so that a page knows that it has to ask again
        assert first.rows_revision < same.rows_revision == other.rows_revision  # its rows are as of now


async def test_states_have_a_letter_for_each_task():
    async with a_coordinator() as here:
        id = await submit(here, array="10-40:10", hold=True)
        found = await here.commands.task_states(id)
        assert (found.states, found.first_index, found.step) == ("PPPP", 10, 10)
        await here.commands.cancel(f"{id}.20")
        assert (await here.commands.task_states(id)).states == "PXPP"
        with pytest.raises(NotFound):
            await here.commands.task_states("01kx0000000000000000000001")


async def test_times_have_a_bar_for_each_attempt():
    async with a_coordinator() as here:
        id = await submit(here, array="1-3", gpus=1, time_limit="1h")
        await until(lambda: len(here.leadership.state.jobs[id].live) == 3)
        now = here.clock.now()
        found = await here.commands.times(TimesQuery(until=now + 60))
        assert [bar.task for bar in sorted(found.bars, key=lambda bar: bar.task)] == [0, 1, 2]
        assert all(bar.devices and bar.status == "Assigned" for bar in found.bars)
        assert (await here.commands.times(TimesQuery(limit=2, until=now + 60))).left_out
        assert (await here.commands.times(TimesQuery(until=now - 3600))).bars == []
        with pytest.raises(NotFound):
            await here.commands.times(TimesQuery(node="n9"))


class OtherMeanwhile(TimeSlices):
    """Something happens in the cluster while an answer is made."""

    def __init__(self, here: Coordinator) -> None:
        super().__init__(SystemClock())
        self._here = here

    async def turn(self) -> TimeSlice:
        await submit(self._here, hold=True)
        return await super().turn()


@pytest.mark.parametrize("page", ["times", "overview"])
async def test_an_answer_names_no_later_revision_than_that_of_its_beginning(page: str):
    """A page that is told of a later one asks again: it must not take this answer for one that knows of it."""
    async with a_coordinator() as here:
        await submit(here, hold=True)
        pages = here.commands.pages
        await pages.overview_reads.counted()
        reads = pages._times if page == "times" else pages.overview_reads
        reads._slices = OtherMeanwhile(here)
        began = here.leadership.state.revision
        made = await (here.commands.times(TimesQuery()) if page == "times" else here.commands.overview())
        assert made.revision == began < here.leadership.state.revision


async def test_times_say_since_when_they_have_all_jobs(monkeypatch: pytest.MonkeyPatch):
    async with a_coordinator() as here:
        ids = [await submit(here, hold=True) for _ in range(3)]
        for id in ids[:2]:
            await here.commands.cancel(id)
        assert (await here.commands.times(TimesQuery())).whole_since is None
        state = here.leadership.state
        monkeypatch.setattr(state, "rules", structs.replace(state.rules, ended_jobs_max=1))
        await here.leadership.ask([Tick()])
        await until(lambda: ids[0] not in state.jobs)
        assert (await here.commands.times(TimesQuery())).whole_since == state.jobs[ids[1]].ended_at
        assert (await here.commands.times(TimesQuery(job=ids[2]))).whole_since is None


async def test_changes_tell_whole_rows_and_nodes():
    async with a_coordinator() as here, aclosing(here.commands.changes(None)) as changes:  # type: ignore[type-var]
        first = asyncio.ensure_future(anext(changes))
        await until(lambda: here.commands.pages._stream._pages)
        id = await submit(here, gpus=1, name="train")
        await placed(here, id)
        revision, body = await asyncio.wait_for(first, 10.0)
        told = decode(body)
        if not told.nodes:  # it was placed after the message was made
            revision, body = await asyncio.wait_for(anext(changes), 10.0)
            told = decode(body)
        assert told.revision == revision
        assert [row.name for row in told.rows] == ["train"]
        assert [node.held.count(told.rows[0].number) for node in told.nodes] == [1]
        assert told.holders[0].id == id


async def test_who_comes_back_is_told_in_one_message_what_has_changed():
    async with a_coordinator() as here:
        await here.commands.job_rows(JobRowsQuery(), "ada")  # from now on changes are kept
        await submit(here, name="before", hold=True)
        seen = here.leadership.state.revision
        for name in ("a", "b", "c"):
            await submit(here, name=name, hold=True)
        async with aclosing(here.commands.changes(seen)) as changes:  # type: ignore[type-var]
            _, body = await asyncio.wait_for(anext(changes), 10.0)
            assert sorted(row.name for row in decode(body).rows) == ["a", "b", "c"]


async def test_pages_at_one_place_are_sent_the_same_bytes():
    async with a_coordinator() as here:
        await here.commands.job_rows(JobRowsQuery(), "ada")
        seen = here.leadership.state.revision
        await submit(here, name="a", hold=True)
        bodies: list[bytes] = []
        kept = b""
        for _ in range(2):
            async with aclosing(here.commands.changes(seen)) as changes:  # type: ignore[type-var]
                bodies.append((await asyncio.wait_for(anext(changes), 10.0))[1])
                kept = here.commands.pages._stream._made[seen][1]
        assert bodies[1] is kept


async def test_what_is_not_known_any_more_is_said():
    async with a_coordinator() as here:
        await here.commands.job_rows(JobRowsQuery(), "ada")
        for after in (0, here.leadership.state.revision + 1000):
            with pytest.raises(Gone):
                await anext(here.commands.changes(after))
        seen = here.leadership.state.revision
        here.commands.pages.reset(here.leadership.state)
        await submit(here, hold=True)
        with pytest.raises(Gone):
            await anext(here.commands.changes(seen - 1))


async def test_a_stream_that_cannot_go_on_ends_instead_of_falling_silent(monkeypatch: pytest.MonkeyPatch):
    async with a_coordinator() as here:
        stream = here.commands.pages._stream

        def broken(after: int) -> ChangesView:
            raise KeyError(after)

        monkeypatch.setattr(stream, "_view", broken)
        coming = asyncio.ensure_future(anext(here.commands.changes(None)))
        await until(lambda: stream._pages)
        await submit(here, hold=True)
        with pytest.raises(KeyError):
            await asyncio.wait_for(coming, 10.0)


async def test_nothing_is_kept_while_nobody_looks():
    async with a_coordinator() as here:
        await submit(here, hold=True)
        changed = here.commands.pages._changed
        assert not changed.jobs
        assert changed.floor == here.leadership.state.revision
