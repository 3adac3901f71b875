"""Elastic nodes over REST: our path, and FlowMesh's with its answer and its refusals (C28)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.messages import App
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.leadership import LeadershipConfig
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.inputs import Hello
from phalanx.core.cluster.state import Timers
from phalanx.core.model.elastic import ElasticMode, ElasticRules
from phalanx.store.memory import MemoryStore
from tests.support.builders import a_capacity
from tests.support.rest_app import JSON, TOKEN, a_rest_app, ask

pytestmark = pytest.mark.anyio
OFF, ON = b'{"enabled": false}', b'{"enabled": true}'
PATHS = ("/v1/workers/n1/elastic", "/workers/n1/elastic")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("path", PATHS)
async def test_flowmeshs_paths_have_its_answer(path: str):
    app = a_rest_app().app
    off = await ask(app, "POST", path, OFF, headers=JSON)
    assert (off.status, off.json()) == (200, {"worker_id": "n1", "enabled": False, "elastic_disabled": True})
    on = await ask(app, "POST", path, ON, headers=JSON)
    assert on.json() == {"worker_id": "n1", "enabled": True, "elastic_disabled": False}


async def test_our_path_answers_with_the_node():
    body = b'{"enabled": false, "reason": "saves power"}'
    view = (await ask(a_rest_app().app, "POST", "/v1/nodes/n1/elastic", body, headers=JSON)).json()
    assert (view["name"], view["elastic_disabled"]) == ("n1", True)
    assert view["disabled_reason"].endswith(": saves power")


@pytest.mark.parametrize(
    "body",
    [b"{}", b"", b'{"enabled": "no"}', b'{"enabled": 0}', b'{"enabled": true, "force": 1}', b"[]",
     b'{"enabled": false, "reason": "a\\nb"}', b'{"enabled": false, "reason": "%s"}' % (b"x" * 1001)],
)  # fmt: skip
async def test_a_wrong_body_is_refused(body: bytes):
    assert (await ask(a_rest_app().app, "POST", PATHS[0], body, headers=JSON)).status == 400


@pytest.mark.parametrize("path", ["/workers/n1", "/workers/", "/workers//elastic", "/workers/n1/drain"])
async def test_no_other_path_of_flowmesh_is_served(path: str):
    assert (await ask(a_rest_app().app, "POST", path, OFF, headers=JSON)).status == 404


@asynccontextmanager
async def a_cluster(mode: ElasticMode) -> AsyncIterator[App]:
    """The app of a real coordinator with one node, n1."""
    rules = Timers(elastic=ElasticRules(mode=mode))
    coordinator = Coordinator(
        MemoryStore(), LeadershipConfig(rules), Credentials.local("user", "node"), SubmitDefaults()
    )
    await coordinator.leadership.open()
    turning = asyncio.create_task(coordinator.leadership.run())
    try:
        await coordinator.leadership.ask([Hello("n1", "a", "o1", a_capacity(), [])])
        yield build_app(coordinator.commands, Tokens([("ada", TOKEN)]))
    finally:
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)


async def test_c28_a_toggle_is_seen_in_the_list_of_nodes():
    async with a_cluster("manual") as app:
        body = b'{"enabled": false, "reason": "saves power"}'
        assert (await ask(app, "POST", PATHS[1], body, headers=JSON)).json()["elastic_disabled"] is True
        (node,) = (await ask(app, path="/v1/nodes")).json()
        assert (node["elastic_disabled"], node["disabled_reason"]) == (True, "by ada: saves power")
        assert (node["disabled_automatically"], node["note"]) == (False, "disabled by ada: saves power")
        assert node["toggled_at"] > 0
        assert (await ask(app, path="/v1/cluster")).json()["nodes_online"] == 0
        assert (await ask(app, "POST", PATHS[1], ON, headers=JSON)).json()["enabled"] is True
        (node,) = (await ask(app, path="/v1/nodes")).json()
        assert (node["elastic_disabled"], node["disabled_reason"], node["note"]) == (False, "", "")


async def test_c28_an_unknown_worker_is_404():
    async with a_cluster("auto") as app:
        for path in ("/v1/workers/n9/elastic", "/workers/n9/elastic", "/v1/nodes/n9/elastic"):
            refused = await ask(app, "POST", path, OFF, headers=JSON)
            assert (refused.status, refused.json()["reason"]) == (404, "NotFound")


async def test_c28_a_feature_that_is_off_is_400():
    async with a_cluster("off") as app:
        for body in (OFF, ON):
            refused = await ask(app, "POST", PATHS[1], body, headers=JSON)
            assert (refused.status, refused.json()["reason"]) == (400, "ElasticOff")
        assert not (await ask(app, path="/v1/nodes/n1")).json()["elastic_disabled"]
