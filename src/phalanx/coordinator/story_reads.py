"""Stories: what happened to a job, a task, a node or a workflow, read from the events that the store keeps.

The attempts of a task are put together from the same events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from msgspec import Struct

from phalanx.api.schema.attempts import AttemptView
from phalanx.api.schema.jobs import Page, StoryLine
from phalanx.api.schema.queries import NEWEST
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator import lookup
from phalanx.coordinator.attempt_rows import AttemptRows
from phalanx.coordinator.feed import watch_event
from phalanx.coordinator.listing import position_after
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.events import Event, decode
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import AttemptKey
from phalanx.errors import NotFound
from phalanx.store.protocol import Batch, Store

BATCHES_PER_PAGE = 200
NEWEST_BACK = 1000  # revisions that are read first for the newest lines of a story
BEFORE = "before:"  # a cursor of a story that is read from its end
BEGINNINGS = ("JobSubmitted", "NodeJoined", "WorkflowSubmitted")
NOT_KEPT = "what happened before is no longer kept (coordinator.keep_events)"


class _Subject(Struct, frozen=True):
    """Whose story it is: a job's, one task's (`position`), a node's or a workflow's."""

    id: str
    job: JobState | None = None
    position: int | None = None
    inspects: bool = False  # the asker may see results of a workflow's stages


class StoryReads:
    """Reads of the events that the store keeps."""

    def __init__(self, loop: Requests, store: Store, slices: TimeSlices) -> None:
        self._loop = loop
        self._store = store
        self._slices = slices

    async def story(
        self, id: str, *, cursor: str | None, limit: int, inspects: bool = False
    ) -> Page[StoryLine]:
        about = await self._subject(id, inspects=inspects)
        if cursor == NEWEST:
            return await self._newest(about, None, limit)
        if cursor is not None and cursor.startswith(BEFORE):
            return await self._newest(about, position_after(cursor.removeprefix(BEFORE)), limit)
        return await self._forward(about, cursor, limit)

    async def attempts(self, id: str) -> list[AttemptView]:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        rows = AttemptRows(position)
        async with aclosing(self._batches(job.job.id, 0)) as batches:
            async for batch in batches:
                for event in decode(batch.body):
                    if event.own_job == job.job.id:
                        rows.note(event)
        return rows.views(job)

    async def _subject(self, id: str, *, inspects: bool) -> _Subject:
        if id in self._loop.state.nodes:
            return _Subject(id)
        try:
            job, position = await lookup.find_task(self._loop, self._store, id)
        except NotFound as error:
            if ":" in id:  # a stage without a job
                raise
            try:
                flow = await lookup.find_workflow(self._loop, self._store, id)
            except NotFound:
                raise error from None
            return _Subject(flow.workflow.id, inspects=inspects)
        return _Subject(job.job.id, job, position if "." in id else None)

    async def _forward(self, about: _Subject, cursor: str | None, limit: int) -> Page[StoryLine]:
        """Lines after a cursor, in their order."""
        lines: list[StoryLine] = []
        async with aclosing(self._batches(about.id, position_after(cursor))) as batches:
            async for batch in batches:
                lines += self._lines(batch, about)
                if len(lines) >= limit:
                    return Page(_begun(lines, cursor), str(batch.revision))
        return Page(_begun(lines, cursor), None)

    async def _batches(self, subject: str, after: int) -> AsyncGenerator[Batch, None]:
        """What the store keeps of a subject, in pieces."""
        while batches := await self._store.story(subject, after, BATCHES_PER_PAGE):
            piece = await self._slices.turn()
            for batch in batches:  # a short page is not the last: damaged records are left out of it
                if piece.is_over:
                    piece = await self._slices.turn()
                yield batch
                after = batch.revision

    async def _newest(self, about: _Subject, before: int | None, limit: int) -> Page[StoryLine]:
        """The last lines of a story, or those before a revision: it is read from ever further back until there are
        enough. The cursor of the page leads to older ones.
        """
        upto, back = self._loop.state.revision if before is None else before, NEWEST_BACK
        while True:
            lines: deque[StoryLine] = deque(maxlen=limit)
            cursor = str(upto - back) if upto > back else None
            is_whole, is_read, found = cursor is None, False, 0
            while not is_read:
                page = await self._forward(about, cursor, limit)
                wanted = [line for line in page.items if before is None or line.revision < before]
                lines.extend(wanted)
                found += len(wanted)
                cursor = page.next_cursor
                is_read = cursor is None or len(wanted) < len(page.items)
            if is_whole or len(lines) == limit:
                is_all = is_whole and found == len(lines)
                return Page(list(lines), None if is_all else f"{BEFORE}{lines[0].revision}")
            back *= 8

    def _lines(self, batch: Batch, about: _Subject) -> Iterator[StoryLine]:
        """What one batch has to say about a job, one of its tasks, or a node."""
        events = decode(batch.body)
        for revision, event in enumerate(events, start=batch.revision - len(events) + 1):
            key, positions = getattr(event, "key", None), _positions(event, about.id)
            is_other_task = (
                about.position is not None and positions is not None and about.position not in positions
            )
            if about.id not in (*event.jobs, event.on_node) or is_other_task:
                continue
            told = watch_event(revision, event, self._loop.state)
            task = about.job.job.task_id(key[1]) if about.job and key else told.task
            yield StoryLine(
                revision,
                told.at,
                told.event,
                sentence(event, inspects=about.inspects),
                task,
                told.node,
                event.cause,
                number=told.number,
            )


def _begun(lines: list[StoryLine], cursor: str | None) -> list[StoryLine]:
    """The first page of a story, which says so if its beginning is gone: the log is kept for so many events only."""
    # A node that was admitted by a join token has that before it is there for the first time.
    first = [line.event for line in lines if line.event != "JoinRedeemed"][:1]
    if cursor is not None or (lines and (not first or first[0] in BEGINNINGS)):
        return lines
    revision, at = (lines[0].revision - 1, lines[0].at) if lines else (0, 0.0)
    return [StoryLine(revision, at, "NotKept", NOT_KEPT), *lines]


def _positions(event: Event, job: str) -> tuple[int, ...] | None:
    """The positions of a job that an event is about; None: all of it."""
    if (key := getattr(event, "key", None)) is not None:
        return (key[1],)
    left: tuple[AttemptKey, ...] = getattr(event, "keys", ()) or getattr(event, "victims", ())
    if event.own_job != job and left:
        return tuple(position for id, position, _ in left if id == job)
    positions: tuple[int, ...] | None = getattr(event, "positions", None)
    return positions
