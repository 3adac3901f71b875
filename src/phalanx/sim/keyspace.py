"""What an etcd cluster holds, as a model: ordered keys, counted revisions, transactions, leases that end.

It carries out each request at once and knows nothing of networks and faults; those are in `etcd.py`. Limits on
operations and bytes of one request are etcd's own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from phalanx.store.etcd.kv import Compare, Delete, EtcdRefused, Get, KeyValue, Outcome, Put, RangeReply

OPS_MAX = 128
BYTES_MAX = 1_500_000
_ABSENT = KeyValue(b"", b"", 0, 0)


class Lease:
    """A lease and the keys attached to it."""

    def __init__(self, ttl_s: int, until: float) -> None:
        self.ttl_s = ttl_s
        self.until = until
        self.keys: set[bytes] = set()


class Keyspace:
    """Keys, values and leases at the newest revision."""

    def __init__(
        self, now: Callable[[], float], new_id: Callable[[], int], bytes_max: int = BYTES_MAX
    ) -> None:
        self.revision = 1
        self.leases: dict[int, Lease] = {}
        self.is_full = False  # nothing can be put any more
        self._now = now
        self._bytes_max = bytes_max
        self._entries: dict[bytes, KeyValue] = {}
        self._keys: list[bytes] = []
        self._new_id = new_id  # each member of etcd counts for itself, so ids are in no order

    def range(
        self,
        key: bytes,
        end: bytes = b"",
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        entries = self._range(key, end)
        if newest_first:
            entries.reverse()
        more = bool(limit) and len(entries) > limit
        if limit:
            entries = entries[:limit]
        if keys_only:
            entries = [KeyValue(e.key, b"", e.create_revision, e.mod_revision, e.lease) for e in entries]
        return RangeReply(entries, self.revision, more)

    def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None
    ) -> Outcome:
        self._check_limits(compares, then, otherwise or [])
        succeeded = all(self._holds(each) for each in compares)
        branch: list[Any] = list(then) if succeeded else list(otherwise or [])
        if any(isinstance(each, Put | Delete) for each in branch):
            self._check_leases(branch)
            self.revision += 1
        found = [answer for each in branch if (answer := self._do(each)) is not None]
        return Outcome(succeeded, self.revision, found)

    def grant(self, ttl_s: int) -> int:
        id = self._new_id()
        self.leases[id] = Lease(ttl_s, self._now() + ttl_s)
        return id

    def keep_alive(self, id: int) -> int:
        lease = self.leases.get(id)
        if lease is None:
            return 0
        lease.until = self._now() + lease.ttl_s
        return lease.ttl_s

    def revoke(self, id: int) -> None:
        """End a lease and delete its keys in one revision. A lease that is over already is ignored."""
        lease = self.leases.pop(id, None)
        if lease is not None and lease.keys:
            self.revision += 1
            for key in sorted(lease.keys):
                self._delete(key)

    def expired(self) -> list[int]:
        return [id for id, lease in self.leases.items() if lease.until <= self._now()]

    def extend_leases(self) -> None:
        """As a new leader of etcd does: it does not know the time left of the old one's leases, so all start anew."""
        for lease in self.leases.values():
            lease.until = self._now() + lease.ttl_s

    # One operation.

    def _do(self, effect: Put | Delete | Get) -> list[KeyValue] | None:
        match effect:
            case Put():
                self._put(effect)
            case Delete():
                for entry in self._range(effect.key, effect.end):
                    self._delete(entry.key)
            case Get():
                return self._range(effect.key, effect.end)
        return None

    def _put(self, put: Put) -> None:
        former = self._entries.get(put.key)
        created = self.revision if former is None else former.create_revision
        if former is None:
            insort(self._keys, put.key)
        elif former.lease in self.leases:
            self.leases[former.lease].keys.discard(put.key)
        if put.lease:
            self.leases[put.lease].keys.add(put.key)
        self._entries[put.key] = KeyValue(put.key, put.value, created, self.revision, put.lease)

    def _delete(self, key: bytes) -> None:
        entry = self._entries.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        if entry.lease in self.leases:
            self.leases[entry.lease].keys.discard(key)

    def _range(self, key: bytes, end: bytes) -> list[KeyValue]:
        if not end:
            return [self._entries[key]] if key in self._entries else []
        first = bisect_left(self._keys, key)
        last = len(self._keys) if end == b"\0" else bisect_left(self._keys, end)
        return [self._entries[each] for each in self._keys[first:last]]

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key, _ABSENT)
        match compare.field:
            case "value":
                # etcd finds a key that does not exist unequal to every value, even an empty one.
                return entry is not _ABSENT and entry.value == compare.equals
            case "create":
                return entry.create_revision == compare.equals
            case "mod":
                return entry.mod_revision == compare.equals

    def _check_limits(self, compares: list[Compare], then: list[Any], otherwise: list[Get]) -> None:
        if max(len(compares), len(then), len(otherwise)) > OPS_MAX:
            raise EtcdRefused("etcdserver: too many operations in txn request")
        if self.is_full and any(isinstance(each, Put) for each in then):
            raise EtcdRefused("etcdserver: mvcc: database space exceeded")
        size = sum(len(each.key) + len(each.value) for each in then if isinstance(each, Put))
        if size > self._bytes_max:
            raise EtcdRefused("etcdserver: request is too large")
        keys = [each.key for each in then if isinstance(each, Put)]
        if len(keys) != len(set(keys)):
            raise EtcdRefused("etcdserver: duplicate key given in txn request")

    def _check_leases(self, branch: list[Any]) -> None:
        for each in branch:
            if isinstance(each, Put) and each.lease and each.lease not in self.leases:
                raise EtcdRefused("etcdserver: requested lease not found")
