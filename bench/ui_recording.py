"""What pages of the dashboard ask of a coordinator, and when: taken down while Chromium has them open.

Each page is open alone, and what it asks is noted from when it shows what it is for. `bench/ui_clients.py` asks the
same again at the same times, over and over, with as many pages as are wanted and without the cost of browsers.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Request

# A page is useful when this is there: numbers, rows or a drawing of the cluster, not the frame around them.
USEFUL = {
    "/": ".tile .value",
    "/jobs": "[role=grid] [aria-rowindex='2'] .status",
    "/jobs/1": "[role=slider] canvas",
    "/map": ".map[data-drawn]",
    "/time": ".chart canvas",
}
STREAM = "/v1/pages/changes"
OURS = ("host", "connection", "if-none-match", "last-event-id")  # headers that a client sets by itself
TASK = re.compile(r"/v1/tasks/[^/]+/")
SETTLE_MS = 2000


class Asked(NamedTuple):
    """One request: when, in seconds since the recording began, of which kind, and what."""

    at_s: float
    kind: str
    path: str


class Recording(NamedTuple):
    """What one page asked in so many seconds, and the headers that came with it."""

    page: str
    seconds: float
    asked: list[Asked]
    headers: dict[str, str]


def record(context: BrowserContext, port: int, path: str, seconds: float) -> Recording:
    """Open a page and take down what it asks once it shows what it is for."""
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/ui{path}")
    page.locator(USEFUL[path]).first.wait_for(timeout=60_000)
    page.wait_for_timeout(SETTLE_MS)
    found = _noted(page, path, seconds)
    page.close()
    return found


def _noted(page: Page, path: str, seconds: float) -> Recording:
    began = time.monotonic()
    requests: list[tuple[float, Request]] = []
    page.on("request", lambda request: requests.append((time.monotonic() - began, request)))
    page.wait_for_timeout(1000 * seconds)
    asked, headers = [], dict[str, str]()
    for at_s, request in requests:
        url = urlsplit(request.url)
        if request.method != "GET" or not url.path.startswith("/v1/") or url.path == STREAM:
            continue
        whole = f"{url.path}?{url.query}" if url.query else url.path
        asked.append(Asked(at_s, kind_of(url.path), whole))
        headers = headers or request.all_headers()
    return Recording(path, seconds, asked, {name: value for name, value in headers.items() if is_kept(name)})


def is_kept(header: str) -> bool:
    return not header.startswith(":") and header.lower() not in OURS


def kind_of(path: str) -> str:
    """The path without the task that it names: pages ask about one task after another."""
    return TASK.sub("/v1/tasks/…/", path)


def tell(recording: Recording) -> None:
    """How often the page asks what."""
    kinds = dict.fromkeys(each.kind for each in recording.asked)
    counts = {kind: sum(each.kind == kind for each in recording.asked) for kind in kinds}
    said = [f"{kind} every {recording.seconds / count:.2g} s" for kind, count in counts.items()]
    print(f"| `/ui{recording.page}` | the stream{''.join(f', {each}' for each in said)} |", flush=True)
