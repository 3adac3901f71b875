"""Logins at a coordinator: a cookie is worth what its token is worth at this moment."""

from __future__ import annotations

import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Identity, digest
from phalanx.api.server.logins import csrf_of, next_ticket_of
from phalanx.api.server.page_access import PageAccess
from phalanx.api.server.proxies import ProxyUser
from phalanx.coordinator.credentials import VOUCHER_S, Credentials
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.events import encode
from phalanx.core.cluster.image import encode_state
from phalanx.errors import Forbidden
from tests.support.clocks import ManualClock
from tests.support.rest_app import JSON, ask
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio
ADMIN = Identity("local", "admin", "0" * 16)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def a_token(here: Coordinator, role: str = "user") -> tuple[str, Identity]:
    new = await here.commands.create_token(TokenRequest("user", "ada", role), None, ADMIN)  # type: ignore[arg-type]
    found = here.keys.accepts_user(new.token)
    assert found is not None
    return new.token, found


async def a_cookie(here: Coordinator, by: Identity) -> str:
    ticket, _ = await here.commands.make_login_ticket([], by)
    return await here.commands.open_login(ticket)


async def test_a_cookie_stands_for_the_user_of_its_token():
    async with a_coordinator() as here:
        _, ada = await a_token(here)
        cookie = await a_cookie(here, ada)
        found = here.commands.login_access.accepts_login(cookie)
        assert found is not None
        assert (found.name, found.role, found.fingerprint) == ("ada", "user", ada.fingerprint)
        assert found.login
        for wrong in ("", "x", cookie + "x", ada.fingerprint, "x" * 5000):
            assert here.commands.login_access.accepts_login(wrong) is None


async def test_a_login_ends_with_its_token():
    async with a_coordinator() as here:
        for end in ("revoke", "rotate"):
            _, ada = await a_token(here)
            cookie = await a_cookie(here, ada)
            ticket, _ = await here.commands.make_login_ticket([], ada)
            if end == "revoke":
                await here.commands.revoke_token(ada.fingerprint, ADMIN)
            else:
                await here.commands.rotate_token(ada.fingerprint, 0.0, ADMIN)
            assert here.commands.login_access.accepts_login(cookie) is None
            for shown in (ticket, next_ticket_of(cookie)):
                with pytest.raises(Forbidden):
                    await here.commands.open_login(shown)
            assert not any(each.valid for each in await here.commands.logins())


async def test_a_login_of_a_token_out_of_settings_ends_when_that_is_taken_out():
    async with a_coordinator() as here:
        admin = here.keys.accepts_user("user")
        assert admin is not None
        cookie = await a_cookie(here, admin)
        assert here.commands.login_access.accepts_login(cookie) is not None
        here.keys._users.digests = frozenset({digest("another")})
        assert here.commands.login_access.accepts_login(cookie) is None


async def test_through_rest_a_page_lives_and_ends():
    async with a_coordinator() as here:
        token, ada = await a_token(here)
        page = PageAccess(here.commands.login_access)
        app = build_app(here.commands, here.keys, page=page)
        made = await ask(
            app, "POST", "/v1/logins/tickets", b"{}", headers=JSON | {"authorization": f"Bearer {token}"}
        )
        body = b'{"ticket": "%b"}' % made.json()["ticket"].encode()
        opened = await ask(app, "POST", "/v1/logins", body, headers=JSON | {"authorization": ""})
        cookie = opened.headers["set-cookie"].partition(";")[0]
        words = JSON | {
            "authorization": "",
            "cookie": cookie,
            "phalanx-csrf": csrf_of(cookie.partition("=")[2]),
        }
        submitted = await ask(app, "POST", "/v1/jobs", b'{"command": ["true"]}', headers=words)
        assert submitted.status == 202
        (id,) = submitted.json()["task_ids"]
        assert here.leadership.state.jobs[id].job.user == "ada"
        new = await ask(app, "POST", "/v1/tokens", b'{"role": "user"}', headers=words)
        assert here.leadership.state.keyring.by_id[new.json()["record"]["id"]].parent == ada.fingerprint
        assert (await ask(app, "POST", "/v1/logins/tickets", b"{}", headers=words)).status == 403
        await here.commands.revoke_token(ada.fingerprint, ADMIN)
        ended = await ask(app, "GET", "/v1/jobs", headers=words)
        assert (ended.status, ended.json()["reason"]) == (401, "LoginEnded")


async def test_the_state_and_the_log_hold_digests_only():
    async with a_coordinator() as here:
        _, ada = await a_token(here)
        ticket, _ = await here.commands.make_login_ticket(["https://a:7433"], ada)
        cookie = await here.commands.open_login(ticket)
        events = [event for _, event in here.feed._events]
        kept = encode_state(here.leadership.state) + encode(events)
        for secret in (ticket, cookie, csrf_of(cookie), next_ticket_of(cookie)):
            assert secret.encode() not in kept
            assert secret.removeprefix("phx_").encode() not in kept
        assert here.feed._events  # or the test would say nothing


async def test_a_user_of_a_proxy_is_known_while_a_proxy_is_trusted():
    async with a_coordinator() as here:
        cookie = await here.commands.vouch_login("ada", "operator")
        assert here.commands.login_access.accepts_login(cookie) is None
        here.commands.login_access.takes_proxy = True
        found = here.commands.login_access.accepts_login(cookie)
        assert found is not None
        assert (found.name, found.role) == ("ada", "operator")


def test_a_voucher_is_of_our_cluster_and_of_this_moment():
    keys, others = Credentials.local("user", "node"), Credentials.local("user", "node")
    keys._clock = clock = ManualClock()
    said = keys.voucher(ProxyUser("ada", "user"))
    assert keys.vouched(said) == ProxyUser("ada", "user")
    assert others.vouched(said) is None
    for wrong in (
        "",
        ":",
        "a:b:c",
        said + "x",
        said.replace("user", "admin"),
        said.replace("ada", "bob"),
        ":::",
    ):
        assert keys.vouched(wrong) is None
    clock.at += VOUCHER_S + 1
    assert keys.vouched(said) is None


async def test_who_comes_is_written_down_now_and_then():
    async with a_coordinator() as here:
        _, ada = await a_token(here)
        cookie = await a_cookie(here, ada)
        access = here.commands.login_access
        assert access.inputs() == []
        access._clock = ManualClock(here.clock.now() + 700.0)
        access.accepts_login(cookie)
        (given,) = access.inputs()
        assert given.ids == tuple(here.leadership.state.logins.by_id)  # type: ignore[attr-defined]
        assert access.inputs() == []
