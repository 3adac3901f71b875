"""Where the state of one run is kept: what coordinators open, what faults can do to it, and who watches it.

There are two: `Disk`, with the real memory and SQLite stores, and `EtcdVault`, with the real etcd store on a model of
etcd.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.sim.life import Life
from phalanx.store.protocol import Batch, Store


class StoreWatcher(Protocol):
    """Sees what became durable."""

    def term_opened(self, epoch: int, seat: str) -> None: ...

    def committed(self, epoch: int, batch: Batch) -> None: ...


class Vault(Protocol):
    """One for all coordinators of a run."""

    is_slow: bool
    is_full: bool  # readable, not writable
    is_away: bool  # neither readable nor writable
    forgets_to_answer: bool  # it writes, then reports a failure
    damaged: set[int]  # revisions of batches that no coordinator can read at present

    @property
    def outside(self) -> Store:
        """The store without faults and delays, for checkers."""
        ...

    def open(self, owner: Life, seat: str) -> Store:
        """Open the store for one coordinator process."""
        ...

    def intends(self, epoch: int, batch: Batch) -> None:
        """A coordinator is about to write this batch under this epoch."""
        ...

    def close(self) -> None: ...
