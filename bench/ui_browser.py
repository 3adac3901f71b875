"""The dashboard in a real Chromium beside a large cluster: how soon a page shows something, and what keeps it busy.

    .venv/bin/python -m bench.ui_browser [--nodes 1000] [--jobs 2000] [--seconds 8] [--rounds 3] [--only loads|frames]

The cluster is that of `bench/ui_load.py`; a runner of its own writes a log, and a workflow of a hundred stages runs.
Browser, coordinator and runners share the machine, so beside the frames there is the CPU time of the page's tasks:
what others use of the machine does not lengthen that.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.sync_api import sync_playwright

from bench.cluster import Cluster
from bench.ui_load import CHROMIUM, ask, at_work, logged_in, options_of, revision
from bench.ui_recording import USEFUL
from bench.ui_tasks import traced
from docs.site.look import QUIET

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

STAGES, WIDTH = 100, 10
LINES = (
    "i=0; while true; do i=$((i+1)); echo line $i of a log that grows; [ $((i%30)) = 0 ] && sleep 0.5; done"
)
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
LONG_MS, LATE_MS = 50, 100
STEP_MS = 100


class Load(NamedTuple):
    """One first visit, with nothing cached."""

    useful_ms: float
    files_kb: float
    answers_kb: float


def load(context: BrowserContext, cluster: Cluster, path: str, useful: str) -> Load:
    """Open a page with an empty cache until what it is for is painted."""
    page = context.new_page()
    page.add_init_script(f"({WATCH_PAINT})({useful!r})")
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


def watched(page: Page, seconds: float) -> None:
    page.wait_for_timeout(1000 * seconds)


def scrolled(page: Page, seconds: float) -> None:
    """Some screens a second."""
    page.get_by_role("grid").hover()
    for _ in range(int(1000 * seconds / STEP_MS)):
        page.mouse.wheel(0, 1500)
        page.wait_for_timeout(STEP_MS)


def tell_frames(browser: Browser, page: Page, name: str, work: Callable[[], object]) -> None:
    page.evaluate(WATCH_FRAMES)
    tasks = traced(browser, page, work)
    frames: list[float] = sorted(page.evaluate("window.frames_ms")[1:])
    late = sum(each > LATE_MS for each in frames)
    long = [each for each in tasks if each.cpu_ms > LONG_MS]
    most = tasks[-1]
    print(
        f"| {name} | {len(frames)} | {statistics.median(frames):.0f} ms | {frames[int(len(frames) * 0.99)]:.0f} ms |"
        f" {frames[-1]:.0f} ms | {late} | {most.cpu_ms:.0f} ms | {len(long)} | {most.what} |", flush=True,
    )  # fmt: skip


def report_loads(context: BrowserContext, cluster: Cluster, rounds: int, flow: str) -> None:
    print("| first visit | useful after (median) | worst | files | answers |\n|---|--:|--:|--:|--:|")
    pages = USEFUL | {flow: ".svelte-flow__node"}
    for path, useful in pages.items():
        loads = [load(context, cluster, path, useful) for _ in range(rounds)]
        times_ms = [each.useful_ms for each in loads]
        last = loads[-1]
        print(
            f"| `/ui{path}` | {statistics.median(times_ms):.0f} ms | {max(times_ms):.0f} ms | {last.files_kb:.0f} kB"
            f" | {last.answers_kb:.0f} kB |", flush=True,
        )  # fmt: skip


def report_frames(
    browser: Browser, context: BrowserContext, cluster: Cluster, seconds: float, extra: dict[str, str]
) -> None:
    print(f"\n| {seconds:g} s each | frames | median | 99% | longest | over {LATE_MS} ms", end="")
    print(f" | longest task, CPU | tasks over {LONG_MS} ms CPU | in the longest |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    grid = "[role=grid] [aria-rowindex='2']"
    pages = USEFUL | {"/nodes": grid, "/queues": ".queues .panel"} | extra
    for path, useful in pages.items():
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{cluster.port}/ui{path}")
        page.locator(useful).first.wait_for(timeout=60_000)
        page.wait_for_timeout(1500)
        tell_frames(browser, page, f"`/ui{path}`", partial(watched, page, seconds))
        if path in ("/jobs", "/nodes"):
            tell_frames(browser, page, f"`/ui{path}`, scrolled", partial(scrolled, page, seconds))
        page.close()


def submit_more(cluster: Cluster) -> tuple[str, str]:
    """The paths of a workflow of a hundred stages, and of the log of a task that writes sixty lines a second."""
    rest = cluster.connect()
    cluster.start_runner("writer", "cpus=2,ram=4GiB")
    log: dict[str, Any] = {"command": ["sh", "-c", LINES], "nodes": ["writer"], "name": "writes"}
    job = ask(rest, "POST", "/v1/jobs", log)["accepted"][0]["number"]
    job_of_stage, stages = {"groups": [{"command": ["true"]}]}, list[dict[str, Any]]()
    for at in range(STAGES):
        after = [f"s{at - WIDTH}", f"s{at - WIDTH + (1 if at % WIDTH < WIDTH - 1 else 1 - WIDTH)}"]
        stages.append({"name": f"s{at}", "after": after if at >= WIDTH else [], "job": job_of_stage})
    flow = ask(rest, "POST", "/v1/workflows", {"workflow": {"name": "hundred", "stages": stages}})["id"]
    return f"/workflows/{flow}", f"/jobs/{job}?tab=logs"


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("loads", "frames"))
    options: argparse.Namespace = parser.parse_args()
    with at_work(options.nodes, options.jobs) as cluster, sync_playwright() as playwright:
        flow, log = submit_more(cluster)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        context = logged_in(browser, cluster)
        if options.only != "frames":
            report_loads(context, cluster, options.rounds, flow)
        if options.only != "loads":
            rest = cluster.connect()
            before, began = revision(rest), time.monotonic()
            extra = {flow: ".svelte-flow__node", log: ".line"}
            report_frames(browser, context, cluster, options.seconds, extra)
            per_s = (revision(rest) - before) / (time.monotonic() - began)
            print(f"\n{per_s:.0f} changes a second meanwhile.")
        browser.close()


if __name__ == "__main__":
    main()
