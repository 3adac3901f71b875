"""A store as one coordinator sees it, with a watcher over its shoulder and, now and then, a trap in the way.

What becomes of its appends is counted. A trap lets an append that tells of some event kill the coordinator: before
it is written, or after it is kept and before the coordinator hears of it.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.sim.eventloop import outside
from phalanx.sim.life import Life
from phalanx.sim.vault import Vault
from phalanx.store.protocol import Batch, Fenced, History, StoreAround, StoreError


class TurnWatcher(Protocol):
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


class Watched(StoreAround):
    """A store in the hands of one coordinator."""

    def __init__(self, vault: Vault, owner: Life, seat: str, trap: Trap, watcher: TurnWatcher) -> None:
        super().__init__(vault.open(owner, seat))
        self._vault = vault
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
