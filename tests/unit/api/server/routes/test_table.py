"""Every route answers, and every invalid request gets the right problem."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from phalanx.api.schema.apply import ApplyRequest
from phalanx.api.schema.documents import Nothing
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.workflows import WorkflowRequest
from phalanx.api.server.auth import Identity
from phalanx.api.server.messages import Message
from phalanx.api.server.openapi import EXAMPLES
from phalanx.api.server.routes.table import ROUTES
from phalanx.errors import NotFound, PhalanxError, TooMany, Unavailable
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import (
    JSON,
    TOKEN,
    RawResponse,
    RestApp,
    a_rest_app,
    an_async_client,
    as_browser,
    as_task,
    ask,
)

pytestmark = pytest.mark.anyio

ADMIN = Identity("ada", "admin", "f" * 16)
JOB = b'{"command": ["true"]}'


async def submit(house: RestApp, body: bytes = JOB, key: str = "") -> RawResponse:
    return await ask(house.app, "POST", "/v1/jobs", body, headers=JSON | {"idempotency-key": key})


async def a_job(house: RestApp) -> str:
    id: str = (await submit(house)).json()["task_ids"][0]
    return id


async def a_named_job(house: RestApp) -> str:
    spec = JobSpec([GroupSpec(command=["true"])], object="team/cancel")
    body = msgspec.json.encode(ApplyRequest([spec]))
    (job,) = (await ask(house.app, "POST", "/v1/apply", body, headers=JSON)).json()["jobs"]
    id: str = job["id"]
    return id


def problem(answered: RawResponse) -> dict[str, object]:
    assert answered.headers["content-type"] == "application/problem+json"
    told: dict[str, object] = answered.json()
    assert told["status"] == answered.status
    return told


async def test_a_submission_is_accepted():
    answered = await submit(a_rest_app())
    assert answered.status == 202
    told = answered.json()
    assert told["task_ids"] == [told["batch_id"]]


ANSWERING = [
    route for route in ROUTES if route.status != 101
]  # test_sessions.py has the one that changes protocol


@pytest.mark.parametrize("route", ANSWERING, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_answers_as_its_row_says(route):
    house = a_rest_app(FakeCommands(endless=False))
    id = await a_job(house)
    named = any(noun in route.path for noun in ("/nodes/", "/workers/", "/queues/"))
    if "/tokens/" in route.path:
        made = await ask(house.app, "POST", "/v1/tokens", b'{"role": "user"}', headers=JSON)
        id = made.json()["record"]["id"]
    if "/workflows/" in route.path:
        example = msgspec.json.encode(EXAMPLES[WorkflowRequest])
        id = (await ask(house.app, "POST", "/v1/workflows", example, headers=JSON)).json()["id"]
    if "/names/" in route.path:
        await a_named_job(house)
        id = "team%2Fcancel"
    headers = JSON
    if "/logins" in route.path and route.path != "/v1/logins/tickets":
        headers = JSON | as_browser(house.cluster, ADMIN)
        id = next(iter(house.cluster.browsers))
    path = route.path.replace("{id}", "n1" if named else id)
    body = b"" if route.body is Nothing else msgspec.json.encode(EXAMPLES[route.body])
    query = b"timeout_s=0" if path.endswith("/wait") else b""
    app = as_task(house, id) if route.permission == "serve" else house.app
    answered = await ask(app, route.method, path, body, query=query, headers=headers)
    assert (answered.status, answered.headers["content-type"]) == (route.status, route.media)
    assert answered.headers["cache-control"] == "no-store"
    if route.answer is not None:
        msgspec.json.decode(answered.body, type=route.answer)


async def test_a_list_is_filtered_and_paged():
    house = a_rest_app()
    for name in ("a", "b", "b"):
        await submit(house, b'{"command": ["true"], "name": "%s"}' % name.encode())
    first = (await ask(house.app, query=b"name=b&limit=1")).json()
    rest = (await ask(house.app, query=b"name=b&limit=1&cursor=" + first["next_cursor"].encode())).json()
    assert len(first["items"]) == len(rest["items"]) == 1
    assert first["items"] != rest["items"]
    assert rest["next_cursor"] is None


async def test_the_same_key_is_answered_from_memory():
    house = a_rest_app()
    first, second = [(await submit(house, key="k1")).json() for _ in range(2)]
    assert second["replayed"]
    assert first["task_ids"] == second["task_ids"]


async def test_a_key_may_be_said_twice_but_not_differently():
    body = b'{"command": ["true"], "request_id": "k1"}'
    assert (await submit(a_rest_app(), body, key="k1")).status == 202
    assert (await submit(a_rest_app(), body, key="k2")).status == 400


@pytest.mark.parametrize("key", ["x" * 256, "\xe9"])
async def test_a_key_that_cannot_be_kept_is_refused(key: str):
    assert (await submit(a_rest_app(), key=key)).status == 400


async def test_a_number_out_of_range_is_422():
    told = problem(await submit(a_rest_app(), b'{"command": ["true"], "cores": -1}'))
    assert (told["status"], told["reason"]) == (422, "OutOfRange")


async def test_all_targets_bad_is_one_problem_that_lists_them():
    told = problem(await submit(a_rest_app(), b'{"command": ["true"], "targets": ["a:", "b:x"]}'))
    assert told["status"] == 400
    assert [each["target"] for each in told["failed_targets"]] == ["a:", "b:x"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/v1/jobs", "GET, POST"), ("/v1/jobs/x/cancel", "POST"), ("/v1/cluster", "GET"), ("/livez", "GET")],
)
@pytest.mark.parametrize("method", ["DELETE", "PUT", "HEAD", "OPTIONS"])
async def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allow: str):
    answered = await ask(a_rest_app().app, method, path)
    assert problem(answered)["status"] == 405
    assert answered.headers["allow"] == allow


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/jobs/",
        "/v1/jobs//why",
        "/v1/nodes/",
        "/v1/nodes//story",
        "/v1/pods",
        "/v1/jobs/x/y",
        "/v1/jobs/x/why/z",
        "/v1/jobs/{id}",
    ],
)
async def test_an_unknown_path_is_404(path: str):
    assert problem(await ask(a_rest_app().app, path=path))["status"] == 404


@pytest.mark.parametrize("id", ["..", "-x", "A", "x y", "\x00", "x" * 81, "é", "\x1b[2J", "%2e", "../../etc"])
async def test_what_cannot_be_an_id_never_reaches_the_cluster(id: str):
    answered = await ask(a_rest_app().app, path=f"/v1/jobs/{id}")
    assert problem(answered)["status"] == 404
    assert b"\x1b" not in answered.body


async def test_an_unknown_id_is_404():
    assert problem(await ask(a_rest_app().app, path="/v1/jobs/01abc"))["reason"] == "NotFound"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_no_route_ignores_a_parameter(route):
    house, id = a_rest_app(), "n1"
    app = house.app
    if route.permission == "serve":
        id = await a_job(house)
        app = as_task(house, id)
    path = route.path.replace("{id}", id)
    answered = await ask(app, route.method, path, query=b"bogus=1", headers=JSON)
    assert problem(answered)["status"] == 400
    assert "'bogus'" in answered.json()["detail"]


@pytest.mark.parametrize(
    "declared", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
)
async def test_a_body_that_is_not_called_json_is_415(declared: str):
    answered = await ask(a_rest_app().app, "POST", "/v1/jobs", JOB, headers={"content-type": declared})
    assert problem(answered)["status"] == 415


@pytest.mark.parametrize("declared", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_may_be_called_so_in_other_words(declared: str):
    answered = await ask(a_rest_app().app, "POST", "/v1/jobs", JOB, headers={"content-type": declared})
    assert answered.status == 202


async def test_a_body_comes_in_pieces():
    house = a_rest_app()
    pieces = [JOB[:5], b"", JOB[5:]]
    assert (await ask(house.app, "POST", "/v1/jobs", headers=JSON, pieces=pieces)).status == 202


@pytest.mark.parametrize("length", ["", "5", "0", "-1", "x", "99999999999999999999999"])
async def test_a_body_over_the_limit_is_413_whatever_its_length_claims(length: str):
    pieces = [b"x" * 400] * 4
    headers = JSON | {"content-length": length}
    answered = await ask(a_rest_app(body_bytes=1000).app, "POST", "/v1/jobs", headers=headers, pieces=pieces)
    assert problem(answered)["status"] == 413
    assert answered.headers["connection"] == "close"


async def test_a_long_body_is_refused_by_its_length_before_it_comes():
    headers = JSON | {"content-length": "1048577"}
    assert (await ask(a_rest_app().app, "POST", "/v1/jobs", b"", headers=headers)).status == 413


async def test_a_route_without_a_body_takes_an_empty_object_and_nothing_else():
    house = a_rest_app()
    path = f"/v1/tasks/{await a_job(house)}/pause"
    assert (await ask(house.app, "POST", path, b'{"force": true}', headers=JSON)).status == 400
    assert (await ask(house.app, "POST", path, b"{}", headers=JSON)).status == 200


@pytest.mark.parametrize("reason", ["  ", "x" * 1001, "a\\u001b[2Jb", "a\\nb"])
async def test_a_drains_reason_is_a_line_of_text(reason: str):
    body = b'{"reason": "%s"}' % reason.encode()
    assert (await ask(a_rest_app().app, "POST", "/v1/nodes/n1/drain", body, headers=JSON)).status == 400


async def test_a_node_is_drained_and_resumed():
    house = a_rest_app()
    drained = await ask(house.app, "POST", "/v1/nodes/n1/drain", b'{"reason": "dust"}', headers=JSON)
    assert drained.json()["drain_reason"] == "dust"
    unexplained = await ask(house.app, "POST", "/v1/nodes/n1/drain", b"{}", headers=JSON)
    assert unexplained.json()["drain_reason"].startswith("by "), "by whom, if not why"
    resumed = await ask(house.app, "POST", "/v1/nodes/n1/resume")
    assert not resumed.json()["drained"]


async def test_cancelling_what_has_ended_is_a_conflict():
    house = a_rest_app()
    path = f"/v1/jobs/{await a_job(house)}/cancel"
    assert [(await ask(house.app, "POST", path)).status for _ in range(2)] == [200, 409]


@pytest.mark.parametrize("error", [Unavailable("not now"), TooMany("full", retry_after_s=4.2)])
async def test_who_must_come_again_is_told_when(error: PhalanxError):
    house = a_rest_app()
    house.cluster.failure = error
    answered = await ask(house.app)
    assert problem(answered)["status"] == error.status
    assert answered.headers["retry-after"] == ("5" if error.retry_after_s else "1")


@pytest.mark.parametrize(
    "error", [RuntimeError("secret insides"), PhalanxError("secret insides"), KeyError("x")]
)
async def test_the_unforeseen_is_logged_under_an_id_and_told_without_insides(
    error: Exception, caplog: pytest.LogCaptureFixture
):
    house = a_rest_app()
    house.cluster.failure = error
    answered = await ask(house.app)
    told = problem(answered)
    assert told["status"] == 500
    assert b"insides" not in answered.body
    assert str(told["error_id"]) in caplog.text
    assert repr(error) in caplog.text or str(error) in caplog.text
    assert TOKEN not in caplog.text


async def test_readiness_asks_the_cluster():
    house = a_rest_app()
    assert (await ask(house.app, path="/readyz")).status == 200
    house.cluster.failure = Unavailable("the store does not answer")
    assert (await ask(house.app, path="/readyz")).status == 503


async def test_a_cluster_that_hangs_is_not_ready():
    class Hanging(FakeCommands):
        async def ready(self) -> None:
            await asyncio.Event().wait()

    assert (await ask(a_rest_app(Hanging(), ready_s=0.01).app, path="/readyz")).status == 503


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_answered():
    house = a_rest_app()
    messages: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": headers}
    await house.app(scope, receive, send)
    assert sent == []


async def test_a_websocket_is_closed_and_a_lifespan_is_followed():
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def hear(*kinds: str) -> None:
        coming = iter(kinds)

        async def receive() -> Message:
            return {"type": next(coming)}

        await a_rest_app().app({"type": kinds[0].partition(".")[0]}, receive, send)

    await hear("websocket.connect")
    await hear("lifespan.startup", "lifespan.shutdown")
    assert [each["type"] for each in sent] == [
        "websocket.close",
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


async def test_a_name_of_kubernetes_stands_for_an_id_with_its_slash_quoted():
    """M10: the path is split before it is read, so a pod may even be called like a verb."""
    house = a_rest_app()
    id = await a_named_job(house)
    async with an_async_client(house) as client:
        assert (await client.job("team/cancel")).id == id
        assert (await client.why("team/cancel")).id == id
        assert (await client.named("team/cancel")).id == id
        assert (await client.cancel("team/cancel")).id == id
        with pytest.raises(NotFound):
            await client.job("team/other")
    assert (await ask(house.app, "GET", "/v1/jobs/team/other")).status == 404
    assert (await ask(house.app, "GET", "/v1/nodes/team%2Fcancel")).status == 404
