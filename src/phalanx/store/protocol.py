"""What a store owes: an epoch that only grows, an append that only the holder of the newest epoch may do.

A store keeps batches of events in order, whole images of the state from time to time, and the records of
jobs that left memory. It knows nothing of what they mean. One contract suite holds every implementation.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class StoreError(Exception):
    """The store cannot be read or written: a full disk, a read-only folder. Nothing of the batch was kept."""


class Fenced(StoreError):
    """Another coordinator has a newer epoch; this one's term is over."""

    def __init__(self, mine: int, current: int) -> None:
        super().__init__(f"epoch {mine} is over, {current} is in force")
        self.mine = mine
        self.current = current


class Batch(Struct, frozen=True):
    """Events decided together. `revision` is that of the last one; `subjects` are the jobs and nodes concerned."""

    revision: int
    body: bytes
    subjects: tuple[str, ...] = ()


class History(Struct, frozen=True):
    """The record of an ended job that left memory."""

    job: str
    body: bytes


class Loaded(Struct, frozen=True):
    """What a new term starts from: the newest good image and the batches after it."""

    image: bytes | None
    image_revision: int
    batches: list[Batch]
    quarantined: int = 0  # damaged records set aside


class Store(Protocol):
    """Durable when the call returns; all or nothing."""

    async def open_term(self) -> int:
        """Mint an epoch higher than every one before, durably, and return it."""
        ...

    async def load(self) -> Loaded: ...

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        """Keep a batch, or raise Fenced if `epoch` is not the newest."""
        ...

    async def confirm(self, epoch: int) -> None:
        """Raise Fenced if `epoch` is not the newest. Who writes nothing for a while asks, before renewing leases."""
        ...

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        """Keep an image; later loads start from it."""
        ...

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        """Batches that concern a job or node, oldest first, with a revision above `after`."""
        ...

    async def history(self, job: str) -> bytes | None:
        """The record of a job that left memory."""
        ...

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        """Records of jobs that left memory, newest first, with ids below `before`."""
        ...

    async def close(self) -> None: ...
