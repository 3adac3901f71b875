"""Buttons of nodes, map, time, workflows and tokens, pressed with real work behind them, and what they did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import phalanx
from phalanx.api.schema.queues import QuotaSpec
from phalanx.manifests.read import read
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

SLEEP = ["sleep", "600"]
NODE = "cpus=40,gpus={gpus},type=h100,memory=80GiB,ram=16GiB,labels=rack=r{rack}"
NODES = {
    "n1": NODE.format(gpus=32, rack=1),
    "n2": NODE.format(gpus=2, rack=1),
    "n3": NODE.format(gpus=2, rack=2),
    "n4": "cpus=4,ram=8GiB",
}
FLOW = """\
apiVersion: flowmesh/v1
kind: Workflow
metadata: {name: flow}
spec:
  graph:
    nodes:
    - {name: only, spec: {command: ["true"], queue: narrow}}
"""
SILENT = {"coordinator.brake_share": 0.1}  # one node of five that is silent is not lost by itself
SPANS = 10  # more than a lane has
PAGE = 200  # workflows that are shown at first


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("views"), NODES, 0.5, 3.0, settings=SILENT) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: RealCluster) -> Iterator[None]:
    """Jobs that a test made are cancelled, and nodes that it drained take work again."""
    yield
    for job in cluster.client.jobs(status="Running").items:
        if job.name != "takes-it":  # stages of workflows wait behind it, for good
            cluster.client.cancel(job.id)
    for node in cluster.client.nodes():
        if node.drained:
            cluster.client.undrain(node.name)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def in_dialog(page: Page, name: str) -> None:
    """Press a button of the dialog that is open; it is closed then."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=name, exact=True).click()
    dialog.wait_for(state="detached")


def running_on(cluster: RealCluster, node: str, **more: object) -> str:
    """The number of a job that runs on this node, and may run on others."""
    others = [each.name for each in cluster.client.nodes() if each.name != node]
    for other in others:
        cluster.client.drain(other, "for a moment")
    job = cluster.client.submit(name=f"on-{node}", command=SLEEP, gpus=1, **more)  # type: ignore[arg-type]
    cluster.wait_task(str(job.number), "Running")
    for other in others:
        cluster.client.undrain(other)
    return str(job.number)


def test_a_drain_with_eviction_moves_what_runs_there(dashboard: Dashboard, cluster: RealCluster) -> None:
    number = running_on(cluster, "n3")
    page = dashboard.open("/nodes/n3")
    press(page, "Drain")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("What runs there goes on (1 task)").wait_for()
    dialog.get_by_label("evict what runs there").check()
    dialog.get_by_text("What runs there is asked to leave").wait_for()
    in_dialog(page, "Go back")
    assert not cluster.client.node("n3").drained
    press(page, "Drain")
    assert not dialog.get_by_label("evict what runs there").is_checked()
    dialog.get_by_label("Reason").fill("a new fan")
    dialog.get_by_label("evict what runs there").check()
    in_dialog(page, "Drain")
    wait_until(lambda: cluster.client.task(number).node != "n3" or None, what="it left n3")
    assert cluster.wait_task(number, "Running").node in ("n1", "n2")
    assert cluster.client.node("n3").drain_reason == "a new fan"
    press(page, "Resume")
    in_dialog(page, "Resume")
    wait_until(lambda: not cluster.client.node("n3").drained or None)
    dashboard.check_clean()


def test_a_node_that_is_gone_is_marked_as_lost_and_removed(
    dashboard: Dashboard, cluster: RealCluster
) -> None:
    cluster.start_runner("gone", NODE.format(gpus=1, rack=2))
    cluster.wait_online("gone")
    number = running_on(cluster, "gone")
    page = dashboard.open("/nodes/gone")
    page.get_by_role("link", name=number).first.wait_for()
    cluster.kill("gone")
    press(page, "Mark as lost")
    page.get_by_label("Reason").fill("its power supply burnt")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Mark as lost").click()
    dialog.get_by_role("alert").filter(
        has_text="gone"
    ).wait_for()  # its lease is not over: tasks may run there
    assert cluster.client.task(number).node == "gone"
    wait_until(lambda: cluster.client.why(number).dominant.code == "LossesBraked" or None, what="the brake")
    in_dialog(page, "Mark as lost")
    wait_until(lambda: cluster.client.node("gone").status == "Offline" or None)
    assert cluster.wait_task(number, "Running").node != "gone"
    lines = cluster.client.story("gone", of="nodes").items
    assert any("its power supply burnt" in line.text for line in lines)
    press(page, "Remove")
    in_dialog(page, "Remove")
    page.wait_for_url(re.compile("/ui/nodes$"))
    with pytest.raises(phalanx.errors.NotFound):
        cluster.client.node("gone")
    dashboard.check_clean()


