"""Access: tokens, hosts, origins, and a permission for every route."""

from __future__ import annotations

from typing import get_args

import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Permission, Tokens
from phalanx.api.server.routes.table import ROUTES
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, TOKEN, a_rest_app, ask, ask_raw

pytestmark = pytest.mark.anyio


def name_of(tokens: Tokens, token: str) -> str | None:
    found = tokens.accepts_user(token)
    return found.name if found else None


def test_a_token_names_its_user():
    tokens = Tokens([("ada", "phx_a"), ("bob", "phx_b")])
    assert [name_of(tokens, each) for each in ("phx_a", "phx_b", "phx_c", "", "phx_", "x" * 5000)] == [
        "ada",
        "bob",
        None,
        None,
        None,
        None,
    ]


def test_no_accepted_token_lets_nobody_in():
    assert Tokens([]).accepts_user("") is None
    assert Tokens([("ada", "")]).accepts_user("") is None


def test_tokens_are_kept_as_digests_only():
    tokens = Tokens([("ada", "phx_planted_secret")])
    assert "phx_planted_secret" not in repr(vars(tokens))


def test_tokens_rotate():
    tokens = Tokens([("ada", "phx_old")])
    tokens.replace([("ada", "phx_new")])
    assert (name_of(tokens, "phx_old"), name_of(tokens, "phx_new")) == (None, "ada")


OPEN = ("/livez", "/readyz", "/leaderz")


def test_every_route_has_a_permission_and_only_probes_are_open():
    assert {route.permission for route in ROUTES} <= set(get_args(Permission))
    opened = tuple((route.method, route.path) for route in ROUTES if route.permission == "open")
    assert opened == (*(("GET", path) for path in OPEN), ("POST", "/v1/logins"))
    reading = [route.path for route in ROUTES if route.permission == "read" and route.method != "GET"]
    assert reading == [
        "/v1/plan",
        "/v1/plan/files",
    ]  # they change nothing; a question is too long for a query


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_no_route_but_probes_answers_without_a_token(route):
    house = a_rest_app()
    path = route.path.replace("{id}", "n1")
    answered = await ask(house.app, route.method, path, b"{}", headers=JSON | {"authorization": ""})
    assert answered.status == (200 if path in OPEN else 401)
    if answered.status == 401:
        assert answered.headers["www-authenticate"] == "Bearer"
        assert answered.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/", "/v2/jobs", "/v1/jobs/", "/docs", "/v1/jobs/a/b/c"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "BREW"])
async def test_a_stranger_does_not_learn_which_paths_exist(path: str, method: str):
    answered = await ask(a_rest_app().app, method, path, headers={"authorization": ""})
    assert answered.status == 401


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN} x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff\xfe",
    ],
)
async def test_a_wrong_authorization_is_refused(header: str):
    assert (await ask(a_rest_app().app, headers={"authorization": header})).status == 401


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
async def test_a_right_authorization_is_accepted(header: str):
    assert (await ask(a_rest_app().app, headers={"authorization": header})).status == 200


async def test_a_token_in_the_url_or_a_cookie_is_not_looked_at():
    app = a_rest_app().app
    without = {"authorization": ""}
    assert (await ask(app, query=b"token=" + TOKEN.encode(), headers=without)).status == 401
    assert (await ask(app, headers=without | {"cookie": f"authorization=Bearer {TOKEN}"})).status == 401


async def test_two_authorization_headers_are_refused():
    raw = [
        (b"host", b"localhost"),
        (b"authorization", b"Bearer x"),
        (b"authorization", f"Bearer {TOKEN}".encode()),
    ]
    assert (await ask_raw(a_rest_app().app, "GET", "/v1/jobs", raw, b"", [b""])).status == 400


async def test_the_user_of_the_token_is_the_user_of_the_job():
    house = a_rest_app()
    await ask(house.app, "POST", "/v1/jobs", b'{"command": ["true"]}', headers=JSON)
    assert [job.user for job in house.cluster.held.values()] == ["ada"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:7433", "127.0.0.1:7433", "127.8.8.8", "[::1]", "[::1]:7433", "head.lab:7433"],
)
async def test_our_own_hosts_are_answered(host: str):
    app = build_app(FakeCommands(), Tokens([("ada", TOKEN)]), hosts=["Head.Lab"])
    assert (await ask(app, headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:7433",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil@localhost",
        "localhost@evil.example",
        "localhost/x",
        "10.0.0.1",
        "[::2]",
        "[::1",
        "\xff",
        "0.0.0.0",
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/livez"])
async def test_a_rebound_host_is_refused_on_every_path(host: str, path: str):
    answered = await ask(a_rest_app().app, path=path, headers={"host": host})
    assert (answered.status, answered.json()["reason"]) == (403, "HostNotAllowed")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:3000", "file://", "http://localhost:7433.evil"],
)
async def test_a_page_of_another_site_is_refused_with_every_method(method: str, origin: str):
    answered = await ask(a_rest_app().app, method, headers={"origin": origin})
    assert (answered.status, answered.json()["reason"]) == (403, "OriginNotAllowed")


async def test_a_page_of_this_very_site_is_answered():
    assert (await ask(a_rest_app().app, headers={"origin": "http://localhost:7433"})).status == 200


async def test_a_refusal_never_repeats_the_token():
    answered = await ask(a_rest_app().app, headers={"authorization": "Bearer phx_planted_secret"})
    assert b"planted" not in answered.body
