"""The part of etcd's API that the store needs, as values: requests, answers and errors.

`client.py` sends them to real members over gRPC; the simulator has a model of etcd that answers the same.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from phalanx.store.protocol import StoreError


class EtcdUnavailable(StoreError):
    """No member answered in time. It is unknown whether a transaction took effect; it may even do so later."""

    hint = "is a majority of etcd's members up, and can the coordinator reach them?"


class EtcdRefused(StoreError):
    """etcd answered no, for good or until an operator acts: too large, no space, not permitted."""


class KeyValue(Struct, frozen=True):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class RangeReply(Struct, frozen=True):
    """The contents of a range at one revision of etcd. `more` if a limit cut it short."""

    entries: list[KeyValue]
    revision: int
    more: bool = False


class Compare(Struct, frozen=True):
    """A condition on one key. A key that does not exist has create revision 0 and an empty value."""

    key: bytes
    field: Literal["value", "create", "mod"]
    equals: bytes | int


class Put(Struct, frozen=True):
    key: bytes
    value: bytes
    lease: int = 0


class Delete(Struct, frozen=True):
    """One key, or with `end` all keys from `key` up to it."""

    key: bytes
    end: bytes = b""


class Get(Struct, frozen=True):
    key: bytes
    end: bytes = b""


class Outcome(Struct, frozen=True):
    """`found` holds the answers to the Gets of the branch that was taken, in order."""

    succeeded: bool
    revision: int
    found: list[list[KeyValue]]


class Kv(Protocol):
    """Every call is linearizable, ends within a few seconds, and raises EtcdUnavailable or EtcdRefused."""

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        """One key, or with `end` the keys from `key` up to it, in order."""
        ...

    async def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
    ) -> Outcome:
        """If all compares hold, do `then` at once and whole; else answer `otherwise`."""
        ...

    async def grant(self, ttl_s: int) -> int:
        """Create a lease and return its id."""
        ...

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; returns the seconds it has now, 0 if it is over."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease, and with it the keys attached to it."""
        ...

    async def close(self) -> None: ...
