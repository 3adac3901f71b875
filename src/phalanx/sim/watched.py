"""A store as one coordinator sees it, watched by the checkers, and sometimes with a trap set by a fault.

It counts the results of appends. A trap makes an append with a given event kill the coordinator: before the write
takes effect, or after it and before the coordinator hears of it.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.sim.eventloop import outside
from phalanx.sim.life import Life
from phalanx.sim.vault import Vault
from phalanx.store.protocol import Batch, Fenced, History, StoreAround, StoreError


class TurnWatcher(Protocol):
    """Counts."""

    def count(self, what: str) -> None: ...

    def wrote(self, process: str, epoch: int) -> None: ...


class Trap:
    """Makes an append kill its coordinator. One trap serves all coordinators of a run."""

    def __init__(self) -> None:
        self._when: str | None = None  # "before" or "after"
        self._events: tuple[str, ...] = ()  # if not empty, only batches with one of these events

    def arm(self, when: str, *events: str) -> None:
        self._when, self._events = when, events

    def disarm(self) -> None:
        self._when = None

    def springs(self, batch: Batch) -> str | None:
        """ "before" or "after" if this append is fatal, else None; the next one is not."""
        if self._events and not any(event.encode() in batch.body for event in self._events):
            return None
        when, self._when = self._when, None
        return when


class Watched(StoreAround):
    """The store of one coordinator."""

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
        await outside(self._owner)[0]  # a future that is never settled
