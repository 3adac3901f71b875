"""The leadership in etcd: a key attached to a lease, and an epoch that grows whenever the key is taken.

The key names the leader and goes away with its lease; it decides nothing else. The epoch, a value of its own that
every write compares, keeps a replaced coordinator from writing.
"""

from __future__ import annotations

from math import ceil

import msgspec

from phalanx.logger import logger
from phalanx.store.etcd.fence import settled, unchanged, value_of
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.kv import Compare, Delete, EtcdRefused, EtcdUnavailable, Get, KeyValue, Kv, Put
from phalanx.store.etcd.records import LeaderRecord, number
from phalanx.store.protocol import Candidate, Fenced, Leader, StoreError

log = logger("store")
# 2: kinds of events that version 0.2 cannot read. Its standbys compare the schema when they take the leadership.
SCHEMA = 2
_TRIES = 5  # at taking the leadership by force, against others that do the same


class EtcdLeadership:
    """Which coordinator leads, and under which epoch."""

    def __init__(self, kv: Kv, keys: EtcdKeys) -> None:
        self._kv = kv
        self._keys = keys
        self._schema_seen = b""

    async def check_schema(self) -> None:
        """Refuse data of a newer version, before anything is changed."""
        if not self._schema_seen:
            self._note_schema(value_of((await self._kv.range(self._keys.schema)).entries))

    def _note_schema(self, seen: bytes) -> None:
        if seen and (not seen.isdigit() or int(seen) > SCHEMA):
            raise StoreError(
                f"{self._keys.schema.decode()} in etcd is {seen[:20]!r}, this Phalanx reads schemas up to {SCHEMA}: "
                "use a newer version, or another prefix"
            )
        self._schema_seen = seen

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        for _ in range(_TRIES):
            holder, epoch, schema = await self._seen()
            self._note_schema(schema)  # another coordinator may have raised it since
            if holder is not None and (found := _leader_record(holder)) and found.name != candidate.name:
                return found.leader
            lease = await self._kv.grant(ceil(lease_s))
            try:
                won = await self._take(candidate, lease, holder, epoch)
            except StoreError:
                await self._let_go(lease)
                raise
            if won is not None:
                return won
            await self._let_go(lease)
        raise EtcdUnavailable(
            "other coordinators keep taking the leadership; do two coordinators have the same name?"
        )

    async def _take(
        self, candidate: Candidate, lease: int, holder: KeyValue | None, epoch: bytes
    ) -> Leader | None:
        """Issue the epoch and take the key in one transaction. None: one of them has changed since it was read."""
        keys = self._keys
        ours = LeaderRecord(number(epoch) + 1, candidate.name, candidate.address, candidate.link)
        compares = [
            Compare(keys.leader, "mod", holder.mod_revision if holder else 0),
            unchanged(keys.epoch, epoch),
            unchanged(keys.schema, self._schema_seen),
        ]
        outcome = await settled(
            self._kv,
            compares,
            [
                Put(keys.leader, msgspec.json.encode(ours), lease),
                Put(keys.epoch, b"%d" % ours.epoch),
                Put(keys.schema, b"%d" % SCHEMA),
            ],
            [Get(keys.leader)],
        )
        if outcome.succeeded:
            self._schema_seen = b"%d" % SCHEMA
            return ours.leader
        # A lease is used by one try alone: if the key is attached to ours, that try won and its answer was lost.
        (entries,) = outcome.found
        return ours.leader if entries and entries[0].lease == lease else None

    async def renew(self, epoch: int, lease_s: float) -> None:
        """Renews the lease of the key of our own epoch, so no other coordinator's is kept alive."""
        holder, current, _ = await self._seen()
        if number(current) != epoch or holder is None:
            raise Fenced(epoch, number(current))
        left_s = await self._kv.keep_alive(holder.lease)
        if left_s == 0:
            raise Fenced(epoch, number(current))
        if left_s < lease_s:  # A lease keeps the length it was made with.
            await self._renew_for(epoch, holder, lease_s)

    async def _renew_for(self, epoch: int, holder: KeyValue, lease_s: float) -> None:
        keys, lease = self._keys, await self._kv.grant(ceil(lease_s))
        compares = [
            Compare(keys.leader, "mod", holder.mod_revision),
            Compare(keys.epoch, "value", b"%d" % epoch),
        ]
        gets = [Get(keys.leader), Get(keys.epoch)]
        outcome = await settled(self._kv, compares, [Put(keys.leader, holder.value, lease)], gets)
        if not outcome.succeeded:
            entries, current = outcome.found
            if not entries or entries[0].lease != lease:
                await self._let_go(lease)
                raise Fenced(epoch, number(value_of(current)))
        await self._let_go(holder.lease)

    async def resign(self, epoch: int) -> None:
        ours = Compare(self._keys.epoch, "value", b"%d" % epoch)
        await settled(self._kv, [ours], [Delete(self._keys.leader)])

    async def leader(self) -> Leader | None:
        found = (await self._kv.range(self._keys.leader)).entries
        record = _leader_record(found[0]) if found else None
        return record.leader if record else None

    async def open_term(self, at_least: int) -> int:
        keys = self._keys
        for _ in range(_TRIES):
            _, epoch, schema = await self._seen()
            self._note_schema(schema)
            minted = max(number(epoch) + 1, at_least)
            outcome = await settled(
                self._kv,
                [unchanged(keys.epoch, epoch), unchanged(keys.schema, schema)],
                [Put(keys.epoch, b"%d" % minted), Put(keys.schema, b"%d" % SCHEMA), Delete(keys.leader)],
            )
            if outcome.succeeded:
                return minted
            # Another coordinator was quicker, or the answer to our own try was lost: one epoch more does no harm.
        raise EtcdUnavailable(
            "other coordinators keep taking the leadership; is another coordinator being started?"
        )

    async def confirm(self, epoch: int) -> None:
        current = number(value_of((await self._kv.range(self._keys.epoch)).entries))
        if current != epoch:
            raise Fenced(epoch, current)

    async def _seen(self) -> tuple[KeyValue | None, bytes, bytes]:
        """The leader, the newest epoch and the schema, at one instant."""
        keys = self._keys
        outcome = await settled(self._kv, [], [Get(keys.leader), Get(keys.epoch), Get(keys.schema)])
        holder, epoch, schema = outcome.found
        return (holder[0] if holder else None), value_of(epoch), value_of(schema)

    async def _let_go(self, lease: int) -> None:
        """An unused lease ends by itself; this only ends it sooner."""
        try:
            await self._kv.revoke(lease)
        except (EtcdUnavailable, EtcdRefused) as error:
            log.debug("an unused lease could not be revoked; it ends by itself", error=str(error))


def _leader_record(entry: KeyValue) -> LeaderRecord | None:
    """The leader in an entry; None if it cannot be read: then there is none."""
    try:
        return msgspec.json.decode(entry.value, type=LeaderRecord)
    except msgspec.MsgspecError:
        return None
