"""A store that is used only if it is not behind what this coordinator has seen of it.

An etcd under a mistyped prefix, a Redis that was flushed or replaced by a server that was behind, a database or its
WAL that was deleted: each would be taken for a new cluster, or for an older one, with jobs gone and runners unknown.
Epochs only grow, and within an epoch revisions do, so a store that is behind is not ours, or not all of it. The
highest seen are kept in a small file in the state folder, a line for each store: what was seen of one says nothing
about another. It is written without waiting for the disk: it survives the death of the process, and after a loss of
power it may only be too low.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from phalanx.errors import ConfigError
from phalanx.logger import logger
from phalanx.store.address import StoreAddress, read_address
from phalanx.store.contents import epoch_of
from phalanx.store.protocol import (
    Batch,
    Candidate,
    History,
    Leader,
    Loaded,
    Pruned,
    Regressed,
    Store,
    StoreAround,
)

log = logger("store")
FILE = "epoch-seen"
BYTES_MAX = 1 << 20  # of the file
_NUMBERS = b"%020d %020d"
_WIDTH = len(_NUMBERS % (0, 0))


class Seen(Struct, frozen=True, order=True):
    """How far a store was. The epoch counts before the revision: a restored backup goes back in revisions."""

    epoch: int = 0
    revision: int = 0


class Line(Struct, frozen=True):
    """What was seen of one store, and the offset of its line in the file; None if it cannot be overwritten."""

    place: StoreAddress
    seen: Seen
    at: int | None


class EpochsSeen:
    """The highest epoch that was seen in a store, and the highest revision in it: two numbers in a file."""

    def __init__(self, folder: Path, place: StoreAddress) -> None:
        self._folder = folder
        self._path = folder / FILE
        self._place = place
        self._file: int | None = None
        self._at: int | None = None  # the offset of our line
        self._has_warned = False  # the warning that it cannot be written has been logged
        self._sibling: StoreAddress | None = None  # another prefix of the same servers
        self.highest = self._read()

    def check(self, found: Seen) -> None:
        """Refuse a store that has gone back in time, and an empty one beside one that was full."""
        if found < self.highest:
            raise ConfigError(
                f"{self._place} is at epoch {found.epoch}, revision {found.revision}, but this coordinator has seen "
                f"epoch {self.highest.epoch}, revision {self.highest.revision}: it was emptied, or has lost what it "
                "acknowledged",
                hint="look at coordinator.store, or restore a backup; `phalanx store repair --accept-loss` continues "
                f"with what is left (the numbers are in {self._path})",
            )
        if not found.epoch and self._sibling is not None:
            raise ConfigError(
                f"there is no cluster in {self._place}, and this coordinator has served {self._sibling}: "
                "is the prefix right?",
                hint="look at coordinator.store; a new cluster gets a state folder of its own (coordinator.state_dir)",
            )

    def note(self, found: Seen) -> None:
        """Remember this, if it is the highest so far. Other processes of this machine may have seen more meanwhile."""
        if found.epoch > self.highest.epoch:
            self.highest = max(self.highest, self._read())
        if found <= self.highest:
            return
        self.highest = found
        try:
            self._write(_NUMBERS % (found.epoch, found.revision))
        except OSError as error:
            if not self._has_warned:
                log.warning("the highest epoch seen in the store cannot be written", error=str(error))
            self._has_warned = True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> Seen:
        """The numbers of our store; zeros if none can be read: then nothing is refused."""
        highest = Seen()
        for line in _lines(self._folder):
            if line.place.is_same(self._place):
                highest = max(highest, line.seen)
                self._at = line.at if line.at is not None else self._at
            elif line.place.is_beside(self._place):
                self._sibling = line.place
        return highest

    def _write(self, numbers: bytes) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._at is not None:
            os.pwrite(self._file, numbers, self._at)
            return
        # Two processes that add a line at the same moment may add it twice; the highest counts.
        size = os.fstat(self._file).st_size
        address = (
            b"" if _is_own(self._place, self._folder) else b" " + os.fsencode(str(self._place.settled()))
        )
        start = b"\n" if size and os.pread(self._file, 1, size - 1) != b"\n" else b""
        os.pwrite(self._file, start + numbers + address + b"\n", size)
        self._at = size + len(start)


def _is_own(place: StoreAddress, folder: Path) -> bool:
    """Whether it is the file in this very folder, which stays so when the folder is moved."""
    return place.is_same(read_address("sqlite:", folder))


def _lines(folder: Path) -> Iterator[Line]:
    """Everything that can be read in the file: EPOCH REVISION ADDRESS. The folder's own file needs no address."""
    try:
        with (folder / FILE).open("rb") as file:
            whole = file.read(BYTES_MAX)
    except OSError:
        return
    at = 0
    for each in whole.splitlines(keepends=True):
        line, begin = each.rstrip(b"\n"), at
        at += len(each)
        epoch, _, rest = line.partition(b" ")
        revision, _, address = rest.partition(b" ")
        is_ours = len(epoch) + 1 + len(revision) == _WIDTH  # an older version wrote one number
        try:
            place = read_address(os.fsdecode(address) or "sqlite:", folder)
            yield Line(place, Seen(int(epoch), int(revision or 0)), begin if is_ours else None)
        except (ValueError, ConfigError):
            continue


class VerifiedStore(StoreAround):
    """Another store, asked how far it is before it is read or its leadership taken."""

    def __init__(self, store: Store, seen: EpochsSeen) -> None:
        super().__init__(store)
        self._seen = seen

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        # Nothing is written to find out: an epoch issued at each try would soon be high enough.
        epoch, revision = await epoch_of(self._store), self._seen.highest.revision
        if epoch == self._seen.highest.epoch:
            revision = await self._end(revision)
        self._seen.check(Seen(epoch, revision))
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
            highest = self._seen.highest
            self._seen.check(Seen(leader.epoch, highest.revision))
            if (
                leader.epoch > highest.epoch
            ):  # unless a backup was restored it has all that the one before had
                end = await self._end(highest.revision)
                self._seen.note(Seen(leader.epoch, end if end == highest.revision else 0))
        return leader

    async def since(self, after: int, limit: int) -> list[Batch]:
        batches = await self._store.since(after, limit)
        if batches:
            self._seen.note(Seen(self._seen.highest.epoch, batches[-1].revision))
        return batches

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        await self._store.append(epoch, batch, history)
        self._seen.note(Seen(epoch, batch.revision))

    async def _end(self, known: int) -> int:
        """The end of the log if that is before `known`, else `known`."""
        try:
            await self._store.since(known, 1)
        except Pruned:
            return known
        except Regressed as error:
            return error.end
        return known

    async def close(self) -> None:
        self._seen.close()
        await super().close()
