"""What tasks left behind, from the place for files: results and artifacts, verified by their digests."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import msgspec

from phalanx.api.schema.files import FilesView, FileView
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import task_number
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.files import (
    ARTIFACTS_LATE,
    ARTIFACTS_LATE_S,
    MANIFEST_BYTES_MAX,
    MANIFEST_PATH,
    RESULT_PATH,
    FileKey,
    Manifest,
    why_bad_path,
)
from phalanx.core.model.orders import RESULT_FILE_BYTES_MAX, AttemptKey
from phalanx.errors import BadRequest, NotFound, Unavailable
from phalanx.store.protocol import Store


class AttemptFiles:
    """Answers questions for results and artifacts."""

    def __init__(self, loop: Requests, store: Store, files: FileStore | None, clock: Clock) -> None:
        self._loop = loop
        self._store = store
        self._files = files
        self._clock = clock

    async def result(self, id: str) -> msgspec.Raw:
        """The result of a task's last attempt, as JSON."""
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        if (text := job.results.get(position)) is not None:
            return msgspec.Raw(text.encode())
        if (kept := job.kept_results.get(position)) is None:
            raise NotFound(f"task {id} has given no result", reason="NoResult")
        return msgspec.Raw(
            await self.kept_result((job.job.id, position, job.attempts[position]), *kept, f"of {id}")
        )

    async def kept_result(self, attempt: AttemptKey, size: int, sha256: str, whose: str) -> bytes:
        """A result from the place for files, as JSON; what is not what the task wrote is refused."""
        key = FileKey(attempt, "result", RESULT_PATH)
        data = await self._place().get(key.name, RESULT_FILE_BYTES_MAX)
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise _damaged(f"the result {whose}", sha256)
        try:
            msgspec.json.decode(data)  # a runner that is not ours may send anything
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise Unavailable(f"the result {whose} is not JSON", reason="FileDamaged") from None
        return data

    async def require(self, id: str, path: str) -> None:
        """Raise NotFound unless the task has left this artifact, or others in a folder of this name.

        An empty path stands for all artifacts of a job's tasks, of which there may be none. Unavailable if they are
        still on their way.
        """
        job, one = await lookup.find_task(self._loop, self._store, id)
        lookup.refuse_merged(job, "the artifacts", "phalanx files")
        for position in range(job.job.tasks) if one is None else (one,):
            node = self._sends_later(job, position)
            if not (path or node):
                continue
            manifest = await self._manifest((job.job.id, position, job.attempts[position]))
            if manifest is None and node:
                task = job.job.task_id(position)
                raise Unavailable(f"node {node} has not sent the artifacts of {task} yet", reason="FilesLate")
            found = () if manifest is None else manifest.files
            if path and not any(each.path == path or each.path.startswith(f"{path}/") for each in found):
                raise NotFound(
                    f"task {id} has left no artifact {path[:80]!r}{_left_out(manifest)}",
                    reason="FileNotFound",
                    hint=f"phalanx files {id} lists them",
                )

    def _sends_later(self, job: JobState, position: int) -> str:
        """The node from which the artifacts of an ended task will still come; empty: none will."""
        message, _ = job.details.get(position, ("", ""))
        names, at = self._loop.state.known_names, job.node_number(position, job.attempts[position])
        if ARTIFACTS_LATE not in message or at is None or at >= len(names):
            return ""
        node = self._loop.state.nodes.get(names[at])
        is_late = self._clock.now() - (job.ended_at or self._clock.now()) > ARTIFACTS_LATE_S
        return "" if node is None or node.number != at or is_late else names[at]

    async def files(self, id: str, *, attempt: int | None = None) -> FilesView:
        """The artifacts of one attempt of a task, by default of the newest."""
        job, position, number = await self._attempt(id, attempt)
        manifest = await self._manifest((job.job.id, position, number)) or Manifest(())
        return FilesView(
            job.job.task_id(position),
            number,
            [FileView(each.path, each.size, each.sha256) for each in manifest.files],
            list(manifest.left_out),
            manifest.left_out_count,
            task_number(job, position),
        )

    async def file(
        self, id: str, path: str, *, attempt: int | None = None
    ) -> tuple[FileView, AsyncIterator[bytes]]:
        """One artifact, and its bytes; what is damaged is not sent to its end."""
        if wrong := why_bad_path(path):
            raise BadRequest(wrong)
        job, position, number = await self._attempt(id, attempt)
        key = (job.job.id, position, number)
        manifest = await self._manifest(key) or Manifest(())
        found = next((each for each in manifest.files if each.path == path), None)
        if found is None:
            raise NotFound(
                f"attempt {number} of {id} has no artifact {path[:80]!r}",
                reason="FileNotFound",
                hint=missing_hint(id, path, manifest),
            )
        name = FileKey(key, "artifacts", path).name
        if await self._place().size(name) != found.size:
            raise _damaged(f"{path!r} of {id}", found.sha256)
        return FileView(path, found.size, found.sha256), self._verified(name, found.size, found.sha256)

    async def _verified(self, name: str, size: int, sha256: str) -> AsyncIterator[bytes]:
        """The bytes of a file; the last piece only if all of them are what was written."""
        digest, last = hashlib.sha256(), b""
        async for piece in self._place().read(name, size):
            if last:
                yield last
            digest.update(piece)
            last = piece
        if digest.hexdigest() != sha256:
            raise _damaged(name, sha256)
        yield last

    async def _attempt(self, id: str, attempt: int | None) -> tuple[JobState, int, int]:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        if attempt is None:
            lookup.refuse_merged(job, "the artifacts", "phalanx files")
        number = job.attempts[position] if attempt is None else attempt
        if not 0 <= number <= job.attempts[position]:
            raise BadRequest(
                f"task {id} has had {job.attempts[position]} attempts, not {attempt}", reason="NoAttempt"
            )
        return job, position, number

    async def _manifest(self, key: AttemptKey) -> Manifest | None:
        """The list of artifacts; None if the attempt left none, or they are still on their way."""
        name = FileKey(key, "manifest", MANIFEST_PATH).name
        try:
            data = await self._place().get(name, MANIFEST_BYTES_MAX)
            return msgspec.json.decode(data, type=Manifest)
        except NotFound:
            return None
        except msgspec.DecodeError as error:
            raise Unavailable(f"{name} is damaged: {error}", reason="FileDamaged") from None

    def _place(self) -> FileStore:
        self._loop.require_active()  # a folder of its own has only what came to it
        if self._files is None:
            raise Unavailable("this coordinator has no place for files", reason="FilesUnavailable")
        return self._files


def _left_out(manifest: Manifest | None) -> str:
    """What the list of artifacts says of those that are not in it."""
    if manifest is None or not manifest.left_out_count:
        return ""
    named = f", such as {manifest.left_out[0]}" if manifest.left_out else ""
    return f"; {manifest.left_out_count} were left out{named}"


def _damaged(what: str, sha256: str) -> Unavailable:
    return Unavailable(
        f"{what} is not what the task wrote: its digest is not {sha256}",
        reason="FileDamaged",
        hint="somebody or something has changed the place for files",
    )


def missing_hint(id: str, path: str, manifest: Manifest) -> str:
    """What to do about a path at which there is no artifact; it may be a folder."""
    folder = path.rstrip("/")
    if any(each.path.startswith(f"{folder}/") for each in manifest.files):
        return f"it is a folder: phalanx cp -r {id}:{folder} copies what is in it"
    return f"phalanx files {id} lists them"
