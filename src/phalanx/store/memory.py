"""A store that forgets when the process ends: for `phalanx.local()`, for development and for tests."""

from __future__ import annotations

from bisect import bisect_left

from phalanx.store.protocol import Batch, Fenced, History, Loaded


class MemoryStore:
    """Lists in memory. Two coordinators given the same object fence each other as with any store."""

    def __init__(self) -> None:
        self._epoch = 0
        self._batches: list[Batch] = []
        self._image: tuple[int, bytes] | None = None
        self._history: dict[str, bytes] = {}

    async def open_term(self) -> int:
        self._epoch += 1
        return self._epoch

    async def load(self) -> Loaded:
        revision, body = self._image or (0, None)
        return Loaded(body, revision, [batch for batch in self._batches if batch.revision > revision])

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        self._check(epoch)
        self._batches.append(batch)
        self._history.update((record.job, record.body) for record in history)

    async def confirm(self, epoch: int) -> None:
        self._check(epoch)

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        self._check(epoch)
        self._image = (revision, body)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        start = bisect_left(self._batches, after + 1, key=lambda batch: batch.revision)
        found = (batch for batch in self._batches[start:] if subject in batch.subjects)
        return [batch for batch, _ in zip(found, range(limit), strict=False)]

    async def history(self, job: str) -> bytes | None:
        return self._history.get(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        jobs = sorted((job for job in self._history if job.startswith(prefix)), reverse=True)
        return [History(job, self._history[job]) for job in jobs if before is None or job < before][:limit]

    async def close(self) -> None:
        """Nothing to do."""

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Fenced(epoch, self._epoch)
