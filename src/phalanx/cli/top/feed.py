"""The feed keeps the snapshot fresh: the watch stream says that something changed, and a reading follows at its pace.

When the coordinator is gone it says so, keeps what it has, and goes on by itself: a stream that ended is opened again
where it stood, which also works at the coordinator that leads next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from phalanx.cli.top.alarms import Alarm, Failures, alarms_of
from phalanx.cli.top.job_rows import ReasonCache
from phalanx.cli.top.snapshot import CALM_S, PACE_S, ClusterSnapshot, pause_s, read_snapshot
from phalanx.clock import SystemClock
from phalanx.errors import Conflict, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.client.async_client import AsyncClient

AGAIN_S = 1.0  # after an error
FAILED_MAX = 50  # jobs that had failed already


class SnapshotFeed:
    """The newest snapshot, what is wrong with reading it, recent failures, and reasons of waiting jobs."""

    def __init__(self, client: AsyncClient, on_change: Callable[[], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._hurried = asyncio.Event()
        self._clock = SystemClock()
        self._last: int | None = None  # revision of the newest event
        self.snapshot: ClusterSnapshot | None = None
        self.alarms: list[Alarm] = []
        self.trouble = ""
        self.asked_at: float | None = None  # when the reading began that is under way
        self.failures = Failures()
        self.reasons = ReasonCache()
        self.wants_ended = False  # whether a reading includes jobs that have ended

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._watch())
            tasks.create_task(self._read_failures())

    def hurry(self) -> None:
        """Something was changed or asked for from here: read again at once."""
        self.reasons.expire()
        self._hurried.set()
        self._changed.set()

    async def ask_reasons(self, ids: list[str]) -> None:
        """Ask for the dominant reasons of these jobs, a few at a time and none too often."""
        if not (due := self.reasons.due(ids, self._clock.now())):
            return
        try:
            found = {each.id: each.reason for each in await self._client.reasons(due)}
        except PhalanxError:
            return  # the next reading says what is wrong
        for id in due:
            self.reasons.note(id, found.get(id), self._clock.now())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            self._changed.clear()
            self._hurried.clear()
            self.asked_at = self._clock.now()
            try:
                snapshot = await read_snapshot(self._client, self._clock.now(), with_ended=self.wants_ended)
            except PhalanxError as error:
                self._say(f"no answer: {error.detail}; trying again")
                await asyncio.sleep(AGAIN_S)
                continue
            self.snapshot, self.alarms = snapshot, alarms_of(snapshot)
            self._say("")
            await self._rest(loop.time() - begun)

    async def _read_failures(self) -> None:
        """What had failed before this was opened; what fails from now on is told by the stream of events."""
        with suppress(PhalanxError):  # the next reading says what is wrong
            self.failures.begin((await self._client.jobs(status="Failed", limit=FAILED_MAX)).items)
            self._on_change()

    def _say(self, trouble: str) -> None:
        self.trouble, self.asked_at = trouble, None
        self._on_change()

    async def _rest(self, took_s: float) -> None:
        """Until the next reading: at once after a key, soon if something changed, later if not."""
        soonest_s = pause_s(took_s, has_changed=True)
        if not await _is_set_within(self._hurried, soonest_s):
            calm_s = max(CALM_S, pause_s(took_s, has_changed=False)) - soonest_s or PACE_S
            await _is_set_within(self._changed, calm_s)

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self._client.watch(after=self._last)) as events:
                    async for event in events:
                        self._last = event.revision
                        self.failures.take(event)
                        self._changed.set()
            except (Conflict, NotFound):
                # Events from so long ago are not kept any more. Readings have their effect.
                self._last = None
            except PhalanxError:
                pass  # the next reading says what is wrong
            await asyncio.sleep(AGAIN_S)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
