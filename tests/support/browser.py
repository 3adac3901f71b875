"""The dashboard in a real Chromium, for tests: a page that is logged in, and what a test wants to know of any page.

Each module of `tests/browser` shares one cluster and one browser; each test gets a page of its own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.dashboard import STATIC
from tests.support.real_cluster import RealCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
WITHIN_MS = 30_000  # on a busy machine a page takes long
# What a page must not do, noted before its own scripts begin.
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (e) =>
  window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""
# Each of these would set window.pwned if it were taken for markup or code.
HOSTILE = (
    "<img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "'\"><svg onload=window.pwned=1>",
    "javascript:window.pwned=1",
    "{@html window.pwned=1}${window.pwned=1}",
    "\u202etxt.exe\u2066 right to left",
    "\x1b]8;;javascript:window.pwned=1\x07link\x1b]8;;\x07\x1b[31mred",
)


def chromium() -> str | None:
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
        None,
    )


def why_not() -> str:
    """Why the tests of the dashboard in a browser cannot run here; nothing if they can. In CI that is an error: a run
    without them would pass and say nothing of the dashboard.
    """
    missing = ""
    if chromium() is None:
        missing = "Chromium is missing: scripts/servers installs it with apt, as root"
    elif not (STATIC / "index.html").is_file() or not AXE.is_file():
        missing = "the dashboard is not built: make ui, with access to PyPI and npm"
    if missing and os.environ.get("CI"):
        raise RuntimeError(missing)
    return missing


@contextmanager
def a_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Dashboard:
    """One browser's login at one coordinator, as a user of some role."""

    def __init__(self, browser: Browser, cluster: RealCluster, token: str = "", at: str = "") -> None:
        self.cluster = cluster
        self.address = cluster.address(at or cluster.coordinators[0])
        self.token = token or cluster.user_token
        self.context: BrowserContext = browser.new_context(viewport=WIDE, bypass_csp=False)  # type: ignore[arg-type]
        self.context.set_default_timeout(WITHIN_MS)
        self.context.add_init_script(WATCH)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def ticket(self, *coordinators: str) -> str:
        """One-time, as `phalanx ui` gets it."""
        import httpx

        reply = httpx.post(
            f"{self.address}/v1/logins/tickets",
            json={"coordinators": list(coordinators)},
            headers={"Authorization": f"Bearer {self.token}"},
        )
        reply.raise_for_status()
        return str(reply.json()["ticket"])

    def log_in(self, path: str = "/", *coordinators: str) -> Page:
        self.page.goto(f"{self.address}/ui{path}#ticket={self.ticket(*coordinators)}")
        self.page.get_by_role("navigation", name="Pages").wait_for()
        return self.page

    def open(self, path: str) -> Page:
        """Another page of the dashboard, as a link within it opens it."""
        self.page.goto(f"{self.address}/ui{path}")
        self.page.get_by_role("navigation", name="Pages").wait_for()
        return self.page

    def check_clean(self) -> None:
        """Nothing of a user was run, nothing was refused by the CSP, nothing failed."""
        assert self.page.evaluate("window.pwned") is None
        assert self.page.evaluate("window.violations") == []
        assert self.errors == []

    def close(self) -> None:
        self.context.close()


def serious_findings(page: Page, only: str = "") -> list[str]:
    """What axe finds that keeps people from using the page. Its context has to bypass the CSP, for axe alone."""
    page.add_script_tag(path=AXE)
    wanted = [only] if only else {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found: dict[str, Any] = page.evaluate(
        "wanted => axe.run(document, {resultTypes: ['violations'], runOnly: wanted})", wanted
    )
    return [
        f"{finding['id']}: {json.dumps(node['target'])} {node.get('failureSummary', '')[:300]}"
        for finding in found["violations"]
        if finding["impact"] in ("serious", "critical")
        for node in finding["nodes"]
    ]
