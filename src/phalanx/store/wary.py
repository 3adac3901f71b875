"""A store that is believed only if it knows no less than this coordinator has seen.

An etcd under a mistyped prefix, a Redis that was flushed or gave way to a server that knew less: each would be
taken for a new cluster, with every job gone and every runner unknown. Epochs only grow, so whoever knows a lower one
is not ours, or not all of it. The highest one seen is kept in a file beside the coordinator. Where the state itself is
a file of this machine there is nothing to compare it with, and nothing to mistake it for.
"""

from __future__ import annotations

from pathlib import Path

from phalanx.errors import ConfigError
from phalanx.store.protocol import Batch, Candidate, Fenced, History, Leader, Loaded, Store


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


class WaryStore:
    """Another store, asked for its epoch before it is read or taken office in."""

    def __init__(self, store: Store, seen: EpochsSeen) -> None:
        self._store = store
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

    # The rest is the store's own.

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

    async def history(self, job: str) -> bytes | None:
        return await self._store.history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        return await self._store.past(before, limit, prefix)

    async def close(self) -> None:
        await self._store.close()