def test_what_if_with_the_example_and_without(dashboard: Dashboard) -> None:
    page = dashboard.open("/map?plan=1")
    panel = page.get_by_role("region", name="What if")
    press(page, "Example")
    press(page, "Plan")
    panel.get_by_text(re.compile("It (would|can never)")).wait_for()
    assert "gather" in page.get_by_label("Job file or manifest").input_value()
    press(page, "Clear")
    panel.get_by_text(re.compile("It (would|can never)")).wait_for(state="detached")
    assert page.get_by_label("Job file or manifest").input_value() == ""
    press(page, "Example")
    press(page, "Close what if")
    panel.wait_for(state="detached")
    press(page, "What if")
    panel.wait_for()
    dashboard.check_clean()


def test_a_legend_with_many_entries_is_shown_in_whole(dashboard: Dashboard, cluster: RealCluster) -> None:
    for number in range(26):
        cluster.client.submit(name=f"holder-{number}", command=SLEEP, gpus=1)
    wait_until(
        lambda: sum(job.status == "Running" for job in cluster.client.jobs().items) == 26 or None, 30.0
    )
    page = dashboard.open("/map")
    entries = page.get_by_role("list", name="Legend").get_by_role("listitem")
    wait_until(lambda: entries.count() == 24 or None)
    more = page.get_by_role("button", name=re.compile(r"^\d more$"))
    left = int(more.inner_text().split()[0])
    more.click()
    wait_until(lambda: entries.count() == 24 + left or None, what="every entry is shown")
    assert sum("holder-" in text for text in entries.all_inner_texts()) == 26
    press(page, "fewer")
    wait_until(lambda: entries.count() == 24 or None)
    dashboard.check_clean()


def test_time_of_one_job_and_of_one_node(dashboard: Dashboard, cluster: RealCluster) -> None:
    first, second = running_on(cluster, "n2"), running_on(cluster, "n3")
    page = dashboard.open("/time?span=900")
    page.get_by_text("As a list").click()
    rows = page.get_by_role("row")
    links = {number: rows.get_by_role("link", name=number, exact=True) for number in (first, second)}
    for link in links.values():
        expect(link).to_have_count(1)
    chart = page.get_by_role("application")
    chart.focus()
    wanted = page.locator(".chosen-one").get_by_role("link", name=re.compile(rf"^{first} on-n2"))
    for key in (*["ArrowDown", *["ArrowRight"] * SPANS] * len(NODES), "ArrowDown"):  # to the end of each lane
        if wanted.count():
            break
        page.keyboard.press(key)
    expect(wanted).to_have_count(1)
    press(page, "Only this job")
    expect(links[second]).to_have_count(0)
    expect(links[first]).to_have_count(1)
    page.wait_for_url(re.compile("job="))
    press(page, "All jobs")
    expect(links[second]).to_have_count(1)
    press(page, "Only this node")
    page.wait_for_url(re.compile("node=n2"))
    expect(links[second]).to_have_count(0)
    press(page, "All nodes")
    expect(links[second]).to_have_count(1)
    press(page, "Zoom in")
    page.wait_for_url(re.compile("from="))
    press(page, "Now")
    page.wait_for_url(lambda url: "from=" not in url)
    dashboard.check_clean()


def test_older_workflows_are_read_on_demand(dashboard: Dashboard, cluster: RealCluster) -> None:
    cluster.client.set_quota("narrow", QuotaSpec(tasks=1))
    cluster.client.submit(name="takes-it", command=SLEEP, queue="narrow", nodes=["n4"])
    spec = read([("flow.yaml", FLOW)]).workflows[0].spec
    for _ in range(PAGE + 1):
        cluster.client.submit_workflow(spec)
    page = dashboard.open("/workflows")
    page.get_by_text(f"{PAGE} workflows, the newest").wait_for()
    press(page, "Older ones")
    page.get_by_text(f"{PAGE + 1} workflows", exact=True).wait_for()
    expect(page.get_by_role("button", name="Older ones")).to_have_count(0)
    dashboard.check_clean()


def test_a_new_token_is_copied(dashboard: Dashboard, cluster: RealCluster) -> None:
    dashboard.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = dashboard.open("/tokens")
    press(page, "Create a token")
    page.get_by_label("Name").fill("copied")
    in_dialog(page, "Go back")
    assert "copied" not in [token.name for token in cluster.client.tokens()]
    press(page, "Create a token")
    page.get_by_label("Name").fill("copied")
    press(page, "Create")
    press(page, "Copy")
    page.get_by_text("Copied.").wait_for()
    token = page.evaluate("navigator.clipboard.readText()")
    with phalanx.Client(cluster.address("coordinator"), token) as copied:
        assert copied.jobs().items == cluster.client.jobs().items
    in_dialog(page, "Done")
    dashboard.check_clean()
