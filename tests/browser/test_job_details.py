"""Fixes as buttons, buttons of each user, and the whole of plans, usage, stories and attempts, on a real cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.jobs import JobView
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
SLEEP = ["sleep", "600"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A node that is full, a job that waits for it, an array that has ended, a task that was tried twice."""
    with a_real_cluster(tmp_path_factory.mktemp("details"), TWO_NODES) as cluster:
        submit = cluster.client.submit
        submit(name="twice", command=["sh", "-c", "echo try; exit 3"], max_retries=1)
        submit(name="long", command=["true"], array="1-200")
        full = submit(name="full", command=SLEEP, targets=["n2"], cores=4)
        cluster.wait_task(full.task_ids[0], "Running")
        submit(name="aimed", command=SLEEP, targets=["n2"])
        wait_until(lambda: cluster.client.job("long").status == "Completed", 60.0, "the array is over")
        wait_until(lambda: cluster.client.job("twice").status == "Failed", 60.0, "both attempts have failed")
        yield cluster


def newest(cluster: RealCluster, name: str) -> JobView:
    return next(each for each in cluster.client.jobs().items if each.name == name)


def why(page: Page) -> Locator:
    return page.get_by_role("region", name="Why")


def use(page: Page, button: str) -> None:
    """Click the button of a fix, and the one that asks whether to."""
    why(page).get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def test_a_job_that_others_start_after_is_not_replaced(dashboard: Dashboard, cluster: RealCluster) -> None:
    """To replace it is to cancel it, and that ends or starts what comes after it."""
    first = cluster.client.submit(name="first", command=SLEEP, gpus=5, allow_infeasible=True)
    after = cluster.client.submit(name="after", command=SLEEP, after=[first.task_ids[0]])
    page = dashboard.open("/jobs/first")
    why(page).get_by_text("what comes after it has to be submitted again").wait_for()
    assert why(page).get_by_role("button").count() == 0
    cluster.client.cancel(after.batch_id)
    why(page).get_by_role("button", name="Replace the job").wait_for()
    cluster.client.cancel(first.batch_id)


