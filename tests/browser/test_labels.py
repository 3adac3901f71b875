"""Labels in a browser: those that make layers of the map, and those of nodes and jobs with markup in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from phalanx.api.schema.cluster import LayerSpec, TopologySpec
from phalanx.errors import BadRequest
from tests.support.browser import HOSTILE, Dashboard, why_not
from tests.support.real_cluster import RealCluster, a_real_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

# Two spines, of which the first has two blocks, of which the first has two racks: four nodes.
PLACES = {
    "n1": ("s1", "b1", "r1"),
    "n2": ("s1", "b1", "r2"),
    "n3": ("s1", "b2", "r3"),
    "n4": ("s2", "b3", "r4"),
}
NODE = "cpus=4,gpus={gpus},type=h100,memory=80GiB,ram=8GiB,labels={labels}"
LAYERS = TopologySpec([LayerSpec(name, [name]) for name in ("spine", "block", "rack")])
# Our own runner refuses such labels; another program that speaks to the coordinator may not.
TAKES_ANY = "import re, phalanx.runner.labels as l; l._VALUE = re.compile('.*'); "
MARKUP = f"z{HOSTILE[1]}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    nodes = {
        name: NODE.format(gpus=2, labels=f"spine={place[0]};block={place[1]};rack={place[2]}")
        for name, place in PLACES.items()
    }
    with a_real_cluster(tmp_path_factory.mktemp("labels"), nodes) as cluster:
        cluster.client.set_topology(LAYERS)
        cluster.prelude = TAKES_ANY
        cluster.start_runner("n5", NODE.format(gpus=1, labels=f"spine={MARKUP};note={HOSTILE[0]}"))
        cluster.wait_online("n5")
        yield cluster


def crumbs(page: Page) -> list[str]:
    return page.get_by_role("navigation", name="Domain").get_by_role("button").all_inner_texts()


def free(page: Page) -> dict[str, str]:
    """What the list of places says is free in each."""
    rows = page.get_by_role("region", name="Places").locator("tbody tr").all_inner_texts()
    return dict(row.split("\t") for row in rows)


def test_spines_blocks_and_racks_are_nested_on_the_map(dashboard: Dashboard, cluster: RealCluster) -> None:
    gang = cluster.client.submit(
        name="gang",
        command=["sleep", "600"],
        tasks=2,
        min=2,
        gpus=2,
        gather=["block:must"],
    )
    cluster.wait_task(f"{gang.number}.0", "Running")
    page = dashboard.open("/map")
    places, canvas = page.get_by_role("region", name="Places"), page.get_by_role("application")
    page.get_by_text("5 nodes, 5 of 9 GPUs free").wait_for()
    assert free(page) == {"s1": "2 of 6", "s2": "2 of 2", MARKUP: "1 of 1"}
    places.get_by_role("columnheader", name="spine").wait_for()
    places.get_by_role("button", name="s1").click()
    page.get_by_text("3 nodes, 2 of 6 GPUs free").wait_for()
    places.get_by_role("columnheader", name="block").wait_for()
    assert free(page) == {"b1": "0 of 4", "b2": "2 of 2"}
    places.get_by_role("button", name="b1").click()
    places.get_by_role("columnheader", name="rack").wait_for()
    assert free(page) == {"r1": "0 of 2", "r2": "0 of 2"}
    places.get_by_role("button", name="r2").click()
    places.get_by_role("link", name="n2").wait_for()
    assert crumbs(page) == ["cluster", "s1", "b1", "r2"] and page.url.endswith("in=s1%2Fb1%2Fr2")
    page.get_by_role("navigation", name="Domain").get_by_role("button", name="b1").click()
    page.get_by_text("2 nodes, 0 of 4 GPUs free").wait_for()
    for nodes in ("3 nodes", "5 nodes"):  # out, layer by layer
        canvas.focus()
        page.keyboard.press("-")
        page.get_by_text(f"{nodes},").wait_for()
    for nodes in ("3 nodes", "2 nodes", "1 node"):
        canvas.focus()
        page.keyboard.press("+")
        page.get_by_text(f"{nodes},").wait_for()
    assert crumbs(page) == ["cluster", "s1", "b1", "r1"]
    cluster.client.cancel(gang)
    dashboard.check_clean()


def test_a_domain_is_entered_by_its_heading(dashboard: Dashboard) -> None:
    page = dashboard.open("/map")
    page.locator(".map[data-drawn]").wait_for()
    box = page.locator(".map canvas").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 20, box["y"] + 8)  # the heading of the first spine
    page.wait_for_url(re.compile("in=s1$"))
    assert crumbs(page) == ["cluster", "s1"]
    dashboard.check_clean()


def test_labels_with_markup_are_text(dashboard: Dashboard, cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match="is not a tag"):
        cluster.client.submit(command=["true"], tags={"team": MARKUP})
    job = cluster.client.submit(
        name="asks", command=["true"], labels={"note": MARKUP}, tags={"team": "a.b"}, allow_infeasible=True
    )
    page = dashboard.open("/nodes/n5")
    page.get_by_role("region", name="Facts").get_by_text(f"spine={MARKUP}").wait_for()
    page.get_by_role("region", name="Facts").get_by_text(f"note={HOSTILE[0]}").wait_for()
    dashboard.open("/map")
    page.get_by_role("region", name="Places").get_by_role("button", name=MARKUP).click()
    page.get_by_text("1 node,").wait_for()
    assert crumbs(page)[1] == MARKUP
    dashboard.check_clean()
    dashboard.open("/nodes").get_by_role("grid").get_by_text("n5").wait_for()
    dashboard.open(f"/jobs/{job.number}?tab=details")
    page.get_by_text(f"note={MARKUP}").first.wait_for()
    page.get_by_text("team=a.b").wait_for()
    assert page.locator("main img, main script").count() == 0
    dashboard.check_clean()
