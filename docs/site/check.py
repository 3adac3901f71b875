"""Looks over the built site: `python -m docs.site.check FOLDER`.

Every link inside the site leads to a file and an anchor that are there, and no page loads anything from another host.
Links that a reader may follow to the outside are not visited.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "genindex", "top", "up", "alternate"}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        target = given.get(LOADED.get(tag, ""), "")
        if target and given.get("rel") not in NOT_LOADED:
            self.loaded.append(target)


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def complaints(folder: Path) -> list[str]:
    """What is wrong, each with its page."""
    folder = folder.resolve()
    found = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder)
        found += [f"{name}: loads {each}" for each in page(path).loaded if urlsplit(each).netloc]
        found += [
            f"{name}: {each} leads nowhere"
            for each in [*page(path).links, *page(path).loaded]
            if not _is_there(path, each, folder)
        ]
    return found


def _is_there(path: Path, link: str, folder: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file() or not target.is_relative_to(folder):
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in page(target).anchors


if __name__ == "__main__":
    wrong = complaints(Path(sys.argv[1]))
    sys.exit("\n".join(wrong) if wrong else 0)
