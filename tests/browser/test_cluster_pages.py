"""Map, time, workflows, nodes, queues, terminal, tokens and audit in a real Chromium, on a real cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.queues import QuotaSpec, UserLimitsSpec
from phalanx.runner.accounts import account_name
from tests.support.browser import HOSTILE, PHONE, Dashboard, serious_findings, why_not
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

NODE = "cpus=8,numa=2,gpus=2,type=h100,memory=80GiB,ram=16GiB,labels=rack={rack}"
NODES = {
    "n1": NODE.format(rack="r1"),
    "n2": NODE.format(rack="r1"),
    "n3": NODE.format(rack="r2"),
    "n4": NODE.format(rack="r3"),
}
STAGE = '- {{name: {name}, dependsOn: [{after}], spec: {{command: [sh, -c, "{command}"]}}}}'
TYPES = "document.activeElement.closest('.xterm') !== null"
HUGE = "groups:\n- {tasks: 1, gpus: 3, command: [torchrun, train.py]}\n"
EVICTS = (
    "name: urgent\npriority: 50\ngang: true\ngroups:\n- {tasks: 3, gpus: 2, command: [torchrun, train.py]}\n"
)
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(8)
)
BAD_FILES = (
    ("groups:\n- {tasks: 1, gpsu: 1, command: [x]}\n", "gpsu"),
    ("groups: [\n", "job.yaml"),
    ("\x00\x01", "job.yaml"),
    (f"name: {HOSTILE[0]!r}\ngroups:\n- {{tasks: 1, command: [x]}}\n", "name"),
    (BOMB, "alias"),
    ("- " * 200 + "x", "deep"),
    ("", "nothing to plan"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A gang on two nodes, an array of which a part runs, one that waits with places kept for it, a workflow."""
    with a_real_cluster(tmp_path_factory.mktemp("views"), NODES) as cluster:
        client = cluster.client
        client.set_quota(
            "research",
            QuotaSpec(gpus=6, submitted=100, each_user=UserLimitsSpec(gpus=2), priority_max=20, order="fair"),
        )
        client.submit(name="gang", command=["sleep", "600"], tasks=2, min=2, gpus=2, time_limit="1h")
        cluster.wait_task("1.0", "Running")
        client.submit(
            name="sweep", command=["sleep", "600"], array="1-3", gpus=1, queue="research", time_limit="30m"
        )
        cluster.wait_task("2.1", "Running")
        client.submit(name="head", command=["sleep", "600"], tasks=4, min=4, gpus=2, time_limit="1h")
        done = client.submit(name="done", command=["true"])
        cluster.wait_task(done.task_ids[0], "Completed")
        yield cluster


@pytest.fixture
def free_node(cluster: RealCluster) -> Iterator[str]:
    """The node that runs nothing: of n3 and n4 the one that joined last. No test leaves it drained for the next."""
    name = next(node.name for node in cluster.client.nodes() if not node.task_count)
    yield name
    if cluster.client.node(name).drained:
        cluster.client.undrain(name)


def heading(page: Page, text: str) -> None:
    page.get_by_role("heading", level=1).filter(has_text=text).wait_for()


def the_map(page: Page) -> Locator:
    found = page.get_by_role("application", name=re.compile("Devices by place"))
    page.locator(".map[data-drawn]").wait_for()
    return found


def told(page: Page) -> str:
    """What the page says to screen readers about the cell under the cursor."""
    return page.locator("p[aria-live=polite]").inner_text()


def goes_one_way(line: str) -> bool:
    """Whether a line of a graph goes on towards its end, down or to the right, all along."""
    at = [float(each) for each in re.findall(r"-?[\d.]+", line)]
    return any(list(axis) == sorted(axis) for axis in (at[::2], at[1::2]))


def plan(page: Page, text: str) -> None:
    page.get_by_label("Job file or manifest").fill(text)
    page.get_by_role("button", name="Plan", exact=True).click()


