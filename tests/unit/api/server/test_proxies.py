"""A trusted proxy names users; nobody else does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.messages import Message
from phalanx.api.server.page_access import PageAccess
from phalanx.api.server.proxies import TrustedProxies
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import RawResponse

pytestmark = pytest.mark.anyio
PROXIES = TrustedProxies(
    ("10.0.0.1", "fd00::/64"),
    "X-Forwarded-User",
    "X-Groups",
    {"user:ada": "admin", "group:ops": "operator", "group:ml": "user"},
    "viewer",
)
PROXY, STRANGER = "10.0.0.1", "10.0.0.2"


class Stage:
    def __init__(self, proxies: TrustedProxies = PROXIES) -> None:
        self.cluster = FakeCommands()
        page = PageAccess(self.cluster, proxies)
        self.app = build_app(self.cluster, Tokens([("ada", "secret")]), ["phalanx.example.com"], page=page)

    async def ask(
        self, peer: str, method: str, path: str, *headers: tuple[str, str], body: bytes = b"{}"
    ) -> RawResponse:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            sent.append(message)

        words = [("host", "phalanx.example.com"), ("content-type", "application/json"), *headers]
        names = [name for name, _ in headers]
        words = [each for each in words if each[0] != "host" or "host" not in names or each in headers]
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "client": (peer, 4711),
            "headers": [(name.lower().encode(), value.encode()) for name, value in words],
        }
        await self.app(scope, receive, send)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return RawResponse(sent[0]["status"], told, b"".join(each["body"] for each in sent[1:]))

    async def log_in(self, peer: str, *headers: tuple[str, str]) -> RawResponse:
        return await self.ask(peer, "POST", "/v1/logins", *headers)


def reason(answered: RawResponse) -> str:
    return msgspec.json.decode(answered.body).get("reason", "")


async def test_a_user_of_the_proxy_logs_in_with_the_role_of_the_settings():
    stage = Stage()
    for user, groups, role in (
        ("ada", "", "admin"),
        ("bob", "ml, ops", "operator"),
        ("bob", "ml", "user"),
        ("bob", "unknown", "viewer"),
    ):
        answered = await stage.log_in(PROXY, ("x-forwarded-user", user), ("x-groups", groups))
        assert answered.status == 201, answered.body
        assert (answered.json()["name"], answered.json()["role"]) == (user, role)
    assert (await stage.log_in("fd00::17", ("x-forwarded-user", "bob"))).status == 201


async def test_a_stranger_names_nobody():
    stage = Stage()
    answered = await stage.log_in(STRANGER, ("x-forwarded-user", "ada"))
    assert (answered.status, reason(answered)) == (403, "ProxyNotTrusted")
    claims = (("x-forwarded-user", "ada"), ("x-forwarded-for", PROXY), ("forwarded", f"for={PROXY}"))
    assert reason(await stage.log_in(STRANGER, *claims)) == "ProxyNotTrusted"
    assert reason(await stage.log_in(STRANGER)) == "TicketNeeded"
    assert not stage.cluster.browsers


async def test_without_settings_the_header_is_nothing():
    stage = Stage(TrustedProxies())
    assert reason(await stage.log_in("127.0.0.1", ("x-forwarded-user", "ada"))) == "TicketNeeded"


async def test_a_header_that_the_user_smuggled_in_is_seen():
    stage = Stage()
    for name in ("x-forwarded-user", "x-groups"):
        words = (("x-forwarded-user", "bob"), ("x-groups", "ml"), (name, "ops"))
        assert (await stage.log_in(PROXY, *words)).status == 400, name


@pytest.mark.parametrize("name", ["Ada Lovelace", "ada@example.com", "../x", "-", "a" * 200, "a,b"])
async def test_what_is_no_name_of_a_user_is_refused(name: str):
    assert reason(await Stage().log_in(PROXY, ("x-forwarded-user", name))) == "BadProxyUser"


async def test_nobody_gets_the_jobs_of_the_tokens_of_settings_by_name():
    assert reason(await Stage().log_in(PROXY, ("x-forwarded-user", "admin"))) == "BadProxyUser"
    allowed = Stage(TrustedProxies(("10.0.0.1",), roles={"user:admin": "viewer"}))
    assert (await allowed.log_in(PROXY, ("x-forwarded-user", "admin"))).status == 201


async def test_who_has_no_role_stays_out():
    stage = Stage(TrustedProxies(("10.0.0.1",), roles={"user:ada": "admin"}))
    assert reason(await stage.log_in(PROXY, ("x-forwarded-user", "bob"))) == "NoRole"


async def test_the_header_alone_opens_no_route():
    stage = Stage()
    answered = await stage.ask(PROXY, "GET", "/v1/jobs", ("x-forwarded-user", "ada"))
    assert answered.status == 401


async def test_a_login_is_the_user_whom_the_proxy_names_now():
    stage = Stage()
    opened = await stage.log_in(PROXY, ("x-forwarded-user", "ada"))
    cookie = ("cookie", opened.headers["set-cookie"].partition(";")[0])
    assert (await stage.ask(PROXY, "GET", "/v1/jobs", cookie, ("x-forwarded-user", "ada"))).status == 200
    other = await stage.ask(PROXY, "GET", "/v1/jobs", cookie, ("x-forwarded-user", "bob"))
    assert (other.status, reason(other)) == (401, "LoginEnded")


async def test_a_login_of_a_proxy_is_good_behind_it_alone():
    """Whom the proxy has taken the account may have kept the cookie, and reach the coordinator's own port."""
    stage = Stage()
    opened = await stage.log_in(PROXY, ("x-forwarded-user", "ada"))
    cookie = ("cookie", opened.headers["set-cookie"].partition(";")[0])
    for peer in (STRANGER, PROXY):
        answered = await stage.ask(peer, "GET", "/v1/jobs", cookie)
        assert (answered.status, reason(answered)) == (401, "LoginEnded")
    forged = ("phalanx-voucher", "ada:admin:99999999999:AAAA")
    assert (await stage.ask(STRANGER, "GET", "/v1/jobs", cookie, forged)).status == 401


async def test_only_a_trusted_proxy_says_where_a_request_came_from():
    stage = Stage()
    words = (("x-forwarded-user", "ada"), ("x-forwarded-proto", "https"))
    assert "; Secure" in (await stage.log_in(PROXY, *words)).headers["set-cookie"]
    assert (await stage.log_in(PROXY, words[0], ("x-forwarded-proto", "gopher"))).status == 400
    host = ("x-forwarded-host", "phalanx.example.com")
    inner = ("host", "10.0.0.9:7433")
    assert (await stage.ask(PROXY, "GET", "/livez", inner, host)).status == 200
    assert (
        await stage.ask(PROXY, "GET", "/livez", inner, ("x-forwarded-host", "evil.example"))
    ).status == 403
    assert (await stage.ask(STRANGER, "GET", "/livez", inner, host)).status == 403
    assert (await stage.ask(PROXY, "GET", "/livez", inner, host, host)).status == 400
