"""A backup: all contents of a store in one file, compressed, every record with its checksum.

    magic, then frames: length, CRC-32, MessagePack of Header | Image | Batch | Record | End

The end has the number of records before it, so that a truncated file is recognised. Only its owner may read it: there
are no tokens in it, but the commands and variables of jobs are.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, msgpack

from phalanx.errors import BadRequest, Conflict
from phalanx.store.contents import Contents
from phalanx.store.copy import ReportProgress
from phalanx.store.protocol import Batch, History

MAGIC = b"PHALANX STORE 2\n"
FORMER_MAGIC = b"PHALANX STORE 1\n"  # version 0.2 reads no other, and so refuses events that it does not know
FRAME_BYTES_MAX = 1 << 30
_FRAME = struct.Struct(">II")


class Header(Struct, tag="header", array_like=True):
    name: str
    epoch: int
    begin: int
    head: int
    made_at: float
    version: str


class Image(Struct, tag="image", array_like=True):
    revision: int
    body: bytes


class ArchivedBatch(Struct, tag="batch", array_like=True):
    revision: int
    body: bytes
    subjects: tuple[str, ...]


class ArchiveRecord(Struct, tag="record", array_like=True):
    job: str
    body: bytes


class End(Struct, tag="end", array_like=True):
    batches: int
    records: int


Frame = Header | Image | ArchivedBatch | ArchiveRecord | End
_decoder: msgpack.Decoder[Frame] = msgpack.Decoder(Frame)


async def write_archive(
    path: Path, contents: Contents, made_at: float, version: str, report: ReportProgress, *, force: bool
) -> End:
    """Write a backup to a temporary file and rename it when it is whole and on the disk."""
    if path.exists() and not path.is_file():
        raise BadRequest(f"{path} is not a file", hint="name one that a backup may replace, or a new one")
    if path.exists() and not force:
        raise Conflict(f"{path} already exists", hint="name another file, or give --force to replace it")
    if not path.parent.is_dir():
        raise BadRequest(f"{path} cannot be written: there is no folder {path.parent}")
    path = path.resolve()  # /dev/stdout is a link
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6) as packed:
                packed.write(MAGIC)
                _write(
                    packed,
                    Header(contents.name, contents.epoch, contents.begin, contents.head, made_at, version),
                )
                end = await _write_contents(packed, contents, report)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return end


async def _write_contents(packed: gzip.GzipFile, contents: Contents, report: ReportProgress) -> End:
    batches = records = 0
    if contents.image is not None:
        _write(packed, Image(contents.image_revision, contents.image))
    async for batch in contents.batches():
        _write(packed, ArchivedBatch(batch.revision, batch.body, batch.subjects))
        batches += 1
        report("batches", batches)
    async for record in contents.records():
        _write(packed, ArchiveRecord(record.job, record.body))
        records += 1
        report("ended jobs", records)
    end = End(batches, records)
    _write(packed, end)
    return end


class Archive:
    """The contents of a backup. All of it is checked when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.image: bytes | None = None
        self.image_revision = 0
        batches = records = 0
        header, end = None, None
        for frame in self._frames():
            match frame:
                case Header():
                    header = frame
                case Image():
                    self.image_revision, self.image = frame.revision, frame.body
                case ArchivedBatch():
                    batches += 1
                case ArchiveRecord():
                    records += 1
                case End():
                    end = frame
        if header is None or end != End(batches, records):
            raise self._damaged("it is cut short")
        self.name = f"{path.name} of {header.name}"
        self.epoch, self.begin, self.head = header.epoch, header.begin, header.head
        self.made_at, self.version = header.made_at, header.version

    async def batches(self) -> AsyncIterator[Batch]:
        for frame in self._frames():
            if isinstance(frame, ArchivedBatch):
                yield Batch(frame.revision, frame.body, frame.subjects)

    async def records(self) -> AsyncIterator[History]:
        for frame in self._frames():
            if isinstance(frame, ArchiveRecord):
                yield History(frame.job, frame.body)

    def _frames(self) -> Iterator[Frame]:
        try:
            with gzip.open(self._path, "rb") as packed:
                if packed.read(len(MAGIC)) not in (MAGIC, FORMER_MAGIC):
                    raise self._damaged("it does not start as a backup does")
                while head := packed.read(_FRAME.size):
                    yield self._frame(packed, head)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._damaged(str(error)) from error

    def _frame(self, packed: gzip.GzipFile, head: bytes) -> Frame:
        if len(head) != _FRAME.size:
            raise self._damaged("it is cut short")
        length, crc = _FRAME.unpack(head)
        if length > FRAME_BYTES_MAX:
            raise self._damaged(f"a record of {length} bytes, at most {FRAME_BYTES_MAX} are possible")
        body = packed.read(length)
        if len(body) != length or zlib.crc32(body) != crc:
            raise self._damaged("a checksum does not match")
        try:
            frame: Frame = _decoder.decode(body)
        except MsgspecError as error:
            raise self._damaged(str(error)) from error
        return frame

    def _damaged(self, why: str) -> BadRequest:
        return BadRequest(
            f"{self._path} is not a whole backup: {why}", hint="nothing was written; try another backup"
        )


def _write(packed: gzip.GzipFile, frame: Frame) -> None:
    body = msgpack.encode(frame)
    packed.write(_FRAME.pack(len(body), zlib.crc32(body)))
    packed.write(body)