def test_a_job_that_changes_while_it_is_asked_about_is_not_replaced(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    first = cluster.client.submit(name="changing", command=SLEEP, gpus=5, allow_infeasible=True)
    page = dashboard.open("/jobs/changing")
    why(page).get_by_role("button", name="Replace the job").click()
    dialog = page.get_by_role("dialog", name="Replace the job?")
    dialog.wait_for()
    cluster.client.submit(name="comes-after", command=SLEEP, after=[first.task_ids[0]])
    dialog.get_by_role("button", name="Replace the job").click()
    dialog.get_by_role("alert").get_by_text("nothing was done").wait_for()
    assert newest(cluster, "changing").status == "Pending"
    cluster.client.cancel(first.batch_id)


def test_a_gang_is_replaced_by_one_that_needs_fewer(dashboard: Dashboard, cluster: RealCluster) -> None:
    cluster.client.submit(name="wide", command=SLEEP, tasks=4, min=4, gpus=1, allow_infeasible=True)
    page = dashboard.open("/jobs/wide")
    use(page, "Replace the job")
    wait_until(lambda: newest(cluster, "wide").status == "Running" or None)
    made = newest(cluster, "wide")
    assert made.gang is not None and made.gang.needed == 2
    cluster.client.cancel(made.id)


def test_a_job_begins_now_and_a_paused_task_goes_on(dashboard: Dashboard, cluster: RealCluster) -> None:
    made = cluster.client.submit(name="later", command=SLEEP, begin="+1h")
    page = dashboard.open("/jobs/later")
    use(page, "Begin now")
    cluster.wait_task(made.task_ids[0], "Running")
    cluster.client.pause(made.task_ids[0])
    why(page).get_by_text("Paused:").wait_for()
    use(page, "Resume the task")
    wait_until(lambda: not cluster.client.task(made.task_ids[0]).paused or None)
    why(page).wait_for(state="detached")
    cluster.client.cancel(made.batch_id)


def test_another_users_job_has_the_buttons_that_work(
    browser: Browser, dashboard: Dashboard, cluster: RealCluster
) -> None:
    token = cluster.client.create_token(TokenRequest(role="user", name="ada")).token
    with phalanx.Client([cluster.address("coordinator")], token) as ada:
        failed = ada.submit(name="hers", command=["false"], max_retries=0)
        waits = ada.submit(name="hers-waits", command=SLEEP, gpus=5, allow_infeasible=True)
    cluster.wait_task(failed.task_ids[0], "Failed")
    hers = Dashboard(browser, cluster, token)
    buttons = {}
    for opened in (hers, dashboard):
        page = opened.log_in() if opened is hers else opened.page
        for id in (failed.batch_id, waits.batch_id):
            opened.open(f"/jobs/{id}")
            why(page).wait_for()
            names = page.locator(".page-head, .why").get_by_role("button").all_inner_texts()
            buttons[opened is hers, id] = [each.strip() for each in names]
    assert buttons == {
        (True, failed.batch_id): ["Retry", "Resubmit …", "Open the log"],
        (True, waits.batch_id): ["Hold", "Resubmit …", "Cancel", "Replace the job"],
        (False, failed.batch_id): ["Open the log"],
        (False, waits.batch_id): ["Hold", "Cancel"],
    }
    hers.close()
    cluster.client.cancel(waits.batch_id)


def test_a_plan_is_that_of_the_job_itself(dashboard: Dashboard, cluster: RealCluster) -> None:
    """Without its target it would start at once, for the other node is free; and an array waits in part."""
    page = dashboard.open("/jobs/aimed?tab=plan")
    page.get_by_text("It goes on waiting.").wait_for()
    made = cluster.client.submit(name="part", command=SLEEP, array="1-4", gpus=1)
    cluster.wait_task(made.task_ids[0] + ".1", "Running")
    page = dashboard.open("/jobs/part")
    page.get_by_role("tab", name="Plan").click()
    page.get_by_text("It goes on waiting.").wait_for()
    cluster.client.cancel(made.batch_id)
    dashboard.check_clean()


def test_usage_is_of_the_task_in_the_address_and_every_task_is_reached(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    number = cluster.client.job("long").number
    page = dashboard.open(f"/jobs/long?tab=usage&task={number}.150")
    page.get_by_role("heading", name=f"Task {number}.150", exact=True).wait_for()
    page.get_by_text("101 to 200 of 200 tasks").wait_for()
    page.get_by_role("button", name=f"{number}.150", exact=True, pressed=True).wait_for()
    page.get_by_role("button", name="Tasks before").click()
    page.get_by_text("1 to 100 of 200 tasks").wait_for()
    page.get_by_role("button", name=f"{number}.7", exact=True).click()
    page.get_by_role("heading", name=f"Task {number}.7", exact=True).wait_for()
    page.get_by_label("Task", exact=True).fill("199")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Task {number}.199", exact=True).wait_for()
    page.get_by_text("101 to 200 of 200 tasks").wait_for()
    page.get_by_label("Task", exact=True).fill("201")
    page.keyboard.press("Enter")
    page.get_by_text("has no task 201").wait_for()
    dashboard.check_clean()


def test_a_story_begins_with_its_newest_lines(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.open("/jobs/long?tab=story")
    lines = page.locator(".story li:not(.pause)")
    lines.nth(199).wait_for()
    assert lines.count() == 200 and page.get_by_text("submitted:").count() == 0
    assert "completed" in (lines.first.text_content() or "")
    older = page.get_by_role("button", name="Older")
    while older.count():
        shown = lines.count()
        older.click()
        lines.nth(shown).wait_for(state="attached")
    assert "submitted:" in (lines.last.text_content() or "")
    assert len(set(lines.all_text_contents())) > 400  # each was placed and has ended
    made = cluster.client.submit(name="told", command=SLEEP)
    dashboard.open("/jobs/told?tab=story").get_by_text("is running").wait_for()
    cluster.client.cancel(made.batch_id)
    page.locator(".story li").first.get_by_text("stopped on request").wait_for()
    dashboard.check_clean()


def test_the_attempts_of_a_task_are_listed_with_their_logs(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/twice")
    rows = page.get_by_role("table").filter(has_text="How it ended").get_by_role("row")
    wait_until(lambda: rows.count() == 3 or None)
    cells = [row.get_by_role("cell").all_inner_texts() for row in rows.all()[1:]]
    assert [[row[0], row[1].strip(), row[5]] for row in cells] == [["2", "Failed", "3"], ["1", "Failed", "3"]]
    assert all("exited" in row[6] for row in cells)
    page.get_by_role("button", name="Log of attempt 1").click()
    page.get_by_role("log").get_by_text("try").wait_for()
    assert re.search(r"attempt=1", page.url)
    dashboard.check_clean()
