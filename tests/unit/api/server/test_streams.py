"""Long answers: watches, logs and waits, and what happens when a client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from phalanx.api.schema.jobs import LogChunk, WatchEvent
from phalanx.api.schema.log_times import gap_mark
from phalanx.api.server.route import with_beats
from phalanx.client import calls
from phalanx.client.calls import Call
from phalanx.errors import BadRequest, Conflict, Gone, NotFound, TooMany, Unauthorized, Unavailable
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import RestApp, a_rest_app, an_async_client, ask

pytestmark = pytest.mark.anyio


WATCH = calls.watch(None, None)


def follow(id: str) -> Call[None]:
    return calls.logs(id, "stdout", None, None, None, follow=True)


async def a_job(house: RestApp) -> str:
    async with an_async_client(house) as client:
        return (await client.submit(command=["true"])).task_ids[0]


async def test_a_watch_shows_each_event_with_its_revision():
    house = a_rest_app(FakeCommands(endless=False))
    await a_job(house)
    answered = await ask(house.app, path="/v1/events", query=b"after=0")
    assert answered.headers["content-type"] == "text/event-stream"
    assert b"id: 1\ndata: {" in answered.body


async def test_a_watch_from_now_on_says_where_it_begins():
    house = a_rest_app(FakeCommands(endless=False))
    await a_job(house)
    answered = await ask(house.app, path="/v1/events")
    assert answered.body.startswith(b"id: 1\n\n")
    assert b"data" not in answered.body


async def test_the_header_wins_over_the_query():
    house = a_rest_app(FakeCommands(endless=False))
    await a_job(house)
    answered = await ask(house.app, path="/v1/events", query=b"after=0", headers={"last-event-id": "1"})
    assert b"data" not in answered.body


@pytest.mark.parametrize("header", ["x", "-1", "1.0", "9" * 30, str(2**63)])
async def test_a_last_event_id_must_be_a_revision(header: str):
    answered = await ask(a_rest_app().app, path="/v1/events", headers={"last-event-id": header})
    assert answered.status == 400


async def test_what_is_no_longer_kept_is_gone():
    house = a_rest_app()
    house.cluster.compacted = 5
    answered = await ask(house.app, path="/v1/events", query=b"after=3")
    assert (answered.status, answered.json()["reason"]) == (410, "Gone")


async def test_an_error_on_the_way_is_told_as_an_event():
    class Failing(FakeCommands):
        async def watch(self, *, after: int | None, job: str | None) -> AsyncIterator[WatchEvent]:
            yield WatchEvent(1, 1.0, "JobSubmitted")
            raise Gone("too slow, list again")

    answered = await ask(a_rest_app(Failing()).app, path="/v1/events")
    assert answered.status == 200
    assert b"event: error\ndata: {" in answered.body


async def test_a_quiet_watch_shows_signs_of_life():
    house = a_rest_app(beat_s=0.001, settle_s=0.001)
    async with an_async_client(house) as client:
        answer = await client._opened(WATCH)
        seen = b""
        async for piece in answer.pieces():
            seen += piece
            if seen.count(b": still here\n\n") == 3:
                break
        await answer.aclose()


async def test_a_reader_who_leaves_ends_its_stream():
    house = a_rest_app()
    id = await a_job(house)
    async with an_async_client(house) as client:
        for call in (WATCH, follow(id)):
            answer = await client._opened(call)
            assert house.cluster.open_streams == 1
            house.cluster.closed.clear()
            await answer.aclose()
            await house.cluster.closed.wait()


async def test_a_waiter_who_leaves_is_forgotten():
    house = a_rest_app(waits=1)
    id = await a_job(house)
    async with an_async_client(house) as client:
        for _ in range(3):  # each would be refused if the place of the one before were still taken
            waiting = asyncio.create_task(client.wait(id))
            await house.cluster.waits.get()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await house.cluster.leaves.get()


async def test_a_token_that_is_taken_back_ends_open_streams():
    house = a_rest_app(beat_s=0.001, settle_s=0.001)
    id = await a_job(house)
    async with an_async_client(house) as client:
        watching = await client._opened(WATCH)
        reading = await client._opened(follow(id))
        house.tokens.replace([])
        told = b"".join([piece async for piece in watching.pieces()])
        assert b"no longer accepted" in told
        with pytest.raises(Unavailable):
            [piece async for piece in reading.pieces()]
        with pytest.raises(Unauthorized):
            await client.cluster()


async def test_streams_are_bounded_and_their_places_come_back():
    house = a_rest_app(streams=1)
    async with an_async_client(house) as client:
        first = await client._opened(WATCH)
        with pytest.raises(TooMany) as caught:
            await client._opened(WATCH)
        assert caught.value.retry_after_s == 1
        await first.aclose()
        second = await client._opened(WATCH)
        await second.aclose()


async def test_waits_are_bounded():
    house = a_rest_app(waits=0)
    id = await a_job(house)
    async with an_async_client(house) as client:
        with pytest.raises(TooMany):
            await client.wait(id, 0, must_end=False)


async def test_a_refused_stream_gives_its_place_back():
    house = a_rest_app(streams=1)
    for _ in range(3):
        assert (await ask(house.app, path="/v1/tasks/zz/logs")).status == 404


async def test_output_comes_with_its_place():
    house = a_rest_app()
    id = await a_job(house)
    await house.cluster.write(id, b"one\ntwo\n")
    answered = await ask(house.app, path=f"/v1/tasks/{id}/logs", query=b"offset=4")
    assert answered.body == b"two\n"
    assert answered.headers["content-type"] == "application/octet-stream"
    places = [answered.headers[f"x-phalanx-{name}"] for name in ("offset", "size", "attempt")]
    assert places == ["4", "8", "1"]


async def test_the_last_lines_are_given():
    house = a_rest_app()
    id = await a_job(house)
    await house.cluster.write(id, b"one\ntwo\nthree\n")
    assert (await ask(house.app, path=f"/v1/tasks/{id}/logs", query=b"lines=2")).body == b"two\nthree\n"


async def test_no_output_is_an_empty_answer():
    class Silent(FakeCommands):
        async def logs(self, id: str, **words: object) -> AsyncIterator[LogChunk]:
            return
            yield

    for cluster in (FakeCommands(), Silent()):
        house = a_rest_app(cluster)
        answered = await ask(house.app, path=f"/v1/tasks/{await a_job(house)}/logs")
        assert (answered.status, answered.body) == (200, b"")


async def test_offset_and_lines_contradict_each_other():
    house = a_rest_app()
    id = await a_job(house)
    assert (await ask(house.app, path=f"/v1/tasks/{id}/logs", query=b"offset=1&lines=2")).status == 400


class Holed(FakeCommands):
    """A log whose middle was dropped."""

    async def logs(self, id: str, **words: object) -> AsyncIterator[LogChunk]:
        yield LogChunk(0, b"begin", 100, 1, end=False)
        yield LogChunk(97, b"end", 100, 1, end=True, gap=92)


async def test_what_was_not_kept_of_a_log_is_told_in_its_place():
    answered = await ask(a_rest_app(Holed()).app, path="/v1/tasks/x/logs")
    assert answered.body == b"begin" + gap_mark(92) + b"end"


async def test_a_split_answer_ends_before_what_was_not_kept():
    answered = await ask(a_rest_app(Holed()).app, path="/v1/tasks/x/logs", query=b"split=true")
    assert answered.body == b"begin"
    assert (answered.headers["x-phalanx-size"], answered.headers["x-phalanx-gap"]) == ("100", "0")


async def test_a_log_that_breaks_is_cut_and_not_ended(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")

    class Breaking(FakeCommands):
        async def logs(self, id: str, **words: object) -> AsyncIterator[LogChunk]:
            yield LogChunk(0, b"half", 8, 1, end=False)
            raise NotFound("the node is gone")

    house = a_rest_app(Breaking())
    async with an_async_client(house) as client:
        answer = await client._opened(follow("x"))
        with pytest.raises(Unavailable) as caught:
            [piece async for piece in answer.pieces()]
    assert caught.value.reason == "Dropped"
    assert "the node is gone" in caplog.text
    assert "Traceback" not in caplog.text


async def test_following_brings_output_as_it_is_written_until_the_end():
    house = a_rest_app()
    id = await a_job(house)
    seen = []
    async with an_async_client(house) as client:
        await house.cluster.write(id, b"one")
        async for piece in client.logs(id, follow=True):
            seen.append(piece)
            if piece == b"one":
                await house.cluster.write(id, b"two")
            else:
                await house.cluster.end(id)
    assert seen == [b"one", b"two"]


async def test_beats_come_between_items_and_after_them():
    async def items() -> AsyncIterator[int]:
        yield 1
        yield 2
        await asyncio.Event().wait()

    seen = []
    beating = with_beats(items(), 0.0, 0.001)
    async for item in beating:
        seen.append(item)
        if seen.count(None) == 3:
            break
    await beating.aclose()
    assert [item for item in seen if item] == [1, 2]


@pytest.mark.parametrize("error", [Conflict("no"), BadRequest("no")])
async def test_an_error_goes_through_the_beats(error: Exception):
    async def items() -> AsyncIterator[int]:
        yield 1
        raise error

    beating = with_beats(items(), 1.0, 1.0)
    assert await anext(beating) == 1
    with pytest.raises(type(error)):
        await anext(beating)
