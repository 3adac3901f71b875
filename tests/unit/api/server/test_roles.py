"""Every route against every role, with one's own job and with another's: the table matches what happens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.documents import Nothing
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import WorkflowRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import GRANTS, MEANINGS, Bearer, Identity, Permission
from phalanx.api.server.messages import App
from phalanx.api.server.openapi import EXAMPLES
from phalanx.api.server.page_access import PageAccess
from phalanx.api.server.route import Route
from phalanx.api.server.routes.table import ROUTES
from phalanx.core.model.credential import ROLES, power
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, RawResponse, ask

pytestmark = pytest.mark.anyio

BEARERS: tuple[Bearer, ...] = ("viewer", "user", "operator", "admin", "node", "join", "task")
PAGE = Path(__file__).parents[4] / "docs" / "operations" / "tokens.md"
ADMIN = Identity("root", "admin", "0" * 16)


class Bearers:
    """Accepts a token named like a role, as Ada's; a task's token is for the current job."""

    job = ""

    def accepts_user(self, token: str) -> Identity | None:
        if token == "root":
            return ADMIN
        if token not in BEARERS:
            return None
        return Identity("ada", token, "f" * 16, self.job if token == "task" else "")


class Stage(NamedTuple):
    app: App
    cluster: FakeCommands
    bearers: Bearers
    own: str  # a job of Ada's
    other: str  # and one of Bob's
    flows: dict[str, str]  # a workflow of each's user


async def a_stage() -> Stage:
    cluster, bearers = FakeCommands(endless=False), Bearers()
    request = SubmitRequest(command=["true"], env={"KEY": "planted"})
    own, other = [(await cluster.submit(request, user)).task_ids[0] for user in ("ada", "bob")]
    bearers.job = own
    for name in ("ada", "bob"):
        await cluster.create_token(TokenRequest("user", name, "viewer"), None, ADMIN)
    flow = msgspec.convert(EXAMPLES[WorkflowRequest], WorkflowRequest)
    flows = [(await cluster.submit_workflow(flow, user)).id for user in ("ada", "bob")]
    for name in ("ada", "bob"):
        cluster.opened(Identity(name, "viewer", "e" * 16))
    app = build_app(cluster, bearers, page=PageAccess(cluster))
    return Stage(app, cluster, bearers, own, other, dict(zip((own, other), flows, strict=True)))


async def http_request(stage: Stage, route: Route, token: str, job: str) -> RawResponse:
    noun = route.path.split("/")[2] if route.path.startswith("/v1/") else ""
    flow = stage.flows.get(job, job)
    key = f"{1 if job == stage.own else 2:016x}"
    id = {
        "nodes": "n1",
        "workers": "n1",
        "queues": "n1",
        "workflows": flow,
        "tokens": key,
        "logins": key,
    }.get(noun, job)
    body = b"" if route.body is Nothing else msgspec.json.encode(EXAMPLES[route.body])
    headers = JSON | {"authorization": f"Bearer {token}" if token else ""}
    query = b"timeout_s=0" if route.path.endswith("/wait") else b""
    return await ask(
        stage.app, route.method, route.path.replace("{id}", id), body, headers=headers, query=query
    )


def expected(route: Route, role: str, is_own: bool) -> int:
    if route.permission == "open":
        return route.status
    if not role:
        return 401
    scope = GRANTS[cast(Bearer, role)].get(route.permission)
    if scope is None:
        return 403
    if route.path == "/v1/sessions/{id}":
        return 400  # whose it is says its ticket; here the protocol is not changed
    if route.path == "/v1/logins/current":
        return 409  # a token is no login
    if route.path == "/v1/logins/{id}":
        return route.status if is_own or role == "admin" else 404
    if scope == "all":
        return route.status
    if route.permission == "grant":
        # The example asks for a user's token in Ada's name; another's token is not shown to exist.
        about_one = "{id}" in route.path
        return (route.status if is_own else 404) if about_one else route.status
    if role == "task" and route.path.startswith("/v1/workflows"):
        return 403  # its own job is all that it may see
    return route.status if route.is_about_a_job and is_own else 403


@pytest.mark.parametrize("role", ["", *BEARERS], ids=lambda role: role or "nobody")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_a_route_answers_a_role_as_the_table_says(route: Route, role: str):
    for is_own in (True, False):
        stage = await a_stage()  # a new one, because the first request may end the job
        answered = await http_request(stage, route, role, stage.own if is_own else stage.other)
        assert answered.status == expected(route, role, is_own), (is_own, answered.body)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_has_a_permission_that_somebody_holds(route: Route):
    assert route.permission in MEANINGS
    assert route.permission == "open" or any(route.permission in held for held in GRANTS.values())


def test_a_route_that_names_a_job_or_a_task_asks_whose_it_is():
    nouns = ("/v1/jobs/{id}", "/v1/tasks/{id}", "/v1/workflows/{id}", "/v1/vps/{id}")
    named = {each.path for each in ROUTES if each.path.startswith(nouns)}
    assert {each.path for each in ROUTES if each.is_about_a_job} == named


def test_every_permission_is_asked_for_by_some_route():
    assert {route.permission for route in ROUTES} == set(MEANINGS)


def test_each_role_may_do_all_that_the_one_before_may():
    access = {None: 0, "own": 1, "all": 2}
    for lower, higher in pairwise(ROLES):
        for permission in MEANINGS:
            assert access[GRANTS[lower].get(permission)] <= access[GRANTS[higher].get(permission)]


def test_credentials_of_nodes_hold_no_permission():
    assert GRANTS["node"] == GRANTS["join"] == {}


async def test_a_refusal_names_the_role_and_what_it_would_take():
    stage = await a_stage()
    route = next(each for each in ROUTES if each.path == "/v1/nodes/{id}/drain")
    told = (await http_request(stage, route, "user", stage.own)).json()
    assert (told["reason"], told["role"], told["permission"]) == ("RoleForbids", "user", "operate")
    assert "ada has the role user" in told["detail"]
    assert told["hint"].endswith("operator or admin")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/jobs/{id}/cancel", "may not stop or change jobs of"),
        ("/v1/tasks/{id}/logs", "may not read the logs"),
    ],
)
async def test_a_refusal_about_anothers_job_says_what_is_refused_and_whose_job_it_is(path: str, says: str):
    stage = await a_stage()
    route = next(each for each in ROUTES if each.path == path)
    told = (await http_request(stage, route, "user", stage.other)).json()
    assert says in told["detail"] and told["detail"].endswith("jobs of bob")
    assert "only for your own jobs" in told["hint"]


async def test_anothers_environment_last_words_and_results_are_hidden():
    stage = await a_stage()
    for token, own, other in (("user", "planted", "(hidden)"), ("operator", "planted", "planted")):
        headers = {"authorization": f"Bearer {token}"}
        page = (await ask(stage.app, headers=headers)).json()
        assert {job["id"]: job["env"]["KEY"] for job in page["items"]} == {stage.own: own, stage.other: other}
        for id, seen in ((stage.own, own), (stage.other, other)):
            told = (await ask(stage.app, path=f"/v1/jobs/{id}", headers=headers)).json()
            assert told["env"] == {"KEY": seen}
            waited = await ask(stage.app, path=f"/v1/jobs/{id}/wait", query=b"timeout_s=0", headers=headers)
            assert waited.json()["env"] == {"KEY": seen}
            task = (await ask(stage.app, path=f"/v1/tasks/{id}", headers=headers)).json()
            assert bool(task["stderr_tail"]) == bool(task["result"]) == (seen == "planted")
            tasks = (await ask(stage.app, path=f"/v1/jobs/{id}/tasks", headers=headers)).json()
            listed = tasks["items"][0]
            assert bool(listed["stderr_tail"]) == bool(listed["result"]) == (seen == "planted")


async def test_a_tasks_token_does_not_learn_what_there_is():
    stage = await a_stage()
    for id in (stage.other, "01zzzzzzzzzzzzzzzzzzzzzzzz", "0"):
        answered = await ask(stage.app, path=f"/v1/jobs/{id}", headers={"authorization": "Bearer task"})
        assert answered.status == 403, id


@pytest.mark.parametrize("body", [{"topology": {"layers": []}}, {"quotas": {"default": {"gpus": 1}}}])
async def test_layers_and_quotas_need_an_admin_even_beside_jobs(body: dict[str, object]):
    stage = await a_stage()
    spec = {"groups": [{"command": ["true"]}]}
    for token, status in (("user", 403), ("operator", 403), ("admin", 202)):
        request = msgspec.json.encode({"specs": [spec]} | body)
        headers = JSON | {"authorization": f"Bearer {token}"}
        answered = await ask(stage.app, "POST", "/v1/apply", request, headers=headers)
        assert answered.status == status, answered.body


async def grant(stage: Stage, token: str, **options: object) -> RawResponse:
    headers = JSON | {"authorization": f"Bearer {token}"}
    return await ask(stage.app, "POST", "/v1/tokens", msgspec.json.encode(options), headers=headers)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("token", ["user", "operator", "admin"])
async def test_nobody_grants_more_than_they_have(token: str, role: str):
    answered = await grant(await a_stage(), token, role=role)
    assert answered.status == (201 if power(role) <= power(token) else 403)


async def test_only_an_admin_makes_tokens_for_others_and_for_nodes():
    stage = await a_stage()
    for token, status in (("user", 403), ("operator", 403), ("admin", 201)):
        assert (await grant(stage, token, role="viewer", name="bob")).status == status
        assert (await grant(stage, token, kind="join")).status == status


async def test_a_list_of_tokens_holds_ones_own():
    stage = await a_stage()
    for token, names in (("user", {"ada"}), ("admin", {"ada", "bob"})):
        found = await ask(stage.app, path="/v1/tokens", headers={"authorization": f"Bearer {token}"})
        assert {each["name"] for each in found.json()} == names


async def test_what_happens_to_tokens_is_told_to_admins_alone():
    stage = await a_stage()
    stage.cluster.record("CredentialCreated", stage.own)
    for token, is_told in (("viewer", False), ("operator", False), ("admin", True)):
        headers = {"authorization": f"Bearer {token}"}
        told = await ask(stage.app, path="/v1/events", query=b"after=0", headers=headers)
        assert (b"CredentialCreated" in told.body, b"JobSubmitted" in told.body) == (is_told, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "role: give viewer"),
        ({"role": "root"}, "role"),
        ({"role": "user", "name": "../x"}, "name:"),
        ({"role": "user", "node": "n1"}, "node:"),
        ({"kind": "join", "role": "user"}, "name and role"),
        ({"kind": "join", "node": "N 1"}, "node:"),
        ({"kind": "join", "expires": "never"}, "expires:"),
        ({"kind": "join", "expires": "30d"}, "expires:"),
        ({"role": "user", "expires": "soon"}, "expires:"),
        ({"role": "user", "expires": -1}, "expires:"),
    ],
)
async def test_a_wrong_wish_names_its_field(options: dict[str, object], told: str):
    answered = await grant(await a_stage(), "admin", **options)
    assert answered.status in (400, 422)
    assert told in answered.json()["detail"]


def test_the_page_shows_this_very_table():
    assert table_of_roles() in PAGE.read_text("utf-8"), (
        "paste table_of_roles() into docs/operations/tokens.md"
    )


def table_of_roles() -> str:
    """The table as the page shows it."""
    shown: list[Bearer] = [*ROLES, "task", "node", "join"]
    signs = {"all": "yes", "own": "own", None: ""}
    lines = [f"| may | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    permission: Permission
    for permission, meaning in MEANINGS.items():
        if permission != "open":
            held = " | ".join(signs[GRANTS[role].get(permission)] for role in shown)
            lines.append(f"| {permission}: {meaning} | {held} |")
    return "\n".join(lines)


async def test_only_who_may_cancel_a_job_may_have_it_wait_for_its_reader():
    stage = await a_stage()
    for token, id, status in (
        ("user", stage.own, 200),
        ("operator", stage.other, 200),
        ("viewer", stage.own, 403),
    ):
        headers = {"authorization": f"Bearer {token}"}
        asked = await ask(stage.app, path=f"/v1/tasks/{id}/logs", query=b"hold=true", headers=headers)
        assert asked.status == status, token
