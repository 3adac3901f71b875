"""The records of ended jobs in etcd: a key each, the newest first."""

from __future__ import annotations

import zlib

from phalanx.logger import logger
from phalanx.store.etcd.fence import Fence
from phalanx.store.etcd.keys import EtcdKeys, after_prefix
from phalanx.store.etcd.kv import Delete, KeyValue, Kv, Put
from phalanx.store.etcd.log import assembled, parted
from phalanx.store.etcd.records import PART_BYTES, Damaged, Parted, Record, sealed, unsealed
from phalanx.store.protocol import History

log = logger("store")
_PAGE = 64
_KEYS_PAGE = 5000
_NUMBERS_PAGE = 1000


class EtcdHistory:
    """Records of jobs that left memory."""

    def __init__(self, kv: Kv, keys: EtcdKeys) -> None:
        self._kv = kv
        self._keys = keys
        self._count: int | None = None  # upper bound of their number; None: not counted yet

    def puts(self, records: list[History]) -> list[Put]:
        """The puts that keep these records. The same record gives the same puts."""
        return [put for each in records for put in self._puts(each)]

    def _puts(self, kept: History) -> list[Put]:
        value, parts = sealed(Record(kept.job, kept.body)), list[Put]()
        if len(value) > PART_BYTES:
            tag = f"{zlib.crc32(value):08x}"
            record, parts = parted(value, tag, lambda at: self._keys.large(kept.job, tag, at))
            value = sealed(record)
        found = [Put(self._keys.number(kept.number), kept.job.encode())] if kept.number else []
        return [*parts, Put(self._keys.history(kept.job), value), *found]

    def note(self, count: int) -> None:
        """This many were written."""
        if self._count is not None:
            self._count += count

    async def get(self, job: str) -> bytes | None:
        for entry in (await self._kv.range(self._keys.history(job))).entries:
            record = await self._opened(entry)
            return record.body if record else None
        return None

    async def past(self, before: str | None, limit: int, prefix: str) -> list[History]:
        begin = self._keys.history_begin(prefix)
        end = after_prefix(begin)
        if before is not None:
            begin = max(begin, self._keys.history(before) + b"\0")
        found: list[History] = []
        while len(found) < limit and begin < end:
            page = await self._kv.range(begin, end, limit=min(_PAGE, limit - len(found)))
            opened = [await self._opened(entry) for entry in page.entries]
            found += [record for record in opened if record]
            if not page.more:
                break
            begin = page.entries[-1].key + b"\0"
        return found

    async def numbered(self, number: int) -> str | None:
        """The job of this number. A damaged value names a job that has no record, or another number."""
        for entry in (await self._kv.range(self._keys.number(number))).entries:
            return entry.value.decode(errors="replace")
        return None

    async def keep_numbers(self, fence: Fence, numbers: dict[int, str]) -> None:
        puts = [Put(self._keys.number(number), job.encode()) for number, job in numbers.items()]
        for at in range(0, len(puts), _PAGE):
            await fence.write([*puts[at : at + _PAGE]])

    async def damaged(self) -> list[str]:
        """The jobs whose records are not what was written."""
        begin, found = self._keys.history_begin(""), list[str]()
        while True:
            page = await self._kv.range(begin, after_prefix(self._keys.history_begin("")), limit=_PAGE)
            for entry in page.entries:
                if await self._opened(entry) is None:
                    found.append(self._keys.job_of(entry.key))
            if not page.more:
                return found
            begin = page.entries[-1].key + b"\0"

    async def prune(self, fence: Fence, keep: int) -> None:
        """Drop all but the newest. They are counted once; after that we know how many were added."""
        if self._count is not None and self._count <= keep:
            return
        begin = self._keys.history_begin("")
        end, count, oldest = after_prefix(begin), 0, ""
        while True:
            page = await self._kv.range(begin, end, limit=_KEYS_PAGE, keys_only=True)
            keys = [entry.key for entry in page.entries]
            doomed = keys[max(0, keep - count) :]
            if not oldest and count + len(keys) >= keep > count:
                oldest = self._keys.job_of(keys[keep - count - 1])
            if doomed:
                larges = Delete(*self._keys.larges(doomed[0], doomed[-1]))
                await fence.write([Delete(doomed[0], doomed[-1] + b"\0"), larges])
            count += len(keys)
            if not page.more:
                break
            begin = keys[-1] + b"\0"
        self._count = min(count, keep)
        if count > keep:
            await self._prune_numbers(fence, oldest or "~")

    async def _prune_numbers(self, fence: Fence, oldest: str) -> None:
        """Drop the numbers of jobs before the oldest that is kept.

        Ids and numbers grow alike, but for a few. So we go on from the lowest number until a whole page stays: a number
        that is left over names a job without a record, which is as good as none.
        """
        begin, end = self._keys.number(1), after_prefix(self._keys.number(0)[:-20])
        while True:
            page = await self._kv.range(begin, end, limit=_NUMBERS_PAGE)
            doomed = [Delete(entry.key) for entry in page.entries if entry.value < oldest.encode()]
            for at in range(0, len(doomed), _PAGE):
                await fence.write([*doomed[at : at + _PAGE]])
            if not doomed or not page.more:
                return
            begin = page.entries[-1].key + b"\0"

    async def _opened(self, entry: KeyValue) -> History | None:
        job = self._keys.job_of(entry.key)
        try:
            record = unsealed(entry.value, Record, Parted)
            if isinstance(record, Parted):
                tag = record.tag
                value = await assembled(self._kv, record, lambda at: self._keys.large(job, tag, at))
                record = unsealed(value, Record)
        except Damaged as error:
            log.error("a damaged job record is skipped", job=job, error=str(error))
            return None
        assert isinstance(record, Record)
        return History(record.job, record.body)
