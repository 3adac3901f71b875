"""Opens every page of the built site in Chromium, at a desktop's and at a phone's width: `python -m docs.site.look`.

A page must render without an error on the console, ask no other host for anything, and not be wider than the screen.
A picture of each is left in build/docs/pictures, for a person to look at. `make look` installs what this needs; the
browser itself is the distribution's (`apt install chromium`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path("build/docs/html")
PICTURES = Path("build/docs/pictures")
WIDTHS = {"desktop": 1280, "phone": 390}
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
# Elements that stick out of the screen, other than those inside something that scrolls by itself.
WIDE = """() => [...document.querySelectorAll('article *')].filter(each => {
    const box = each.getBoundingClientRect();
    if (box.width === 0 || box.right <= window.innerWidth + 1) return false;
    for (let up = each; up; up = up.parentElement)
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
    return true;
}).slice(0, 3).map(each => each.tagName + ' ' + each.textContent.slice(0, 60))"""


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def complaints(browser: Browser, address: str, names: list[str]) -> Iterator[str]:
    """What is wrong with each page at each width."""
    for where, width in WIDTHS.items():
        page = browser.new_page(viewport={"width": width, "height": 900})
        heard = _heard(page, address)
        for name in names:
            heard.clear()
            yield from (f"{name} ({where}): {each}" for each in _look(page, address, name, where, heard))
        page.close()


def _heard(page: Page, address: str) -> list[str]:
    """A list that gets every error of the page, and every request to another host, as they come."""
    heard: list[str] = []

    def hear_request(url: str) -> None:
        if not url.startswith((address, "data:")):
            heard.append(f"asks {url}")

    def hear_console(kind: str, text: str) -> None:
        if kind == "error":
            heard.append(text)

    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda said: hear_console(said.type, said.text))
    page.on("request", lambda asked: hear_request(asked.url))
    return heard


def _look(page: Page, address: str, name: str, where: str, heard: list[str]) -> list[str]:
    answer = page.goto(f"{address}/{name}")
    found = [] if answer is not None and answer.ok else ["it is not there"]
    if name != "search.html" and not page.locator("h1").first.is_visible():
        found.append("it has no title")
    found += [f"wider than the screen: {each}" for each in page.evaluate(WIDE)]
    picture = PICTURES / where / f"{name.replace('/', '-')}.png"
    page.screenshot(path=picture, full_page=True)
    return found + heard


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no chromium on PATH; `apt install chromium` brings one.")
    for where in WIDTHS:
        (PICTURES / where).mkdir(parents=True, exist_ok=True)
    names = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=QUIET)
        wrong = list(complaints(browser, address, names))
        browser.close()
    server.shutdown()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(names)} pages are as they should be at {len(WIDTHS)} widths; pictures are in {PICTURES}.")


if __name__ == "__main__":
    main()
