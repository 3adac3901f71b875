"""/livez, /readyz and /leaderz: no token is needed, a token shows more, and probes cannot load the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.route import Readiness
from phalanx.client.client import Client
from phalanx.client.http import HttpTransport
from phalanx.errors import NotActive, Unavailable
from tests.support.fake_commands import FakeCommands
from tests.support.http_servers import serving
from tests.support.rest_app import TOKEN, RawResponse, RestApp, a_rest_app, ask

pytestmark = pytest.mark.anyio

STRANGER = {"authorization": ""}
WRONG = {"authorization": "Bearer phx_wrong"}


def a_standby() -> RestApp:
    house = a_rest_app()
    house.cluster.standby = NotActive(
        "this coordinator is a standby; c1 is active at https://c1:7433", extra={"leader": "https://c1:7433"}
    )
    return house


async def asked(house: RestApp, path: str, headers: dict[str, str] | None = None) -> RawResponse:
    return await ask(house.app, path=path, headers=headers)


async def test_a_stranger_learns_whether_it_is_ready_and_not_what_is_wrong():
    house = a_rest_app()
    house.cluster.failure = Unavailable("etcd at e1:2379 has no leader")
    answered = await asked(house, "/readyz", STRANGER)
    assert (answered.status, answered.json()["reason"]) == (503, "NotReady")
    assert "retry-after" in answered.headers
    assert b"e1" not in answered.body
    assert b"e1:2379" in (await asked(house, "/readyz")).body


async def test_a_stranger_learns_the_role_and_neither_epoch_nor_leader():
    assert (await asked(a_rest_app(), "/leaderz", STRANGER)).json() == {"status": "ok", "role": "Active"}
    assert (await asked(a_rest_app(), "/leaderz")).json() == {"status": "ok", "role": "Active", "epoch": 1}
    answered = await asked(a_standby(), "/leaderz", STRANGER)
    assert (answered.status, answered.json()["role"]) == (503, "Standby")
    assert b"c1" not in answered.body


async def test_who_shows_a_token_learns_who_leads():
    answered = await asked(a_standby(), "/leaderz")
    assert (answered.status, answered.json()["leader"]) == (503, "https://c1:7433")


async def test_a_standby_is_ready_too_unless_the_leader_is_asked_for():
    assert (await asked(a_standby(), "/readyz")).status == 200
    assert (await asked(a_standby(), "/readyz", {"phalanx-read": "leader"})).status == 503


async def test_a_stranger_who_asks_for_the_leader_is_not_told_who_it_is():
    answered = await asked(a_standby(), "/readyz", STRANGER | {"phalanx-read": "leader"})
    assert (answered.status, answered.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/readyz", "/leaderz"])
async def test_a_token_that_is_wrong_is_refused_here_too(path: str):
    assert (await asked(a_rest_app(), path, WRONG)).status == 401


async def test_life_does_not_hang_on_a_token():
    assert (await asked(a_rest_app(), "/livez", WRONG)).status == 200


# One read for all probes.


class Counted:
    """Answers yes, when it is released, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def ready(self) -> None:
        self.asked += 1
        self.begun.set()
        await self.let_go.wait()


async def test_many_strangers_at_once_ask_the_store_once():
    counted = Counted()
    readiness = Readiness(counted.ready, within_s=5.0)
    answers = [asyncio.ensure_future(readiness.is_given()) for _ in range(100)]
    await counted.begun.wait()
    counted.let_go.set()
    assert all(await asyncio.gather(*answers))
    assert await readiness.is_given()
    assert counted.asked == 1


async def test_an_old_answer_is_asked_for_anew():
    counted = Counted()
    counted.let_go.set()
    readiness = Readiness(counted.ready, within_s=5.0, fresh_s=0.0)
    assert [await readiness.is_given() for _ in range(3)] == [True, True, True]
    assert counted.asked == 3


async def test_a_stranger_who_leaves_takes_the_answer_from_nobody():
    counted = Counted()
    readiness = Readiness(counted.ready, within_s=5.0)
    gone, stays = (asyncio.ensure_future(readiness.is_given()) for _ in range(2))
    await counted.begun.wait()
    gone.cancel()
    await asyncio.wait({gone})
    counted.let_go.set()
    assert await stays


async def test_a_store_that_hangs_is_not_ready():
    class Hanging(FakeCommands):
        async def ready(self) -> None:
            await asyncio.Event().wait()

    limits: dict[str, Any] = {"ready_s": 0.01}
    assert (await asked(a_rest_app(Hanging(), **limits), "/readyz", STRANGER)).status == 503


# Old answers.


async def test_a_standby_that_cannot_read_the_log_says_how_old_its_answer_is():
    house = a_rest_app()
    assert "phalanx-behind" not in (await asked(house, "/v1/nodes")).headers
    house.cluster.behind = 37.2
    assert (await asked(house, "/v1/nodes")).headers["phalanx-behind"] == "37"


def test_whoever_reads_an_old_answer_is_told():
    house, told = a_rest_app(), list[str]()
    house.cluster.behind = 37.2
    with serving(house.app) as address:
        exchange = HttpTransport(address, on_stale=told.append)
        with Client(token=TOKEN, exchange=exchange) as client:
            client.nodes()
    assert told == ["37"]


async def test_one_that_was_replaced_without_knowing_answers_no_read_that_asks_for_the_leader():
    class Woken(FakeCommands):
        """One that was paused: by its role it is active, and another leads."""

        async def require_leader(self) -> None:
            raise NotActive("another leads")

    app = build_app(Woken(), Tokens([("ada", TOKEN)]))
    for path in ("/readyz", "/v1/cluster", "/v1/jobs"):
        assert (await ask(app, path=path, headers={"phalanx-read": "leader"})).status == 503
        assert (await ask(app, path=path)).status == 200
