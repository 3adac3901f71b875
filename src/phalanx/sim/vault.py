"""Where the state of one run is kept: what coordinators open, what faults can do to it, and who watches it.

There are two: `Disk`, with the real memory and SQLite stores, and `EtcdVault`, with the real etcd store on a model of
etcd.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.sim.life import Life
from phalanx.store.protocol import Batch, Store


class StoreWatcher(Protocol):
    """Who takes note of what became durable."""

    def term_opened(self, epoch: int, seat: str) -> None: ...

    def committed(self, epoch: int, batch: Batch) -> None: ...


class Vault(Protocol):
    """One for all coordinators of a run."""

    is_slow: bool
    is_full: bool  # it can be read, not written
    is_away: bool  # it can be neither
    forgets_to_answer: bool  # it writes, and says that it could not
    damaged: set[int]  # revisions of batches that no coordinator can read just now

    @property
    def outside(self) -> Store:
        """What is really kept, whatever the moods, without waiting: for those who look from outside."""
        ...

    def open(self, owner: Life, seat: str) -> Store:
        """A store as one coordinator process opens it."""
        ...

    def intends(self, epoch: int, batch: Batch) -> None:
        """Under which epoch a coordinator is about to write a batch."""
        ...

    def close(self) -> None: ...
