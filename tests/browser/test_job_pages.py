"""Login, overview, jobs and job in a real Chromium, on a real cluster: what they show, each button, each key."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.jobs import JobView
from tests.support.browser import HOSTILE, PHONE, Dashboard, serious_findings, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

COLOURS = r"printf '\033[31mred\033[0m plain\n'; echo '<b>bold</b>'; exec sleep 600"
# A megabyte in a line, bytes that are no UTF-8, marks that turn the direction, sequences of terminals, markup.
LOG = r"""
import sys
out = sys.stdout.buffer
for at in range(30000):
    out.write(b"line %d\n" % at)
out.write(b"x" * 1_000_000 + b"\n")
out.write(b"bad \xff\xfe bytes\n")
out.write("\u202eturned\n".encode())
out.write(b"\x1b]8;;javascript:window.pwned=1\x07link\x1b]8;;\x07 \x1b[1;32mgreen\x1b[0m\n")
out.write(b"<img src=x onerror=window.pwned=1><script>window.pwned=1</script>\n")
out.write(b"the needle\n")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A gang that runs, an array of which a part runs, one that waits, one that failed."""
    with a_real_cluster(tmp_path_factory.mktemp("pages"), TWO_NODES) as cluster:
        submit = cluster.client.submit
        submit(name="runs", command=["sh", "-c", COLOURS], gpus=1, split_output=True)
        submit(name="gang", command=["sleep", "600"], tasks=2, min=2)
        submit(
            name="sweep",
            command=["sh", "-c", "exit $((PHALANX_ARRAY_INDEX % 5 == 0))"],
            array="1-200",
            max_retries=0,
        )
        submit(name="waits", command=["sleep", "600"], gpus=2)
        failed = submit(name="fails", command=["sh", "-c", "echo broken >&2; exit 3"], max_retries=0)
        submit(name="logs", command=["python3", "-c", LOG])
        cluster.wait_task(failed.task_ids[0], "Failed")
        wait_until(lambda: cluster.client.job("sweep").status == "Failed", 60.0, "the sweep is over")
        yield cluster


def jobs(cluster: RealCluster, name: str) -> list[JobView]:
    """The newest first."""
    return [each for each in cluster.client.jobs().items if each.name == name]


def heading(page: Page, text: str) -> None:
    page.get_by_role("heading", level=1).filter(has_text=text).wait_for()


def confirm(page: Page, title: str, button: str) -> None:
    dialog = page.get_by_role("dialog", name=title)
    dialog.get_by_role("button", name=button, exact=True).click()
    dialog.wait_for(state="detached")


def status(page: Page, word: str) -> None:
    page.locator(".page-head .status").filter(has_text=word).wait_for()


def test_a_hidden_page_gives_its_connection_back_and_goes_on_when_it_is_seen(
    browser: Browser, cluster: RealCluster
) -> None:
    dashboard = Dashboard(browser, cluster)
    page = dashboard.page
    page.clock.install()
    page = dashboard.log_in("/jobs")
    page.get_by_text("live", exact=True).wait_for()
    turn = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    turn += " document.dispatchEvent(new Event('visibilitychange')) }"
    left = 5000  # below what the silence of a stream takes
    with page.expect_event("requestfailed", lambda request: "/v1/pages/changes" in request.url, timeout=left):
        page.evaluate(turn, True)
        page.clock.fast_forward(31_000)
    made = cluster.client.submit(name="while-hidden", command=["true"])
    with page.expect_request(re.compile("/v1/pages/changes")):
        page.evaluate(turn, False)
    page.get_by_role("link", name=str(made.number), exact=True).wait_for()
    dashboard.check_clean()
    dashboard.close()


def test_a_ticket_logs_in_once_and_leaves_no_trace(browser: Browser, cluster: RealCluster) -> None:
    first, second = Dashboard(browser, cluster), Dashboard(browser, cluster)
    ticket = first.ticket()
    first.page.goto(f"{first.address}/ui/jobs?sort=name#ticket={ticket}")
    heading(first.page, "Jobs")
    assert "ticket" not in first.page.url and first.page.url.endswith("/ui/jobs?sort=name")
    kept = first.page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    assert "phx_" not in kept and ticket not in kept
    second.page.goto(f"{first.address}/ui/#ticket={ticket}")
    second.page.get_by_role("alert").wait_for()
    assert "phalanx ui" in second.page.inner_text("main") and "ticket" not in second.page.url
    first.page.reload()
    heading(first.page, "Jobs")
    first.page.get_by_role("button", name="Log out").click()
    first.page.get_by_text("To log in").wait_for()
    first.page.reload()
    first.page.get_by_text("To log in").wait_for()
    assert first.page.get_by_role("alert").count() == 0  # who has not logged in yet did nothing wrong
    first.close()
    second.close()


def test_the_overview_counts_and_leads_to_the_list(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.page
    tile = page.locator(".tile").filter(has_text="GPUs in use")
    tile.get_by_text("1 of 2").wait_for()
    page.get_by_role("row").filter(has_text="WaitingCapacity").get_by_role(
        "link", name=re.compile("job")
    ).wait_for()
    failed = page.locator(".alarms")
    failed.get_by_text("40 of").first.wait_for()  # before the page was opened, and one line for all of them
    cluster.client.submit(command=["sh", "-c", "exit 7"], max_retries=0)
    failed.get_by_text("exited with code 7").first.wait_for()
    page.get_by_role("link", name="WaitingCapacity").click()
    heading(page, "Jobs")
    page.get_by_role("button", name="Any reason").click()
    page.wait_for_url(lambda url: url.endswith("/ui/jobs?waiting=1"))
    page = dashboard.open("/")
    page.locator(".tile").filter(has_text="Waiting").click()
    heading(page, "Jobs")
    assert page.url.endswith("/ui/jobs?waiting=1")
    page.get_by_role("grid").get_by_text("waits").wait_for()
    dashboard.check_clean()


@pytest.mark.parametrize("width", [1280, 1024, 390])
@pytest.mark.parametrize("path", ["/jobs", "/nodes", "/tokens", "/audit", "/workflows"])
def test_no_column_is_cut(dashboard: Dashboard, path: str, width: int) -> None:
    dashboard.page.set_viewport_size({"width": width, "height": 800})
    dashboard.page.clock.set_fixed_time(time.time() + 2 * 3600 + 48 * 60)  # longer words than just now
    grid = dashboard.open(path).get_by_role("grid")
    grid.locator("[role=row]").nth(1).wait_for()
    assert grid.evaluate("grid => grid.scrollWidth - grid.clientWidth") == 0
    cut = "heads => heads.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.trim())"
    assert grid.get_by_role("columnheader").evaluate_all(cut) == []
    times = grid.get_by_role("gridcell").filter(has_text=re.compile(r"\d (s|min|h)( ago)?$"))
    assert times.evaluate_all(cut) == []


def test_jobs_are_filtered_searched_and_sorted_in_the_address(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs")
    rows = page.get_by_role("grid").locator("[role=row][aria-rowindex]:not(.head)")

    def names(*wanted: str) -> bool:
        """Whether these are shown, in this order, and every row has failed."""
        shown = rows.all_inner_texts()
        places = [at for name in wanted for at, text in enumerate(shown) if name in text]
        return (
            len(places) == len(wanted)
            and places == sorted(places)
            and all("Failed" in text for text in shown)
        )

    page.get_by_label("Search jobs").fill("swe")
    wait_until(lambda: rows.count() == 1 or None)
    assert "search=swe" in page.url
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("group", name="Status").get_by_role("button", name="Failed").click()
    wait_until(lambda: names("fails", "sweep"))  # the newest first
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    wait_until(lambda: names("sweep", "fails"))
    assert "status=Failed" in page.url and "sort=-name" in page.url
    page.go_back()
    wait_until(lambda: names("fails", "sweep"))
    page.reload()
    wait_until(lambda: names("fails", "sweep"))
    page.get_by_label("Search jobs").fill("fails")
    wait_until(lambda: rows.count() == 1 or None)
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    heading(page, "fails")
    dashboard.check_clean()


def test_tasks_are_a_grid_that_keys_and_clicks_reach(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/sweep")
    page.get_by_text("40 failed").wait_for()
    grid = page.get_by_role("slider", name="Tasks")
    grid.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert re.fullmatch(r"\d+\.5, Failed", grid.get_attribute("aria-valuetext") or "")
    page.keyboard.press("Enter")
    card = page.get_by_role("article")
    card.get_by_text("exited with code 1").first.wait_for()
    assert ".5" in page.url
    page.locator("canvas").click(position={"x": 4, "y": 4})
    page.get_by_role("article", name=re.compile(r"Task \d+\.1$")).wait_for()
    dashboard.check_clean()


def test_a_gang_is_shown_by_rank_and_place(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/gang")
    page.get_by_text("2 of 2 needed members are placed").wait_for()
    rows = page.get_by_role("grid", name=re.compile("Members")).locator("[role=row]:not(.head)")
    wait_until(lambda: rows.count() == 2 or None)
    assert [text.split()[0] for text in rows.all_inner_texts()] == ["0", "1"]
    rows.nth(1).get_by_role("button").click()
    page.get_by_role("heading", name=re.compile("rank 1")).wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    dashboard.check_clean()


def test_a_fix_that_was_tried_is_a_button(dashboard: Dashboard, cluster: RealCluster) -> None:
    cluster.client.submit(name="toolarge", command=["sleep", "600"], gpus=5, allow_infeasible=True)
    page = dashboard.open("/jobs/toolarge")
    page.get_by_role("button", name="Replace the job").click()
    confirm(page, "Replace the job?", "Replace the job")
    wait_until(lambda: jobs(cluster, "toolarge")[0].request.gpus == 2 or None)
    newer, older = jobs(cluster, "toolarge")
    assert (older.request.gpus, older.status) == (5, "Cancelled")
    wait_until(lambda: newer.id in page.url or None)
    cluster.client.cancel(newer.id)
    dashboard.check_clean()


def test_the_log_of_what_failed_is_a_click_away(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/sweep")
    why = page.get_by_role("region", name="Why")
    why.get_by_text("Next:").wait_for()
    why.get_by_role("button", name="Open the log").click()
    page.get_by_role("tab", name="Logs", selected=True).wait_for()
    assert re.search(r"task=\d+\.\d+", page.url)


def test_a_job_is_held_released_changed_cancelled_and_tried_again(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    cluster.client.submit(name="subject", command=["sleep", "600"], gpus=2)
    page = dashboard.open("/jobs/subject")
    status(page, "Pending")
    page.keyboard.press("h")
    page.get_by_label("Reason").fill(HOSTILE[0])
    page.get_by_role("dialog").get_by_role("button", name="Hold").click()
    status(page, "held")
    assert HOSTILE[0] in (cluster.client.job("subject").held or "")
    page.get_by_text(HOSTILE[0]).first.wait_for()
    page.get_by_role("region", name="Why").get_by_role("button", name="Release the job").wait_for()
    page.get_by_role("button", name="Release", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Hold").wait_for()
    page.keyboard.press("r")
    page.get_by_label("GPUs per task").fill("nonsense")
    page.get_by_role("button", name="Submit with 1 changed").click()
    page.get_by_role("dialog").get_by_role("alert").get_by_text("gpus").first.wait_for()
    page.get_by_label("GPUs per task").fill("0")
    page.get_by_label("Others").fill("env.LR = 0.1")
    page.get_by_role("button", name="Submit with 2 changed").click()
    status(page, "Running")
    made = cluster.client.job(jobs(cluster, "subject")[0].id)
    assert (made.request.gpus, made.env) == (0, {"LR": "0.1"})
    page.keyboard.press("c")
    page.get_by_role("button", name="Cancel the job").click()
    status(page, "Cancelled")
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    wait_until(lambda: len(jobs(cluster, "subject")) == 3 or None)
    status(page, "Running")
    for job in jobs(cluster, "subject"):
        if job.status in ("Pending", "Running"):
            cluster.client.cancel(job.id)
    dashboard.check_clean()


def test_logs_follow_and_streams_are_apart(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/runs?tab=logs")
    log = page.get_by_role("log")
    log.get_by_text("<b>bold</b>").wait_for()
    red = log.locator("span", has_text="red").first
    assert red.evaluate("e => getComputedStyle(e).color") != log.evaluate("e => getComputedStyle(e).color")
    page.get_by_label("Stream").select_option("stderr")
    log.get_by_text("Nothing was written yet").wait_for()
    assert "stream=stderr" in page.url
    dashboard.check_clean()


def test_a_log_of_any_content_is_text_in_bounded_pieces(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/logs?tab=logs")
    log = page.get_by_role("log")
    log.get_by_text("the needle").wait_for()
    shown = log.inner_text()
    assert "⟨U+202E⟩turned" in shown and "bad \ufffd\ufffd bytes" in shown and "link green" in shown
    assert "<script>window.pwned=1</script>" in shown
    assert "more of this line" in shown and len(shown) < 12_000  # of a line 4,000 characters are shown
    assert page.locator(".line").count() < 200
    page.get_by_role("button", name="Start").click()
    log.get_by_text("line 0", exact=True).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("line 2999")
    page.keyboard.press("Enter")
    page.get_by_text("1 of 11").wait_for()
    log.get_by_text("line 2999", exact=True).wait_for()
    page.get_by_role("button", name="Match before").click()
    log.get_by_text("line 29999", exact=True).wait_for()
    page.get_by_role("button", name="End").click()
    log.get_by_text("the needle").wait_for()
    dashboard.check_clean()


def test_a_log_that_is_opened_again_is_still_followed(dashboard: Dashboard) -> None:
    """The page learns how many attempts there were, and opens the log of the newest: meanwhile nothing is shown."""
    page = dashboard.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/v1/tasks/[^/]+$"), hold)
    dashboard.open("/jobs/logs?tab=logs")
    needle = page.get_by_role("log").get_by_text("the needle")
    needle.wait_for()
    page.route(re.compile(r"/v1/tasks/[^/]+/logs"), hold)
    wait_until(
        lambda: page.title() and held, what="the question how many attempts there were"
    )  # held meanwhile
    while held:
        held.pop().continue_()
    needle.wait_for(state="detached")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    while held:
        held.pop().continue_()
    needle.wait_for()


def test_nothing_of_a_user_is_taken_for_markup(dashboard: Dashboard, cluster: RealCluster) -> None:
    words = " ".join(HOSTILE)
    job = cluster.client.submit(
        name="hostile",
        command=["sh", "-c", 'printf "%s\\n" "$BAD" >&2; exit 1', *HOSTILE],
        env={"BAD": words.replace("\x1b", "\\033")},
        max_retries=0,
    )
    cluster.wait_task(job.task_ids[0], "Failed")
    page = dashboard.page
    for tab in ("tasks", "logs", "usage", "story", "details"):
        dashboard.open(f"/jobs/hostile?tab={tab}")
        page.get_by_text("attempts" if tab == "usage" else "pwned").first.wait_for()
        dashboard.check_clean()
    page.get_by_role("button", name="Show all values").click()
    page.get_by_text("PATH", exact=True).wait_for()
    assert "⟨U+202E⟩" in page.inner_text("main")
    for path in (
        "/jobs?search=pwned",
        "/jobs?user=<script>window.pwned=1</script>",
        "/nothing/<img src=x>",
        "/",
    ):
        dashboard.open(path)
        dashboard.check_clean()
    assert page.locator("main img, main script").count() == 0


def test_usage_story_and_plan(dashboard: Dashboard) -> None:
    page = dashboard.open("/jobs/runs?tab=usage")
    page.get_by_text("attempts").first.wait_for()
    page.locator("figure").filter(has_text="Cores").locator("canvas").wait_for()
    page.get_by_role("tab", name="Story").click()
    page.get_by_text("submitted:").first.wait_for()
    page = dashboard.open("/jobs/waits?tab=plan")
    page.get_by_text("It goes on waiting.").wait_for()
    dashboard.check_clean()


def test_a_viewer_looks_and_changes_nothing(browser: Browser, cluster: RealCluster) -> None:
    viewer = Dashboard(
        browser, cluster, cluster.client.create_token(TokenRequest(role="viewer", name="guest")).token
    )
    page = viewer.log_in("/jobs/waits")
    status(page, "Pending")
    assert page.get_by_role("button", name=re.compile("Cancel|Hold|Resubmit")).count() == 0
    refused = page.evaluate("fetch('/v1/jobs/waits/cancel', {method: 'POST'}).then((reply) => reply.status)")
    assert refused == 403 and cluster.client.job("waits").status == "Pending"
    assert page.get_by_role("link", name="Tokens").count() == 0
    viewer.close()


def test_every_page_works_by_keyboard(dashboard: Dashboard) -> None:
    page = dashboard.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("g")
    page.keyboard.press("j")
    heading(page, "Jobs")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    seen: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            str(
                page.evaluate("document.activeElement.getAttribute('role') || document.activeElement.tagName")
            )
        )
    assert {"A", "BUTTON", "INPUT", "grid"} <= seen
    page.keyboard.press("Shift+L")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    dashboard.check_clean()


def test_pages_are_readable_on_a_phone(dashboard: Dashboard) -> None:
    page = dashboard.page
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for path in ("/", "/jobs", "/jobs/sweep", "/jobs/gang", "/jobs/runs?tab=logs", "/jobs/runs?tab=details"):
        dashboard.open(path)
        page.get_by_role("heading", level=1).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    page.get_by_role("button", name="More").click()
    page.get_by_role("link", name="Queues").wait_for()


def test_axe_finds_nothing_serious_in_both_themes(browser: Browser, cluster: RealCluster) -> None:
    opened = Dashboard(browser, cluster)
    opened.context.close()
    opened.context = browser.new_context(bypass_csp=True)  # For axe alone, which is put into the page.
    opened.page = opened.context.new_page()
    page = opened.log_in()
    found: list[str] = []
    for path in ("/", "/jobs", "/jobs/sweep?task=1", "/jobs/gang", "/jobs/waits", "/jobs/fails", "/jobs/runs?tab=logs",
                 "/jobs/runs?tab=usage", "/jobs/runs?tab=story", "/jobs/runs?tab=details"):  # fmt: skip
        opened.open(path)
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_load_state("load")
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            found += [f"{path} {theme} {finding}" for finding in serious_findings(page)]
    assert found == []
    opened.close()


def test_a_page_goes_on_when_its_coordinator_comes_back(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.open("/jobs/gang")
    page.get_by_text("live", exact=True).wait_for()
    cluster.kill("coordinator")
    page.get_by_role("alert").filter(has_text="No news since").wait_for()
    page.get_by_text("stale since").wait_for()
    cluster.start_coordinator()
    cluster.wait_ready("coordinator")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("alert").wait_for(state="detached")
    cluster.client.submit(name="later", command=["true"])
    dashboard.open("/jobs").get_by_role("grid").get_by_text("later").wait_for()
    assert dashboard.errors == []
