"""Which batches concern a job or node, without a key for each of them.

The subjects of the newest batches are kept in memory, the *tail*; they are in the log as well, so a coordinator that
has not seen them reads them there. When the tail has grown, it is written as one segment in sixteen buckets: a story
reads one bucket, not everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.logger import logger
from phalanx.store.etcd.fence import Fence, grouped, settled, unchanged, value_of
from phalanx.store.etcd.keys import BUCKETS, EtcdKeys, bucket_of
from phalanx.store.etcd.kv import Delete, Get, KeyValue, Kv, Put
from phalanx.store.etcd.log import EtcdLog
from phalanx.store.etcd.records import PART_BYTES, Damaged, LogRecord, Segment, number, sealed, unsealed
from phalanx.store.protocol import Batch, StoreError

log = logger("store")
SEGMENT_BATCHES = 4096
SEGMENT_BYTES = 512 << 10  # all buckets of a segment go in one request
_REVISION_BYTES = 9  # at most, in MessagePack
_PAGE = 16
_READ = 512


class EtcdStories:
    """The tail, and the segments before it."""

    def __init__(self, kv: Kv, keys: EtcdKeys, log: EtcdLog) -> None:
        self._kv = kv
        self._keys = keys
        self._log = log
        self._first = 0  # the tail holds batches after this one,
        self._last = 0  # up to this one
        self._tail: dict[str, list[int]] = {}
        self._batches = 0
        self._bytes = 0
        self._missed = 0  # batches of ours that could not be added to the tail

    def note(self, batch: LogRecord) -> None:
        """A batch was read or written. Only one that follows the tail can be added to it."""
        if batch.previous != self._last:
            return
        self._last = batch.revision
        self._batches += 1
        for name in batch.subjects:
            if (revisions := self._tail.get(name)) is None:
                self._tail[name] = revisions = []
                self._bytes += len(name) + 4
            revisions.append(batch.revision)
            self._bytes += _REVISION_BYTES

    async def keep(self, epoch: int, batch: LogRecord) -> None:
        """A batch was written by us: note it, and write the tail when it has grown.

        If that fails, it is done after a later batch: this one is durable, whatever happens to the index.
        """
        self.note(batch)
        self._missed += self._last != batch.revision
        try:
            if self._missed >= SEGMENT_BATCHES // 4:  # A successor has not seen the tail of its predecessor.
                await self._follow(epoch)
            elif self._is_long:
                await self._seal(epoch)
        except StoreError as error:
            log.warning(
                "the index of stories could not be written; it is tried again later", error=str(error)
            )

    @property
    def _is_long(self) -> bool:
        return self._batches >= SEGMENT_BATCHES or self._bytes >= SEGMENT_BYTES

    async def _seal(self, epoch: int) -> None:
        """Write the tail as a segment."""
        keys, last = self._keys, self._last
        parts: list[dict[str, list[int]]] = [{} for _ in range(BUCKETS)]
        for name, revisions in self._tail.items():
            parts[bucket_of(name)][name] = revisions
        puts = [
            Put(keys.index(bucket, last, at), value)
            for bucket, part in enumerate(parts)
            for at, value in enumerate(_segments(self._first, last, part))
        ]
        fence = Fence(self._kv, keys, epoch)
        still = unchanged(keys.indexed, b"%d" % self._first if self._first else b"")
        final, *ahead = grouped([Put(keys.indexed, b"%d" % last), *puts])
        for group in ahead:
            await fence.write(group, still)
        await fence.write(final, still)  # if it was written already, its answer was lost
        self._begin(last)

    async def prune(self, fence: Fence) -> None:
        """Drop the segments of batches that are gone."""
        keys = self._keys
        pruned = number(value_of((await self._kv.range(keys.pruned)).entries))
        if pruned:
            await fence.write(
                [Delete(keys.index(bucket, 0), keys.index(bucket, pruned + 1)) for bucket in range(BUCKETS)]
            )

    async def read(self, subject: str, after: int, limit: int) -> list[Batch]:
        """Batches that concern a subject, oldest first."""
        pruned = await self._follow()
        after = max(after, pruned)
        revisions = [*await self._indexed(subject, after, limit), *self._tail.get(subject, ())]
        wanted = sorted({revision for revision in revisions if revision > after})[:limit]
        return [each.batch for each in await self._log.fetch(wanted)]

    async def concerned(self, after: int, upto: int) -> list[str]:
        """The subjects of a range of batches; empty if some of them are not in the index yet."""
        indexed = number(value_of((await self._kv.range(self._keys.indexed)).entries))
        found: set[str] = set()
        if indexed < upto:
            return []
        for bucket in range(BUCKETS):
            begin, end = self._keys.index(bucket, after + 1), self._keys.index_end(bucket)
            for entry in (await self._kv.range(begin, end)).entries:
                found.update(_names_in(entry, after, upto))
        return sorted(found)

    async def _indexed(self, subject: str, after: int, limit: int) -> list[int]:
        bucket, found = bucket_of(subject), list[int]()
        begin, end = self._keys.index(bucket, after + 1), self._keys.index_end(bucket)
        while len(found) < limit:
            page = await self._kv.range(begin, end, limit=_PAGE)
            for entry in page.entries:
                found += [revision for revision in _in_segment(entry, subject) if revision > after]
            if not page.more:
                break
            begin = page.entries[-1].key + b"\0"
        return found

    async def _follow(self, epoch: int | None = None) -> int:
        """Bring the tail up to the end of the log; returns up to where the log was pruned.

        A caller that may write gives its epoch, so that a tail that grows too long is written on the way.
        """
        keys = self._keys
        outcome = await settled(self._kv, [], [Get(keys.indexed), Get(keys.pruned), Get(keys.head)])
        indexed, pruned, head = (number(value_of(entries)) for entries in outcome.found)
        if indexed != self._first or pruned > self._last:
            self._begin(indexed)
            self._last = max(indexed, pruned)
        after = self._last
        while after < head:
            good, bad = await self._log.read(after, _READ)
            for batch in good:
                self._last = batch.previous  # A batch between them may be damaged, and is skipped.
                self.note(batch)
                if epoch is not None and self._is_long:
                    await self._seal(epoch)
            if not good and not bad:
                break
            read = [each.revision for each in good] + [self._keys.revision_of(each.key) for each in bad]
            after = max(read)
        self._missed = 0
        return pruned

    def _begin(self, revision: int) -> None:
        self._first = self._last = revision
        self._tail, self._batches, self._bytes = {}, 0, 0


def _segments(first: int, last: int, part: dict[str, list[int]]) -> Iterator[bytes]:
    """A bucket of a segment, in as many values as it needs."""
    value = sealed(Segment(first, last, part))
    if len(value) <= PART_BYTES or len(part) < 2:
        if part:
            yield value
        return
    names = list(part)
    for half in (names[::2], names[1::2]):
        yield from _segments(first, last, {name: part[name] for name in half})


def _in_segment(entry: KeyValue, subject: str) -> list[int]:
    try:
        return unsealed(entry.value, Segment).revisions.get(subject, [])
    except Damaged:
        log.error("a damaged segment of the index is left out of a story", key=entry.key.decode())
        return []


def _names_in(entry: KeyValue, after: int, upto: int) -> list[str]:
    try:
        revisions_of = unsealed(entry.value, Segment).revisions
    except Damaged:
        log.error("a damaged segment of the index is skipped", key=entry.key.decode())
        return []
    return [
        name
        for name, revisions in revisions_of.items()
        if any(after < revision <= upto for revision in revisions)
    ]
