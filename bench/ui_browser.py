"""The dashboard in a real Chromium beside a large cluster: how soon a page shows something, and how long frames take.

    .venv/bin/python -m bench.ui_browser [--nodes 1000] [--jobs 2000] [--seconds 10] [--rounds 3]

1,000 nodes of eight devices (engines without processes, `bench/agents.py`), an array of 100,000 tasks of which 8,000
run, and at least 60 changes a second: tasks end and others start. Browser, coordinator and runners share the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.sync_api import sync_playwright

from bench.cluster import Cluster, until
from bench.ui_pages import SETTINGS, _ask, agents
from docs.site.look import QUIET

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = "/usr/bin/chromium"
# A page is useful when this is there: numbers, rows or a drawing of the cluster, not the frame around them.
USEFUL = {
    "/": ".tile .value",
    "/jobs": "[role=grid] [aria-rowindex='2'] .status",
    "/jobs/1": "[role=slider] canvas",
    "/map": ".map[data-drawn]",
}
# Notes when what is asked for has been painted, since the navigation began.
WATCH_PAINT = """selector => {
    const note = () => { document.documentElement.dataset.usefulAt ??= String(performance.now()); };
    const look = () => {
        if (document.querySelector(selector)) requestAnimationFrame(() => requestAnimationFrame(note));
        else requestAnimationFrame(look);
    };
    look();
}"""
# Notes how long each frame took.
WATCH_FRAMES = """() => {
    const found = (window.frames_ms = []);
    let last = performance.now();
    const next = () => {
        const now = performance.now();
        found.push(now - last);
        last = now;
        if (window.frames_ms === found) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
}"""


class Load(NamedTuple):
    """One first visit, with nothing cached."""

    useful_ms: float
    files_kb: float
    answers_kb: float


def logged_in(browser: Browser, cluster: Cluster) -> BrowserContext:
    rest = cluster.connect()
    ticket = _ask(rest, "POST", "/v1/logins/tickets", {})["ticket"]
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{cluster.port}/ui/#ticket={ticket}")
    page.get_by_role("navigation", name="Pages").wait_for()
    page.close()
    return context


def load(context: BrowserContext, cluster: Cluster, path: str) -> Load:
    """Open a page with an empty cache until what it is for is painted."""
    page = context.new_page()
    page.add_init_script(f"({WATCH_PAINT})({USEFUL[path]!r})")
    traffic = context.new_cdp_session(page)
    traffic.send("Network.enable")
    traffic.send("Network.setCacheDisabled", {"cacheDisabled": True})
    urls: dict[str, str] = {}
    sizes: dict[str, float] = {}
    traffic.on(
        "Network.responseReceived", lambda told: urls.__setitem__(told["requestId"], told["response"]["url"])
    )
    traffic.on(
        "Network.loadingFinished",
        lambda told: sizes.__setitem__(told["requestId"], told["encodedDataLength"]),
    )
    page.goto(f"http://127.0.0.1:{cluster.port}/ui{path}")
    noted = page.locator("html[data-useful-at]")
    noted.wait_for(timeout=60_000)
    useful_ms = float(noted.get_attribute("data-useful-at") or 0)
    page.close()
    files = sum(size for id, size in sizes.items() if "/ui/" in urls.get(id, ""))
    return Load(useful_ms, files / 1000, (sum(sizes.values()) - files) / 1000)


def frames(page: Page, seconds: float) -> list[float]:
    """How long each frame took, the longest last."""
    page.evaluate(WATCH_FRAMES)
    page.wait_for_timeout(1000 * seconds)
    found: list[float] = page.evaluate("window.frames_ms")
    return sorted(found[1:])


def scrolled(page: Page, seconds: float) -> list[float]:
    """The same while the list of jobs is scrolled, some screens a second."""
    page.evaluate(WATCH_FRAMES)
    page.get_by_role("grid").hover()
    for _ in range(int(seconds * 10)):
        page.mouse.wheel(0, 1500)
        page.wait_for_timeout(100)
    found: list[float] = page.evaluate("window.frames_ms")
    return sorted(found[1:])


def tell_frames(name: str, found: list[float]) -> None:
    late = sum(each > 100 for each in found)
    middle, most = statistics.median(found), found[-1]
    print(
        f"| {name} | {len(found)} | {middle:.0f} ms | {found[int(len(found) * 0.99)]:.0f} ms | {most:.0f} ms | {late} |"
    )


def report(browser: Browser, cluster: Cluster, options: argparse.Namespace) -> None:
    rest = cluster.connect()
    context = logged_in(browser, cluster)
    print("| first visit | useful after (median) | worst | files | answers |\n|---|--:|--:|--:|--:|")
    for path in USEFUL:
        loads = [load(context, cluster, path) for _ in range(options.rounds)]
        useful = [each.useful_ms for each in loads]
        last = loads[-1]
        print(
            f"| `/ui{path}` | {statistics.median(useful):.0f} ms | {max(useful):.0f} ms | {last.files_kb:.0f} kB"
            f" | {last.answers_kb:.0f} kB |", flush=True,
        )  # fmt: skip
    print(f"\n| frames in {options.seconds:g} s | number | median | 99% | longest | over 100 ms |")
    print("|---|--:|--:|--:|--:|--:|")
    before = _ask(rest, "GET", "/v1/cluster")["revision"]
    for path, selector in USEFUL.items():
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{cluster.port}/ui{path}")
        page.locator(selector).first.wait_for(timeout=60_000)
        page.wait_for_timeout(1500)
        tell_frames(f"`/ui{path}`", frames(page, options.seconds))
        if path == "/jobs":
            tell_frames("`/ui/jobs`, scrolling", scrolled(page, options.seconds))
        page.close()
    events = _ask(rest, "GET", "/v1/cluster")["revision"] - before
    spans = options.seconds * (len(USEFUL) + 1)
    print(f"\n{events / spans:.0f} changes a second meanwhile.")


def fill(cluster: Cluster, options: argparse.Namespace) -> None:
    """The array first, so that it is job 1; then jobs that wait behind it."""
    rest = cluster.connect()
    array: dict[str, Any] = {"command": ["sleep", "1"], "gpus": 1, "array": "1-100000", "name": "sweep"}
    _ask(rest, "POST", "/v1/jobs", array)
    for number in range(options.jobs):
        waits = {"command": ["sleep", "1"], "gpus": 8, "priority": -1, "name": f"waits-{number}"}
        _ask(rest, "POST", "/v1/jobs", waits)
    full = options.nodes * 8
    until(lambda: _ask(rest, "GET", "/v1/cluster")["tasks"]["running"] >= full * 0.98, 300.0, "all run", 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2000, help="jobs of one task, besides the array")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        cluster = Cluster(Path(folder), SETTINGS)
        cluster.start_coordinator()
        try:
            with agents(cluster, options.nodes, options.nodes * 8 / 40):
                fill(cluster, options)
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
                report(browser, cluster, options)
                browser.close()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
