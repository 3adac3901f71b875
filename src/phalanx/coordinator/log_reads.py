"""Logs of attempts, read where they are: on the node that had the attempt, or in the place for files."""

from __future__ import annotations

from collections.abc import AsyncIterator

from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.log_times import LogTimesView
from phalanx.api.schema.queries import Stream
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.kept_logs import KeptLogs
from phalanx.coordinator.logs import LogLinks, WantedLog, one_log
from phalanx.coordinator.questions import StateReads
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.amounts import plural
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.errors import LOG_AWAY, BadRequest, NotFound, Unavailable
from phalanx.store.protocol import Store


class LogReads:
    """What is asked about the output of tasks."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        feed: Feed,
        log_links: LogLinks,
        reads: StateReads,
        clock: Clock,
        files: FileStore | None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._feed = feed
        self._log_links = log_links
        self._reads = reads
        self._clock = clock
        self._kept_logs = None if files is None else KeptLogs(files)

    async def logs(
        self,
        id: str,
        *,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        follow: bool,
        hold: bool = False,
    ) -> AsyncIterator[LogChunk]:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        number = self._number(id, job, position, attempt)
        if number == 0 and not follow:
            yield LogChunk(0, b"", 0, 0, True)
            return
        if number == 0:
            number = 1
            yield LogChunk(0, b"", 0, number, False)
            placed = await self._placed(job, position)
            if placed is None:
                return
            job, position = placed
        key = (job.job.id, position, number)
        live = job.live.get(position)
        has_ended = live is None or live.key[2] != number
        is_split = job.group_of(position).group.command.split_output
        node = self._reads.node_name(job, position, number)
        is_away = node is None or not self._log_links.is_open(node)
        kept = await self._kept(key, stream, offset, lines, is_split) if has_ended and is_away else None
        if kept is not None:
            async for chunk in kept:
                yield chunk
            return
        try:
            async for chunk in self._log_links.read(
                self._reads.node_of(job, position, number),
                key,
                WantedLog(
                    stream,
                    offset,
                    lines,
                    follow,
                    is_split,
                    hold and follow and job.group_of(position).group.command.attached,
                    lambda: self._is_live(key),
                ),
            ):
                has_ended = False  # what was sent cannot be begun anew
                yield chunk
        except (NotFound, Unavailable) as error:
            kept = await self._kept(key, stream, offset, lines, is_split) if has_ended else None
            if kept is None:
                if isinstance(error, Unavailable) and _runs_again(job, position, number):
                    error.reason = LOG_AWAY  # who follows the task need not wait for the node
                raise
            async for chunk in kept:
                yield chunk

    def _is_live(self, key: AttemptKey) -> bool:
        """Whether an attempt has not ended, as far as it was reported."""
        job = self._loop.state.jobs.get(key[0])
        live = None if job is None else job.live.get(key[1])
        return live is not None and live.key == key

    async def _kept(
        self, key: AttemptKey, stream: Stream, offset: int | None, lines: int | None, is_split: bool
    ) -> AsyncIterator[LogChunk] | None:
        """The log as it was copied when the attempt had ended; None if it was not."""
        if self._kept_logs is None:
            return None
        self._loop.require_active()  # a folder of its own has only what came to it
        runs = await self._kept_logs.runs(key, stream)
        if runs == [] and stream == "stderr" and not is_split:
            raise one_log(key)
        return None if runs is None else self._kept_logs.read(key, stream, runs, offset=offset, lines=lines)

    async def log_times(self, id: str, *, attempt: int | None, after: float) -> LogTimesView:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        number = self._number(id, job, position, attempt)
        key = (job.job.id, position, number)
        node = self._reads.node_name(job, position, number) or ""
        view = LogTimesView(
            number, node, self._clock.now(), job.group_of(position).group.command.split_output
        )
        if number == 0:
            return view
        live = job.live.get(position)
        view.is_live = live is not None and live.key[2] == number
        rows = None
        if view.is_live or self._log_links.is_open(node):
            rows = await self._log_links.times(node, key)
        if rows is not None:
            view.now = rows.pop().at
        elif not view.is_live and self._kept_logs is not None:
            rows = await self._kept_logs.times(key)
        if rows:
            view.split_output = rows[-1].stderr is not None
        view.rows = [row for row in rows or [] if row.at > after]
        return view

    def _number(self, id: str, job: JobState, position: int, attempt: int | None) -> int:
        """Which attempt is asked for; 0 if there was none yet."""
        if attempt is None:
            lookup.refuse_merged(job, "the logs", "phalanx logs")
        number = job.attempts[position] if attempt is None else attempt
        if not 0 <= number <= job.attempts[position]:
            raise BadRequest(
                f"task {id} has had {plural(job.attempts[position], 'attempt')}, not {attempt}",
                reason="NoAttempt",
            )
        return number

    async def _placed(self, job: JobState, position: int) -> tuple[JobState, int] | None:
        """A follower came before the task was placed: where it stands once it was; None if it will not be."""
        after, at = self._loop.state.revision, self._standing(job, position)
        if not _is_decided(*at):
            async for _ in self._feed.watch(after, job.job.id, lambda: self._loop.state):
                at = self._standing(*at)
                if _is_decided(*at):
                    break
        now, place = at
        return (now, place) if place is not None and now.attempts[place] else None

    def _standing(self, job: JobState, position: int | None) -> tuple[JobState, int | None]:
        """The job as it is now, another one if members came, and where the task stands in it."""
        now = self._loop.state.jobs.get(job.job.id, job)
        return now, lookup.position_in(now, job, position)


def _is_decided(job: JobState, position: int | None) -> bool:
    """Whether a task has been placed, or never will be."""
    return position is None or job.attempts[position] > 0 or job.status[position] >= Status.COMPLETED


def _runs_again(job: JobState, position: int, number: int) -> bool:
    """Whether an attempt is not the last one: another has begun, or will."""
    return job.attempts[position] > number or job.status[position] == Status.PENDING
