"""Stories: what the log has about a job, a task, a node or a workflow, as lines, forwards or the newest first.

A page of the newest lines has them in their order; its cursor, `-REVISION`, asks for those before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from phalanx.api.schema.jobs import Page, StoryLine
from phalanx.api.schema.queries import NEWEST
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.feed import watch_event
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.events import Event, decode
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import AttemptKey
from phalanx.errors import BadRequest
from phalanx.store.protocol import Batch, Store

BATCHES_PER_PAGE = 200
NEWEST_BACK = 1000  # revisions that are read first for the newest lines of a story
BEGINNINGS = ("JobSubmitted", "NodeJoined", "WorkflowSubmitted")
NOT_KEPT = "what happened before is no longer kept (coordinator.keep_events)"


class Stories:
    """Reads of the log of one coordinator."""

    def __init__(self, loop: Requests, store: Store, slices: TimeSlices) -> None:
        self._loop, self._store, self._slices = loop, store, slices

    async def page(
        self,
        subject: str,
        job: JobState | None,
        position: int | None,
        cursor: str | None,
        limit: int,
        *,
        inspects: bool = False,
    ) -> Page[StoryLine]:
        """Lines from the beginning on, or the last ones before some point."""
        if cursor == NEWEST:
            return await self._before(self._loop.state.revision + 1, subject, job, position, limit, inspects)
        if cursor is not None and cursor.startswith("-"):
            return await self._before(position_in(cursor[1:]), subject, job, position, limit, inspects)
        after = position_in(cursor)
        lines: list[StoryLine] = []
        while len(lines) < limit:
            batches = await self._store.story(subject, after, BATCHES_PER_PAGE)
            piece = await self._slices.turn()
            for batch in batches:
                if piece.is_over:
                    piece = await self._slices.turn()
                lines += self._lines(batch, subject, job, position, inspects)
                after = batch.revision
            if not batches:  # a short page is not the last: damaged records are left out of it
                return Page(_begun(lines, cursor), None)
        return Page(_begun(lines, cursor), str(after))

    async def _before(
        self, end: int, subject: str, job: JobState | None, position: int | None, limit: int, inspects: bool
    ) -> Page[StoryLine]:
        """The last lines before a revision: the log is read from ever further back until there are enough."""
        back = NEWEST_BACK
        while True:
            lines: deque[StoryLine] = deque(
                maxlen=limit + 1
            )  # one more, to know whether there are older ones
            cursor = str(end - back) if end > back else None
            is_whole, is_read = cursor is None, False
            while not is_read:
                page = await self.page(subject, job, position, cursor, limit, inspects=inspects)
                lines.extend(line for line in page.items if line.revision < end)
                cursor = page.next_cursor
                is_read = cursor is None or int(cursor) >= end
            if is_whole or len(lines) > limit:
                newest = list(lines)[-limit:]
                return Page(newest, f"-{newest[0].revision}" if len(lines) > limit else None)
            back *= 8

    def _lines(
        self, batch: Batch, subject: str, job: JobState | None, position: int | None, inspects: bool
    ) -> Iterator[StoryLine]:
        """What one batch has to say about a job, one of its tasks, or a node."""
        events = decode(batch.body)
        for revision, event in enumerate(events, start=batch.revision - len(events) + 1):
            key, about = getattr(event, "key", None), _about(event, subject)
            is_other_task = position is not None and about is not None and position not in about
            if subject not in (*event.jobs, event.on_node) or is_other_task:
                continue
            told = watch_event(revision, event, self._loop.state)
            task = job.job.task_id(key[1]) if job and key else told.task
            yield StoryLine(
                revision,
                told.at,
                told.event,
                sentence(event, inspects=inspects),
                task,
                told.node,
                event.cause,
                number=told.number,
            )


def _begun(lines: list[StoryLine], cursor: str | None) -> list[StoryLine]:
    """The first page of a story, which says so if its beginning is gone: the log is kept for so many events only."""
    if cursor is not None or (lines and lines[0].event in BEGINNINGS):
        return lines
    revision, at = (lines[0].revision - 1, lines[0].at) if lines else (0, 0.0)
    return [StoryLine(revision, at, "NotKept", NOT_KEPT), *lines]


def _about(event: Event, job: str) -> tuple[int, ...] | None:
    """The positions of a job that an event is about; None: all of it."""
    if (key := getattr(event, "key", None)) is not None:
        return (key[1],)
    left: tuple[AttemptKey, ...] = getattr(event, "keys", ()) or getattr(event, "victims", ())
    if event.own_job != job and left:
        return tuple(position for id, position, _ in left if id == job)
    positions: tuple[int, ...] | None = getattr(event, "positions", None)
    return positions


def position_in(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
    return int(cursor)
