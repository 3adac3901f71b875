"""Files that runners send for the place for files: checked, taken piece by piece, and compared by digest.

They come over the connection for logs, which belongs to one node. A node may send files of the attempts that it had,
and of no other. Each piece is acknowledged when it was taken, which is all the flow control there is; the last one when
the file is there. What a runner sends after a connection was lost begins anew.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from phalanx.coordinator.file_retention import FileRetention
from phalanx.coordinator.files import FileStore
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import files as names
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import RESULT_FILE_BYTES_MAX, AttemptKey
from phalanx.errors import BadRequest, Forbidden, PhalanxError, Unavailable
from phalanx.link import wire
from phalanx.logger import logger

log = logger("coordinator")
SMALL_AT_ONCE, LARGE_AT_ONCE = 16, 4
LINK_FILES_MAX = 256  # of one node, at once
LINK_BYTES_MAX = 8 << 20  # that came and were not acknowledged
TELL_EVERY_S = 1.0
PIECE_WITHIN_S = 60.0  # of a file of which a piece has come


class UploadLink(Protocol):
    """The connection of one node."""

    def send(self, messages: list[wire.Message]) -> None: ...


class Upload:
    """One file that is coming in pieces."""

    def __init__(self, first: wire.PutFile) -> None:
        self.first = first
        self.pieces: asyncio.Queue[wire.PutFile | None] = asyncio.Queue()
        self.expected = 0
        self.pending_bytes = 0

    def takes(self, piece: wire.PutFile) -> bool:
        """Queue a piece; False if it does not belong here."""
        about = (self.first.key, self.first.kind, self.first.path, self.first.size)
        if piece.offset != self.expected or (piece.key, piece.kind, piece.path, piece.size) != about:
            return False
        self.expected += len(piece.data)
        self.pending_bytes += len(piece.data)
        self.pieces.put_nowait(piece)
        return True


class Uploads:
    """All files that are coming, by their connection."""

    def __init__(
        self,
        files: FileStore,
        retention: FileRetention,
        node_of: Callable[[AttemptKey], Awaitable[str | None]],
        part_of: Callable[[AttemptKey, JobId], AttemptKey | None],
        max_bytes: int,
    ) -> None:
        """`part_of` says of a job that is merged into an attempt as which attempt of its own its files are kept."""
        self.max_bytes = max_bytes
        self._part_of = part_of
        self._files = files
        self._retention = retention
        self._node_of = node_of
        self._coming: dict[UploadLink, dict[int, Upload]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told_at = -TELL_EVERY_S
        self._small, self._large = asyncio.Semaphore(SMALL_AT_ONCE), asyncio.Semaphore(LARGE_AT_ONCE)

    def arrived(self, link: UploadLink, node: str, piece: wire.PutFile) -> None:
        """A piece of a file of this node, or WireError."""
        if wrong := wire.why_wrong(piece):
            raise wire.WireError(wrong)
        coming = self._coming.setdefault(link, {})
        upload = coming.get(piece.id)
        if upload is None and piece.offset == 0:
            upload = coming[piece.id] = Upload(piece)
            task = asyncio.get_running_loop().create_task(self._take(link, node, upload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if upload is None:
            return  # it was refused before, and the runner did not know yet
        if not upload.takes(piece):
            raise wire.WireError(f"put_file {piece.id}: expected its bytes from {upload.expected} on")
        pending = sum(each.pending_bytes for each in coming.values())
        if len(coming) > LINK_FILES_MAX or pending > LINK_BYTES_MAX:
            raise wire.WireError(f"{len(coming)} files and {pending} bytes were sent without waiting")

    def closed(self, link: UploadLink) -> None:
        for upload in self._coming.pop(link, {}).values():
            upload.pieces.put_nowait(None)

    async def _take(self, link: UploadLink, node: str, upload: Upload) -> None:
        """One file from its first piece to its last; the answer says how it went."""
        first, answer = upload.first, wire.FileTaken(upload.first.id)
        try:
            name = await self._check(node, first)
            async with self._small if first.sha256 else self._large:
                await self._store(link, upload, name)
            self._retention.added(first.size)
        except PhalanxError as error:
            self._tell(node, first, error)
            answer = wire.FileTaken(first.id, str(error), isinstance(error, Unavailable))
        finally:
            self._coming.get(link, {}).pop(first.id, None)
        link.send([answer])

    def _tell(self, node: str, first: wire.PutFile, error: PhalanxError) -> None:
        """Log what was not taken, at most once a second: runners try again and again."""
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_EVERY_S:
            what = f"{first.kind}/{first.path[:80]}"
            log.warning("a file was not taken", node=node, attempt=first.key, file=what, error=str(error))
            self._told_at = now

    async def _store(self, link: UploadLink, upload: Upload, name: str) -> None:
        pieces = self._pieces(link, upload)
        if upload.first.sha256:
            await self._files.put(name, b"".join([piece async for piece in pieces]))
        else:
            await self._files.put_pieces(name, pieces)

    async def _pieces(self, link: UploadLink, upload: Upload) -> AsyncIterator[bytes]:
        """The pieces as they come; an error unless they are what the runner read."""
        digest = hashlib.sha256()
        while True:
            try:
                piece = await asyncio.wait_for(upload.pieces.get(), PIECE_WITHIN_S)
            except TimeoutError:
                raise Unavailable(f"no more of it came within {PIECE_WITHIN_S:g} s") from None
            if piece is None:
                raise Unavailable("its runner went away")
            digest.update(piece.data)
            upload.pending_bytes -= len(piece.data)
            if piece.sha256 and piece.sha256 != digest.hexdigest():
                raise Unavailable(
                    f"its digest is {digest.hexdigest()}, its runner read {piece.sha256}",
                    reason="FileDamaged",
                )
            yield piece.data
            if piece.sha256:
                return
            link.send([wire.FileTaken(piece.id)])

    async def _check(self, node: str, first: wire.PutFile) -> str:
        """Its name in the place for files. Refuses what this node may not send, is too large, or has no room."""
        try:
            name = names.FileKey(first.key, first.kind, first.path).name
        except ValueError as error:
            raise BadRequest(str(error)) from None
        limits = {"result": RESULT_FILE_BYTES_MAX, "manifest": names.MANIFEST_BYTES_MAX}
        most = min(self.max_bytes, limits.get(first.kind, self.max_bytes))
        if first.size > most:
            raise BadRequest(f"{first.path[:80]!r} has {first.size} bytes, at most {most} are kept")
        if await self._node_of(first.key) != node:
            raise Forbidden(
                f"node {node} did not have attempt {first.key[2]} of {first.key[0]}.{first.key[1]}"
            )
        if why := self._retention.why_no_room(first.size):
            raise Unavailable(why, reason="FilesFull")
        if not (job := names.job_of_part(first.kind, first.path)):
            return name
        if (own := self._part_of(first.key, job)) is None:
            raise Forbidden(
                f"{job[:80]!r} is no part of attempt {first.key[2]} of {first.key[0]}.{first.key[1]}"
            )
        return names.FileKey(own, "result", names.RESULT_PATH).name


def own_attempt(state: Callable[[], ClusterState], key: AttemptKey, job: JobId) -> AttemptKey | None:
    """As which attempt of its own the result of a job is kept that runs as a part of another's; None: it does not."""
    found = state().jobs.get(job)
    return None if found is None or found.merged_into != key else (job, 0, found.attempts[0])
