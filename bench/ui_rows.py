"""A list of 100,000 jobs in a real Chromium: how long until a filter, an order or a search is shown, and what it costs.

    .venv/bin/python -m bench.ui_rows [--jobs 100000] [--rounds 3]

The jobs are held, in a cluster without nodes; names, commands and priorities differ. Each step is done as
a user does it, by a click or a key, and ends when the first row that was asked for is painted. *Main thread* is the
CPU time of the page's longest task meanwhile, *coordinator* its CPU time for the step.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from playwright.sync_api import sync_playwright

from bench.cluster import Cluster
from bench.ui_load import CHROMIUM, SETTINGS, ask, logged_in, options_of
from bench.ui_pages import cpu_s
from bench.ui_tasks import Task, traced
from docs.site.look import QUIET

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CONNECTIONS = 8
FIRST_ROW = "[role=grid] [aria-rowindex='2']"
WITHIN_MS = 30_000
# From before the user does something until what was asked for is painted: resolves with the milliseconds.
SHOWN = """() => { window.shown = new Promise((resolve) => {
    const began = performance.now();
    const look = () => {
        const row = document.querySelector("[role=grid] [aria-rowindex='2']")?.innerText ?? '';
        const count = document.querySelector('.page-head [role=status]')?.innerText ?? '';
        if (IS_SHOWN) {
            requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
        } else requestAnimationFrame(look);
    };
    look();
}); }"""


class Step(NamedTuple):
    """What a user does, and what tells that it is shown."""

    name: str
    do: Callable[[Page], None]
    shown: str  # JavaScript, of the texts of the first row and of the number of jobs


def steps(jobs: int) -> tuple[Step, ...]:
    all, half = f"{jobs:,}", f"{jobs // 2:,}"
    return (
        Step("order by name", _ordered_by("Name"), "row.includes('job-000000')"),
        Step(
            "order by priority", _ordered_by("Priority"), "row.includes('-50') && !row.includes('job-000000')"
        ),
        Step("search that one job fits", _searched(f"job-{jobs - 7:06}"), "count.startsWith('1 job')"),
        Step("search that half of them fit", _searched("train"), f"count.startsWith('{half} ')"),
        Step("search with two words", _searched("train 777"), "/^[1-9][0-9]{0,2} jobs/.test(count)"),
        Step("no search", _searched(""), f"count.startsWith('{all} ')"),
        Step("filter by status", _filtered("Running"), "count.startsWith('0 ')"),
        Step("no filter", _filtered("Running"), f"count.startsWith('{all} ')"),
    )


def _ordered_by(column: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("columnheader", name=column).get_by_role("button").click()


def _searched(text: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("searchbox", name="Search jobs").fill(text)


def _filtered(status: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("group", name="Status").get_by_role("button", name=status).click()


def fill(cluster: Cluster, jobs: int) -> None:
    """Jobs that are held, through several connections, so that many are written together."""

    def submit(first: int) -> None:
        with cluster.connect() as rest:
            for number in range(first, jobs, CONNECTIONS):
                kind = "train" if number % 2 else "evaluate"
                job = {"command": ["python", f"{kind}.py", f"--seed={number}"], "name": f"job-{number:06}"}
                ask(rest, "POST", "/v1/jobs", job | {"priority": number % 101 - 50, "hold": True})

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(browser: Browser, page: Page, cluster: Cluster, step: Step) -> tuple[float, float, Task]:
    """Milliseconds until it is shown, CPU milliseconds of the coordinator, and the page's longest task."""
    shown_ms: list[float] = []

    def do() -> None:
        page.evaluate(SHOWN.replace("IS_SHOWN", step.shown))
        step.do(page)
        shown_ms.append(page.evaluate("() => window.shown"))

    used = cpu_s(cluster.coordinator_pid)
    tasks = traced(browser, page, do)
    return shown_ms[0], 1000 * (cpu_s(cluster.coordinator_pid) - used), tasks[-1]


def report(browser: Browser, cluster: Cluster, jobs: int, rounds: int) -> None:
    page = logged_in(browser, cluster).new_page()
    page.set_default_timeout(WITHIN_MS)
    page.goto(f"http://127.0.0.1:{cluster.port}/ui/jobs")
    page.locator(".page-head [role=status]", has_text=f"{jobs:,} jobs").wait_for()
    found: dict[str, list[tuple[float, float, Task]]] = {}
    for _ in range(rounds):
        for step in steps(jobs):
            found.setdefault(step.name, []).append(measured(browser, page, cluster, step))
        page.goto(f"http://127.0.0.1:{cluster.port}/ui/jobs")
        page.locator(FIRST_ROW).wait_for()
    print("| step | shown after (median) | worst | coordinator, CPU | longest task of the page, CPU |")
    print("|---|--:|--:|--:|--:|")
    for name, each in found.items():
        times_ms, most_ms = [one[0] for one in each], max(one[2].cpu_ms for one in each)
        own_ms = statistics.median(one[1] for one in each)
        shown = f"{statistics.median(times_ms):.0f} ms | {max(times_ms):.0f} ms"
        print(f"| {name} | {shown} | {own_ms:.0f} ms | {most_ms:.0f} ms |")


def main() -> None:
    parser = options_of(__doc__)
    parser.set_defaults(jobs=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        cluster = Cluster(Path(folder), SETTINGS)
        cluster.start_coordinator()
        try:
            fill(cluster, options.jobs)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            report(browser, cluster, options.jobs, options.rounds)
            browser.close()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
