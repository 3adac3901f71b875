"""The stream of changes: a message at most four times a second, made once for all pages that stand at the same place.

A page that comes back from elsewhere says which revision it saw last and is told in one message what has changed since,
however much happened in between; only what has changed is kept for that, not the messages.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress

from msgspec import json

from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.pages import ChangesView
from phalanx.clock import Clock
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.pages.changed import Changed
from phalanx.coordinator.pages.job_rows import job_row
from phalanx.coordinator.pages.map import holders_on, map_node
from phalanx.coordinator.pages.totals import gpu_counts
from phalanx.coordinator.pages.waiting import WaitingWords
from phalanx.coordinator.requests import Requests
from phalanx.errors import Gone, Unavailable

PACE_S = 0.25
SHARE = 20.0  # a message that took a second to make is followed by a pause of so many
ROWS_MAX = 200
NODES_MAX = 2000
MESSAGES_KEPT = 64
_encode = json.Encoder().encode
Message = tuple[int, bytes]  # the revision that it brings a page to, and the JSON


class ChangeStream:
    """The messages, and the pages that wait for the next one."""

    def __init__(
        self, loop: Requests, clock: Clock, idle: IdleDevices, changed: Changed, words: WaitingWords
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._idle = idle
        self._changed = changed
        self._words = words
        self._head = -1  # the revision that the newest message brings a page to
        self._resets = -1
        self._made: OrderedDict[int, Message] = OrderedDict()  # by the revision that it is for
        self._fresh = asyncio.Event()
        self._pages = 0
        self._pump: asyncio.Task[None] | None = None

    async def changes(self, after: int | None) -> AsyncIterator[Message]:
        self._changed.is_on = True
        self._sync()
        at = self._head if after is None else after
        self._pages += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._pumped())
            self._pump.add_done_callback(lambda _: self._wake())
        try:
            while True:
                if self._pump is not None and self._pump.done():
                    self._pump.result()  # which raises why it has ended, so that the page asks again
                if not self._changed.floor <= at <= max(self._head, self._changed.revision):
                    raise Gone(
                        f"what changed since revision {at} is not known here", hint="read everything again"
                    )
                if at >= self._head:
                    fresh = self._fresh
                    await fresh.wait()
                    continue
                at, body = self._message(at)
                yield at, body
        finally:
            self._pages -= 1
            if not self._pages and self._pump is not None:
                self._pump.cancel()
                self._pump = None

    def _sync(self) -> None:
        """Begin with what is so now, if nobody has listened or the state was read anew."""
        if self._resets != self._changed.resets or self._pump is None:
            self._resets = self._changed.resets
            self._made.clear()
            self._head = self._loop.state.revision
            self._changed.floor = max(self._changed.floor, 0)

    async def _pumped(self) -> None:
        """Move the head on, as long as there are pages."""
        while True:
            began = self._clock.monotonic()
            with suppress(Unavailable):  # the log is being read anew
                self._move()
            await asyncio.sleep(max(PACE_S, SHARE * (self._clock.monotonic() - began)))

    def _move(self) -> None:
        if self._resets != self._changed.resets:
            self._resets = self._changed.resets
            self._made.clear()
            self._head = self._loop.state.revision
            self._wake()
        before, now = self._head, self._changed.revision
        if now > before:
            self._head = now
            self._message(before)
            self._wake()

    def _wake(self) -> None:
        self._fresh.set()
        self._fresh = asyncio.Event()

    def _message(self, after: int) -> Message:
        """What brings a page from a revision to the head."""
        made = self._made.get(after)
        if made is None:
            made = self._made[after] = self._head, _encode(self._view(after))
            while len(self._made) > MESSAGES_KEPT:
                self._made.popitem(last=False)
        return made

    def _view(self, after: int) -> ChangesView:
        state, changed = self._loop.state, self._changed
        names = list(changed.since(after, changed.nodes))
        ids = list(changed.since(after, changed.jobs))
        nodes = [state.nodes[name] for name in names[:NODES_MAX] if name in state.nodes]
        rows = [job_row(state, state.jobs[id], self._words) for id in ids[:ROWS_MAX] if id in state.jobs]
        return ChangesView(
            at=self._clock.now(),
            revision=self._head,
            tasks=Counts(*state.counts),
            gpus=gpu_counts(state),
            nodes=[map_node(state, node, self._idle) for node in nodes],
            removed=[name for name in names if name not in state.nodes],
            holders=holders_on(state, nodes),
            rows=rows,
            workflows=list(changed.since(after, changed.workflows))[:ROWS_MAX],
            queues=changed.declared_at > after,
            alarms=changed.alarms_since(after),
            many=len(ids) > ROWS_MAX or len(names) > NODES_MAX,
        )
