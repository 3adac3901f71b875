"""A link with a ticket, which anybody may have sent: it never takes the place of a login that is good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from phalanx.api.schema.cluster import TokenRequest
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import RealCluster, a_real_cluster

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
