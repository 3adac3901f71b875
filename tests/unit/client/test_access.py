"""A client whose token is replaced while it works: the file is read again, and what was begun continues."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from phalanx.client.access import ClientToken
from phalanx.client.async_client import AsyncClient
from phalanx.client.client import Client
from phalanx.client.in_process import BridgedTransport, InProcessTransport
from phalanx.errors import Unauthorized
from tests.support.rest_app import TOKEN, RestApp, a_loop, a_rest_app

pytestmark = pytest.mark.anyio


def a_file(folder: Path, text: str = TOKEN) -> Path:
    path = folder / "token"
    path.write_text(text)
    path.chmod(0o600)
    return path


def rotate(house: RestApp, file: Path, token: str = "phx_new") -> None:
    house.tokens.replace([("ada", token)])
    a_file(file.parent, token)


def test_a_token_that_was_replaced_in_its_file_is_taken_up(tmp_path: Path):
    house, file = a_rest_app(), a_file(tmp_path)
    with (
        a_loop() as loop,
        Client(
            token=TOKEN, token_file=file, exchange=BridgedTransport(InProcessTransport(house.app), loop)
        ) as client,
    ):
        assert client.cluster().jobs == 0
        rotate(house, file)
        assert client.submit(command=["true"]).task_ids
        assert client.cluster().jobs == 1


async def test_the_async_client_does_the_same(tmp_path: Path):
    house, file = a_rest_app(), a_file(tmp_path)
    async with AsyncClient(token=TOKEN, token_file=file, exchange=InProcessTransport(house.app)) as client:
        rotate(house, file)
        assert (await client.cluster()).jobs == 0


async def test_a_watch_goes_on_with_the_new_token(tmp_path: Path):
    house, file = a_rest_app(beat_s=0.01, settle_s=0.001), a_file(tmp_path)
    async with (
        AsyncClient(token=TOKEN, token_file=file, exchange=InProcessTransport(house.app)) as client,
        aclosing(client.watch(after=0)) as events,
    ):
        id = (await client.submit(command=["true"])).task_ids[0]
        assert (await anext(events)).event == "JobSubmitted"
        house.cluster.closed.clear()
        rotate(house, file)
        coming = asyncio.ensure_future(anext(events))
        await asyncio.wait_for(house.cluster.closed.wait(), 5)  # the stream of the old token has ended
        await client.cancel(id)
        assert (await asyncio.wait_for(coming, 5)).event == "JobEnded"


async def test_a_token_that_is_refused_for_good_is_told_with_its_file(tmp_path: Path):
    house, file = a_rest_app(), a_file(tmp_path, "phx_wrong")
    async with AsyncClient(
        token="phx_wrong", token_file=file, exchange=InProcessTransport(house.app)
    ) as client:
        with pytest.raises(Unauthorized) as caught:
            await client.cluster()
    assert str(file) in caught.value.hint


def test_two_threads_that_are_refused_with_the_same_token_both_go_on(tmp_path: Path):
    file = a_file(tmp_path, "phx_new")
    token = ClientToken("phx_old", file)
    assert [token.is_replaced("phx_old"), token.is_replaced("phx_old")] == [True, True]


def test_a_file_that_cannot_be_used_replaces_nothing(tmp_path: Path):
    file = a_file(tmp_path, "phx_new")
    file.chmod(0o646)
    token = ClientToken("phx_old", file)
    assert not token.is_replaced("phx_old")
    assert token.value == "phx_old"
