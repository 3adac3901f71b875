"""A store as one coordinator sees it, with a watcher over its shoulder and, now and then, a trap in the way.

What becomes of its appends is counted. A trap lets an append that tells of some event kill the coordinator: before
it is written, or after it is kept and before the coordinator hears of it.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.sim.eventloop import outside
from phalanx.sim.life import Life
from phalanx.sim.vault import Vault
from phalanx.store.protocol import Batch, Candidate, Fenced, History, Leader, Loaded, StoreError


class Watcher(Protocol):
    """Who counts."""

    def count(self, what: str) -> None: ...

    def wrote(self, process: str, epoch: int) -> None: ...


class Trap:
    """When an append kills its coordinator. One trap serves all coordinators of a run."""

    def __init__(self) -> None:
        self._when: str | None = None  # "before" or "after"
        self._events: tuple[str, ...] = ()  # only one that tells of one of these, if any is named

    def arm(self, when: str, *events: str) -> None:
        self._when, self._events = when, events

    def disarm(self) -> None:
        self._when = None

    def springs(self, batch: Batch) -> str | None:
        """When this append is fatal, if it is; the next one will not be."""
        if self._events and not any(event.encode() in batch.body for event in self._events):
            return None
        when, self._when = self._when, None
        return when


class Watched:
    """A store in the hands of one coordinator."""

    def __init__(self, vault: Vault, owner: Life, seat: str, trap: Trap, watcher: Watcher) -> None:
        self._vault = vault
        self._store = vault.open(owner, seat)
        self._owner = owner
        self._trap = trap
        self._watcher = watcher
        self.is_writing = False

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        when = self._trap.springs(batch)
        if when == "before":
            await self._die()
        self._vault.intends(epoch, batch)
        self.is_writing = True
        try:
            await self._store.append(epoch, batch, history)
        except StoreError as error:
            self._watcher.count("fenced append" if isinstance(error, Fenced) else "failed append")
            raise
        finally:
            self.is_writing = False
        self._watcher.wrote(self._owner.name, epoch)
        if when == "after":
            await self._die()

    async def _die(self) -> None:
        self._owner.end()
        await outside(self._owner)[0]  # which nobody will ever hear of

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        return await self._store.elect(candidate, lease_s)

    async def renew(self, epoch: int, lease_s: float) -> None:
        await self._store.renew(epoch, lease_s)

    async def resign(self, epoch: int) -> None:
        await self._store.resign(epoch)

    async def leader(self) -> Leader | None:
        return await self._store.leader()

    async def open_term(self, at_least: int = 1) -> int:
        return await self._store.open_term(at_least)

    async def confirm(self, epoch: int) -> None:
        await self._store.confirm(epoch)

    async def load(self) -> Loaded:
        return await self._store.load()

    async def since(self, after: int, limit: int) -> list[Batch]:
        return await self._store.since(after, limit)

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        await self._store.save_image(epoch, revision, body)

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        await self._store.prune(epoch, before, keep_jobs)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        return await self._store.story(subject, after, limit)

    async def history(self, job: str) -> bytes | None:
        return await self._store.history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        return await self._store.past(before, limit, prefix)

    async def close(self) -> None:
        await self._store.close()
