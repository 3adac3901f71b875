"""A read-only etcd: every read goes through, every change is refused before it is sent."""

from __future__ import annotations

from phalanx.store.etcd.kv import Compare, Delete, EtcdRefused, Get, Kv, Outcome, Put, RangeReply


class ReadOnlyKv:
    """A Kv that changes nothing."""

    def __init__(self, kv: Kv) -> None:
        self._kv = kv

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        return await self._kv.range(key, end, limit=limit, newest_first=newest_first, keys_only=keys_only)

    async def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
    ) -> Outcome:
        if not all(isinstance(each, Get) for each in then):
            raise EtcdRefused("this store is open for reading only")
        return await self._kv.txn(compares, then, otherwise)

    async def grant(self, ttl_s: int) -> int:
        raise EtcdRefused("this store is open for reading only")

    async def keep_alive(self, lease: int) -> int:
        raise EtcdRefused("this store is open for reading only")

    async def revoke(self, lease: int) -> None:
        raise EtcdRefused("this store is open for reading only")

    async def close(self) -> None:
        await self._kv.close()
