"""Questions about the state: lists, one job, one node. They change nothing.

Stories are read by `story_reads.py`, and `why_reads.py` says why something waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import TypeVar

from msgspec import structs

from phalanx.api.schema.apply import DraftView
from phalanx.api.schema.cluster import ClusterView, NodeView
from phalanx.api.schema.fields import read_selector
from phalanx.api.schema.jobs import Counts, JobView, Page, StatusWord, TaskView
from phalanx.api.schema.queries import JobsQuery
from phalanx.api.schema.queues import QueueView
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator import lookup, naming
from phalanx.coordinator.allowed import possible
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.images import ImageProgress
from phalanx.coordinator.listing import Asked, position_after
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import job_view, task_view, task_viewer
from phalanx.coordinator.views_cluster import brake_text, known_queues, node_view, queue_view
from phalanx.coordinator.waiting_jobs import waiting_by_queue
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.amounts import CORES, MILLICORES, written
from phalanx.core.model.job import is_job_id
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest, NotFound, Unavailable
from phalanx.store.protocol import History, Store

T = TypeVar("T")
V = TypeVar("V")
RECORDS_PER_PAGE = 50
LOOKS_PER_GLANCE = 64  # jobs between two looks at the clock
PAGE_EXTENT = 1_000_000  # characters; a page of large jobs is shorter than asked for, and has a next one


class StateReads:
    """Reads of the state as this coordinator knows it, and of the store behind it."""

    def __init__(self, loop: Requests, store: Store, clock: Clock, idle: IdleDevices | None = None) -> None:
        self.slices = TimeSlices(clock)
        self.images = ImageProgress()
        self._idle = idle or IdleDevices()
        self._loop = loop
        self._store = store
        self._clock = clock

    async def jobs(self, query: JobsQuery, user: str) -> Page[JobView]:
        known = self._loop.state.known_names
        asked, cursor, limit = Asked.of(query, user, known), query.cursor, query.limit
        if cursor is not None and not is_job_id(cursor):
            raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
        found: list[JobView] = []
        extent = 0
        async with aclosing(self._newest_first(cursor, asked)) as jobs:
            async for job in jobs:
                extent += _extent(job)
                if len(found) == limit or (found and extent > PAGE_EXTENT):
                    return Page(found, found[-1].id)
                found.append(self.images.noted_job(job, job_view(self._loop.state, job)))
        return Page(found, None)

    async def job(self, id: str, asker: Asker = ADMIN) -> JobView:
        found = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        view = self.images.noted_job(found, job_view(self._loop.state, found))
        return structs.replace(view, may=possible(self._loop.state, found, asker))

    async def named(self, name: str, user: str, *, of_all: bool, kind: naming.Kind = "job") -> str:
        return await naming.find_named(self._loop, self._store, name, user, of_all=of_all, kind=kind)

    def namesakes(self, name: str, id: str) -> tuple[int, list[int]]:
        return naming.namesakes(self._loop.state, name, id)

    def in_numbers(self, text: str) -> str:
        try:
            return naming.in_numbers(self._loop.state, text)
        except Unavailable:  # there is no state yet, and that may be what the text is about
            return text

    async def draft(self, id: str) -> DraftView:
        found = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        draft = found.job.draft
        if draft is None or found.is_over:
            raise NotFound(f"{found.job.id} waits for no members", reason="NoDraft")
        return DraftView(found.job.id, draft.version, draft.lacks, draft.manifests, dict(found.job.applied))

    async def owner(self, id: str, *, kind: naming.Kind = "job") -> tuple[str, str]:
        if kind == "workflow":  # never a job that the beginning of an id fits as well
            flow = (await lookup.find_workflow(self._loop, self._store, id)).workflow
            return flow.id, flow.user
        try:
            found = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        except NotFound as error:
            try:
                flow = (await lookup.find_workflow(self._loop, self._store, id.partition(":")[0])).workflow
            except NotFound:
                raise error from None
            return flow.id, flow.user
        return found.job.id, found.job.user

    async def is_of_same_workflow(self, job: str, other: str) -> bool:
        own = self._loop.state.jobs.get(job)
        if own is None or own.job.workflow is None:
            return False
        if other == own.job.workflow[0]:
            return True
        try:
            found = await lookup.find_job(self._loop, self._store, other)
        except NotFound:
            return False
        return found.job.workflow is not None and found.job.workflow[0] == own.job.workflow[0]

    async def task(self, id: str) -> TaskView:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        return self.images.noted(job, position, task_view(self._loop.state, job, position))

    async def tasks(
        self,
        job: str,
        *,
        status: StatusWord | None,
        selector: str | None = None,
        cursor: str | None,
        limit: int,
    ) -> Page[TaskView]:
        selects = read_selector(selector or "")
        found = await lookup.find_job(self._loop, self._store, job)
        chosen = [selects.selects_group(found.job, number) for number in range(len(found.groups))]
        wanted = None if status is None else Status[status.upper()]
        at = position_after(cursor)
        positions: list[int] = []
        while at < len(found.status) and len(positions) < limit:
            group = found.group_of(at)
            if not chosen[group.number]:
                at = group.last
                continue
            if wanted is None or found.status[at] == wanted:
                positions.append(at)
            at += 1
            if wanted is not None and at < len(found.status) and found.status[at] != wanted:
                next_at = found.status.find(wanted, at)
                at = len(found.status) if next_at < 0 else next_at
        viewer = task_viewer(self._loop.state, found)

        def view(position: int) -> TaskView:
            return self.images.noted(found, position, viewer(position))

        return Page(await self._in_pieces(positions, view), str(at) if at < len(found.status) else None)

    async def nodes(self) -> list[NodeView]:
        state = self._loop.state
        views = await self._in_pieces(
            sorted(state.nodes),
            lambda name: node_view(state, state.nodes[name]) if name in state.nodes else None,
        )
        return [
            self._idle.noted(view) for view in views if view is not None
        ]  # one may have been removed meanwhile

    async def node(self, name: str) -> NodeView:
        state = self._loop.state
        if name not in state.nodes:
            known = ", ".join(sorted(state.nodes)[:8]) or "none"
            raise NotFound(f"no node {name[:80]!r} (nodes: {known})", reason="NodeNotFound")
        return self._idle.noted(node_view(state, state.nodes[name]))

    async def queues(self) -> list[QueueView]:
        state = self._loop.state
        waiting = await waiting_by_queue(state, self.slices)
        return await self._in_pieces(
            known_queues(state, waiting),
            lambda name: queue_view(state, name, waiting[name], with_users=False),
        )

    async def queue(self, name: str) -> QueueView:
        state = self._loop.state
        waiting = await waiting_by_queue(state, self.slices)
        if name not in (known := known_queues(state, waiting)):
            raise NotFound(f"no queue {name[:80]!r} (queues: {', '.join(known[:8])})", reason="QueueNotFound")
        return queue_view(state, name, waiting[name])

    async def cluster(self) -> ClusterView:
        from phalanx import __version__  # finding it out takes a tenth of a coordinator's start

        await self.slices.turn()
        state = self._loop.state
        table = state.table
        ledgers = [each for each in table.ledgers if table.is_open(each.name)]
        return ClusterView(
            version=__version__,
            epoch=state.epoch,
            revision=state.revision,
            nodes=len(state.nodes),
            nodes_online=sum(node.takes_work for node in state.nodes.values()),
            cores=written(sum(MILLICORES[ledger.capacity.cores] for ledger in ledgers)),
            cores_free=written(sum(ledger.free[CORES] for ledger in ledgers)),
            devices=sum(len(ledger.devices) for ledger in ledgers),
            devices_free=sum(len(ledger.devices_free) for ledger in ledgers),
            jobs=len(state.jobs),
            tasks=Counts(*state.counts),
            coordinator=self._loop.view(),
            brake=brake_text(state),
        )

    async def _in_pieces(self, things: Iterable[T], view: Callable[[T], V]) -> list[V]:
        """A view of each, made in pieces."""
        views: list[V] = []
        piece = await self.slices.turn()
        for thing in things:
            if piece.is_over:
                piece = await self.slices.turn()
            views.append(view(thing))
        return views

    def node_name(self, job: JobState, position: int, number: int) -> str | None:
        """The node that had this attempt of a task, if that is known."""
        names, at = self._loop.state.known_names, job.node_number(position, number)
        return None if at is None or at >= len(names) else names[at]

    def node_of(self, job: JobState, position: int, number: int) -> str:
        """The node that had this attempt of a task."""
        name = self.node_name(job, position, number)
        if name is None:
            raise Unavailable(
                f"which node had attempt {number} is not known, so its log cannot be found",
                reason="LogUnavailable",
                hint="`phalanx story` names the node, while the events of that time are kept",
            )
        return name

    async def _newest_first(self, cursor: str | None, asked: Asked) -> AsyncGenerator[JobState, None]:
        """Jobs that are asked for, in memory and in the history, ids below `cursor`.

        A job may stand in both: its record can be kept a moment before the word that it left memory. Memory is right.
        One that left memory between two pieces of the work is read from the history by its id.
        """
        piece = await self.slices.turn()
        state, wanted = self._loop.state, asked.status
        if wanted in (Status.ASSIGNED, Status.RUNNING):  # only what is on a node, however many wait
            ids = sorted({key[0] for node in state.nodes.values() for key in node.attempts})
        else:
            ids = state.job_ids
        ids = ids[: len(ids) if cursor is None else bisect_left(ids, cursor)]
        is_past = wanted is None or wanted.is_final
        past = self._past(cursor) if is_past else None
        record = await anext(past, None) if past else None
        for number, id in enumerate(reversed(ids)):
            if not number % LOOKS_PER_GLANCE and piece.is_over:
                piece = await self.slices.turn()
            while past and record and record.job >= id:
                if record.job not in state.jobs and (old := asked.among(record)) is not None:
                    yield old
                record = await anext(past, None)
                if piece.is_over:
                    piece = await self.slices.turn()
            job = state.jobs.get(id)
            if job is None and is_past and (body := await self._store.history(id)) is not None:
                job = decode_job(body)
            if job is not None and asked.is_for(job):
                yield job
                if piece.is_over:
                    piece = await self.slices.turn()
        while past and record:
            if (old := asked.among(record)) is not None:
                yield old
            record = await anext(past, None)
            if piece.is_over:
                piece = await self.slices.turn()

    async def _past(self, before: str | None) -> AsyncIterator[History]:
        while records := await self._store.past(before, RECORDS_PER_PAGE):
            for record in records:
                yield record
            before = records[-1].job


def _extent(job: JobState) -> int:
    """How much there is to show of a job, in about characters."""
    first = job.job.groups[0].command
    return 500 * len(job.groups) + sum(map(len, first.argv)) + sum(map(len, first.env.values()))
