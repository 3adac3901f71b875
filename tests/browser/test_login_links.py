"""A link with a ticket, which anybody may have sent: it never takes the place of a login that is good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from phalanx.api.schema.cluster import TokenRequest
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("links"), {}) as cluster:
        yield cluster


def test_a_link_of_another_user_changes_nobody(browser: Browser, cluster: RealCluster) -> None:
    ada, eve = (
        cluster.client.create_token(TokenRequest(name=name, role="user")).token for name in ("ada", "eve")
    )
    opened = Dashboard(browser, cluster, ada)
    page = opened.log_in("/jobs")
    ticket = Dashboard(browser, cluster, eve).ticket()
    page.goto("about:blank")
    page.goto(f"{opened.address}/ui/jobs#ticket={ticket}")
    page.get_by_role("navigation").wait_for()
    page.get_by_text("You are logged in as ada").wait_for()
    assert page.url == f"{opened.address}/ui/jobs"
    who = "fetch('/v1/logins/current').then((reply) => reply.json()).then((login) => login.name)"
    assert page.evaluate(who) == "ada"
    opened.check_clean()
    opened.close()


def test_a_ticket_in_the_address_of_an_open_page_is_taken_at_once(
    browser: Browser, cluster: RealCluster
) -> None:
    opened = Dashboard(browser, cluster)
    page = opened.page
    page.goto(f"{opened.address}/ui/jobs")
    page.get_by_text("phalanx ui").first.wait_for()  # there is no login yet
    page.evaluate("ticket => { location.hash = 'ticket=' + ticket }", opened.ticket())
    page.get_by_role("navigation", name="Pages").wait_for()
    page.evaluate("ticket => { location.hash = 'ticket=' + ticket }", opened.ticket())
    page.get_by_text("To use the new ticket, log out first").wait_for()
    assert page.url == f"{opened.address}/ui/jobs"
    opened.check_clean()
    opened.close()


FORGED = (
    "phx_ui_" + "A" * 43,
    "x",
    "phx_ui_" + "z" * 5000,
    "<img src=x onerror=window.pwned=1>",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "\u202ephx_ui_",
)
SHORT_TICKETS = "import phalanx.core.cluster.decide.logins as l; l.TICKET_S = 0.05; "


def test_a_forged_ticket_logs_nobody_in(browser: Browser, cluster: RealCluster) -> None:
    opened = Dashboard(browser, cluster)
    page = opened.page
    for ticket in FORGED:
        page.goto("about:blank")
        page.goto(f"{opened.address}/ui/jobs#ticket={ticket}")
        page.get_by_role("alert").wait_for()
        assert page.url == f"{opened.address}/ui/jobs"  # the ticket is gone from it
        assert page.get_by_role("navigation", name="Pages").count() == 0
        assert page.evaluate("fetch('/v1/jobs').then((reply) => reply.status)") == 401
    assert opened.context.cookies() == []
    opened.check_clean()
    opened.close()


def test_an_expired_ticket_says_how_to_get_another(browser: Browser, tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        cluster.prelude = SHORT_TICKETS
        cluster.start({})
        opened = Dashboard(browser, cluster)
        ticket, asked_at = opened.ticket(), time.monotonic()
        wait_until(lambda: time.monotonic() - asked_at > 0.1, what="the ticket has expired")
        page = opened.page
        page.goto(f"{opened.address}/ui/jobs#ticket={ticket}")
        page.get_by_role("alert").filter(has_text="expired").wait_for()
        page.get_by_text("phalanx ui", exact=True).wait_for()
        assert "ticket" not in page.url and opened.context.cookies() == []
        opened.check_clean()
        opened.close()
    finally:
        cluster.stop()
