"""Transactions that take effect only under our epoch, and that may be sent twice.

When an answer is lost it is unknown whether the transaction happened, or whether it still will. So each is made such
that repeating it changes nothing, and is sent again, to whichever member answers. One that is still under way when we
gave up meets a condition that no longer holds: a newer epoch, or a longer log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.kv import Compare, Delete, EtcdUnavailable, Get, KeyValue, Kv, Outcome, Put
from phalanx.store.etcd.records import OPERATIONS_MAX, PART_BYTES, number
from phalanx.store.protocol import Fenced, moved

TRIES = 4
_PUT_BYTES = 64  # what a put costs besides its key and value


async def settled(
    kv: Kv, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
) -> Outcome:
    """Send a transaction that may be sent twice until a member answers."""
    for _ in range(TRIES - 1):
        try:
            return await kv.txn(compares, then, otherwise)
        except EtcdUnavailable:
            continue  # the client continues with another member
    return await kv.txn(compares, then, otherwise)


def unchanged(key: bytes, value: bytes) -> Compare:
    """The condition that a key still has this value; an empty value means that the key does not exist."""
    return Compare(key, "value", value) if value else Compare(key, "create", 0)


def value_of(entries: list[KeyValue]) -> bytes:
    return entries[0].value if entries else b""


def grouped(puts: Iterable[Put]) -> Iterator[list[Put | Delete | Get]]:
    """Puts in groups that each fit into one transaction."""
    group: list[Put | Delete | Get] = []
    size = 0
    for put in puts:
        cost = len(put.key) + len(put.value) + _PUT_BYTES
        if group and (size + cost > PART_BYTES + 1024 or len(group) >= OPERATIONS_MAX):
            yield group
            group, size = [], 0
        group.append(put)
        size += cost
    if group:
        yield group


class Fence:
    """What a write must find unchanged: the epoch, and where it matters the end of the log."""

    def __init__(self, kv: Kv, keys: EtcdKeys, epoch: int, head: bytes | None = None) -> None:
        self._kv = kv
        self._keys = keys
        self._epoch = epoch
        self._head = head
        self._compares = [Compare(keys.epoch, "value", b"%d" % epoch)]
        if head is not None:
            self._compares.append(unchanged(keys.head, head))

    async def write(
        self, then: list[Put | Delete | Get], also: Compare | None = None, mark: bytes | None = None
    ) -> bool:
        """Do all of it, or raise Fenced or Moved. False: only `also` does not hold.

        If the log ends with `mark`, our own write took effect, and only its answer was lost.
        """
        keys = self._keys
        compares = [*self._compares, also] if also else self._compares
        outcome = await settled(self._kv, compares, then, [Get(keys.epoch), Get(keys.head)])
        if outcome.succeeded:
            return True
        epoch, head = (value_of(found) for found in outcome.found)
        if mark is not None and head == mark:
            return True
        if number(epoch) != self._epoch:
            raise Fenced(self._epoch, number(epoch))
        if self._head is not None and head != self._head:
            raise moved(number(head), number(self._head))
        return False
