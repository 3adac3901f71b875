"""Coordinators on one memory store: real loops, a clock that can be set forward, a store that can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from phalanx.coordinator.feed import Feed
from phalanx.coordinator.leadership import Leadership, LeadershipConfig
from phalanx.coordinator.loop import Retention
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.store.address import read_address
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Batch, Candidate, Loaded, Store, StoreError
from phalanx.store.verified import EpochsSeen, VerifiedStore
from tests.support.clocks import JumpingClock

LEASE_S = 0.6


class FaultyStore:
    """A store whose calls fail, or do something first, by name."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.broken: set[str] = set()
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def faulty(*given: Any) -> Any:
            if name in self.before:
                self.before[name]()
            if name in self.broken:
                raise StoreError(f"{name} is out of order")
            answer = await call(*given)
            if name in self.after:
                self.after[name]()
            return answer

        return faulty


class Listener:
    """The listener of a coordinator under test: it records what it is given."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.is_open = False
        self.turns: list[Turn] = []

    def opened(self) -> None:
        self.is_open = True

    def closed(self) -> None:
        self.is_open = False

    def turned(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.feed.publish(turn)

    def followed(self, batch: Batch, turn: Turn) -> None:
        self.feed.publish(turn)

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        self.feed.resume(loaded, state)


class CandidateUnderTest:
    """One coordinator with its own store object, clock and listener."""

    def __init__(
        self,
        memory: Memory,
        name: str = "a",
        *,
        lease_s: float = LEASE_S,
        keep: Retention | None = None,
        seen_in: Path | None = None,
    ) -> None:
        self.clock = JumpingClock()
        self.store = FaultyStore(MemoryStore(memory, self.clock.monotonic))
        self.listener = Listener()
        config = LeadershipConfig(Timers(), lease_s, keep=keep or Retention())
        candidate = Candidate(name, f"http://{name}", f"{name}:1")
        store: Store = self.store
        if seen_in is not None:
            seen_in.mkdir()
            store = VerifiedStore(store, EpochsSeen(seen_in, read_address("etcd://h/prefix", seen_in)))
        self.leadership = Leadership(store, candidate, config, self.clock, self.listener)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run())

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def running(*candidates: CandidateUnderTest) -> AsyncIterator[None]:
    """Opened one after another, then all at work."""
    try:
        for each in candidates:
            await each.leadership.open()
            each.start()
        yield
    finally:
        for each in candidates:
            await each.end()
