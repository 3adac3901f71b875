"""The dashboard without a mouse: each control of each page is reached, the focus is seen, dialogs give it back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from phalanx.manifests.read import read
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster, a_real_cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

SLEEP = ["sleep", "600"]
FLOW = """\
apiVersion: flowmesh/v1
kind: Workflow
metadata: {name: flow}
spec: {graph: {nodes: [{name: only, spec: {command: [sleep, "600"]}}]}}
"""
# Each page with something that only this page has, once all of it is there. A terminal takes Tab itself: see below.
PAGES = {
    "/": ".tile",
    "/jobs": "[role=grid] [aria-rowindex='2'] a",
    "/jobs/waits": "section[aria-label=Why]",
    "/jobs/waits?tab=plan": "[role=tabpanel] button",
    "/jobs/array": "[role=slider]",
    "/jobs/array?tab=logs": "[role=log]",
    "/jobs/array?tab=usage": "[role=tabpanel] button.pick",
    "/jobs/gang?tab=story": "[role=tabpanel] time",
    "/jobs/gang?tab=details": ".details",
    "/jobs/gang": "[role=grid] button.link",
    "/map?plan=1": ".map[data-drawn]",
    "/time": ".gantt[data-drawn]",
    "/workflows": "[role=grid] [aria-rowindex='2'] a",
    "/workflows/{flow}?stage=only": ".svelte-flow__node",
    "/nodes": "[role=grid] [aria-rowindex='2'] a",
    "/nodes/n1": ".device",
    "/queues": "details summary",
    "/tokens": "[role=grid]",
    "/audit": "[role=grid] [aria-rowindex='2']",
    "/nothing": "[role=alert]",
}
DIALOGS = (
    ("/jobs/waits", "Cancel", "Cancel job 3?", "Enter"),
    ("/jobs/waits", "Hold", "Hold job 3?", "Space"),
    ("/jobs/waits", "Resubmit …", "Submit job 3 again", "Enter"),
    ("/nodes/n1", "Drain", "Drain n1", "Space"),
    ("/tokens", "Create a token", "Create a token", "Enter"),
    ("/jobs", "Keyboard shortcuts", "Keyboard", "Space"),
)
# Marks what is to be reached, in the order of the document. Of radio buttons with one name, one is a stop of Tab.
MARK = """() => {
  const all = [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')];
  const groups = new Set();
  let at = 0;
  for (const each of all) {
    delete each.dataset.stop;
    if (each.disabled || each.tabIndex < 0 || !each.checkVisibility({ visibilityProperty: true })) continue;
    if (each.type === 'radio') {
      const chosen = document.querySelector(`input[type=radio][name="${each.name}"]:checked`);
      if (groups.has(each.name) || (chosen && chosen !== each)) continue;
      groups.add(each.name);
    }
    each.dataset.stop = String(at++);
  }
  document.activeElement.blur();
  getSelection().removeAllRanges();
  return at;
}"""
# Where the focus is, and whether it is seen: on the element, or on the label that stands for it.
WHERE = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const isSeen = (each) => {
    const style = getComputedStyle(each);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
  };
  const box = at.getBoundingClientRect();
  const name = at.getAttribute('aria-label') || at.innerText || at.name || at.id || at.outerHTML;
  return {
    stop: at.dataset.stop === undefined ? -1 : Number(at.dataset.stop),
    name: `${at.tagName} ${name.trim().slice(0, 40)}`,
    seen: isSeen(at) || (at.closest('label') !== null && isSeen(at.closest('label'))),
    inView: box.bottom > 0 && box.top < innerHeight,
    inDialog: at.closest('dialog') !== null,
  };
}"""
HAS_FOCUS = "e => e === document.activeElement"
LEAVES = re.compile("^(Go back|Close)$")
UNREACHED = """reached => [...document.querySelectorAll('[data-stop]')]
  .filter((e) => !reached.includes(Number(e.dataset.stop)))
  .map((e) => e.getAttribute('aria-label') || e.innerText || e.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """An array and a gang that run, a job that waits, a workflow."""
    with a_real_cluster(tmp_path_factory.mktemp("keys"), TWO_NODES) as cluster:
        client = cluster.client
        client.submit(name="array", command=SLEEP, array="1-3", gpus=0)
        client.submit(name="gang", command=SLEEP, tasks=2, min=2, gpus=1)
        client.submit(name="waits", command=SLEEP, gpus=2)
        client.submit_workflow(read([("flow.yaml", FLOW)]).workflows[0].spec)
        for id in ("1.1", "1.2", "1.3", "2.0", "2.1"):
            cluster.wait_task(id, "Running")
        yield cluster


def where(page: Page) -> dict[str, Any] | None:
    found: dict[str, Any] | None = page.evaluate(WHERE)
    return found


def walk(page: Page) -> list[dict[str, Any]]:
    """Everything that Tab reaches, from the begin of the document until it leaves the page."""
    wanted = page.evaluate(MARK)
    reached: list[dict[str, Any]] = []
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        if (found := where(page)) is None or (reached and found["stop"] == reached[0]["stop"]):
            break
        reached.append(found)
    return reached


@pytest.mark.timeout(90)
def test_tab_reaches_every_control_in_order_and_is_seen(dashboard: Dashboard, cluster: RealCluster) -> None:
    flow = cluster.client.workflows().items[0].number
    complaints: list[str] = []
    for path, there in PAGES.items():
        page = dashboard.open(path.format(flow=flow))
        page.locator(there).first.wait_for()
        reached = walk(page)
        stops = [each["stop"] for each in reached if each["stop"] >= 0]
        complaints += [f"{path}: {name!r} is not reached" for name in page.evaluate(UNREACHED, stops)]
        complaints += [
            f"{path}: {each['name']!r} has the focus unseen" for each in reached if not each["seen"]
        ]
        complaints += [f"{path}: {each['name']!r} is out of view" for each in reached if not each["inView"]]
        if stops != sorted(stops):
            complaints.append(f"{path}: in this order: {[each['name'] for each in reached]}")
    assert not complaints, "\n".join(complaints)


def open_again(page: Page, key: str, dialog: Locator) -> None:
    """By the key, on the button that has the focus; a key that comes while the page is drawn anew is pressed again."""
    from playwright.sync_api import TimeoutError as TooLate

    for _ in range(3):
        page.keyboard.press(key)
        with suppress(TooLate):
            dialog.wait_for(timeout=5_000)
            return


def test_a_dialog_is_opened_by_a_key_keeps_the_focus_and_gives_it_back(dashboard: Dashboard) -> None:
    for path, button, title, key in DIALOGS:
        page = dashboard.open(path)
        opener = page.get_by_role("button", name=button, exact=True)
        opener.focus()
        page.keyboard.press(key)
        dialog = page.get_by_role("dialog", name=title, exact=True)
        dialog.wait_for()
        wait_until(lambda: (where(page) or {}).get("inDialog"), what="the dialog has the focus")  # noqa: B023
        for _ in range(dialog.locator("button, input, select, textarea").count() + 2):
            page.keyboard.press("Tab")
            at = where(page)  # None: between the last and the first, the browser's own bar
            assert at is None or (at["inDialog"] and at["seen"]), at
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert opener.evaluate(HAS_FOCUS), title
        open_again(page, key, dialog)
        dialog.get_by_role("button", name=LEAVES).last.press("Enter")  # which removes it without closing it
        dialog.wait_for(state="detached")
        assert opener.evaluate(HAS_FOCUS), title


def test_enter_and_space_press_and_arrows_choose(dashboard: Dashboard, cluster: RealCluster) -> None:
    page = dashboard.open("/jobs")
    pending = page.get_by_role("group", name="Status").get_by_role("button", name="Pending")
    pending.focus()
    page.keyboard.press("Space")
    page.wait_for_url("**status=Pending")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "status=" not in url)
    dashboard.open("/jobs/waits")
    page.get_by_role("tab", selected=True).focus()
    page.keyboard.press("ArrowRight")
    wait_until(lambda: page.evaluate("document.activeElement.textContent") == "Logs" or None)
    page.keyboard.press("ArrowLeft")
    page.get_by_role("tab", name="Task", selected=True).wait_for()
    dashboard.open("/map")
    page.get_by_role("radio", name="job").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**by=user")
    dashboard.open("/jobs/waits")
    page.get_by_role("button", name="Hold").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_label("Reason").wait_for()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    wait_until(lambda: "by keyboard" in (cluster.client.job("waits").held or "") or None)
    cluster.client.release("waits")
    dashboard.check_clean()
