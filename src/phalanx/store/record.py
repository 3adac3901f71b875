"""A record with its checksum, as key-value stores keep it: four bytes of CRC-32, then the body."""

from __future__ import annotations

import zlib

from msgspec import MsgspecError, Struct, msgpack

from phalanx.store.protocol import Batch

_CRC_BYTES = 4
_entry = msgpack.Decoder(tuple[tuple[str, ...], bytes])


class Damage(Struct, frozen=True, order=True):
    """A record that is not what was written: `source` is log, image or history, `key` its revision or job."""

    source: str
    key: str
    set_aside: bool = False


def sealed(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CRC_BYTES, "big") + body


def unsealed(record: bytes) -> bytes | None:
    """The body; None if it is damaged."""
    body = record[_CRC_BYTES:]
    return body if record[:_CRC_BYTES] == zlib.crc32(body).to_bytes(_CRC_BYTES, "big") else None


def sealed_batch(batch: Batch) -> bytes:
    """A batch with its subjects, so that pruning it can also remove it from their indexes."""
    return sealed(msgpack.encode((batch.subjects, batch.body)))


def unsealed_batch(revision: int, record: bytes) -> Batch | None:
    body = unsealed(record)
    if body is None:
        return None
    try:
        subjects, events = _entry.decode(body)
    except MsgspecError:
        return None
    return Batch(revision, events, subjects)
