"""Requests of browsers: cookies, CSRF tokens, Origins, and what a cookie is not taken for."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Identity, Tokens
from phalanx.api.server.logins import (
    COOKIES_MAX,
    cookie_name,
    csrf_of,
    next_ticket_of,
    read_cookie,
    renamed_cookie,
)
from phalanx.api.server.messages import Message
from phalanx.api.server.page_access import PageAccess
from phalanx.errors import BadRequest
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, TOKEN, RestApp, a_rest_app, as_browser, ask, ask_raw
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
COOKIE = "phalanx_login_7433"
SUBMIT = b'{"command": ["true"]}'


def a_page(house: RestApp, role: Bearer = "user") -> dict[str, str]:
    return JSON | as_browser(house.cluster, Identity("ada", role, "f" * 16))


async def test_a_ticket_is_exchanged_for_a_cookie_that_scripts_cannot_read():
    house = a_rest_app()
    made = await ask(house.app, "POST", "/v1/logins/tickets", b"{}", headers=JSON)
    assert made.status == 201
    body = b'{"ticket": "%b"}' % made.json()["ticket"].encode()
    opened = await ask(house.app, "POST", "/v1/logins", body, headers=JSON | {"authorization": ""})
    cookie, *words = opened.headers["set-cookie"].split("; ")
    assert cookie.startswith(f"{COOKIE}=phx_login_")
    assert {"HttpOnly", "SameSite=Strict", "Path=/v1"} <= set(words)
    assert "Secure" not in words  # the connection is not TLS; see below
    value = cookie.partition("=")[2]
    told = opened.json()
    assert (told["csrf"], told["next_ticket"]) == (csrf_of(value), next_ticket_of(value))
    assert value not in opened.body.decode()
    assert told["may"]["read"] == "all"
    again = await ask(house.app, "POST", "/v1/logins", body, headers=JSON | {"authorization": ""})
    assert (again.status, again.json()["reason"]) == (403, "TicketRefused")


async def test_over_tls_the_cookie_is_secure():
    house = a_rest_app()
    sent: list = []

    async def receive():
        return {"type": "http.request", "body": b'{"ticket": "phx_ui_..."}'}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost:7433"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "scheme": "https",
        "method": "POST",
        "path": "/v1/logins",
        "query_string": b"",
        "headers": headers,
    }
    await house.app(scope, receive, send)
    cookie = dict(sent[0]["headers"])[b"set-cookie"]
    assert cookie.startswith(b"__Host-phalanx_login_7433=")
    assert cookie.endswith(b"; Path=/; Secure")  # or no browser takes one of that name
    value = renamed_cookie(cookie, "__Host-phalanx_login_7433", "phalanx_login_1")
    assert value.startswith(b"phalanx_login_1=") and value.endswith(b"; Path=/v1")
    assert renamed_cookie(value, "phalanx_login_1", "__Host-phalanx_login_7433") == cookie


async def test_a_page_reads_with_its_cookie_and_changes_with_its_csrf_token():
    house = a_rest_app()
    page = a_page(house)
    assert (await ask(house.app, "GET", "/v1/jobs", headers=page | {"phalanx-csrf": ""})).status == 200
    assert (await ask(house.app, "POST", "/v1/jobs", SUBMIT, headers=page)).status == 202
    assert house.cluster.held


@pytest.mark.parametrize("shown", ["", "wrong", csrf_of("another")])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/jobs"),
        ("POST", "/v1/plan"),
        ("POST", "/v1/nodes/n1/drain"),
        ("PUT", "/v1/queues/q"),
        ("DELETE", "/v1/logins/current"),
        ("POST", "/v1/tokens"),
    ],
)
async def test_without_the_right_csrf_token_a_cookie_changes_nothing(method: str, path: str, shown: str):
    house = a_rest_app()
    page = a_page(house, "admin") | {"phalanx-csrf": shown}
    answered = await ask(house.app, method, path, SUBMIT, headers=page)
    assert (answered.status, answered.json()["reason"]) == (403, "CsrfRefused")
    assert not house.cluster.held
    assert len(house.cluster.browsers) == 1


async def test_a_viewer_may_not_do_by_cookie_what_an_operator_may():
    house = a_rest_app()
    page = a_page(house, "viewer")
    for method, path in (
        ("POST", "/v1/jobs"),
        ("POST", "/v1/nodes/n1/drain"),
        ("GET", "/v1/tokens"),
        ("GET", "/v1/audit"),
    ):
        answered = await ask(house.app, method, path, SUBMIT, headers=page)
        assert (answered.status, answered.json()["reason"]) == (403, "RoleForbids"), path


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:7434", "http://localhost:7433.evil.example", "null", "file://"],
)
async def test_a_foreign_origin_is_refused(origin: str):
    house = a_rest_app()
    for method in ("GET", "POST"):
        answered = await ask(
            house.app, method, "/v1/jobs", SUBMIT, headers=a_page(house) | {"origin": origin}
        )
        assert (answered.status, answered.json()["reason"]) == (403, "OriginNotAllowed")
    body = b'{"ticket": "phx_ui_..."}'
    stranger = JSON | {"authorization": "", "origin": origin}
    assert (await ask(house.app, "POST", "/v1/logins", body, headers=stranger)).status == 403


@pytest.mark.parametrize("fetched_from", ["cross-site", "same-site", "anything"])
async def test_a_request_of_another_page_is_refused_with_its_cookie_alone(fetched_from: str):
    house = a_rest_app()
    words = {"sec-fetch-site": fetched_from}
    answered = await ask(house.app, "GET", "/v1/jobs", headers=a_page(house) | words)
    assert (answered.status, answered.json()["reason"]) == (403, "OriginNotAllowed")
    assert (await ask(house.app, "GET", "/v1/jobs", headers=words)).status == 200  # with a token


async def test_a_password_for_a_proxy_hides_no_cookie():
    house = a_rest_app()
    page = a_page(house) | {"authorization": "Basic YWRhOnNlY3JldA=="}
    assert (await ask(house.app, "GET", "/v1/jobs", headers=page)).status == 200
    answered = await ask(house.app, "POST", "/v1/jobs", SUBMIT, headers=page | {"phalanx-csrf": ""})
    assert answered.json()["reason"] == "CsrfRefused"


async def test_a_token_and_a_cookie_are_never_mixed():
    house = a_rest_app()
    page = a_page(house)
    answered = await ask(house.app, "GET", "/v1/jobs", headers=page | {"authorization": "Bearer wrong"})
    assert answered.status == 401
    answered = await ask(
        house.app, "GET", "/v1/logins/current", headers=page | {"authorization": f"Bearer {TOKEN}"}
    )
    assert (answered.status, answered.json()["reason"]) == (409, "NoLogin")
    cookie = page["cookie"].partition("=")[2]
    answered = await ask(house.app, "GET", "/v1/jobs", headers={"authorization": f"Bearer {cookie}"})
    assert answered.status == 401  # a cookie is no token
    answered = await ask(
        house.app, "GET", "/v1/jobs", headers={"authorization": "", "cookie": f"{COOKIE}={TOKEN}"}
    )
    assert answered.status == 401  # nor a token a cookie


async def test_a_login_asks_for_no_tickets():
    """Otherwise whoever has the page for a moment could stay for ever. The fake takes everybody; the shell is asked."""
    from phalanx.clock import SteadyClock
    from phalanx.coordinator.logins import CoordinatorLogins
    from phalanx.errors import Forbidden

    class Active:
        def require_active(self) -> None:
            """It is."""

    logins = CoordinatorLogins(Active(), SteadyClock(), None)  # type: ignore[arg-type]  # neither is asked
    for by in (Identity("ada", "user", "f" * 16, login="l1"), Identity("n1", "node", "f" * 16)):
        with pytest.raises(Forbidden):
            await logins.make_login_ticket([], by)


@pytest.mark.parametrize(
    ("cookies", "status"),
    [
        (f"{COOKIE}=a; {COOKIE}=b", 400),
        (f"other=1; {COOKIE}=; x", 401),
        (f"{COOKIE}={'x' * 5000}", 401),
        ("a=" + "x" * COOKIES_MAX, 400),
        ("phalanx_login_7434=good", 401),
        (";;;===;\xff", 401),
    ],
)
async def test_odd_cookies(cookies: str, status: int):
    house = a_rest_app()
    answered = await ask(house.app, "GET", "/v1/jobs", headers={"authorization": "", "cookie": cookies})
    assert answered.status == status, answered.body


@pytest.mark.parametrize("name", [b"cookie", b"phalanx-csrf", b"sec-fetch-site"])
async def test_a_header_that_decides_is_given_once(name: bytes):
    house = a_rest_app()
    page = [(key.encode(), value.encode()) for key, value in a_page(house).items() if value]
    raw = [(b"host", b"localhost:7433"), *page, (name, b"x"), (name, b"y")]
    answered = await ask_raw(house.app, "GET", "/v1/jobs", raw, b"", [b""])
    assert answered.status == 400


async def test_a_login_that_was_ended_is_refused_and_so_is_its_open_stream():
    house = a_rest_app(FakeCommands(), beat_s=0.05, settle_s=0.01)
    page = a_page(house)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def quiet() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    headers = [(name.encode(), value.encode()) for name, value in page.items() if value]
    headers += [(b"host", b"localhost:7433")]
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b"", "headers": headers}
    stream = asyncio.ensure_future(house.app(scope, quiet, send))
    await until(lambda: any(b"still here" in each.get("body", b"") for each in sent))
    assert house.cluster.open_streams == 1
    assert (await ask(house.app, "DELETE", "/v1/logins/current", headers=page)).status == 200
    async with asyncio.timeout(10):
        await stream  # the server closes it
    assert house.cluster.open_streams == 0
    assert sent[0]["status"] == 200 and not sent[-1].get("more_body")
    assert b"no longer accepted" in b"".join(each.get("body", b"") for each in sent)
    answered = await ask(house.app, "GET", "/v1/jobs", headers=page)
    assert (answered.status, answered.json()["reason"]) == (401, "LoginEnded")


async def test_others_logins_are_not_even_said_to_exist():
    house = a_rest_app()
    house.cluster.opened(Identity("bob", "user", "e" * 16))
    bobs = next(iter(house.cluster.browsers))
    page = a_page(house)
    assert [each["name"] for each in (await ask(house.app, "GET", "/v1/logins", headers=page)).json()] == [
        "ada"
    ]
    assert (await ask(house.app, "DELETE", f"/v1/logins/{bobs}", headers=page)).status == 404
    admin = a_page(house, "admin")
    assert (await ask(house.app, "DELETE", f"/v1/logins/{bobs}", headers=admin)).status == 200


async def test_where_browsers_are_not_expected_a_cookie_is_nothing():
    cluster = FakeCommands()
    page = as_browser(cluster, Identity("ada", "admin", "f" * 16))
    app = build_app(cluster, Tokens([("ada", TOKEN)]), page=PageAccess())
    assert (await ask(app, "GET", "/v1/jobs", headers=page)).status == 401


async def test_a_ticket_names_addresses_of_coordinators_alone():
    house = a_rest_app()
    for address in ("javascript:alert(1)", "https://a/path", "https://a@b", "//a", "https://a:7433 "):
        body = b'{"coordinators": ["%b"]}' % address.encode()
        answered = await ask(house.app, "POST", "/v1/logins/tickets", body, headers=JSON)
        assert answered.status == 400, address


async def test_the_body_of_a_stranger_is_short():
    house = a_rest_app()
    body = b'{"ticket": "%b"}' % (b"x" * 8192)
    answered = await ask(house.app, "POST", "/v1/logins", body, headers=JSON | {"authorization": ""})
    assert answered.status == 413


def test_cookies_are_called_by_the_port_of_the_browser():
    assert cookie_name(b"localhost:7433", is_secure=False) == "phalanx_login_7433"
    assert cookie_name(b"[::1]:7434", is_secure=True) == "__Host-phalanx_login_7434"
    assert cookie_name(b"phalanx.example.com", is_secure=True) == "__Host-phalanx_login"
    assert cookie_name(b"[::1]", is_secure=False) == "phalanx_login"
    with pytest.raises(BadRequest):
        read_cookie({b"cookie": b"a=1; a=2"}, "a")
