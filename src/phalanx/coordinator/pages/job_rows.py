"""Rows of jobs for the page: the index kept up to date, lists that were found lately, and the rows themselves.

The first question reads what is in memory; older jobs are read from the history meanwhile, so many at most, and never
for more than a small part of the time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.pages import JobRow, JobRows, JobRowsQuery
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.pages.changed import Changed
from phalanx.coordinator.pages.job_index import JobIndex, Places, key_of
from phalanx.coordinator.pages.waiting import WaitingWords
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.task_endings import job_code, job_reason
from phalanx.coordinator.views import has_no_members, stage_of, written_by
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_image import is_workflow
from phalanx.errors import Unavailable
from phalanx.store.protocol import Store

PAST_MAX = 200_000  # jobs of the history that are in the index
PAST_AT_ONCE = 50
PAST_AGAIN_S = 2.0  # after the store could not be asked
PAST_SHARE = 9.0  # a piece that took a second is followed by a pause of so many
GONE_MAX = 500
LISTS_MAX = 16
LIST_S = 1.0  # for so long a list is taken as it is, though jobs have changed
ROWS_KEPT = 5000
COMMAND_SHOWN = 120
HIDDEN = "(hidden)"
NODES_SHOWN = 4


class FoundList(NamedTuple):
    """The places of a list, in order, and when and of which state they were found."""

    at: float
    version: tuple[int, int]  # of the index, and of the reasons of waiting
    places: Places
    revision: int


class JobRowReads:
    """The rows of all jobs."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        clock: Clock,
        slices: TimeSlices,
        changed: Changed,
        words: WaitingWords,
    ) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._slices = slices
        self._changed = changed
        self._words = words
        self._index = JobIndex()
        self._read_to = 0  # the revision that the index knows
        self._resets = -1  # of `changed`, when the index was made
        self._unread: list[str] = []  # jobs that were in memory then, and are not in the index yet
        self._lists: OrderedDict[object, FoundList] = OrderedDict()
        self._past_rows: OrderedDict[str, JobRow] = OrderedDict()
        self._gone: set[str] = set()  # to be removed from the index, while nobody looks for places in it
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def job_rows(self, query: JobRowsQuery, user: str) -> JobRows:
        async with self._lock:
            await self._refresh()
            listed = await self._found(query, user)
        ids = [
            self._index.ids[place]
            for place in listed.places[query.offset : query.offset + query.limit].tolist()
        ]
        rows: list[JobRow] = []
        piece = await self._slices.turn()
        rows_revision = self._changed.revision or self._loop.state.revision
        for id in ids:
            if piece.is_over:
                piece = await self._slices.turn()
            row = await self._row(id)
            if row is not None:
                rows.append(row)
        loading = self._reading is not None and not self._reading.done()
        return JobRows(
            self._clock.now(),
            listed.revision,
            len(listed.places),
            query.offset,
            rows,
            loading=loading,
            rows_revision=rows_revision,
        )

    async def _found(self, query: JobRowsQuery, user: str) -> FoundList:
        """The places of a list; one that was found a moment ago is the same for all who scroll in it."""
        key, now = key_of(query, user), self._clock.monotonic()
        known = self._lists.get(key)
        version, revision = (self._index.version, self._words.version if query.reason else 0), self._read_to
        if known is not None and known.version == version:
            known = self._lists[key] = known._replace(revision=revision)
        elif known is None or now - known.at >= LIST_S:
            places = await self._index.find(query, user, self._slices)
            if query.reason:
                places = await self._waiting_for(query.reason, places)
            known = self._lists[key] = FoundList(now, version, places, revision)
            while len(self._lists) > LISTS_MAX:
                self._lists.popitem(last=False)
        self._lists.move_to_end(key)
        return known

    async def _waiting_for(self, reason: str, places: Places) -> Places:
        """Those of which the last count of waiting jobs has found this reason."""
        found: list[int] = []
        piece = await self._slices.turn()
        for place in places.tolist():
            if piece.is_over:
                piece = await self._slices.turn()
            job = self._loop.state.jobs.get(self._index.ids[place])
            if job is not None and self._words.of(job) == reason:
                found.append(place)
        return np.array(found, dtype=np.int64)

    async def _refresh(self) -> None:
        """Look at what has changed, or at everything after the state was read anew."""
        changed = self._changed
        if self._resets != changed.resets or not changed.is_on:
            changed.is_on = True
            self._resets = changed.resets
            self._index, self._lists = JobIndex(), OrderedDict()
            changed.stale.clear()
            self._unread = list(self._loop.state.jobs)
            self._read_past()
        if self._gone:
            for id in self._gone:
                self._index.remove(id)
            self._gone.clear()
            self._lists.clear()  # places have moved
        piece = await self._slices.turn()
        gone: list[str] = []
        self._read_to = changed.revision or self._loop.state.revision  # before the first turn there is none
        while True:
            if piece.is_over:
                piece = await self._slices.turn()
            if not (self._unread or changed.stale):
                break
            id = self._unread.pop() if self._unread else changed.stale.pop()
            job = self._loop.state.jobs.get(id)
            self._past_rows.pop(id, None)
            if job is not None:
                self._index.put(job, shown_command(self._loop.state, job))
            else:
                gone.append(id)
        await self._note_gone(gone)

    async def _note_gone(self, ids: list[str]) -> None:
        """These ended and left memory since we looked: how, the history knows."""
        if len(ids) > GONE_MAX:  # nobody has asked for long
            self._read_past()
        for at, id in enumerate(ids[:GONE_MAX]):
            try:
                body = await self._store.history(id)
            except Unavailable:
                self._changed.stale.update(ids[at:])  # whoever asks next asks for these again
                raise
            if body is not None and not is_workflow(body):
                old = decode_job(body)
                self._index.put(old, shown_command(self._loop.state, old))

    async def _row(self, id: str) -> JobRow | None:
        state = self._loop.state
        job = state.jobs.get(id)
        if job is not None:
            return job_row(state, job, self._words)
        known = self._past_rows.get(id)
        if known is not None:
            return known
        body = await self._store.history(id)
        if body is None:  # it was kept for long enough
            self._gone.add(id)
            return None
        row = self._past_rows[id] = job_row(state, decode_job(body), self._words)
        if len(self._past_rows) > ROWS_KEPT:
            self._past_rows.popitem(last=False)
        return row

    def _read_past(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.create_task(self._read_history(self._index))

    async def _read_history(self, index: JobIndex) -> None:
        """Add the newest jobs of the history to an index, slowly."""
        before: str | None = None
        for _ in range(PAST_MAX // PAST_AT_ONCE):
            began = self._clock.monotonic()
            try:
                records = await self._store.past(before, PAST_AT_ONCE)
                if not records:
                    return
                before = records[-1].job
                for record in records:
                    if record.job not in self._loop.state.jobs and not is_workflow(record.body):
                        old = decode_job(record.body)
                        index.put(old, shown_command(self._loop.state, old))
            except Unavailable:  # or older jobs would be missing as long as the process lives
                await asyncio.sleep(PAST_AGAIN_S)
                continue
            await asyncio.sleep(PAST_SHARE * (self._clock.monotonic() - began))


def shown_command(state: ClusterState, job: JobState) -> str:
    """The command that everybody may read: in that of a stage there may be values of others' results."""
    spec = job.job
    if spec.workflow is not None:
        return " ".join(written_by(state, spec)) or HIDDEN
    return "" if has_no_members(job) else " ".join(spec.groups[0].command.argv)


def job_row(state: ClusterState, job: JobState, words: WaitingWords) -> JobRow:
    """A job in one line."""
    spec, status = job.job, job.overall_status
    first = spec.groups[0]
    return JobRow(
        number=job.arrival,
        id=spec.id,
        user=spec.user,
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        counts=Counts(*job.counts),
        submitted_at=spec.submitted_at,
        name=spec.name or "",
        queue=spec.queue,
        priority=spec.priority,
        reason=words.of(job) or job_reason(job, status),
        tasks=spec.tasks,
        gpus=max(group.request.gpus for group in spec.groups),
        cores=first.request.cores,
        memory_bytes=first.request.memory_bytes,
        started_at=job.first_started_at,
        ended_at=job.ended_at,
        exit_code=job_code(job, status),
        command=shown_command(state, job)[:COMMAND_SHOWN],
        nodes=list(dict.fromkeys(each.node for each in list(job.live.values())[:64]))[:NODES_SHOWN],
        gang=job.gang is not None,
        array=spec.array is not None,
        vps=spec.vps is not None,
        workflow=stage_of(state, spec),
        held=bool(job.held_because),
        unapproved=job.approve_by is not None and not job.is_over,
        paused=sum(bool(each.paused) for each in list(job.live.values())[:1000]),
        finished=len(job.done),
    )
