"""Accessibility of the login page, dialogs, answers of "what if" and plans: axe finds nothing serious."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Dashboard, serious_findings, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

SLEEP = ["sleep", "600"]
EVICTS = "name: urgent\npriority: 50\ngroups:\n- {tasks: 1, gpus: 2, command: [train]}\n"
DIALOGS = (
    ("/jobs/waits", "Resubmit …"),
    ("/jobs/waits", "Cancel"),
    ("/jobs/waits", "Hold"),
    ("/nodes/n1", "Drain"),
    ("/tokens", "Create a token"),
    ("/jobs", "Keyboard shortcuts"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("axe"), TWO_NODES) as cluster:
        cluster.client.submit(name="runs", command=SLEEP, gpus=1)
        cluster.client.submit(name="waits", command=SLEEP, gpus=2)
        cluster.wait_task("1", "Running")
        yield cluster


@pytest.fixture
def examined(browser: Browser, cluster: RealCluster) -> Iterator[Dashboard]:
    """A page without a login whose context takes no heed of the CSP: for axe alone, which is put into it."""
    opened = Dashboard(browser, cluster)
    opened.context.close()
    opened.context = browser.new_context(bypass_csp=True)
    opened.page = opened.context.new_page()
    yield opened
    opened.close()


def findings(page: Page, what: str) -> list[str]:
    found = []
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        found += [f"{what} {theme}: {finding}" for finding in serious_findings(page)]
    return found


def test_the_login_page_without_and_with_a_refusal(examined: Dashboard) -> None:
    page = examined.page
    page.goto(f"{examined.address}/ui/")
    page.get_by_text("To log in").wait_for()
    found = findings(page, "login")
    page.goto("about:blank")
    page.goto(f"{examined.address}/ui/#ticket=forged")
    page.get_by_role("alert").wait_for()
    assert found + findings(page, "refused login") == []


def test_dialogs(examined: Dashboard) -> None:
    page, found = examined.log_in(), []
    for path, button in DIALOGS:
        examined.open(path)
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("dialog").wait_for()
        found += findings(page, f"{path} {button}")
    page = examined.open("/tokens")
    page.get_by_role("button", name="Create a token").click()
    page.get_by_label("Expires after").fill("soon")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    found += findings(page, "a refusal in a dialog")
    page.get_by_label("Expires after").fill("1h")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_label("Token", exact=True).wait_for()
    assert found + findings(page, "a new token") == []


def test_answers_of_what_if_and_of_a_plan(examined: Dashboard) -> None:
    page = examined.log_in("/map?plan=1")
    page.get_by_label("Job file or manifest").fill(EVICTS)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("heading", name="Evicted").wait_for()
    found = findings(page, "what if")
    examined.open("/jobs/waits?tab=plan")
    page.get_by_role("tabpanel").get_by_text("It goes on waiting.").wait_for()
    assert found + findings(page, "plan") == []