def workflow(cluster: RealCluster, name: str, last: str) -> str:
    """Four stages in a diamond, of which the last does as it is told; the number of the workflow."""
    from phalanx.manifests.read import read

    stages = [
        STAGE.format(name="first", after="", command="true"),
        STAGE.format(name="left", after="first", command="true"),
        STAGE.format(name="right", after="first", command="true"),
        STAGE.format(name="last", after="left, right", command=last),
    ]
    lines = "\n".join(f"    {stage}" for stage in stages)
    head = (
        f"apiVersion: flowmesh/v1\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n  graph:\n    nodes:\n"
    )
    made = read([("flow.yaml", head + lines)])
    return str(cluster.client.submit_workflow(made.workflows[0].spec).number)


def test_the_map_shows_who_holds_what_and_a_click_filters(dashboard: Dashboard) -> None:
    page = dashboard.open("/map")
    the_map(page)
    legend = page.get_by_role("list", name="Legend")
    legend.get_by_role("button", name=re.compile("gang.*4")).wait_for()
    page.get_by_text("4 nodes, 2 of 8 GPUs free").wait_for()
    legend.get_by_role("button", name=re.compile("gang")).click()
    assert re.search(r"show=\d+", page.url)
    page.get_by_role("region", name="Filter").get_by_role("link", name="1 gang").wait_for()
    the_map(page).focus()
    page.keyboard.press("Home")
    wait_until(lambda: "rank " in told(page) or None, what="the rank of a member is told")
    assert "held by 1." in told(page) and "n1" in told(page)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "show" not in url)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "show=1" in url)
    page.get_by_role("button", name="Show all").click()
    for by, word in (("user", "admin"), ("queue", "research"), ("usage", "in use"), ("health", "healthy")):
        page.get_by_text(by, exact=True).click()
        legend.get_by_text(word).first.wait_for()
        assert f"by={by}" in page.url
    dashboard.check_clean()


