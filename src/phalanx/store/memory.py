"""A store that forgets when the process ends: for `phalanx.local()`, for development and for tests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from phalanx.clock import SystemClock
from phalanx.store.protocol import (
    Batch,
    Candidate,
    Fenced,
    History,
    Leader,
    Loaded,
    Pruned,
    Regressed,
    StoreError,
    moved,
)
from phalanx.store.record import Damage


class Memory:
    """The contents. Several stores may share one, as several processes share a file."""

    def __init__(self) -> None:
        self.epoch = 0
        self.holder: Candidate | None = None
        self.until = 0.0  # the end of the holder's lease
        self.batches: list[Batch] = []
        self.pruned = 0  # batches up to here are gone
        self.image: tuple[int, bytes] | None = None
        self.history: dict[str, bytes] = {}
        self.numbers: dict[int, str] = {}

    @property
    def head(self) -> int:
        return self.batches[-1].revision if self.batches else self.pruned


class MemoryStore:
    """One coordinator's view of a memory."""

    def __init__(self, memory: Memory | None = None, monotonic: Callable[[], float] | None = None) -> None:
        self._kept = memory or Memory()
        self._monotonic = monotonic or SystemClock().monotonic
        self._head: int | None = None  # the end of the log when it was last read

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        kept, now = self._kept, self._monotonic()
        if kept.holder is None or kept.until <= now or kept.holder.name == candidate.name:
            kept.epoch += 1
            kept.holder, kept.until = candidate, now + lease_s
            self._head = None  # every earlier write is fenced off: the log ends where it ends now
        return Leader(kept.epoch, kept.holder)

    async def renew(self, epoch: int, lease_s: float) -> None:
        self._check(epoch)
        if self._kept.holder is None:  # we resigned
            raise Fenced(epoch, epoch)
        self._kept.until = self._monotonic() + lease_s

    async def resign(self, epoch: int) -> None:
        if epoch == self._kept.epoch:
            self._kept.holder = None

    async def leader(self) -> Leader | None:
        kept = self._kept
        if kept.holder is None or kept.until <= self._monotonic():
            return None
        return Leader(kept.epoch, kept.holder)

    async def open_term(self, at_least: int = 1) -> int:
        self._kept.epoch = max(self._kept.epoch + 1, at_least)
        self._kept.holder = self._head = None
        return self._kept.epoch

    async def confirm(self, epoch: int) -> None:
        self._check(epoch)

    async def load(self) -> Loaded:
        self._head = self._kept.head
        revision, body = self._kept.image or (0, None)
        return Loaded(body, revision, self._after(revision))

    async def since(self, after: int, limit: int) -> list[Batch]:
        if after < self._kept.pruned:
            raise Pruned(f"the log begins after revision {self._kept.pruned}")
        if after > (end := max(self._kept.head, (self._kept.image or (0,))[0])):
            raise Regressed(end, after)
        return self._after(after)[:limit]

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        self._check(epoch)
        if self._head not in (None, head := self._kept.head):
            raise moved(head, self._head)
        if batch.revision <= head:
            raise StoreError(f"the log already ends at {head}, so {batch.revision} cannot come after it")
        self._kept.batches.append(batch)
        self._kept.history.update((record.job, record.body) for record in history)
        self._kept.numbers.update((record.number, record.job) for record in history if record.number)
        self._head = batch.revision

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        self._check(epoch)
        self._kept.image = (revision, body)

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        self._check(epoch)
        covered = min(before, self._kept.image[0] if self._kept.image else 0)
        at = bisect_right(self._kept.batches, covered, key=lambda batch: batch.revision)
        if at:
            self._kept.pruned = self._kept.batches[at - 1].revision
            del self._kept.batches[:at]
        for job in sorted(self._kept.history)[: max(0, len(self._kept.history) - keep_jobs)]:
            del self._kept.history[job]
        kept = self._kept.history
        self._kept.numbers = {
            number: job for number, job in self._kept.numbers.items() if job in kept or not number
        }

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        found = (batch for batch in self._after(after) if subject in batch.subjects)
        return [batch for batch, _ in zip(found, range(limit), strict=False)]

    async def concerned(self, after: int, upto: int) -> list[str]:
        """What is missing from memory is recorded nowhere else."""
        return []

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        self._check(epoch)
        wanted = set(revisions)
        self._kept.batches = [
            batch for batch in self._kept.batches if not (batch.is_damaged and batch.revision in wanted)
        ]

    async def history(self, job: str) -> bytes | None:
        return self._kept.history.get(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        kept = self._kept.history
        jobs = sorted((job for job in kept if job.startswith(prefix)), reverse=True)
        return [History(job, kept[job]) for job in jobs if before is None or job < before][:limit]

    async def numbered(self, number: int) -> str | None:
        return self._kept.numbers.get(number)

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        self._check(epoch)
        self._kept.numbers.update(numbers)

    async def damaged(self) -> list[Damage]:
        """Memory is never damaged."""
        return []

    async def close(self) -> None:
        """Nothing to do."""

    def _after(self, revision: int) -> list[Batch]:
        return self._kept.batches[
            bisect_right(self._kept.batches, revision, key=lambda batch: batch.revision) :
        ]

    def _check(self, epoch: int) -> None:
        if epoch != self._kept.epoch:
            raise Fenced(epoch, self._kept.epoch)
