"""The disk under the coordinators: a real store that may be slow, full, or out of reach.

A write takes effect at one instant and is acknowledged at a later one; between the two its coordinator may be paused,
replaced or dead. The store's own code decides whether a write is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from phalanx.sim.eventloop import outside
from phalanx.sim.life import Life
from phalanx.sim.vault import StoreWatcher
from phalanx.sim.world import World
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, Candidate, History, Leader, Loaded, Store, StoreError
from phalanx.store.sqlite.store import SqliteStore

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits; it may only yield, and nothing else runs here."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("a store of the simulator waited")


class Disk:
    """The stored state and the faults of its disk. Without a folder it is in memory."""

    def __init__(self, world: World, watcher: StoreWatcher, folder: Path | None) -> None:
        self.is_slow = False
        self.is_full = False  # readable, not writable
        self.is_away = False  # neither readable nor writable
        self.forgets_to_answer = False  # it writes, then reports a failure
        self.damaged: set[int] = set()  # revisions of batches that no coordinator can read at present
        self.world = world
        self.watcher = watcher
        self.epoch = 0  # the newest epoch
        self._dice = world.dice("disk")
        self._folder = folder
        self._memory = Memory()
        self._opened: list[Store] = []
        self.outside: Store = self._open()  # the store without faults

    def open(self, owner: Life, seat: str) -> Store:
        """Open the store for one coordinator process."""
        return DiskStore(self, owner, self._open())

    def _open(self) -> Store:
        def now() -> float:
            return self.world.now

        if self._folder is None:
            return MemoryStore(self._memory, now)
        store = SqliteStore(self._folder / "phalanx.db", durable=False, now=now)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            drive(store.close())

    def intends(self, epoch: int, batch: Batch) -> None:
        """Nothing to do: a write is seen when it takes effect."""

    def takes_s(self) -> tuple[float, float]:
        """Seconds until a write takes effect, and seconds more until it is acknowledged."""
        is_slow = self.is_slow and self._dice.random() < 0.5
        whole_s = self._dice.uniform(0.05, 3.0) if is_slow else self._dice.uniform(0.0002, 0.004)
        effect_s = self._dice.choice((0.0, whole_s))
        return effect_s, whole_s - effect_s

    def minted(self, epoch: int, seat: str) -> None:
        """The store gave out an epoch; each new one is reported once."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.watcher.term_opened(epoch, seat)

    def check_writable(self) -> None:
        self.check_reachable()
        if self.is_full:
            raise StoreError("no space left on the simulated device")

    def check_reachable(self) -> None:
        if self.is_away:
            raise StoreError("the simulated disk is out of reach")


class DiskStore:
    """One coordinator's store on the disk: the real one, behind the disk's faults."""

    def __init__(self, disk: Disk, owner: Life, store: Store) -> None:
        self._disk = disk
        self._owner = owner
        self._store = store

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        def take() -> Leader:
            leader = drive(self._store.elect(candidate, lease_s))
            self._disk.minted(leader.epoch, leader.candidate.name)
            return leader

        elected: Leader = await self._write(take)
        return elected

    async def open_term(self, at_least: int = 1) -> int:
        def mint() -> int:
            epoch = drive(self._store.open_term(at_least))
            self._disk.minted(epoch, "")
            return epoch

        minted: int = await self._write(mint)
        return minted

    async def renew(self, epoch: int, lease_s: float) -> None:
        await self._write(lambda: drive(self._store.renew(epoch, lease_s)))

    async def resign(self, epoch: int) -> None:
        await self._write(lambda: drive(self._store.resign(epoch)))

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        def commit() -> None:
            drive(self._store.append(epoch, batch, history))
            self._disk.watcher.committed(epoch, batch)
            if self._disk.forgets_to_answer:
                raise StoreError("the answer was lost")

        await self._write(commit)

    async def leader(self) -> Leader | None:
        self._disk.check_reachable()
        return await self._store.leader()

    async def confirm(self, epoch: int) -> None:
        self._disk.check_reachable()
        await self._store.confirm(epoch)

    async def load(self) -> Loaded:
        self._disk.check_reachable()
        loaded = await self._store.load()
        return structs.replace(loaded, batches=self._as_read(loaded.batches))

    async def since(self, after: int, limit: int) -> list[Batch]:
        self._disk.check_reachable()
        return self._as_read(await self._store.since(after, limit))

    def _as_read(self, batches: list[Batch]) -> list[Batch]:
        bad = self._disk.damaged
        return [
            Batch(each.revision, b"", is_damaged=True) if each.revision in bad else each for each in batches
        ]

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        self._disk.check_writable()
        await self._store.save_image(epoch, revision, body)

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        self._disk.check_writable()
        await self._store.prune(epoch, before, keep_jobs)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        self._disk.check_reachable()
        return await self._store.story(subject, after, limit)

    async def concerned(self, after: int, upto: int) -> list[str]:
        self._disk.check_reachable()
        return await self._store.concerned(after, upto)

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        self._disk.check_writable()
        await self._store.set_aside(epoch, revisions)

    async def history(self, job: str) -> bytes | None:
        self._disk.check_reachable()
        return await self._store.history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        self._disk.check_reachable()
        return await self._store.past(before, limit, prefix)

    async def numbered(self, number: int) -> str | None:
        self._disk.check_reachable()
        return await self._store.numbered(number)

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        self._disk.check_writable()
        await self._store.keep_numbers(epoch, numbers)

    async def close(self) -> None:
        """The disk closes all stores at the end of the run."""

    async def _write(self, change: Callable[[], Any]) -> Any:
        """Apply a change after a delay and acknowledge it after another, even if its process is dead by then."""
        future, resolve = outside(self._owner)
        effect_s, reply_s = self._disk.takes_s()

        def take_effect() -> None:
            try:
                self._disk.check_writable()
                outcome = change()
            except StoreError as error:
                outcome = error
            self._disk.world.after(reply_s, resolve, outcome)

        if effect_s:
            self._disk.world.after(effect_s, take_effect)
        else:
            take_effect()
        return await future
