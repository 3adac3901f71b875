"""Images of the state, taken from time to time so that the whole log need not be read, and pruning of the log.

An image is encoded between two turns and written beside them. If it cannot be written the log is longer, nothing else.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from phalanx.clock import Clock
from phalanx.coordinator.collector import collector_still
from phalanx.coordinator.turn import Term
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.state import ClusterState
from phalanx.logger import logger
from phalanx.store.protocol import Fenced, Store, StoreError

log = logger("coordinator")
EVERY = 100_000  # events between two images
AT_START = 5_000  # more than that, and the next start should not have to read them again
RETRY_PART = 10  # an image that could not be written is tried again after a tenth of that


class Retention(Struct, frozen=True):
    """How much of the past is kept, and how many events may come between two images."""

    events: int = 1_000_000
    jobs: int = 1_000_000
    every: int = EVERY


class Images:
    """The images of one term."""

    def __init__(self, keep: Retention, clock: Clock, newest: int) -> None:
        self._keep = keep
        self._clock = clock
        self._newest = newest  # the revision of the last image
        self._every = min(AT_START, keep.every)  # for the first image of a term
        self._writing: asyncio.Task[None] | None = None

    async def look(self, store: Store, state: ClusterState, term: Term) -> None:
        """Take an image if enough has happened since the last one."""
        if state.revision - self._newest < self._every or self._is_writing():
            return
        if not await self._renewed(store, term):
            return
        self._newest, self._every = state.revision, self._keep.every
        with collector_still():
            body = encode_state(state)
        self._writing = asyncio.create_task(self._write(store, term.epoch, state.revision, body))
        await asyncio.sleep(0)  # a store that does not wait writes at once

    async def close(self) -> None:
        """Give up an image that is being written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    async def _renewed(self, store: Store, term: Term) -> bool:
        """Encoding may take long, and the lease is not renewed meanwhile. If even that fails, an image would too."""
        sent_at = self._clock.monotonic()
        try:
            await store.renew(term.epoch, term.lease_s)
        except Fenced:
            raise
        except StoreError:
            return False
        term.renewed(sent_at)
        return True

    async def _write(self, store: Store, epoch: int, revision: int, body: bytes) -> None:
        try:
            await store.save_image(epoch, revision, body)
            await store.prune(epoch, max(0, revision - self._keep.events), self._keep.jobs)
        except Fenced:
            return  # the next append says so
        except StoreError as error:
            log.warning("cannot write an image, the log keeps growing", error=str(error))
            self._newest = revision - self._keep.every + self._keep.every // RETRY_PART
