"""The disk under the coordinators: a real store that may be slow, full, out of reach, or fatal.

A write takes effect at one instant and is heard of at a later one; between the two its coordinator may be
paused, replaced or dead. The store's own code decides whether a write is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from phalanx.sim.life import Life
from phalanx.sim.world import World
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, History, Loaded, Store, StoreError
from phalanx.store.sqlite import SqliteStore

T = TypeVar("T")
Done = Callable[[StoreError | None], None]


class Watcher(Protocol):
    """Who takes note of what became durable."""

    def term_opened(self, epoch: int) -> None: ...

    def committed(self, epoch: int, batch: Batch) -> None: ...


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run what is async in name only: the simulator's stores never wait."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("a store of the simulator waited")


class Disk:
    """One store, as all coordinators of a run see it. Without a folder it is in memory."""

    def __init__(self, world: World, watcher: Watcher, folder: Path | None) -> None:
        self.is_slow = False
        self.is_full = False  # it can be read, not written
        self.is_away = False  # it can be neither
        self.forgets_to_answer = False  # it writes, and says that it could not
        self._crash_at: str | None = None  # "before" or "after": the next append kills its coordinator
        self._crash_with: tuple[str, ...] = ()  # only one that tells of one of these events, if any is named
        self._world = world
        self._watcher = watcher
        self._dice = world.dice("disk")
        self._folder = folder
        self._memory = MemoryStore()
        self._opened: list[Store] = []

    def arm(self, crash_at: str, *events: str) -> None:
        """Let the next append that tells of one of these events kill its coordinator."""
        self._crash_at, self._crash_with = crash_at, events

    def disarm(self) -> None:
        self._crash_at = None

    def open(self) -> Store:
        """A store as one coordinator process opens it."""
        store: Store = self._memory
        if self._folder is not None:
            store = SqliteStore(self._folder / "phalanx.db", durable=False)
            self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            drive(store.close())

    def open_term(self, store: Store) -> int:
        self._check_reachable()
        epoch = drive(store.open_term())
        self._watcher.term_opened(epoch)
        return epoch

    def load(self, store: Store) -> Loaded:
        self._check_reachable()
        return drive(store.load())

    def confirm(self, store: Store, epoch: int) -> None:
        self._check_reachable()
        drive(store.confirm(epoch))

    def save_image(self, store: Store, epoch: int, revision: int, body: bytes) -> None:
        self._check_writable()
        drive(store.save_image(epoch, revision, body))

    def append(
        self, owner: Life, store: Store, epoch: int, batch: Batch, history: list[History], done: Done
    ) -> None:
        """Write a batch; `done` is called with the error, if any, once the owner hears of it."""
        fatal = self._fatal(batch)
        if fatal == "before":
            owner.end()
            return
        slow = self._is_slow_now()
        takes_s = self._dice.uniform(0.05, 3.0) if slow else self._dice.uniform(0.0002, 0.004)
        commits_in_s = self._dice.choice((0.0, takes_s))

        def commit() -> None:
            error = self._commit(store, epoch, batch, history)
            if fatal == "after":
                owner.end()
            self._world.after(takes_s - commits_in_s, owner.call, done, error)

        if commits_in_s:
            self._world.after(commits_in_s, commit)
        else:
            commit()

    def _fatal(self, batch: Batch) -> str | None:
        """When this append kills its coordinator, if it does; the next one will not."""
        if self._crash_with and not any(event.encode() in batch.body for event in self._crash_with):
            return None
        fatal, self._crash_at = self._crash_at, None
        return fatal

    def _commit(self, store: Store, epoch: int, batch: Batch, history: list[History]) -> StoreError | None:
        try:
            self._check_writable()
            drive(store.append(epoch, batch, history))
        except StoreError as error:
            return error
        self._watcher.committed(epoch, batch)
        return StoreError("the answer was lost") if self.forgets_to_answer else None

    def _is_slow_now(self) -> bool:
        return self.is_slow and self._dice.random() < 0.5

    def _check_writable(self) -> None:
        self._check_reachable()
        if self.is_full:
            raise StoreError("no space left on the simulated device")

    def _check_reachable(self) -> None:
        if self.is_away:
            raise StoreError("the simulated disk is out of reach")
