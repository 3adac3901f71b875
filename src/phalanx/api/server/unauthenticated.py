"""Connections that have not shown yet who they are: a limited number, and never a reason to refuse the next one.

When there are too many, one of the address that has most goes, and of these the one that has been there longest: who
has something to say says it at once. Which connection is known, and what becomes of one that goes, others decide.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class Unauthenticated(Generic[C]):
    """By address, the oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of: dict[str, dict[C, None]] = {}
        self._addresses: dict[C, str] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, connection: object) -> bool:
        return connection in self._addresses

    def __iter__(self) -> Iterator[C]:
        return iter(self._addresses)

    def add(self, address: str, connection: C) -> C | None:
        """Take one in; the one that has to go for it, if any, is no longer counted."""
        self._of.setdefault(address, {})[connection] = None
        self._addresses[connection] = address
        if len(self._addresses) <= self.most:
            return None
        crowd = max(self._of.values(), key=len)
        oldest = next(iter(crowd))
        self.remove(oldest)
        return oldest

    def remove(self, connection: C) -> None:
        """It is known now, or gone. Nothing happens if it was authenticated."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        crowd = self._of[address]
        del crowd[connection]
        if not crowd:
            del self._of[address]
