"""Buttons of a job, its log and the list of jobs, pressed with real work behind them: what each did on the cluster.

Those of the other pages are in test_view_buttons.py; tests/tidy/test_buttons.py holds that none is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.jobs import JobView
from phalanx.api.schema.queues import ApprovalSpec, QuotaSpec
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

SLEEP = ["sleep", "600"]
SAYS = ["sh", "-c", "echo this is task $PHALANX_ARRAY_INDEX; exec sleep 600"]
TRIES = ["sh", "-c", "echo this is attempt $PHALANX_ATTEMPT; exit 1"]
# More lines than are seen at once, and one more as soon as a file is there.
WRITES = "seq -f 'line %g' 3000; until [ -e {file} ]; do sleep 0.05; done; echo the newest; exec sleep 600"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """An array that runs."""
    with a_real_cluster(tmp_path_factory.mktemp("buttons"), TWO_NODES) as cluster:
        cluster.client.submit(name="array", command=SAYS, array="1-3")
        yield cluster


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: RealCluster) -> Iterator[None]:
    """Jobs that a test made are cancelled, and nodes that it drained take work again."""
    kept = {job.id for job in cluster.client.jobs().items}
    yield
    for node in cluster.client.nodes():
        if node.drained:
            cluster.client.undrain(node.name)
    for job in cluster.client.jobs().items:
        if job.id not in kept and job.status in ("Pending", "Assigned", "Running"):
            cluster.client.cancel(job.id)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def in_dialog(page: Page, name: str) -> None:
    """Press a button of the dialog that is open; it is closed then."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=name, exact=True).click()
    dialog.wait_for(state="detached")


def why(page: Page) -> Locator:
    return page.get_by_role("region", name="Why")


def whole_story(cluster: RealCluster, id: str) -> list[str]:
    page = cluster.client.story(id)
    lines = [line.text for line in page.items]
    while page.next_cursor:
        page = cluster.client.story(id, cursor=page.next_cursor)
        lines += [line.text for line in page.items]
    return lines


def is_over(cluster: RealCluster, id: str, status: str = "Cancelled") -> JobView:
    def over() -> JobView | None:
        job = cluster.client.job(id)
        return job if job.status == status else None

    return wait_until(over, what=f"{id} is {status}")


def test_approve_and_deny(dashboard: Dashboard, cluster: RealCluster) -> None:
    cluster.client.set_quota("asked", QuotaSpec(approval=ApprovalSpec(by=[])))
    token = cluster.client.create_token(TokenRequest(name="ada", role="user")).token
    with phalanx.Client(cluster.address("coordinator"), token) as ada:
        wanted, unwanted = (
            str(ada.submit(name=name, command=SLEEP, queue="asked").number) for name in ("wanted", "unwanted")
        )
    assert cluster.client.job(wanted).unapproved and cluster.client.job(unwanted).unapproved
    page = dashboard.open("/jobs/wanted")
    press(page, "Approve")
    in_dialog(page, "Approve")
    cluster.wait_task(wanted, "Running")
    expect(page.get_by_role("button", name=re.compile("Approve|Deny"))).to_have_count(0)
    dashboard.open("/jobs/unwanted")
    press(page, "Deny")
    page.get_by_label("Reason").fill("not this week")
    in_dialog(page, "Deny")
    is_over(cluster, unwanted)
    assert any("not this week" in line for line in whole_story(cluster, unwanted))
    dashboard.check_clean()


def test_cancel_task_ends_one_and_leaves_the_others(dashboard: Dashboard, cluster: RealCluster) -> None:
    array = cluster.client.submit(name="partly", command=SLEEP, array="1-2")
    first, second = f"{array.number}.1", f"{array.number}.2"
    cluster.wait_task(first, "Running")
    cluster.wait_task(second, "Running")
    page = dashboard.open(f"/jobs/partly?task={first}")
    press(page, "Cancel task")
    in_dialog(page, "Go back")
    assert cluster.client.task(first).status == "Running"
    press(page, "Cancel task")
    in_dialog(page, "Cancel the task")
    cluster.wait_task(first, "Cancelled")
    assert cluster.client.task(second).status == "Running"
    expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
    dashboard.check_clean()


