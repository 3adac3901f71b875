"""The log in etcd: one key for each batch, and a head that says where it ends.

A batch too large for one request is written in parts first, and becomes visible with one small transaction. So do the
records of jobs when there are many: a coordinator that dies in between leaves records of jobs that have ended but are
not yet dropped from memory, and its successor writes the same again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from phalanx.logger import logger
from phalanx.store.etcd.fence import Fence, grouped, settled, value_of
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.kv import Compare, Delete, EtcdUnavailable, Get, KeyValue, Kv, Put
from phalanx.store.etcd.records import PART_BYTES, Damaged, LogRecord, Parted, number, sealed, unsealed
from phalanx.store.protocol import StoreError

log = logger("store")
_PAGE = 32
_PAGE_BYTES = 1 << 20  # as stored: decoded, a batch is some twenty times as large


class EtcdLog:
    """Batches in order. One object appends for one coordinator.

    `head` is the mark that it saw at the end of the log, `end` the revision of the last good batch there.
    """

    def __init__(self, kv: Kv, keys: EtcdKeys) -> None:
        self._kv = kv
        self._keys = keys
        self._tags = 0
        self.head: bytes | None = None
        self.end = 0

    async def append(self, fence_epoch: int, batch: LogRecord, history: list[Put]) -> None:
        """Append a batch after the head, and the records with it."""
        assert self.head is not None, "look() must be called before append()"
        keys, fence = self._keys, Fence(self._kv, self._keys, fence_epoch, self.head)
        value = sealed(batch)
        tag = self.new_tag(fence_epoch, value)
        mark = b"%d %s" % (batch.revision, tag.encode())
        puts = list(history)
        if len(value) > PART_BYTES:
            record, parts = parted(value, tag, lambda at: keys.part(batch.revision, tag, at))
            value, puts = sealed(record), puts + parts
        # The batch and the head are in the first group, which is written last.
        visible, *ahead = grouped([Put(keys.log(batch.revision), value), Put(keys.head, mark), *puts])
        for group in ahead:
            await fence.write(group)
        await fence.write(visible, mark=mark)
        self.head, self.end = mark, batch.revision

    def new_tag(self, epoch: int, value: bytes) -> str:
        """A name that no other write has: two tries at one revision must not be confused."""
        self._tags += 1
        return f"{epoch}.{self._tags}.{zlib.crc32(value):08x}"

    async def look(self) -> tuple[bytes, int]:
        """The current head, and the revision up to which the log was pruned."""
        outcome = await settled(self._kv, [], [Get(self._keys.head), Get(self._keys.pruned)])
        head, pruned = (value_of(entries) for entries in outcome.found)
        return head, number(pruned)

    async def read(self, after: int, limit: int | None = None) -> tuple[list[LogRecord], list[KeyValue]]:
        """Batches after a revision, oldest first, and the entries that are damaged."""
        good: list[LogRecord] = []
        bad: list[KeyValue] = []
        page = _PAGE
        while limit is None or len(good) + len(bad) < limit:
            wanted = page if limit is None else min(page, limit - len(good) - len(bad))
            try:
                found = await self._kv.range(self._keys.log(after + 1), self._keys.log_end, limit=wanted)
            except EtcdUnavailable:
                if page == 1:
                    raise
                page = max(1, page // 8)  # It may be too much to be sent in time.
                continue
            for entry in found.entries:
                try:
                    good.append(await self._opened(entry))
                except Damaged:
                    bad.append(entry)
                after = self._keys.revision_of(entry.key)
            if not found.more:
                break
            size = sum(len(entry.value) for entry in found.entries)
            page = max(1, min(4096, _PAGE_BYTES * len(found.entries) // (size + 1)))
        return good, bad

    async def fetch(self, revisions: list[int]) -> list[LogRecord]:
        """These batches, except missing and damaged ones."""
        good: list[LogRecord] = []
        for at in range(0, len(revisions), _PAGE):
            gets = [Get(self._keys.log(revision)) for revision in revisions[at : at + _PAGE]]
            outcome = await settled(self._kv, [], [*gets])
            for entry in (entry for entries in outcome.found for entry in entries):
                try:
                    good.append(await self._opened(entry))
                except Damaged:
                    log.error("a damaged record is left out of a story", key=entry.key.decode())
        return good

    async def _opened(self, entry: KeyValue) -> LogRecord:
        record = unsealed(entry.value, LogRecord, Parted)
        if isinstance(record, LogRecord):
            return record
        assert isinstance(record, Parted)
        revision, tag = self._keys.revision_of(entry.key), record.tag
        value = await assembled(self._kv, record, lambda at: self._keys.part(revision, tag, at))
        return unsealed(value, LogRecord)

    async def set_aside(self, revision: int) -> None:
        """Move a damaged batch to the quarantine; a good one stays."""
        for entry in (await self._kv.range(self._keys.log(revision))).entries:
            try:
                await self._opened(entry)
            except Damaged:
                await _moved_aside(self._kv, self._keys, entry)


def parted(value: bytes, tag: str, key: Callable[[int], bytes]) -> tuple[Parted, list[Put]]:
    """The record that replaces a large value, and the parts that are written before it."""
    parts = [value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES)]
    return Parted(tag, len(parts), zlib.crc32(value)), [Put(key(at), part) for at, part in enumerate(parts)]


async def assembled(kv: Kv, record: Parted, key: Callable[[int], bytes]) -> bytes:
    """A large value assembled from its parts, or Damaged."""
    parts = [value_of((await kv.range(key(at))).entries) for at in range(record.parts)]
    value = b"".join(parts)
    if zlib.crc32(value) != record.crc:
        raise Damaged("the parts do not add up")
    return value


async def quarantined(kv: Kv, keys: EtcdKeys, entry: KeyValue) -> bool:
    """Set a damaged record aside. False: it is gone or has changed, so it only seemed damaged.

    A failure here must not stop a start.
    """
    try:
        return await _moved_aside(kv, keys, entry)
    except StoreError as error:
        log.error("a damaged record could not be set aside", key=entry.key.decode(), error=str(error))
        return True


async def _moved_aside(kv: Kv, keys: EtcdKeys, entry: KeyValue) -> bool:
    outcome = await settled(
        kv,
        [Compare(entry.key, "mod", entry.mod_revision)],
        [Put(keys.quarantine(entry.key), entry.value), Delete(entry.key)],
        [Get(keys.quarantine(entry.key))],
    )
    is_aside = outcome.succeeded or value_of(outcome.found[0]) == entry.value
    if is_aside:
        log.error("a damaged record is set aside", key=entry.key.decode(), bytes=len(entry.value))
    return is_aside
