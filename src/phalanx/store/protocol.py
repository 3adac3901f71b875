"""The contract of a store: an epoch that only grows, a lease that one coordinator holds, an append that only it may
do.

A store keeps batches of events in order, whole images of the state from time to time, and the records of jobs that
left memory. It does not know what they mean. One contract suite holds every implementation; docs/operations/stores.md
says what each of them can be trusted with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class StoreError(Exception):
    """The store cannot be read or written: a full disk, no majority, a lost answer.

    It is unknown whether the write took effect. `load` shows it, and once anything has been appended after that load,
    a write that came late can no longer take effect.
    """

    hint = ""  # what to do about it, for people

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint or self.hint


class Fenced(StoreError):
    """Another coordinator has a newer epoch; this one's term is over."""

    def __init__(self, mine: int, current: int) -> None:
        now = f"{current} is current" if current > mine else "its lease has ended"
        super().__init__(f"epoch {mine} is over: {now}")
        self.mine = mine
        self.current = current


class Moved(StoreError):
    """The log does not end where this store last saw it end: a write whose answer was lost took effect."""


class Regressed(StoreError):
    """The log ends before what was read or written there: the store lost acknowledged data, or is another one."""

    hint = "check whether it was replaced by an older copy; `phalanx store check` shows what is there"

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
    """There is no space to write, not even what opening needs. It can be opened when there is."""


class StoreDamaged(StoreError):
    """A record that was asked for is damaged."""


class LogHole(StoreDamaged):
    """A record of the log is damaged or missing after the newest good image, so the state is unknown.

    What was between the revisions `after` and `upto` is unknown. `jobs` are some of those concerned, `count` is their
    number. Nothing may be decided or written on top of it: the operator has to choose.
    """

    hint = "`phalanx store repair` names the jobs concerned and shows the choices"

    def __init__(self, after: int, upto: int, jobs: Iterable[str] = (), count: int = 0) -> None:
        upto = max(upto, after + 1)  # a misplaced record may have a lower number
        super().__init__(
            f"the log has a hole: what was in it from revision {after + 1} to {upto} is damaged or missing"
        )
        self.after = after
        self.upto = upto
        self.jobs = tuple(jobs)
        self.count = max(count, len(self.jobs))


class Candidate(Struct, frozen=True):
    """A coordinator that may lead, and its addresses. A name stays the same across restarts."""

    name: str
    address: str = ""  # of REST
    link: str = ""  # for runners, host:port


# The leader for good in the eyes of version 0.2: its standbys compare no schema when they take the leadership, and
# would skip events that they cannot read. They report that the store "was moved to" what comes after the colon.
LEFT_BEHIND = Candidate("migrated-to:a newer version of Phalanx")


class Leader(Struct, frozen=True):
    """The coordinator that leads, and its epoch."""

    epoch: int
    candidate: Candidate


class Batch(Struct, frozen=True):
    """Events decided together. `revision` is that of the last one; `subjects` are the jobs and nodes concerned."""

    revision: int
    body: bytes
    subjects: tuple[str, ...] = ()
    is_damaged: bool = False  # it is not what was written, so nothing in it may be used


class History(Struct, frozen=True):
    """The record of an ended job that left memory, and its number, by which the store finds its id (0: it has none)."""

    job: str
    body: bytes
    number: int = 0  # it is written and not read back: `numbered` asks for it


class Loaded(Struct, frozen=True):
    """What a new term starts from: the newest good image and the batches after it, damaged ones among them."""

    image: bytes | None
    image_revision: int
    batches: list[Batch]
    quarantined: int = 0  # damaged images set aside


class Store(Protocol):
    """Durable when the call returns; all or nothing. One object serves one coordinator."""

    # Leadership.

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        """Take the leadership if it is vacant, its lease is over, or this name already has it; returns the leader.

        The epoch is issued in the same transaction, higher than every one before, so the winner has already fenced off
        its predecessor.
        """
        ...

    async def renew(self, epoch: int, lease_s: float) -> None:
        """Keep the leadership for another lease from now, or raise Fenced if it is no longer ours."""
        ...

    async def resign(self, epoch: int) -> None:
        """Give the leadership up, if it is still ours, so that a successor need not wait for the end of the lease."""
        ...

    async def leader(self) -> Leader | None:
        """The current leader, or None."""
        ...

    async def open_term(self, at_least: int = 1) -> int:
        """Take the leadership by force and issue an epoch: for migrations and a process known to be alone."""
        ...

    async def confirm(self, epoch: int) -> None:
        """Raise Fenced if `epoch` is not the newest. An idle leader asks before it renews leases."""
        ...

    # The log.

    async def load(self) -> Loaded:
        """The newest good image and the batches after it. The next append goes after what this saw.

        A damaged image is set aside; a damaged batch stays where it is, and is marked.
        """
        ...

    async def since(self, after: int, limit: int) -> list[Batch]:
        """Batches with a revision above `after`, oldest first, with their subjects; or raise Pruned or Regressed.

        A damaged one is marked: a reader that follows the log must not skip it.
        """
        ...

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        """Append a batch, or raise Fenced if `epoch` is not the newest, Moved if the log has grown meanwhile.

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
        """The jobs and nodes of the batches above `after`, up to `upto`. Empty: unknown."""
        ...

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        """Move damaged batches out of the log to the quarantine; a good one stays."""
        ...

    # Ended jobs.

    async def history(self, job: str) -> bytes | None:
        """The record of a job that left memory."""
        ...

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        """Records of jobs that left memory, newest first, with ids below `before`."""
        ...

    async def numbered(self, number: int) -> str | None:
        """The job that left memory with this number, or None. It may have no record any more."""
        ...

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        """The numbers of jobs that left memory before, as under an older version, which kept none."""
        ...

    async def close(self) -> None: ...


class StoreAround:
    """Wraps another store and passes every call on."""

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

    async def numbered(self, number: int) -> str | None:
        return await self._store.numbered(number)

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        await self._store.keep_numbers(epoch, numbers)

    async def close(self) -> None:
        await self._store.close()
