"""A store that is believed only if it knows no less than this coordinator has seen.

An etcd under a mistyped prefix, a Redis that was flushed or gave way to a server that knew less, a database or its WAL
that was deleted: each would be taken for a new cluster, or for an older one, with jobs gone and runners unknown. Epochs
only grow, and within an epoch revisions do, so whoever knows less is not ours, or not all of it. The highest seen are
kept in a small file in the state folder. It is written without waiting for the disk: it survives the death of the
process, and after a loss of power it may only know too little.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from phalanx.diary import diary
from phalanx.errors import ConfigError
from phalanx.store.around import StoreAround
from phalanx.store.contents import epoch_of
from phalanx.store.protocol import Batch, Candidate, History, Leader, Loaded, Store

log = diary("store")
FILE = "epoch-seen"


class Seen(Struct, frozen=True, order=True):
    """How far a store was. A later epoch counts for more than any revision: a restored backup goes back in those."""

    epoch: int = 0
    revision: int = 0


class EpochsSeen:
    """The highest epoch that was seen in a store, and the highest revision in it: two numbers in a file."""

    def __init__(self, path: Path, store: str) -> None:
        self.highest = _read(path)
        self._path = path
        self._store = store
        self._file: int | None = None
        self._is_told = False  # that it cannot be written

    def check(self, found: Seen) -> None:
        """Refuse a store that has gone back in time."""
        if found < self.highest:
            raise ConfigError(
                f"{self._store} knows epoch {found.epoch}, revision {found.revision}, and this coordinator has seen "
                f"epoch {self.highest.epoch}, revision {self.highest.revision}: it is another cluster's, was emptied, "
                "or has lost what it acknowledged",
                hint="look at coordinator.store, or restore a backup; `phalanx store repair --accept-loss` goes on "
                f"with what is left (the numbers are in {self._path})",
            )

    def note(self, found: Seen) -> None:
        """Remember this, if it is the highest so far. Others of this machine may have seen more meanwhile."""
        if found.epoch > self.highest.epoch:
            self.highest = max(self.highest, _read(self._path))
        if found <= self.highest:
            return
        self.highest = found
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, b"%020d %020d\n" % (found.epoch, found.revision), 0)
        except OSError as error:
            if not self._is_told:
                log.warning("what was seen of the store cannot be written down", error=str(error))
            self._is_told = True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read(path: Path) -> Seen:
    """The numbers; zeros if there are none that can be read: then nothing is known, and nothing is refused."""
    try:
        epoch, _, revision = path.read_text().partition(" ")
        return Seen(int(epoch), int(revision or 0))
    except (OSError, ValueError):
        return Seen()


class WaryStore(StoreAround):
    """Another store, asked how far it is before it is read or taken office in."""

    def __init__(self, store: Store, seen: EpochsSeen) -> None:
        super().__init__(store)
        self._seen = seen

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        # Nothing is written to find out: an epoch minted at each try would soon be high enough.
        self._seen.check(Seen(await epoch_of(self._store), self._seen.highest.revision))
        leader = await self._store.elect(candidate, lease_s)
        self._seen.note(Seen(leader.epoch, self._seen.highest.revision))
        return leader

    async def load(self) -> Loaded:
        epoch, loaded = await epoch_of(self._store), await self._store.load()
        found = Seen(epoch, loaded.batches[-1].revision if loaded.batches else loaded.image_revision)
        self._seen.check(found)
        self._seen.note(found)
        return loaded

    async def leader(self) -> Leader | None:
        leader = await self._store.leader()
        if leader is not None:
            self._seen.check(Seen(leader.epoch, self._seen.highest.revision))
            self._seen.note(Seen(leader.epoch))
        return leader

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        await self._store.append(epoch, batch, history)
        self._seen.note(Seen(epoch, batch.revision))

    async def close(self) -> None:
        self._seen.close()
        await super().close()
