"""Workflows over REST: a large one is written in pieces, which are the same JSON as the whole."""

from __future__ import annotations

import json

import msgspec
import pytest

from phalanx.api.schema.workflows import StageView, WorkflowView
from phalanx.api.server.routes import workflows as routes
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, a_rest_app, ask

pytestmark = pytest.mark.anyio
ID = "0" * 26
LARGE = json.dumps(["x" * 60_000])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class LargeWorkflow(FakeCommands):
    """One workflow, each of whose stages has a large result."""

    def __init__(self, count: int, result: str = LARGE) -> None:
        super().__init__()
        self.count, self.result_text = count, result

    async def owner(self, id: str, *, kind: str = "job") -> tuple[str, str]:
        return id, "ada"

    async def workflow(self, id: str) -> WorkflowView:
        stages = [
            StageView(f"s{number}", "Completed", ID, result=msgspec.Raw(self.result_text))
            for number in range(self.count)
        ]
        return WorkflowView(id, "w", "ada", "Completed", 1.0, {"Completed": self.count}, 2.0, stages)


@pytest.mark.parametrize("count", [1, 4, 5, 13])
async def test_a_large_workflow_is_written_in_pieces(count: int):
    answer = await ask(a_rest_app(LargeWorkflow(count)).app, path=f"/v1/workflows/{ID}")
    assert ("content-length" in answer.headers) == (count <= 4)
    assert answer.headers["content-type"] == "application/json"
    view = msgspec.json.decode(answer.body, type=WorkflowView)
    assert [stage.name for stage in view.stages] == [f"s{number}" for number in range(count)]
    assert all(stage.result == json.loads(LARGE) for stage in view.stages)
    assert (view.ended_at, view.counts) == (2.0, {"Completed": count})


async def test_no_piece_is_much_larger_than_allowed():
    service = type("Service", (), {"slices": type("Slices", (), {"turn": lambda _: _done()})()})()
    view = await LargeWorkflow(100).workflow(ID)
    sizes = [len(piece) async for piece in routes._pieces(service, view)]
    assert len(sizes) > 20
    assert max(sizes) < routes.PIECE_BYTES + len(LARGE) + 10_000


@pytest.mark.parametrize("levels", [101, 975, 980, 5000])
@pytest.mark.parametrize("key", ["x", "\\u0078"])
async def test_a_spec_that_is_nested_too_deep_is_refused_and_named(levels: int, key: str):
    """A key with an escape makes the body be read by another parser, which has its own limit."""
    deep = "[" * levels + "]" * levels
    stage = f'{{"name": "a", "spec": {{"{key}": {deep}}}, "job": {{"groups": [{{"command": ["true"]}}]}}}}'
    body = f'{{"workflow": {{"stages": [{stage}]}}}}'.encode()
    answer = await ask(a_rest_app().app, "POST", "/v1/workflows", body, headers=JSON)
    assert (answer.status, answer.json()["reason"]) == (400, "TooDeep")
    assert ".spec." in answer.json()["detail"].partition(": nested too deep, at most 100 levels")[0]


async def _done() -> None:
    pass


async def test_a_workflow_may_be_called_as_a_word_of_a_path():
    app = a_rest_app(LargeWorkflow(1)).app
    assert (await ask(app, path="/v1/workflows/files")).json()["name"] == "w"
    assert (await ask(app, "POST", "/v1/workflows/files", b"{}", headers=JSON)).status == 400
    assert (await ask(app, "DELETE", "/v1/workflows/files")).status == 405
