"""The place for files: a folder or a bucket in which the files of attempts outlive their nodes.

One class for `file://`, `s3://` and the coordinator's own folder, over obstore. Names come from `core/model/files.py`.
A file that is written in pieces appears when the last piece was taken, or not at all. Credentials of S3 are read by
obstore from the variables that S3 users know (AWS_ACCESS_KEY_ID, …) or from the machine's role; we never see them.
Which files are kept for how long is decided in `file_retention.py`, who may write them in `uploads.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from phalanx.errors import ConfigError, NotFound, Unavailable
from phalanx.settings import CoordinatorSettings

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
PIECE_BYTES = 1 << 20
LISTED_AT_ONCE = 1000
TRY_FOR_S, TRIES = 20.0, 4  # S3, before a request counts as failed
ANSWER_WITHIN_S = 60.0
_DRAFT = re.compile(r"#[0-9]+\Z")  # how the name of a file ends that obstore has not finished


class StoredFile(Struct, frozen=True):
    """One file that is there."""

    name: str
    size: int
    written_at: float


class FileStore:
    """Files by name. Errors of the place become Unavailable (`FilesUnavailable`) or NotFound (`FileNotFound`)."""

    def __init__(self, objects: ObjectStore, where: str, folder: Path | None = None) -> None:
        import obstore  # costs milliseconds that only a coordinator should pay

        self._api = obstore
        self._objects = objects
        self.where = where
        self._folder = folder

    @classmethod
    def open(cls, section: CoordinatorSettings) -> FileStore:
        """The place that the settings name; raises ConfigError."""
        if section.files is None:
            return cls.folder(Path(section.state_dir) / "files")
        if section.files.startswith("file://"):
            return cls.folder(Path(section.files.removeprefix("file://")))
        bucket, _, prefix = section.files.removeprefix("s3://").partition("/")
        return cls.bucket(bucket, prefix.strip("/"), section.files_endpoint, section.files_region)

    @classmethod
    def folder(cls, path: Path) -> FileStore:
        """A folder; it is made if it does not exist. Others must not be able to put links into it."""
        from obstore.store import LocalStore

        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = path.stat()
        except OSError as error:
            raise ConfigError(
                f"coordinator.files: the folder {path} cannot be used: {error.strerror}"
            ) from None
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
            raise ConfigError(
                f"coordinator.files: others can write to the folder {path}",
                hint=f"it must belong to the coordinator's user: chmod o-w {path}",
            )
        return cls(LocalStore(path), f"file://{path}", path)

    @classmethod
    def bucket(cls, bucket: str, prefix: str, endpoint: str | None, region: str | None) -> FileStore:
        from obstore.store import S3Store

        given: dict[str, Any] = {"prefix": prefix or None, "endpoint": endpoint, "region": region}
        store = S3Store(
            bucket,
            **{name: value for name, value in given.items() if value is not None},
            client_options={
                "allow_http": (endpoint or "").startswith("http://"),
                "timeout": timedelta(seconds=ANSWER_WITHIN_S),
            },
            retry_config={"max_retries": TRIES, "retry_timeout": timedelta(seconds=TRY_FOR_S)},
        )
        return cls(store, f"s3://{bucket}/{prefix}".rstrip("/"))

    async def put(self, name: str, data: bytes) -> None:
        """Write a small file as a whole, in place of an earlier one."""
        await self._written(self._api.put_async(self._objects, name, data, use_multipart=False), name)

    async def put_pieces(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Write a file of any size. If `pieces` raises, nothing is there, and the error goes on."""
        writing = self._api.put_async(
            self._objects, name, pieces, use_multipart=True, chunk_size=8 * PIECE_BYTES, max_concurrency=2
        )
        await self._written(writing, name)

    async def get(self, name: str, bytes_max: int) -> bytes:
        """All of a small file; one that is larger than `bytes_max` is not the one that was meant."""
        size = await self.size(name)
        if size > bytes_max:
            raise Unavailable(
                f"{name} has {size} bytes in the place for files, expected at most {bytes_max}",
                reason="FileDamaged",
            )
        return await self.get_range(name, 0, size)

    async def get_range(self, name: str, start: int, size: int) -> bytes:
        if size <= 0:
            return b""
        reading = self._api.get_range_async(self._objects, name, start=start, length=size)
        return bytes(await self._done(reading, name))

    async def read(self, name: str, size: int, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes of a file from `start` to `size`, piece by piece."""
        while start < size:
            piece = await self.get_range(name, start, min(PIECE_BYTES, size - start))
            if not piece:
                raise Unavailable(f"{name} is shorter than {size} bytes", reason="FileDamaged")
            start += len(piece)
            yield piece

    async def size(self, name: str) -> int:
        found = await self._done(self._api.head_async(self._objects, name), name)
        return int(found["size"])

    async def listed(self, prefix: str) -> AsyncIterator[list[StoredFile]]:
        """All files whose names begin with a folder's, in pieces, in no order."""
        listing = self._api.list(self._objects, prefix=prefix.rstrip("/"), chunk_size=LISTED_AT_ONCE)
        coming = aiter(listing)
        while True:
            found = await self._done(anext(coming, None), prefix)
            if found is None:
                return
            yield [
                StoredFile(each["path"], each["size"], each["last_modified"].timestamp()) for each in found
            ]

    async def folders(self, prefix: str = "") -> list[str]:
        """The folders directly below a folder, sorted, whole names."""
        listing = self._api.list_with_delimiter_async(self._objects, prefix or None)
        found = await self._done(listing, prefix)
        return sorted(str(each) for each in found["common_prefixes"])

    async def delete(self, names: list[str]) -> None:
        """Remove files; one that is not there any more is no error."""
        for name in names:
            with suppress(NotFound):
                await self._done(self._api.delete_async(self._objects, name), name)

    async def remove_leftovers(self, prefix: str, before: float) -> int:
        """Remove what a crash has left in a folder: files that were never finished, and folders without files.

        In S3 there are none of either: an unfinished upload is no object (a lifecycle rule of the bucket ends those).
        """
        if self._folder is None:
            return 0
        return await asyncio.to_thread(_remove_leftovers, self._folder / prefix, before)

    async def _written(self, work: Awaitable[object], name: str) -> None:
        try:
            await self._done(work, name)
        except NotFound:  # there is no such bucket, or somebody removed the folder
            raise _unavailable(f"{self.where} does not exist", self.where) from None

    async def _done(self, work: Awaitable[T], name: str) -> T:
        from obstore.exceptions import BaseError

        try:
            return await work
        except FileNotFoundError:
            raise NotFound(f"{name} is not in the place for files", reason="FileNotFound") from None
        except (BaseError, OSError) as error:
            said = str(error).partition("\n")[0][:300]
            raise _unavailable(said, self.where) from None


def _unavailable(said: str, where: str) -> Unavailable:
    return Unavailable(
        f"the place for files does not answer: {said}",
        reason="FilesUnavailable",
        hint=f"coordinator.files is {where}",
        retry_after_s=5.0,
    )


def _remove_leftovers(folder: Path, before: float) -> int:
    removed = 0
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(parent, name)
            with suppress(OSError):
                if _DRAFT.search(name) and path.lstat().st_mtime < before:
                    path.unlink()
                    removed += 1
        with suppress(OSError):  # it still holds something
            if Path(parent).lstat().st_mtime < before:
                Path(parent).rmdir()
    return removed
