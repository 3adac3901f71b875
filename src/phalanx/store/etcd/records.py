"""The values in etcd: a checksum, and a record in MessagePack. The checksum shows whether a value is damaged.

Events are repetitive, so a record is compressed when that makes it smaller: a batch of completions becomes a twentieth
of its size, for a third of a millisecond. etcd keeps deleted values until it is compacted, and has a quota.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import cache, reduce
from operator import or_
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from phalanx.store.protocol import Batch, Candidate, Leader

PART_BYTES = (
    1 << 20
)  # of one value: etcd takes 1.5 MiB in one request, which needs space for more than the value
OPERATIONS_MAX = 100  # of one transaction: etcd takes 128
_CRC_BYTES = 4
_COMPRESS_BYTES = 512  # below this, compression is not worth the time
_LEVEL = 1  # zlib's fastest: the others take four times as long and save a few per cent more
T = TypeVar("T")


class Damaged(ValueError):
    """A value does not hold what was written."""


class LogRecord(Struct, frozen=True, array_like=True, tag="b"):
    """A batch, and where the log ended before it."""

    revision: int
    previous: int
    subjects: tuple[str, ...]
    body: bytes

    @property
    def batch(self) -> Batch:
        return Batch(self.revision, self.body, self.subjects)


class Parted(Struct, frozen=True, array_like=True, tag="p"):
    """A value that was too large for one request: where its parts are, and their checksum."""

    tag: str
    parts: int
    crc: int


class Record(Struct, frozen=True, array_like=True, tag="r"):
    """The record of an ended job."""

    job: str
    body: bytes


class Segment(Struct, frozen=True, array_like=True):
    """The batches of each subject of one bucket, after `first` up to `last`."""

    first: int
    last: int
    revisions: dict[str, list[int]]


class LeaderRecord(Struct, frozen=True):
    """The leader. In JSON, so that a person can read it with etcdctl."""

    epoch: int
    name: str
    address: str
    link: str

    @property
    def leader(self) -> Leader:
        return Leader(self.epoch, Candidate(self.name, self.address, self.link))


def sealed(record: object) -> bytes:
    """A record with its checksum."""
    payload = b"\0" + msgspec.msgpack.encode(record)
    if len(payload) > _COMPRESS_BYTES:
        payload = min(payload, b"\1" + zlib.compress(payload[1:], _LEVEL), key=len)
    return zlib.crc32(payload).to_bytes(_CRC_BYTES, "little") + payload


def unsealed(value: bytes, *kinds: type[T]) -> T:
    """The record in a value, of one of these types, or Damaged."""
    payload = value[_CRC_BYTES:]
    if zlib.crc32(payload).to_bytes(_CRC_BYTES, "little") != value[:_CRC_BYTES] or not payload:
        raise Damaged("the checksum does not match")
    try:
        body = zlib.decompress(payload[1:]) if payload[0] else payload[1:]
        record: T = _decoder(kinds).decode(body)
        return record
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Damaged(str(error)) from None


async def compressed(body: bytes) -> bytes:
    """A large body, compressed in steps of some milliseconds, so that other coroutines run meanwhile."""
    squeezer, parts = zlib.compressobj(_LEVEL), list[bytes]()
    for at in range(0, len(body), PART_BYTES):
        parts.append(squeezer.compress(body[at : at + PART_BYTES]))
        await asyncio.sleep(0)
    return b"".join((*parts, squeezer.flush()))


async def decompressed(value: bytes) -> bytes:
    """The body that `compressed` was given, or Damaged."""
    opener, parts = zlib.decompressobj(), list[bytes]()
    try:
        while not opener.eof:
            parts.append(opener.decompress(value, PART_BYTES))
            value = opener.unconsumed_tail
            if not value and not parts[-1]:
                raise Damaged("it ends too early")
            await asyncio.sleep(0)
    except zlib.error as error:
        raise Damaged(str(error)) from None
    return b"".join(parts)


@cache
def _decoder(kinds: tuple[type, ...]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(reduce(or_, kinds))


def number(value: bytes) -> int:
    """A number in readable form; 0 if there is none. What follows a space is not part of it."""
    return int(value.partition(b" ")[0] or 0)
