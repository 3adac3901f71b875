"""A store that is believed only if it knows no less than this coordinator has seen.

An etcd under a mistyped prefix, a Redis that was flushed or gave way to a server that knew less: each would be
taken for a new cluster, with every job gone and every runner unknown. Epochs only grow, so whoever knows a lower one
is not ours, or not all of it. The highest one seen is kept in a file beside the coordinator. Where the state itself is
a file of this machine there is nothing to compare it with, and nothing to mistake it for.
"""

from __future__ import annotations

from pathlib import Path

from phalanx.errors import ConfigError
from phalanx.store.around import StoreAround
from phalanx.store.protocol import Candidate, Fenced, Leader, Loaded, Store


class EpochsSeen:
    """The highest epoch that was seen in a store: one number in a file."""

    def __init__(self, path: Path, store: str) -> None:
        self.highest = _read(path)
        self._path = path
        self._store = store

    def check(self, epoch: int) -> None:
        """Refuse a store that has gone back in time."""
        if epoch < self.highest:
            raise ConfigError(
                f"{self._store} knows epoch {epoch}, and this coordinator has seen epoch {self.highest}: it is another "
                "cluster's, was emptied, or has lost what it acknowledged",
                hint=f"look at coordinator.store, or restore a backup; to begin anew with it, remove {self._path}",
            )

    def note(self, epoch: int) -> None:
        """Remember an epoch, if it is the highest so far."""
        if epoch > self.highest:
            self.highest = epoch
            draft = self._path.with_name(f"{self._path.name}.new")
            draft.write_text(f"{epoch}\n")
            draft.replace(self._path)


def _read(path: Path) -> int:
    """The number; 0 if there is none, or none that can be read: then nothing is known, and nothing is refused."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


class WaryStore(StoreAround):
    """Another store, asked for its epoch before it is read or taken office in."""

    def __init__(self, store: Store, seen: EpochsSeen) -> None:
        super().__init__(store)
        self._seen = seen

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        await self._check()
        leader = await self._store.elect(candidate, lease_s)
        self._seen.note(leader.epoch)
        return leader

    async def load(self) -> Loaded:
        await self._check()
        return await self._store.load()

    async def leader(self) -> Leader | None:
        leader = await self._store.leader()
        if leader is not None:
            self._seen.check(leader.epoch)
            self._seen.note(leader.epoch)
        return leader

    async def _check(self) -> None:
        """Nothing is written to find out: an epoch minted at each try would soon be high enough."""
        if self._seen.highest:
            try:
                await self._store.confirm(self._seen.highest)
            except Fenced as other:
                self._seen.check(other.current)