def test_go_back_changes_nothing(dashboard: Dashboard, cluster: RealCluster) -> None:
    count = cluster.client.jobs().items[0].number
    page = dashboard.open("/jobs/array")
    press(page, "Cancel")
    in_dialog(page, "Go back")
    press(page, "Resubmit …")
    page.get_by_label("GPUs per task").fill("1")
    in_dialog(page, "Go back")
    press(page, "Keyboard shortcuts")
    in_dialog(page, "Close")
    assert cluster.client.job("array").counts.running == 3
    assert cluster.client.jobs().items[0].number == count
    dashboard.check_clean()


def test_the_fix_of_a_held_job_releases_it(dashboard: Dashboard, cluster: RealCluster) -> None:
    job = cluster.client.submit(name="held", command=SLEEP, hold=True)
    page = dashboard.open("/jobs/held")
    why(page).get_by_role("button", name=re.compile("Release")).click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Release")).click()
    cluster.wait_task(job.task_ids[0], "Running")
    assert cluster.client.job("held").held is None
    dashboard.check_clean()


@pytest.mark.parametrize("fix", ["Approve the job", "Begin now", "Resume the task"])
def test_a_fix_without_a_change_of_the_request(dashboard: Dashboard, cluster: RealCluster, fix: str) -> None:
    cluster.client.set_quota("asked", QuotaSpec(approval=ApprovalSpec(by=[])))
    more: dict[str, object] = {"begin": "+1h"} if fix == "Begin now" else {}
    token = cluster.client.create_token(TokenRequest(name="ada", role="user")).token
    with phalanx.Client(cluster.address("coordinator"), token) as ada:
        queue = "asked" if fix == "Approve the job" else "default"
        number = str(ada.submit(name="to-fix", command=SLEEP, queue=queue, **more).number)  # type: ignore[arg-type]
    if fix == "Resume the task":
        cluster.wait_task(number, "Running")
        cluster.client.pause(number)
    page = dashboard.open(f"/jobs/{number}")
    why(page).get_by_role("button", name=fix).click()
    in_dialog(page, fix)
    assert not cluster.wait_task(number, "Running").paused
    dashboard.check_clean()


