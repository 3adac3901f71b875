"""The store for several coordinators: etcd keeps the state, and its majority decides which one may write it.

This file has the whole interface of a store; its parts are beside it: `leadership.py`, `log.py`, `images.py`,
`stories.py`, `history.py`, and `fence.py`, which makes a write harmless when its answer is lost. It uses etcd through
the small interface of `kv.py`, so the simulator can drive it as well.
"""

from __future__ import annotations

from phalanx.store.etcd.damage import damage
from phalanx.store.etcd.fence import Fence
from phalanx.store.etcd.history import EtcdHistory
from phalanx.store.etcd.images import EtcdImages
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.kv import Delete, EtcdUnavailable, KeyValue, Kv, Put
from phalanx.store.etcd.leadership import EtcdLeadership
from phalanx.store.etcd.log import EtcdLog
from phalanx.store.etcd.records import LogRecord, number
from phalanx.store.etcd.stories import EtcdStories
from phalanx.store.protocol import Batch, Candidate, History, Leader, Loaded, Pruned, Regressed, StoreError
from phalanx.store.record import Damage

_PRUNE_PAGE = 1000
_LOADS = 5
_RESTORE = "restore a backup into an empty prefix (`phalanx store restore`)"


class EtcdStore:
    """One coordinator's view of one prefix."""

    def __init__(self, kv: Kv, prefix: str) -> None:
        self._kv = kv
        self._keys = EtcdKeys(prefix)
        self._leadership = EtcdLeadership(kv, self._keys)
        self._log = EtcdLog(kv, self._keys)
        self._images = EtcdImages(kv, self._keys)
        self._stories = EtcdStories(kv, self._keys, self._log)
        self._history = EtcdHistory(kv, self._keys)

    @classmethod
    async def open(cls, kv: Kv, prefix: str) -> EtcdStore:
        """Open a store, if etcd answers and it has nothing of a newer version."""
        store = cls(kv, prefix)
        await store._leadership.check_schema()
        return store

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        return await self._leadership.elect(candidate, lease_s)

    async def renew(self, epoch: int, lease_s: float) -> None:
        await self._leadership.renew(epoch, lease_s)

    async def resign(self, epoch: int) -> None:
        await self._leadership.resign(epoch)

    async def leader(self) -> Leader | None:
        return await self._leadership.leader()

    async def open_term(self, at_least: int = 1) -> int:
        return await self._leadership.open_term(at_least)

    async def confirm(self, epoch: int) -> None:
        await self._leadership.confirm(epoch)

    async def load(self) -> Loaded:
        await self._leadership.check_schema()
        damaged = 0
        for _ in range(_LOADS):
            # First of all: a batch that comes while we read must be noticed.
            head, before = await self._log.look()
            revision, image, bad_images = await self._images.newest()
            good, bad = await self._log.read(revision)
            damaged += bad_images
            _, pruned = await self._log.look()
            if pruned <= revision:
                for batch in good:
                    self._stories.note(batch)
                self._log.head = head
                self._log.end = good[-1].revision if good else revision or pruned
                return Loaded(image, revision, self._in_order(good, bad), damaged)
            if image is None and pruned == before:
                raise StoreError(f"no image in etcd is good, and the log begins after {pruned}: {_RESTORE}")
            # A newer image was saved meanwhile, and what it covers was pruned: start again with that one.
        raise EtcdUnavailable("the log is pruned faster than it can be read; try again")

    async def since(self, after: int, limit: int) -> list[Batch]:
        head, pruned = await self._log.look()
        if after > number(head) and after > (end := max(number(head), pruned, await self._images.last())):
            raise Regressed(end, after)
        good: list[LogRecord] = []
        bad: list[KeyValue] = []
        if pruned <= after < number(head):
            good, bad = await self._log.read(after, limit)
            _, pruned = await self._log.look()  # what was pruned while it was read may be missing from it
        if pruned > after:
            raise Pruned(f"the log begins after revision {pruned}")
        for batch in good:
            self._stories.note(batch)
        seen = [each.revision for each in good]
        last = max(seen + [self._keys.revision_of(each.key) for each in bad], default=number(head))
        if last == number(head) and (self._log.head is None or after >= self._log.end):
            # The caller has seen all of it, and continues from there.
            self._log.head, self._log.end = head, max(seen, default=after)
        return self._in_order(good, bad)

    def _in_order(self, good: list[LogRecord], bad: list[KeyValue]) -> list[Batch]:
        damaged = [Batch(self._keys.revision_of(each.key), b"", is_damaged=True) for each in bad]
        batches = [each.batch for each in good]
        return sorted([*batches, *damaged], key=lambda batch: batch.revision) if bad else batches

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        if self._log.head is None:
            self._log.head, _ = await self._log.look()
            self._log.end = number(self._log.head)
        end = self._log.end
        if batch.revision <= end:
            await self.confirm(epoch)
            raise StoreError(f"the log already ends at {end}, so {batch.revision} cannot come after it")
        logged = LogRecord(batch.revision, end, batch.subjects, batch.body)
        await self._log.append(epoch, logged, self._history.puts(history))
        self._history.note(len(history))
        await self._stories.keep(epoch, logged)

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        await self._images.save(epoch, revision, body, self._log.new_tag(epoch, body))

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        keys, fence = self._keys, Fence(self._kv, self._keys, epoch)
        covered = min(before, await self._images.oldest())
        while covered:
            page = await self._kv.range(keys.log(0), keys.log(covered + 1), limit=_PRUNE_PAGE, keys_only=True)
            if not page.entries:
                break
            last = keys.revision_of(page.entries[-1].key)
            await fence.write(
                [
                    Put(keys.pruned, b"%d" % last),
                    Delete(keys.log(0), keys.log(last + 1)),
                    Delete(*keys.parts_up_to(last)),
                ]
            )
        await self._stories.prune(fence)
        await self._history.prune(fence, keep_jobs)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        return await self._stories.read(subject, after, limit)

    async def concerned(self, after: int, upto: int) -> list[str]:
        return await self._stories.concerned(after, upto)

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        await self.confirm(epoch)
        for revision in revisions:
            await self._log.set_aside(revision)

    async def history(self, job: str) -> bytes | None:
        return await self._history.get(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        return await self._history.past(before, limit, prefix)

    async def numbered(self, number: int) -> str | None:
        return await self._history.numbered(number)

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        await self._history.keep_numbers(Fence(self._kv, self._keys, epoch), numbers)

    async def damaged(self) -> list[Damage]:
        """Read everything and return the damaged records."""
        return await damage(self._kv, self._keys, self._log, self._images, self._history)

    async def close(self) -> None:
        await self._kv.close()