def test_the_map_goes_into_a_domain_and_to_a_node(dashboard: Dashboard) -> None:
    page = dashboard.open("/map")
    the_map(page)
    page.get_by_role("region", name="Places").get_by_role("button", name="r2").click()
    page.get_by_text("1 node,").wait_for()
    assert "in=r2" in page.url
    page.get_by_role("region", name="Places").get_by_role("link", name="n3").wait_for()
    page.get_by_role("navigation", name="Domain").get_by_role("button", name="cluster").click()
    page.get_by_text("4 nodes").wait_for()
    the_map(page).focus()
    page.keyboard.press("+")
    page.wait_for_url(lambda url: "in=" in url)
    page.keyboard.press("-")
    page.wait_for_url(lambda url: "in=" not in url)
    box = page.locator(".map canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 60)
    page.locator(".tip").wait_for()
    the_map(page).focus()
    page.keyboard.press("o")
    heading(page, "n")
    assert "/ui/nodes/n" in page.url
    dashboard.check_clean()


def test_the_map_follows_changes_of_the_cluster(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.open("/map")
    page.get_by_text("2 of 8 GPUs free").wait_for()
    job = cluster.client.submit(name="passing", command=["sleep", "600"], gpus=1, time_limit="5m")
    page.get_by_text("1 of 8 GPUs free").wait_for()
    page.get_by_role("list", name="Legend").get_by_text("passing").wait_for()
    cluster.client.cancel(job.task_ids[0])
    page.get_by_text("2 of 8 GPUs free").wait_for()
    dashboard.check_clean()


def test_what_if_shows_places_evictions_and_fixes(dashboard: Dashboard, tmp_path: Path) -> None:
    page = dashboard.open("/map")
    page.get_by_role("button", name="What if").click()
    panel = page.get_by_role("region", name="What if")
    plan(page, EVICTS)
    panel.get_by_text(
        re.compile(r"It would start now: 3 tasks on 3 nodes, 6 GPUs, after evicting")
    ).wait_for()
    panel.get_by_role("heading", name="Evicted").wait_for()
    panel.get_by_text(re.compile(r"urgent\.0 on n\d, GPU 0 1")).wait_for()
    page.get_by_role("region", name="Places").wait_for()
    plan(page, HUGE)
    panel.get_by_text("It can never start on this cluster.").wait_for()
    panel.get_by_text("it would fit with 2 GPUs instead of 3").wait_for()
    file = tmp_path / "waits.json"
    file.write_text('{"groups": [{"tasks": 4, "gpus": 2, "command": ["x"]}], "gang": true}')
    panel.locator("input[type=file]").set_input_files(file)
    panel.get_by_text("It would wait.").wait_for()
    assert "gpus" in page.get_by_label("Job file or manifest").input_value()
    page.get_by_role("button", name="Close what if").click()
    panel.wait_for(state="detached")
    dashboard.check_clean()


def test_what_if_refuses_bad_files_in_words(dashboard: Dashboard) -> None:
    page = dashboard.open("/map?plan=1")
    panel = page.get_by_role("region", name="What if")
    for text, word in BAD_FILES:
        plan(page, text)
        panel.get_by_role("alert").filter(has_text=re.compile(word, re.IGNORECASE)).wait_for()
        plan(page, HUGE)
        panel.get_by_text("It can never start").wait_for()
    page.get_by_label("Job file or manifest").evaluate(
        "e => { e.value = 'x'.repeat(2_000_000); e.dispatchEvent(new Event('input')); }"
    )
    page.get_by_role("button", name="Plan", exact=True).click()
    panel.get_by_role("alert").filter(has_text="too long").wait_for()
    dashboard.check_clean()


def test_time_shows_what_ran_and_what_places_are_kept_for(dashboard: Dashboard) -> None:
    page = dashboard.open("/time")
    chart = page.get_by_role("application", name=re.compile("4 nodes"))
    page.locator(".gantt[data-drawn]").wait_for()
    page.get_by_text("4 nodes kept for it, expected to start").wait_for()
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("As a list").click()
    rows = page.get_by_role("row")
    rows.filter(has_text="done").filter(has_text="Completed").wait_for()
    rows.filter(has_text="head").filter(has_text="places kept").first.wait_for()
    chart.focus()
    page.keyboard.press("ArrowDown")
    wait_until(lambda: "on n1" in told(page) or None)
    page.keyboard.press("+")
    page.wait_for_url(lambda url: "from=" in url)
    page.keyboard.press("Shift+ArrowLeft")
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Now", exact=True).click()
    page.wait_for_url(lambda url: "from=" not in url)
    page.get_by_text("by job").click()
    page.get_by_role("application", name=re.compile("jobs")).wait_for()
    page.get_by_text("6 h", exact=True).click()
    assert "by=job" in page.url and "span=21600" in page.url
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/ui/jobs/" in url)
    dashboard.open("/time?node=n1")
    page.get_by_text("of node n1").wait_for()
    page.get_by_role("button", name="All nodes").click()
    page.wait_for_url(lambda url: "node=" not in url)
    dashboard.open("/time?node=nothing")
    page.get_by_role("alert").filter(has_text="nothing").wait_for()
    dashboard.check_clean()


def test_a_workflow_is_a_graph_that_is_cancelled_and_tried_again(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    number = workflow(cluster, "diamond", "sleep 600")
    page = dashboard.open("/workflows")
    page.get_by_role("grid").get_by_text("diamond").click()
    heading(page, f"{number} diamond")
    graph = page.get_by_role("region", name="Graph")
    wait_until(lambda: graph.locator(".svelte-flow__node").count() == 4 or None)
    wait_until(lambda: graph.locator(".svelte-flow__edge").count() == 4 or None)
    lines = graph.locator(".svelte-flow__edge-path").evaluate_all(
        "each => each.map(e => e.getAttribute('d'))"
    )
    assert len(lines) == 4 and all(goes_one_way(line) for line in lines), lines
    graph.locator(".stage.running").filter(has_text="last").wait_for()
    graph.locator(".svelte-flow__node").filter(has_text="last").click()
    panel = page.get_by_role("region", name="Stage", exact=True)
    panel.get_by_role("link", name="Open its job").wait_for()
    assert "stage=last" in page.url
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the workflow").click()
    graph.locator(".stage.cancelled").filter(has_text="last").wait_for()
    panel.get_by_role("button", name="Retry from here").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry from here").click()
    graph.locator(".stage.running").filter(has_text="last").wait_for()
    graph.get_by_text("retry 1").wait_for()
    panel.get_by_role("link", name="Open its job").click()
    page.get_by_role("link", name="last of its workflow").click()
    page.wait_for_url(lambda url: "/ui/workflows/" in url and "stage=last" in url)
    page.get_by_role("region", name="Stages").get_by_role("button", name="first").click()
    page.get_by_role("region", name="Stage", exact=True).get_by_text("Completed").wait_for()
    cluster.client.cancel_workflow(number)
    page.get_by_role("button", name="Retry what failed").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Cancel", exact=True).wait_for()
    cluster.client.cancel_workflow(number)
    dashboard.check_clean()


def test_a_node_is_drained_with_a_reason_and_resumed(
    dashboard: Dashboard, cluster: RealCluster, free_node: str
) -> None:
    page = dashboard.open("/nodes")
    rows = page.get_by_role("grid").locator("[role=row][aria-rowindex]:not(.head)")
    wait_until(lambda: rows.count() == 4 or None)
    page.get_by_label("Search nodes").fill(free_node)
    wait_until(lambda: rows.count() == 1 or None)
    rows.first.get_by_role("link").click()
    heading(page, free_node)
    page.get_by_role("region", name="NUMA node 0").locator(".device").wait_for()
    page.get_by_role("region", name="Limits").get_by_text("Memory").wait_for()
    page.get_by_text(f"all tasks run as {account_name(os.geteuid())}, whoever submits them").wait_for()
    page.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(" ".join(HOSTILE[:3]))
    dialog.get_by_role("button", name="Drain").click()
    page.get_by_text("Drained: <img").first.wait_for()
    page.get_by_role("region", name="NUMA node 0").get_by_text("not given out").wait_for()
    assert cluster.client.node(free_node).drain_reason == " ".join(HOSTILE[:3])
    dashboard.open("/nodes?show=drained")
    wait_until(lambda: rows.count() == 1 or None)
    page.get_by_text("drained: <img").wait_for()
    page = dashboard.open("/map?by=health")
    page.get_by_role("list", name="Legend").get_by_text("node drained").wait_for()
    page = dashboard.open(f"/nodes/{free_node}")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Drain").wait_for()
    assert not cluster.client.node(free_node).drained
    page.get_by_role("region", name="History").get_by_text("drain").first.wait_for()
    assert page.locator("main img, main script").count() == 0
    dashboard.open("/nodes/nothing").get_by_role("alert").filter(has_text="nothing").wait_for()
    dashboard.check_clean()


def test_the_history_of_a_node_names_tasks_and_leads_to_them(dashboard: Dashboard) -> None:
    page = dashboard.open("/nodes/n1")
    holder = page.get_by_role("region", name="NUMA node 0").locator(".device .holder")
    assert holder.inner_text().split() == ["gang", "admin"]
    placed = (
        page.get_by_role("region", name="History").get_by_role("row").filter(has_text="placed with its gang")
    )
    placed.get_by_role("link", name=re.compile(r"^1\.\d$")).click()
    heading(page, "1 gang")
    assert re.search(r"task=1\.\d", page.url)
    dashboard.check_clean()


def test_queues_show_quota_and_use(dashboard: Dashboard) -> None:
    page = dashboard.open("/queues")
    research = page.get_by_role("region", name="Queue research")
    research.get_by_text("of 6").wait_for()
    research.get_by_text("3 of 100").wait_for()
    research.get_by_text("2 GPUs", exact=True).wait_for()
    research.get_by_text("fair: of jobs with one priority").wait_for()
    page.get_by_role("region", name="Queue default").get_by_text("No quota").wait_for()
    research.get_by_text("Users", exact=True).click()
    used = research.get_by_role("row").filter(has=page.get_by_role("link", name="admin"))
    used.get_by_text("3", exact=True).wait_for()  # tasks that have not ended
    research.get_by_role("link", name="1 job waiting").click()  # the third task, beside two that run
    assert "queue=research" in page.url
    page.get_by_role("row").filter(has_text="sweep").filter(has_text="UserLimitReached").wait_for()
    dashboard.check_clean()


def test_a_terminal_is_open_to_the_user_and_closed_to_the_task(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    dashboard.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = dashboard.open("/terminal/1.0")
    rows = page.locator(".xterm-accessibility-tree")
    page.get_by_role("button", name="Close").wait_for()
    wait_until(lambda: page.evaluate(TYPES) or None, what="the terminal has the keyboard")
    page.evaluate("navigator.clipboard.writeText('before')")
    page.keyboard.type("echo $((6*7))-$(stty size)\n")
    wait_until(lambda: re.search(r"42-\d+ \d+", rows.inner_text()))
    first = re.search(r"42-(\d+) (\d+)", rows.inner_text())
    page.set_viewport_size({"width": 900, "height": 500})
    page.keyboard.type("clear; echo again-$(stty size)\n")
    found = wait_until(lambda: re.search(r"again-(\d+) (\d+)", rows.inner_text()))
    assert first is not None and first.groups() != found.groups()
    page.keyboard.type(
        "clear; printf '\\033]52;c;aGFjaw==\\007\\033]0;titled\\007"
        "\\033]8;;http://a.invalid\\007a-link\\033]8;;\\007<img src=x onerror=window.pwned=1>\\n'\n"
    )
    wait_until(lambda: "a-link<img" in rows.inner_text() or None)
    assert page.evaluate("navigator.clipboard.readText()") == "before"
    assert page.title() == "Terminal · Phalanx"
    assert page.locator("main .xterm a").count() == 0
    page.keyboard.press("Shift+Escape")
    assert page.evaluate("document.activeElement.textContent") == "Close"
    page.keyboard.press("Enter")
    page.get_by_text("Closed.").wait_for()
    page.get_by_role("button", name="Open again").click()
    wait_until(lambda: page.evaluate(TYPES) or None, what="the terminal has the keyboard again")
    page.keyboard.type("exit 7\n")
    page.get_by_text("ended with code 7").wait_for()
    dashboard.open("/terminal/4").get_by_role("alert").wait_for()  # it has ended
    lines = (
        [line.action for line in cluster.client.audit(tail=100)] if hasattr(cluster.client, "audit") else []
    )
    assert not lines or any("exec" in each for each in lines)
    dashboard.check_clean()


def test_tokens_are_created_shown_once_rotated_and_revoked(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    def status_with(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{cluster.address('coordinator')}/v1/cluster", headers=headers).status_code

    page = dashboard.open("/tokens")
    page.get_by_role("button", name="Create a token").click()
    page.get_by_label("Name").fill("grace")
    page.get_by_label("Role").select_option("viewer")
    page.get_by_label("Expires after").fill("soon")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("dialog").get_by_role("alert").filter(has_text="expires").wait_for()
    page.get_by_label("Expires after").fill("2h")
    page.get_by_role("button", name="Create", exact=True).click()
    first = page.get_by_label("Token", exact=True).input_value()
    assert first.startswith("phx_") and status_with(first) == 200
    page.get_by_role("button", name="Done").click()
    page.get_by_role("grid").get_by_text("grace").wait_for()
    assert first not in page.content()
    row = page.get_by_role("row").filter(has_text="grace").first
    row.get_by_role("button", name=re.compile("Rotate")).click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    second = page.get_by_label("Token", exact=True).input_value()
    assert second != first and status_with(second) == 200
    page.get_by_role("button", name="Done").click()
    buttons = (
        page.get_by_role("row").filter(has_text="grace").get_by_role("button", name=re.compile("Revoke"))
    )
    for left in range(buttons.count(), 0, -1):
        buttons.first.click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(buttons).not_to_have_count(left)
    wait_until(lambda: status_with(second) == 401 or None)
    page.get_by_label("include expired and revoked").check()
    page.get_by_role("grid").get_by_text("revoked").first.wait_for()
    dashboard.check_clean()


def test_the_audit_log_shows_refusals(dashboard: Dashboard) -> None:
    httpx.post(
        f"{dashboard.address}/v1/jobs/<script>window.pwned=1<script>/cancel",
        headers={"Authorization": "Bearer <img src=x>"},
    )
    page = dashboard.open("/audit")
    search = page.get_by_label("Search the audit log")
    search.fill("submit")
    page.get_by_role("grid").get_by_text("submit").first.wait_for()
    search.fill("")
    page.get_by_label("refusals only").check()
    page.wait_for_url(lambda url: "show=refused" in url)
    page.get_by_role("grid").get_by_text("401").first.wait_for()
    search.fill("no such line anywhere")
    page.get_by_text("No line is like that").wait_for()
    dashboard.check_clean()


def test_a_viewer_has_no_buttons_and_is_refused(browser: Browser, cluster: RealCluster) -> None:
    made = cluster.client.create_token(TokenRequest(role="viewer", name="guest"))
    viewer = Dashboard(browser, cluster, made.token)
    page = viewer.log_in("/nodes/n4")
    page.get_by_role("region", name="NUMA node 0").wait_for()
    assert page.get_by_role("button", name=re.compile("Drain|Resume")).count() == 0
    assert page.get_by_role("link", name=re.compile("Tokens|Audit")).count() == 0
    asked = """path => fetch(path, {
        method: 'POST', headers: {'content-type': 'application/json'}, body: '{"reason": "x"}',
    }).then((reply) => reply.status)"""
    for path in ("/v1/nodes/n4/drain", "/v1/tasks/1.0/exec", "/v1/tokens"):
        assert page.evaluate(asked, path) == 403, path
    assert not cluster.client.node("n4").drained
    viewer.open("/terminal/1.0").get_by_role("alert").wait_for()
    viewer.open("/audit").get_by_role("alert").wait_for()
    viewer.open("/map?plan=1")
    plan(page, EVICTS)  # to ask is allowed
    page.get_by_text(re.compile("It would")).wait_for()
    viewer.check_clean()
    viewer.close()


PAGES = (
    "/map?by=usage&plan=1&show=busy", "/time?by=job", "/workflows", "/nodes", "/nodes/n1", "/queues", "/tokens",
    "/audit", "/terminal/1.0",
)  # fmt: skip
BEHIND_MORE = {"/workflows", "/nodes", "/nodes/n1", "/queues", "/tokens", "/audit"}
FILLS = {"/workflows", "/nodes", "/tokens", "/audit", "/terminal/1.0"}  # and end above the navigation


def test_pages_are_readable_on_a_phone(dashboard: Dashboard) -> None:
    page = dashboard.page
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for path in PAGES:
        dashboard.open(path)
        page.get_by_role("heading", level=1).wait_for()
        page.locator(".panel").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        more = "true" if path.partition("?")[0] in BEHIND_MORE else None
        assert page.get_by_role("button", name="More").get_attribute("aria-current") == more, path
        if path in FILLS:
            assert page.evaluate("document.documentElement.scrollHeight") <= PHONE["height"], path
    assert page.locator("main img, main script").count() == 0
    dashboard.check_clean()


def test_axe_finds_nothing_serious_in_both_themes(browser: Browser, cluster: RealCluster) -> None:
    opened = Dashboard(browser, cluster)
    opened.context.close()
    opened.context = browser.new_context(bypass_csp=True)  # For axe alone, which is put into the page.
    opened.page = opened.context.new_page()
    page = opened.log_in()
    found: list[str] = []
    number = workflow(cluster, "looked-at", "sleep 600")
    for path in (*PAGES, f"/workflows/{number}?stage=last"):
        opened.open(path)
        page.get_by_role("heading", level=1).wait_for()
        page.locator(".panel").first.wait_for()
        page.evaluate("document.documentElement.dataset.theme = 'light'")
        found += [f"{path} {finding}" for finding in serious_findings(page)]
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        found += [f"{path} dark {finding}" for finding in serious_findings(page, only="color-contrast")]
    cluster.client.cancel_workflow(number)
    assert not found, "\n".join(found)
    opened.close()