def test_the_fix_of_a_drained_node_resumes_it_and_the_plan_is_asked_again(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    cluster.client.drain("n1", "a new disk")
    job = cluster.client.submit(name="on-gpus", command=SLEEP, gpus=2)
    page = dashboard.open("/jobs/on-gpus?tab=plan")
    plan = page.get_by_role("tabpanel")
    plan.get_by_text("It would start now.").wait_for(state="detached")
    plan.get_by_text("drained").first.wait_for()
    cluster.client.hold(job.number)
    cluster.client.undrain("n1")
    press(page, "Ask again")
    plan.get_by_text("drained").first.wait_for(state="detached")
    cluster.client.drain("n1", "a new disk")
    cluster.client.release(job.number)
    why(page).get_by_role("button", name="Resume n1").click()
    in_dialog(page, "Resume n1")
    cluster.wait_task(job.task_ids[0], "Running")
    assert not cluster.client.node("n1").drained
    dashboard.check_clean()


def test_a_story_is_read_to_its_other_end(dashboard: Dashboard, cluster: RealCluster) -> None:
    cluster.client.submit(name="eventful", command=SLEEP, gpus=5, allow_infeasible=True, hold=True)
    for _ in range(205):  # three pages of lines
        cluster.client.release("eventful")
        cluster.client.hold("eventful")
    page = dashboard.open("/jobs/eventful?tab=story")
    lines = page.get_by_role("tabpanel").locator("time")
    more = page.get_by_role("tabpanel").get_by_role("button", name="Older", exact=True)
    more.wait_for()
    total = len(whole_story(cluster, "eventful"))
    assert 0 < lines.count() < total
    while more.count():
        before = lines.count()
        more.click()
        wait_until(lambda: lines.count() > before or not more.count())  # noqa: B023 - called at once
    assert lines.count() == total
    dashboard.check_clean()


def test_the_log_of_the_next_task_and_the_one_before(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.open("/jobs/array?tab=logs")
    log = page.get_by_role("log")
    log.get_by_text("this is task 1").wait_for()
    assert page.get_by_role("button", name="Task before").is_disabled()
    press(page, "Next task")
    log.get_by_text("this is task 2").wait_for()
    press(page, "Next task")
    log.get_by_text("this is task 3").wait_for()
    assert page.get_by_role("button", name="Next task").is_disabled()
    press(page, "Task before")
    log.get_by_text("this is task 2").wait_for()
    page.get_by_label("Task", exact=True).fill("1")
    page.get_by_label("Task", exact=True).press("Enter")
    log.get_by_text("this is task 1").wait_for()
    dashboard.check_clean()


def test_the_log_of_an_earlier_attempt(dashboard: Dashboard, cluster: RealCluster) -> None:
    job = cluster.client.submit(name="tried-twice", command=TRIES, max_retries=1)
    cluster.wait_task(job.task_ids[0], "Failed")
    page = dashboard.open("/jobs/tried-twice?tab=logs")
    log = page.get_by_role("log")
    log.get_by_text("this is attempt 2").wait_for()
    page.get_by_label("Attempt").select_option("1")
    log.get_by_text("this is attempt 1").wait_for()
    assert "attempt=1" in page.url
    page.get_by_label("Attempt").select_option("2")
    log.get_by_text("this is attempt 2").wait_for()
    dashboard.check_clean()


def test_matches_are_gone_through_and_the_end_is_followed(
    dashboard: Dashboard, cluster: RealCluster, tmp_path: Path
) -> None:
    job = cluster.client.submit(name="writes", command=["sh", "-c", WRITES.format(file=tmp_path / "go")])
    cluster.wait_task(job.task_ids[0], "Running")
    page = dashboard.open("/jobs/writes?tab=logs")
    log = page.get_by_role("log")
    log.get_by_text("line 3000", exact=True).wait_for()
    page.get_by_label("Search in the log").fill("line 299")
    page.get_by_label("Search in the log").press("Enter")
    page.get_by_text("1 of 11").wait_for()
    press(page, "Next match")
    page.get_by_text("2 of 11").wait_for()
    log.locator(".current").filter(has_text="line 2990").wait_for()
    press(page, "Match before")
    log.locator(".current").filter(has_text=re.compile("line 299$")).wait_for()
    follow = page.get_by_role("button", name="Follow", exact=True)
    assert follow.get_attribute("aria-pressed") == "false"
    (tmp_path / "go").touch()
    assert log.get_by_text("the newest").count() == 0
    follow.click()
    log.get_by_text("the newest").wait_for()
    assert follow.get_attribute("aria-pressed") == "true"
    press(page, "Start")
    log.get_by_text("line 1", exact=True).wait_for()
    dashboard.check_clean()


def test_mine_and_clear_among_jobs_of_several_users(dashboard: Dashboard, cluster: RealCluster) -> None:
    token = cluster.client.create_token(TokenRequest(name="bob", role="user")).token
    with phalanx.Client(cluster.address("coordinator"), token) as bob:
        bob.submit(name="of-bob", command=["true"])
    page = dashboard.open("/jobs")
    rows = page.get_by_role("grid")
    rows.get_by_text("of-bob").wait_for()
    press(page, "Mine")
    rows.get_by_text("of-bob").wait_for(state="detached")
    rows.get_by_text("array").first.wait_for()
    assert "mine=1" in page.url
    press(page, "Clear")
    rows.get_by_text("of-bob").wait_for()
    press(page, "With waiting tasks")
    press(page, "Clear the filters")
    rows.get_by_text("of-bob").wait_for()
    dashboard.check_clean()


def test_try_again_shows_what_is_there_by_then(dashboard: Dashboard, cluster: RealCluster) -> None:
    dashboard.page.route(re.compile("/v1/pages/changes"), lambda route: route.abort())  # or it asks by itself
    page = dashboard.open("/jobs/comes-later")
    page.get_by_role("alert").filter(has_text="comes-later").wait_for()
    cluster.client.submit(name="comes-later", command=["true"])
    press(page, "Try again")
    page.get_by_role("heading", level=1).filter(has_text="comes-later").wait_for()
    dashboard.check_clean()


def test_members_logs_and_curves_of_a_chosen_task(dashboard: Dashboard, cluster: RealCluster) -> None:
    gang = cluster.client.submit(name="gang", command=SAYS, tasks=2, min=2)
    second = f"{gang.number}.1"
    cluster.wait_task(second, "Running")
    page = dashboard.open("/jobs/gang")
    press(page, second)
    page.get_by_role("heading", name=re.compile("rank 1")).wait_for()
    press(page, "Logs")
    page.get_by_role("log").get_by_text("this is task").wait_for()
    page.wait_for_url(re.compile(rf"task={second}"))
    page.get_by_role("tab", name="Usage").click()
    pick = page.get_by_role("button", name=second, exact=True)
    expect(pick).to_have_attribute("aria-pressed", "true")
    press(page, f"{gang.number}.0")
    expect(pick).to_have_attribute("aria-pressed", "false")
    page.wait_for_url(re.compile(rf"task={gang.number}\.0"))
    dashboard.check_clean()


def test_the_usage_of_tasks_beyond_the_first_hundred(dashboard: Dashboard, cluster: RealCluster) -> None:
    many = cluster.client.submit(name="many", command=["true"], array="1-120")
    wait_until(lambda: cluster.client.job("many").status == "Completed" or None, 60.0, "it is over")
    page = dashboard.open("/jobs/many?tab=usage")
    picks = page.get_by_role("tabpanel").locator("button.pick")
    wait_until(lambda: picks.count() == 100 or None)
    press(page, "Tasks after")
    wait_until(lambda: picks.all_inner_texts()[:1] == [f"{many.number}.101"] or None)
    assert picks.count() == 20 and page.get_by_role("button", name="Tasks after").is_disabled()
    press(page, "Tasks before")
    wait_until(lambda: picks.count() == 100 or None)
    assert picks.first.inner_text() == f"{many.number}.1"
    dashboard.check_clean()


def test_a_job_is_submitted_as_it_was(dashboard: Dashboard, cluster: RealCluster) -> None:
    old = cluster.client.submit(name="once-more", command=["true"], env={"LR": "0.1"}, priority=3)
    page = dashboard.open("/jobs/once-more")
    press(page, "Resubmit …")
    press(page, "Submit as it was")
    page.wait_for_url(lambda url: not url.endswith("once-more"))
    new = is_over(cluster, page.url.rpartition("/")[2], "Completed")
    assert new.number != old.number
    assert (new.name, new.command, new.env, new.priority) == ("once-more", ["true"], {"LR": "0.1"}, 3)
    dashboard.check_clean()


def test_the_theme_is_kept_and_columns_sort(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs")
    theme = "document.documentElement.dataset.theme"
    press(page, "Theme: system")
    press(page, "Theme: light")
    assert page.evaluate(theme) == "dark"
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate(theme) == "dark"
    press(page, "Name")
    page.wait_for_url(re.compile("sort=name"))
    expect(page.get_by_role("columnheader", name="Name")).to_have_attribute("aria-sort", "ascending")
    dashboard.check_clean()
