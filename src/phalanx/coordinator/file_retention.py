"""How long files stay in the place for files: each for so many days, and all within so many bytes, the oldest go first.

Only the active coordinator removes anything, so much in one pass and the rest in the next. A walk over all files
removes those that are too old and what crashes have left, and counts the others; if they are too many bytes, the files
of the oldest jobs go, those of jobs that have not ended later, and those of stages whose workflow has not ended last:
other stages may refer to them, so these are kept whatever their age. Between two walks the bytes are counted as they
come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from phalanx.clock import Clock
from phalanx.coordinator.files import FileStore, StoredFile
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import is_job_id
from phalanx.core.model.workflow import workflow_of_job
from phalanx.errors import NotActive, PhalanxError
from phalanx.logger import logger, told

log = logger("coordinator")
FIRST_AFTER_S, NEXT_PASS_S, NEXT_WALK_S = 5.0, 5.0, 600.0
TRIM_PAUSE_S = 1.0
FILES_PER_PASS = 20_000
TRIM_TO = 0.95  # of what is kept: so that not every new file has to wait for an old one to go
LEFTOVER_S = 3600.0  # nothing is written for so long without being finished
ROOM_ABOVE = 1.25  # times what is kept: so much may be there until the next pass


class FileUse(IntEnum):
    """Who may still need the files of a job; a lower number goes first when there is no room."""

    JOB_ENDED = 0
    JOB_GOES_ON = 1
    WORKFLOW_GOES_ON = 2


def use_of_files(state: ClusterState, job: str) -> FileUse:
    """Who may still need the files of this job. A job that left the memory has ended; its workflow need not have."""
    flow = state.workflows.get(workflow_of_job(job)) if is_job_id(job) else None
    if flow is not None and not flow.is_over:
        return FileUse.WORKFLOW_GOES_ON
    found = state.jobs.get(job)
    return FileUse.JOB_ENDED if found is None or found.is_over else FileUse.JOB_GOES_ON


class FileRetention:
    """Counts what is there, and removes what is too much."""

    def __init__(
        self,
        files: FileStore,
        keep_s: float,
        keep_bytes: int,
        clock: Clock,
        use_of: Callable[[str], FileUse],
    ) -> None:
        """`use_of` says of a job who may still need its files."""
        self._files = files
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._clock = clock
        self._use_of = use_of
        self.used_bytes: int | None = None  # None until everything was counted once
        self._spans: list[str] = []  # still to be walked over
        self._counted = self._came = 0
        self._wanted = asyncio.Event()

    def why_no_room(self, size: int) -> str:
        """Why a file of this size cannot be taken now; empty: it can."""
        if (self.used_bytes or 0) + size <= ROOM_ABOVE * self._keep_bytes:
            return ""
        self._wanted.set()
        limit = f"coordinator.files_keep_bytes is {self._keep_bytes}"
        return f"the place for files is full: it holds {self.used_bytes} bytes, {limit}"

    def added(self, size: int) -> None:
        """A file has come."""
        self._came += size
        if self.used_bytes is not None:
            self.used_bytes += size
            if self.used_bytes > self._keep_bytes:
                self._wanted.set()

    async def keep(self, require_active: Callable[[], None]) -> None:
        """Make passes while this coordinator is active, as long as the process lives."""
        pause_s = FIRST_AFTER_S
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), pause_s)
            is_full = self._wanted.is_set() and self.used_bytes is not None
            self._wanted.clear()
            try:
                require_active()
                if is_full:
                    await self._trim(FILES_PER_PASS)
                    await asyncio.sleep(TRIM_PAUSE_S)
                else:
                    pause_s = NEXT_WALK_S if await self.make_pass() else NEXT_PASS_S
            except NotActive:
                self.used_bytes, self._spans, pause_s = None, [], NEXT_PASS_S
            except (PhalanxError, OSError) as error:
                log.warning("old files could not be removed, trying again later", **told(error))

    async def make_pass(self) -> bool:
        """One piece of the work; True if nothing is left to do for now."""
        seen, removed, before = 0, 0, self._clock.now() - self._keep_s
        if not self._spans:
            self._spans, self._counted, self._came = await self._files.folders(), 0, 0
        while self._spans and seen < FILES_PER_PASS:
            span = self._spans[0]
            async for found in self._files.listed(span):
                old = [each for each in found if each.written_at < before and not self._is_needed(each.name)]
                await self._files.delete([each.name for each in old])
                self._counted += sum(each.size for each in found) - sum(each.size for each in old)
                seen, removed = seen + len(found), removed + len(old)
            removed += await self._files.remove_leftovers(span, self._clock.now() - LEFTOVER_S)
            self._spans.pop(0)
        if not self._spans:
            self.used_bytes = self._counted + self._came
            removed += await self._trim(FILES_PER_PASS)
        if removed:
            log.info("old files were removed", files=removed, bytes_left=self.used_bytes)
        return not self._spans and (self.used_bytes or 0) <= self._keep_bytes

    def _is_needed(self, name: str) -> bool:
        """Whether a file is kept whatever its age."""
        _, _, below = name.partition("/")
        return self._use_of(below.partition("/")[0]) == FileUse.WORKFLOW_GOES_ON

    async def _trim(self, most: int) -> int:
        """Remove the files of the oldest jobs until the others fit, at most so many in one pass."""
        removed, enough = 0, int(TRIM_TO * self._keep_bytes)
        if (self.used_bytes or 0) <= self._keep_bytes:
            return 0
        for use in FileUse:
            for span in await self._files.folders():
                for job in await self._files.folders(span):
                    if (self.used_bytes or 0) <= enough or removed >= most:
                        return removed
                    if self._use_of(job.rpartition("/")[2]) == use:
                        removed += await self._trim_job(job, enough)
        return removed

    async def _trim_job(self, folder: str, enough: int) -> int:
        """Remove files of one job, as many as have to go."""
        removed = 0
        async for found in self._files.listed(folder):
            for each in sorted(found, key=lambda file: file.written_at):
                if (self.used_bytes or 0) <= enough:
                    return removed
                await self._remove(each)
                removed += 1
        return removed

    async def _remove(self, file: StoredFile) -> None:
        await self._files.delete([file.name])
        self.used_bytes = max(0, (self.used_bytes or 0) - file.size)
