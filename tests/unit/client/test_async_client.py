"""The async client: the same calls over HTTP and in process."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from phalanx.api.schema.cluster import TopologySpec
from phalanx.api.schema.jobs import WatchEvent
from phalanx.api.schema.queues import QuotaSpec
from phalanx.api.schema.sse import spell_event
from phalanx.client.async_client import AsyncClient
from phalanx.client.client import Client
from phalanx.errors import BadRequest, NotFound, Unavailable
from tests.support.fake_commands import FakeCommands
from tests.support.http_servers import a_cut_stream, a_free_address, a_stream, an_answer, scripted, serving
from tests.support.rest_app import TOKEN, RestApp, a_rest_app, an_async_client
from tests.support.rpc_servers import serving_rpc
from tests.unit.client.test_client import ACCEPTED, CLUSTER

pytestmark = pytest.mark.anyio

ONE, TWO = WatchEvent(1, 1.0, "A"), WatchEvent(2, 1.0, "B")


@asynccontextmanager
async def over_http(house: RestApp) -> AsyncIterator[AsyncClient]:
    with serving(house.app) as address:
        async with AsyncClient(address, TOKEN) as client:
            yield client


@asynccontextmanager
async def over_grpc(house: RestApp) -> AsyncIterator[AsyncClient]:
    with serving_rpc(house) as address:
        async with AsyncClient(address, TOKEN) as client:
            yield client


@pytest.fixture(params=[an_async_client, over_http, over_grpc], ids=["in process", "over http", "over grpc"])
def way(request: pytest.FixtureRequest):
    return request.param


def test_the_clients_are_twins():
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            twin = inspect.signature(getattr(AsyncClient, name))
            assert twin.parameters == inspect.signature(method).parameters, name


async def test_every_call_arrives_and_comes_back(way):
    async with way(a_rest_app(FakeCommands(endless=False))) as client:
        (id,) = (await client.submit(command=["true"], name="first")).task_ids
        assert (await client.job(id)).name == "first"
        assert (await client.jobs(name="first")).items[0].id == id
        assert (await client.tasks(id)).items[0].job_id == id
        assert (await client.task(id)).id == id
        assert (await client.pause(id)).paused
        assert not (await client.resume(id)).paused
        assert (await client.release(id)).id == id
        assert (await client.why(id)).position == 1
        assert (await client.story(id)).items
        assert len(await client.nodes()) == 2
        assert (await client.drain("n1", "dust")).drained
        assert not (await client.undrain("n1")).drained
        assert (await client.set_elastic("n1", enabled=False)).elastic_disabled
        assert (await client.node("n1")).name == "n1"
        assert (await client.cluster()).jobs == 1
        assert (await client.evict(id)).evicted == 1
        assert (await client.apply([{"groups": [{"command": ["true"]}]}] * 2)).jobs[1].tasks == 1
        assert (await client.gang(["true"], 4)).accepted[0].tasks == 4
        assert (await client.set_quota("lab", QuotaSpec(cores=8))).quota.cores == 8
        assert len(await client.queues()) == 2
        assert (await client.queue("lab")).name == "lab"
        assert (await client.set_topology(TopologySpec([]))).layers == ["cluster", "node"]
        assert (await client.wait(id, 0, must_end=False)).status == "Pending"
        with pytest.raises(TimeoutError, match="must_end=False"):
            await client.wait(id, 0)
        assert (await client.cancel(id)).cancelled == 1
        assert (await client.wait(id)).status == "Cancelled"
        assert [piece async for piece in client.logs(id)] == []
        await client.ready()
        with pytest.raises(NotFound):
            await client.job("zz")


async def test_a_watch_comes_as_it_happens(way):
    async with way(a_rest_app()) as client:
        watching = client.watch(after=0)
        id = (await client.submit(command=["true"])).task_ids[0]
        assert (await anext(watching)).event == "JobSubmitted"
        await client.cancel(id)
        assert (await anext(watching)).event == "JobEnded"
        await watching.aclose()


async def test_nobody_there_is_told_with_a_hint():
    async with AsyncClient(a_free_address(), TOKEN) as client:
        with pytest.raises(Unavailable) as caught:
            await client.cluster()
    assert "phalanx up" in caught.value.hint


def test_what_is_no_address_is_refused():
    with pytest.raises(BadRequest):
        AsyncClient("localhost", TOKEN)


async def test_what_does_no_harm_is_repeated_once_and_nothing_else():
    with scripted([None, an_answer(CLUSTER), None, an_answer(ACCEPTED), None]) as (address, script):
        async with AsyncClient(address, TOKEN) as client:
            await client.cluster()
            await client.submit(command=["true"])
            with pytest.raises(Unavailable):
                await client.cancel("j1")
    assert len(script.requests) == 5


async def test_a_watch_goes_on_after_a_cut_without_a_gap():
    with scripted([a_cut_stream(spell_event(ONE)), a_stream(spell_event(TWO))]) as (address, script):
        async with AsyncClient(address, TOKEN) as client:
            watching = client.watch()
            assert [await anext(watching), await anext(watching)] == [ONE, TWO]
            await watching.aclose()
    assert b"last-event-id: 1\r\n" in script.requests[1].lower()


async def test_a_log_goes_on_after_a_cut_with_exactly_what_is_missing():
    with scripted([a_cut_stream(b"one\ntw"), a_stream(b"o\n", offset=6)]) as (address, script):
        async with AsyncClient(address, TOKEN) as client:
            assert b"".join([piece async for piece in client.logs("j1")]) == b"one\ntwo\n"
    assert b"offset=6" in script.requests[1]
