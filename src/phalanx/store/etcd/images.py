"""Images in etcd: pieces of one MiB, and a header that makes them count.

The header is put in one transaction with a mark of the last image, so that a header whose answer was lost cannot be
put after its pieces were deleted.
"""

from __future__ import annotations

from phalanx.store.etcd.fence import Fence, unchanged, value_of
from phalanx.store.etcd.keys import EtcdKeys, after_prefix
from phalanx.store.etcd.kv import Delete, Get, KeyValue, Kv, Put
from phalanx.store.etcd.log import assembled, parted, quarantined
from phalanx.store.etcd.records import (
    OPERATIONS_MAX,
    Damaged,
    Parted,
    compressed,
    decompressed,
    sealed,
    unsealed,
)
from phalanx.store.protocol import StoreError

IMAGES_KEPT = 2


class EtcdImages:
    """The newest images of the state."""

    def __init__(self, kv: Kv, keys: EtcdKeys) -> None:
        self._kv = kv
        self._keys = keys

    async def save(self, epoch: int, revision: int, body: bytes, tag: str) -> None:
        keys, fence = self._keys, Fence(self._kv, self._keys, epoch)
        last = value_of((await self._kv.range(keys.imaged)).entries)
        record, pieces = parted(await compressed(body), tag, lambda at: keys.piece(revision, tag, at))
        for piece in pieces:
            await fence.write([piece])
        header = sealed(record)
        now: list[Put | Delete | Get] = [Put(keys.image(revision), header), Put(keys.imaged, tag.encode())]
        if not await fence.write(now, unchanged(keys.imaged, last)) and await self._last() != tag.encode():
            raise StoreError(f"another image was saved while that of revision {revision} was being written")
        await self._clean(fence)

    async def newest(self) -> tuple[int, bytes | None, int]:
        """The newest good image and its revision, and how many damaged ones were set aside."""
        bad: set[bytes] = set()
        while headers := [each for each in await self._headers() if each.key not in bad]:
            entry = headers[-1]
            try:
                revision, record = self._keys.revision_of(entry.key), unsealed(entry.value, Parted)
                return revision, await self._assembled(revision, record), len(bad)
            except Damaged:
                if await quarantined(self._kv, self._keys, entry):
                    bad.add(entry.key)
                # Otherwise it was deleted while it was read, because there are newer ones.
        return 0, None, len(bad)

    async def last(self) -> int:
        """The revision of the newest one, good or damaged; 0 if there is none."""
        headers = await self._headers()
        return self._keys.revision_of(headers[-1].key) if headers else 0

    async def damaged(self) -> list[int]:
        """The revisions of images that are not what was written."""
        found: list[int] = []
        for entry in await self._headers():
            revision = self._keys.revision_of(entry.key)
            try:
                await self._assembled(revision, unsealed(entry.value, Parted))
            except Damaged:
                found.append(revision)
        return found

    async def oldest(self) -> int:
        """The revision of the oldest image that is kept; 0 if there is none."""
        headers = await self._headers()
        return self._keys.revision_of(headers[0].key) if headers else 0

    async def _clean(self, fence: Fence) -> None:
        """Drop what is older than the images kept, and pieces of an image that was never completed."""
        headers = await self._headers()
        drop = [entry.key for entry in headers[:-IMAGES_KEPT]]
        kept: list[bytes] = []
        for entry in headers[-IMAGES_KEPT:]:
            try:
                kept.append(self._begin(entry, unsealed(entry.value, Parted)))
            except Damaged:
                continue  # The next load sets it aside.
        end = after_prefix(self._keys.pieces)
        found = await self._kv.range(self._keys.pieces, end, keys_only=True)
        drop += [each.key for each in found.entries if not each.key.startswith(tuple(kept))]
        for at in range(0, len(drop), OPERATIONS_MAX):
            await fence.write([Delete(key) for key in drop[at : at + OPERATIONS_MAX]])

    async def _assembled(self, revision: int, record: Parted) -> bytes:
        value = await assembled(self._kv, record, lambda at: self._keys.piece(revision, record.tag, at))
        return await decompressed(value)

    def _begin(self, entry: KeyValue, record: Parted) -> bytes:
        return self._keys.pieces_of(self._keys.revision_of(entry.key), record.tag)

    async def _headers(self) -> list[KeyValue]:
        return (await self._kv.range(self._keys.images, after_prefix(self._keys.images))).entries

    async def _last(self) -> bytes:
        return value_of((await self._kv.range(self._keys.imaged)).entries)
