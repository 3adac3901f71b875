"""What a store owes: an epoch that only grows, a lease that one coordinator holds, an append that only it may do.

A store keeps batches of events in order, whole images of the state from time to time, and the records of
jobs that left memory. It knows nothing of what they mean. One contract suite holds every implementation;
docs/operations/stores.md says what each of them can be trusted with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class StoreError(Exception):
    """The store cannot be read or written: a full disk, no majority, an answer that was lost.

    Whether the write took effect is not known. `load` tells, and once anything has been appended after that load,
    a write that came late can no longer take effect.
    """

    hint = ""  # what to do about it, for people

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint or self.hint


class Fenced(StoreError):
    """Another coordinator has a newer epoch; this one's term is over."""

    def __init__(self, mine: int, current: int) -> None:
        super().__init__(f"epoch {mine} is over, {current} is in force")
        self.mine = mine
        self.current = current


class Moved(StoreError):
    """The log does not end where this store last saw it end: a write whose answer was lost took effect after all."""


class Regressed(StoreError):
    """The log ends before what was read or written there: the store has lost what it acknowledged, or is another."""

    hint = "look whether an older copy stands in its place; `phalanx store check` says what is there"

    def __init__(self, end: int, known: int, text: str = "") -> None:
        super().__init__(
            text or f"the log ends at revision {end}, and it was at {known}: what it acknowledged is lost"
        )
        self.end = end


def moved(end: int, known: int | None) -> Moved | Regressed:
    """The error for a log that does not end where it did."""
    if end < (known or 0):
        return Regressed(end, known or 0)
    return Moved(f"the log ends at {end}, not at {known}")


class Pruned(StoreError):
    """The log no longer reaches back so far: start again from the image."""


class StoreFull(StoreError):
    """There is no room to write, not even what opening takes. It may be opened when there is."""


class StoreDamaged(StoreError):
    """Something in the store is not what was written, and what was asked for cannot be read."""


class LogHole(StoreDamaged):
    """A record of the log is damaged or missing after the newest good image, so the state cannot be told.

    What stood between the revisions `after` and `upto` is not known. `jobs` are some of those concerned, `count` how
    many they are. Nothing may be decided or written on top of it: the choice is the operator's.
    """

    hint = "`phalanx store repair` names the jobs concerned and offers what can be done"

    def __init__(self, after: int, upto: int, jobs: Iterable[str] = (), count: int = 0) -> None:
        upto = max(upto, after + 1)  # a record may stand where it does not belong, with a lower number
        super().__init__(
            f"the log has a hole: what stood in it from revision {after + 1} to {upto} is damaged or missing"
        )
        self.after = after
        self.upto = upto
        self.jobs = tuple(jobs)
        self.count = max(count, len(self.jobs))


class Candidate(Struct, frozen=True):
    """Who stands for the office, and where it would be reached. A name stays the same across restarts."""

    name: str
    address: str = ""  # of REST
    link: str = ""  # for runners, host:port


# Who holds the office for ever in the eyes of version 0.2: its standbys compare no schema when they take it, and would
# pass over events that they cannot read. They say that the store "was moved to" what comes after the colon.
LEFT_BEHIND = Candidate("migrated-to:a newer version of Phalanx")


class Leader(Struct, frozen=True):
    """Who holds the office, and under which epoch."""

    epoch: int
    candidate: Candidate


class Batch(Struct, frozen=True):
    """Events decided together. `revision` is that of the last one; `subjects` are the jobs and nodes concerned."""

    revision: int
    body: bytes
    subjects: tuple[str, ...] = ()
    is_damaged: bool = False  # it is not what was written, so nothing in it may be believed


class History(Struct, frozen=True):
    """The record of an ended job that left memory."""

    job: str
    body: bytes


class Loaded(Struct, frozen=True):
    """What a new term starts from: the newest good image and the batches after it, damaged ones among them."""

    image: bytes | None
    image_revision: int
    batches: list[Batch]
    quarantined: int = 0  # damaged images set aside


class Store(Protocol):
    """Durable when the call returns; all or nothing. One object serves one coordinator."""

    # The office.

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        """Take the office if it is vacant, its lease is over, or our own former self holds it; say who has it now.

        The epoch is minted in the same transaction that takes the office, higher than every one before, so whoever
        wins has already fenced off whoever came before.
        """
        ...

    async def renew(self, epoch: int, lease_s: float) -> None:
        """Keep the office for another lease from now, or raise Fenced if it is no longer ours."""
        ...

    async def resign(self, epoch: int) -> None:
        """Leave the office vacant, if it is still ours, so that a successor need not wait for the lease to end."""
        ...

    async def leader(self) -> Leader | None:
        """Who holds the office; None if nobody does."""
        ...

    async def open_term(self, at_least: int = 1) -> int:
        """Take the office by force and mint an epoch: for one who is alone by other means, and for migrations."""
        ...

    async def confirm(self, epoch: int) -> None:
        """Raise Fenced if `epoch` is not the newest. Who writes nothing for a while asks, before renewing leases."""
        ...

    # The log.

    async def load(self) -> Loaded:
        """The newest good image and what came after it. The next append goes after what this saw.

        A damaged image is set aside; a damaged batch stays where it is, and is given as one.
        """
        ...

    async def since(self, after: int, limit: int) -> list[Batch]:
        """Batches with a revision above `after`, oldest first, with their subjects; or raise Pruned or Regressed.

        A damaged one is given as such: who follows the log must not pass over it.
        """
        ...

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        """Keep a batch after the last one, or raise Fenced if `epoch` is not the newest, Moved if the log moved on.

        Regressed is raised if the log ends before where it did.
        """
        ...

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        """Keep an image; later loads start from it."""
        ...

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        """Drop batches with a revision up to `before` that an image covers, and all but the newest job records."""
        ...

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        """Batches that concern a job or node, oldest first, with a revision above `after`."""
        ...

    # Damage.

    async def concerned(self, after: int, upto: int) -> list[str]:
        """The jobs and nodes that batches above `after`, up to `upto`, were about. Nothing: it cannot be told."""
        ...

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        """Take damaged batches out of the log and keep them elsewhere; a good one stays."""
        ...

    # The past.

    async def history(self, job: str) -> bytes | None:
        """The record of a job that left memory."""
        ...

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        """Records of jobs that left memory, newest first, with ids below `before`."""
        ...

    async def close(self) -> None: ...


class StoreAround:
    """Another store, as it is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        return await self._store.elect(candidate, lease_s)

    async def leader(self) -> Leader | None:
        return await self._store.leader()

    async def load(self) -> Loaded:
        return await self._store.load()

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

    async def concerned(self, after: int, upto: int) -> list[str]:
        return await self._store.concerned(after, upto)

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        await self._store.set_aside(epoch, revisions)

    async def history(self, job: str) -> bytes | None:
        return await self._store.history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        return await self._store.past(before, limit, prefix)

    async def close(self) -> None:
        await self._store.close()
