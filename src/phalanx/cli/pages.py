"""Pages: a long list, asked for piece by piece."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Protocol, TypeVar

from phalanx.api.schema.jobs import Page, StoryLine
from phalanx.api.schema.queries import NEWEST

PAGE_MAX = 1000
T = TypeVar("T")


class AskPage(Protocol[T]):
    """A call of the client that answers one page."""

    def __call__(self, *, cursor: str | None, limit: int) -> Page[T]: ...


def each_item(ask: AskPage[T], most: int = sys.maxsize) -> Iterator[T]:
    """The first `most` items, a page at a time: no more of them is held at once."""
    cursor = None
    while most > 0:
        page = ask(cursor=cursor, limit=min(PAGE_MAX, most))
        yield from page.items
        cursor, most = page.next_cursor, most - len(page.items)
        if cursor is None:
            return


def collected(ask: AskPage[T], limit: int) -> tuple[list[T], bool]:
    """The first `limit` items, and whether there are more."""
    items: list[T] = []
    cursor = None
    while len(items) < limit:
        page = ask(cursor=cursor, limit=min(PAGE_MAX, limit - len(items)))
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items, False
    return items, True


def newest(ask: AskPage[StoryLine], limit: int, since: float | None = None) -> tuple[list[StoryLine], bool]:
    """The last `limit` lines of a story, in their order, none before `since`; and whether there are older ones."""
    lines: list[StoryLine] = []
    cursor: str | None = NEWEST
    while cursor is not None and len(lines) < limit:
        page = ask(cursor=cursor, limit=min(PAGE_MAX, limit - len(lines)))
        recent = [line for line in page.items if since is None or line.at >= since]
        lines = recent + lines
        cursor = page.next_cursor
        if len(recent) < len(page.items):  # what is older was not asked for
            return lines, False
    return lines, cursor is not None
