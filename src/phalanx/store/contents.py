"""All contents of a store, read while others may write: for backups, migrations and checks.

They are read as of one revision: the log up to there, its newest image, and the records of ended jobs. Records that
appear while we read belong to jobs that are still alive in the image or the log; memory takes precedence over history,
so they do no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from phalanx.store.chain import events_of, missing_before
from phalanx.store.protocol import (
    Batch,
    Fenced,
    History,
    Loaded,
    LogHole,
    Pruned,
    Regressed,
    Store,
    StoreError,
)

PAGE = 200


class Contents(Protocol):
    """What can be copied into an empty store. Both lists may be read several times."""

    name: str
    epoch: int
    begin: int  # batches up to here are gone
    head: int  # the revision of the last event
    image_revision: int
    image: bytes | None

    def batches(self) -> AsyncIterator[Batch]:
        """The batches that are kept, oldest first, with their subjects."""
        ...

    def records(self) -> AsyncIterator[History]:
        """Ended jobs, newest first."""
        ...


class StoreContents:
    """The contents of a store as they are when `read` returns."""

    def __init__(self, store: Store, name: str, epoch: int, begin: int, loaded: Loaded) -> None:
        self.name = name
        self.epoch = epoch
        self.begin = begin
        self.loaded = loaded
        self.image = loaded.image
        self.image_revision = loaded.image_revision
        self.head = loaded.batches[-1].revision if loaded.batches else loaded.image_revision
        self._store = store

    @classmethod
    async def read(cls, store: Store, name: str) -> StoreContents:
        epoch, loaded = await epoch_of(store), await store.load()
        return cls(store, name, epoch, await _begin_of(store, loaded.image_revision), loaded)

    async def batches(self) -> AsyncIterator[Batch]:
        """The readable batches. Raises if one that the state needs is damaged or missing: a copy would hide it."""
        at = self.image_revision
        async for batch in self.everything():
            if batch.revision > at:
                if (upto := missing_before(at, batch, events_of(batch))) is not None:
                    raise LogHole(at, upto)
                at = batch.revision
            if not batch.is_damaged:
                yield batch

    async def everything(self) -> AsyncIterator[Batch]:
        """The same with damaged batches, which are marked."""
        after = self.begin
        while after < self.head:
            try:
                page = await self._store.since(after, PAGE)
            except Pruned:  # while we were reading; only stories become shorter
                after = self.begin = await _begin_of(self._store, self.head)
                if after > self.image_revision:
                    raise StoreError(
                        f"{self.name} was pruned up to revision {after} while it was read", hint="try again"
                    ) from None
                continue
            for batch in page:
                if batch.revision > self.head:
                    return
                yield batch
            if not page:
                return
            after = page[-1].revision

    async def records(self) -> AsyncIterator[History]:
        before = None
        while page := await self._store.past(before, PAGE):
            for record in page:
                yield record
            before = page[-1].job


async def epoch_of(store: Store) -> int:
    """The current epoch: asking under a wrong one gives an error that has it."""
    try:
        await store.confirm(0)
    except Fenced as fenced:
        return fenced.current
    return 0


async def _begin_of(store: Store, covered: int) -> int:
    """The revision after which the log begins. Only what an image covers is ever dropped."""
    low, high = 0, covered
    while low < high:
        middle = (low + high) // 2
        try:
            await store.since(middle, 1)
            high = middle
        except Pruned:
            low = middle + 1
        except Regressed:  # there is an image and no log
            high = middle
    return low
