"""Calls straight into an app: held back, disconnected, and made from another thread."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from phalanx.api.server.messages import Message, Receive, Scope, Send
from phalanx.client import calls
from phalanx.client.in_process import BridgedTransport, InProcessTransport
from phalanx.errors import Unavailable
from tests.support.rest_app import TOKEN, a_client, a_loop, a_rest_app

pytestmark = pytest.mark.anyio

WATCH = calls.watch(None, None)
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def piece(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def test_an_app_is_held_back_while_nobody_reads():
    sent = 0
    ahead = asyncio.Event()

    async def talkative(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send(START)
        for _ in range(100):
            await send(piece(b"x"))
            sent += 1
            if sent == 11:
                ahead.set()

    answer = await InProcessTransport(talkative).send(WATCH, TOKEN)
    reading = answer.pieces()
    for _ in range(10):
        await anext(reading)
    await ahead.wait()
    assert sent == 11  # one piece ahead of its reader, and held back
    await answer.aclose()
    assert sent == 100  # released, though no client reads


async def test_an_app_that_breaks_before_its_answer_is_no_answer():
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no")

    with pytest.raises(Unavailable) as caught:
        await InProcessTransport(broken).send(calls.cluster(), TOKEN)
    assert caught.value.reason == "Dropped"


async def test_an_app_that_ends_in_the_middle_of_an_answer_cuts_it():
    async def short(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(piece(b"half"))

    answer = await InProcessTransport(short).send(WATCH, TOKEN)
    with pytest.raises(Unavailable):
        [each async for each in answer.pieces()]


async def test_an_app_that_never_answers_is_given_up():
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    call = calls.Call[None](method="GET", path="/", answer=int, timeout_s=0.01)
    exchange = InProcessTransport(silent)
    with pytest.raises(Unavailable) as caught:
        await exchange.send(call, TOKEN)
    assert caught.value.reason == "TimedOut"
    await exchange.close()


async def test_closing_the_exchange_ends_its_streams():
    house = a_rest_app()
    exchange = InProcessTransport(house.app)
    await exchange.send(WATCH, TOKEN)
    assert house.cluster.open_streams == 1
    await exchange.close()
    assert house.cluster.open_streams == 0


def test_a_loop_that_is_gone_is_unavailable():
    with a_loop() as loop:
        exchange = BridgedTransport(InProcessTransport(a_rest_app().app), loop)
    with pytest.raises(Unavailable):
        exchange.send(calls.cluster(), TOKEN)
    exchange.close()


def test_a_stream_crosses_threads_and_ends_when_its_reader_leaves():
    house = a_rest_app()
    with a_client(house) as client:
        id = client.submit(command=["true"]).task_ids[0]
        watching = client.watch(after=0)
        assert next(watching).job == id
        assert house.cluster.open_streams == 1
        watching.close()  # type: ignore[attr-defined]
        assert house.cluster.open_streams == 0


def test_a_cluster_that_was_closed_says_so():
    loop = asyncio.new_event_loop()
    loop.close()
    bridge = BridgedTransport(InProcessTransport(cast(Any, None)), loop)
    with pytest.raises(Unavailable, match="it has been shut down"):
        bridge.send(calls.nodes(), "t")
