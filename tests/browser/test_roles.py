"""What each role sees on the dashboard: what it may not do has no button, and what has a button works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.queues import ApprovalSpec, QuotaSpec
from phalanx.core.model.credential import Role
from phalanx.manifests.read import read
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

SLEEP = ["sleep", "600"]
FLOW = """\
apiVersion: flowmesh/v1
kind: Workflow
metadata: {name: flow}
spec: {graph: {nodes: [{name: only, spec: {command: [sleep, "600"]}}]}}
"""
# What may be done on each page, as buttons and links; all others only show things.
ACTIONS = {
    "/jobs/runs": {"Cancel", "Resubmit …", "Pause", "Terminal"},
    "/jobs/waits": {"Cancel", "Resubmit …", "Hold"},
    "/jobs/held": {"Cancel", "Resubmit …", "Release"},
    "/jobs/runs?tab=details": {"Cancel", "Resubmit …", "Show all values"},
    "/jobs/asked": {"Approve", "Deny", "Cancel", "Resubmit …", "Hold"},
    "/jobs/fails": {"Retry", "Resubmit …"},
    "/workflows/{flow}": {"Cancel"},
    "/nodes/n2": {"Drain"},
}
ANY_ACTION = set().union(*ACTIONS.values())
OF_OPERATORS = {"Approve", "Deny", "Drain"}
OF_OWNERS = {"Retry", "Resubmit …"}  # the copy would be the owner's: nobody else may submit it
FOLLOW = """href => {
    const link = document.createElement('a');
    link.href = href;
    document.body.append(link);
    link.click();
    link.remove();
}"""
NAVIGATION = {"admin": {"Tokens", "Audit"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Jobs of ada: one that runs, one that waits, one that is held, one that waits for approval, one that failed."""
    with a_real_cluster(tmp_path_factory.mktemp("roles"), TWO_NODES) as cluster:
        cluster.client.set_quota("asked", QuotaSpec(approval=ApprovalSpec(by=[])))
        with phalanx.Client(cluster.address("coordinator"), token_of(cluster, "ada", "user")) as ada:
            ada.submit(name="runs", command=SLEEP, gpus=1)
            ada.submit(name="waits", command=SLEEP, gpus=2)
            ada.submit(name="held", command=SLEEP, hold=True)
            ada.submit(name="asked", command=SLEEP, queue="asked")
            fails = ada.submit(name="fails", command=["false"], max_retries=0)
            ada.submit_workflow(read([("flow.yaml", FLOW)]).workflows[0].spec)
        cluster.wait_task(fails.task_ids[0], "Failed")
        cluster.wait_task("1", "Running")
        yield cluster


def token_of(cluster: RealCluster, name: str, role: Role) -> str:
    return cluster.client.create_token(TokenRequest(name=name, role=role)).token


@pytest.fixture
def logged_in(browser: Browser, cluster: RealCluster) -> Iterator[dict[str, Dashboard]]:
    """Whoever is logged in, by name; closed at the end."""
    opened: dict[str, Dashboard] = {}
    yield opened
    for each in opened.values():
        each.check_clean()
        each.close()


def log_in(
    opened: dict[str, Dashboard], browser: Browser, cluster: RealCluster, name: str, role: Role
) -> Dashboard:
    dashboard = opened[name] = Dashboard(browser, cluster, token_of(cluster, name, role))
    dashboard.log_in("/jobs")
    return dashboard


def visit(page: Page, path: str, heading: str = "") -> None:
    """Go to a page as a link does, without loading the document again, and wait until it shows what it is about."""
    page.evaluate(FOLLOW, f"/ui{path}")
    page.get_by_role("heading", level=1).filter(has_text=heading).wait_for()
    if path.startswith("/jobs/"):
        page.get_by_role("article").or_(page.locator(".details")).first.wait_for()


def actions(page: Page) -> set[str]:
    """The buttons and links of a page that change something."""
    shown = page.locator("main :is(button, a.button)").all_inner_texts()
    return {text.strip() for text in shown} & ANY_ACTION


def flow_of(cluster: RealCluster) -> str:
    return str(cluster.client.workflows().items[0].number)


@pytest.mark.parametrize(
    ("name", "role", "lacks"),
    [
        ("guest", "viewer", ANY_ACTION),
        ("ada", "user", OF_OPERATORS),
        ("bob", "user", ANY_ACTION),
        ("olga", "operator", OF_OWNERS),
        ("alice", "admin", OF_OWNERS),
    ],
)
def test_a_role_has_the_buttons_of_what_it_may_do(
    browser: Browser,
    cluster: RealCluster,
    logged_in: dict[str, Dashboard],
    name: str,
    role: Role,
    lacks: set[str],
) -> None:
    dashboard = log_in(logged_in, browser, cluster, name, role)
    for path, wanted in ACTIONS.items():
        visit(
            dashboard.page,
            path.format(flow=flow_of(cluster)),
            path.rpartition("/")[2].split("?")[0].strip("{}"),
        )
        wait_until(
            lambda: actions(dashboard.page) == wanted - lacks or None,  # noqa: B023 - called at once
            5.0,
            f"{wanted - lacks} on {path}, and nothing else",
        )
    links = set(dashboard.page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts())
    assert {each.strip() for each in links} & {"Tokens", "Audit"} == NAVIGATION.get(role, set())


