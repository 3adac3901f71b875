"""A store round another one: every call is passed on. Whoever changes a few of them begins with this."""

from __future__ import annotations

from phalanx.store.protocol import Batch, Candidate, History, Leader, Loaded, Store


class StoreAround:
    """Another store, as it is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        return await self._store.elect(candidate, lease_s)

    async def leader(self) -> Leader | None:
        return await self._store.leader()

    async def load(self) -> Loaded:
        return await self._store.load()

    async def renew(self, epoch: int, lease_s: float) -> None:
        await self._store.renew(epoch, lease_s)

    async def resign(self, epoch: int) -> None:
        await self._store.resign(epoch)

    async def open_term(self, at_least: int = 1) -> int:
        return await self._store.open_term(at_least)

    async def confirm(self, epoch: int) -> None:
        await self._store.confirm(epoch)

    async def since(self, after: int, limit: int) -> list[Batch]:
        return await self._store.since(after, limit)

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        await self._store.append(epoch, batch, history)

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        await self._store.save_image(epoch, revision, body)

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        await self._store.prune(epoch, before, keep_jobs)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        return await self._store.story(subject, after, limit)

    async def concerned(self, after: int, upto: int) -> list[str]:
        return await self._store.concerned(after, upto)

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        await self._store.set_aside(epoch, revisions)

    async def history(self, job: str) -> bytes | None:
        return await self._store.history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        return await self._store.past(before, limit, prefix)

    async def close(self) -> None:
        await self._store.close()