def press(page: Page, name: str, sure: str = "") -> None:
    """Press a button, and the one of the dialog that asks whether one is sure; a refusal would keep it open."""
    page.get_by_role("button", name=name, exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=sure or name, exact=True).click()
    dialog.wait_for(state="detached")


def test_an_operator_does_what_there_are_buttons_for(
    browser: Browser, cluster: RealCluster, logged_in: dict[str, Dashboard]
) -> None:
    page = log_in(logged_in, browser, cluster, "otto", "operator").page
    with phalanx.Client(cluster.address("coordinator"), token_of(cluster, "eve", "user")) as eve:
        approved = eve.submit(name="of-eve", command=SLEEP, queue="asked")
        held = eve.submit(name="held-of-eve", command=SLEEP, hold=True)
    visit(page, f"/jobs/{approved.number}", "of-eve")
    press(page, "Approve")
    cluster.wait_task(str(approved.number), "Running")
    page.get_by_role("button", name="Pause").click()
    wait_until(lambda: cluster.client.task(str(approved.number)).paused or None)
    page.get_by_role("button", name="Resume").click()
    wait_until(lambda: not cluster.client.task(str(approved.number)).paused or None)
    press(page, "Cancel", "Cancel the job")
    cluster.wait_task(str(approved.number), "Cancelled")
    page.locator(".page-head .status").filter(has_text="Cancelled").wait_for()
    assert not actions(page) & OF_OWNERS
    visit(page, f"/jobs/{held.number}", "held-of-eve")
    press(page, "Release")
    cluster.wait_task(str(held.number), "Running")
    page.get_by_role("link", name="Terminal").click()
    page.get_by_role("button", name="Close").wait_for()
    cluster.client.cancel(held)
    visit(page, "/nodes/n2", "n2")
    page.get_by_role("button", name="Drain").click()
    page.get_by_label("Reason").fill("an operator says so")
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    wait_until(lambda: cluster.client.node("n2").drain_reason == "an operator says so" or None)
    press(page, "Resume")
    wait_until(lambda: not cluster.client.node("n2").drained or None)


def test_a_user_does_with_own_jobs_what_there_are_buttons_for(
    browser: Browser, cluster: RealCluster, logged_in: dict[str, Dashboard]
) -> None:
    dashboard = log_in(logged_in, browser, cluster, "finn", "user")
    page = dashboard.page
    with phalanx.Client(cluster.address("coordinator"), dashboard.token) as finn:
        fails = finn.submit(name="of-finn", command=["sh", "-c", "exit 4"], max_retries=0)
    cluster.wait_task(str(fails.number), "Failed")
    visit(page, f"/jobs/{fails.number}", "of-finn")
    press(page, "Retry")
    page.wait_for_url(lambda url: not url.endswith(f"/{fails.number}"))
    page.get_by_role("button", name="Resubmit …").click()
    page.get_by_label("Name").fill("of-finn-again")
    page.get_by_role("button", name="Submit with 1 changed").click()
    page.get_by_role("heading", level=1).filter(has_text="of-finn-again").wait_for()
    made = [job for job in cluster.client.jobs().items if job.user == "finn"]
    assert [job.name for job in made] == ["of-finn-again", "of-finn", "of-finn"]
    visit(page, "/tokens", "Tokens")
    page.get_by_role("button", name="Create a token").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Name").count() == 0  # in another's name: admins alone
    assert dialog.get_by_label("Role").locator("option").all_inner_texts() == ["viewer", "user"]
    dialog.get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Create", exact=True).click()
    token = page.get_by_label("Token", exact=True).input_value()
    headers = {"Authorization": f"Bearer {token}"}
    address = cluster.address("coordinator")
    assert httpx.get(f"{address}/v1/jobs", headers=headers).status_code == 200
    assert httpx.post(f"{address}/v1/jobs/{fails.number}/retry", json={}, headers=headers).status_code == 403


def test_pages_of_admins_tell_others_what_they_lack(
    browser: Browser, cluster: RealCluster, logged_in: dict[str, Dashboard]
) -> None:
    page = log_in(logged_in, browser, cluster, "gil", "operator").page
    visit(page, "/audit", "Audit")
    page.get_by_role("alert").filter(has_text=re.compile("admin")).wait_for()
    visit(page, "/tokens", "Tokens")
    page.get_by_text("of your own").wait_for()
    assert page.get_by_role("row").filter(has_text="ada").count() == 0
