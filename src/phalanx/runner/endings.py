"""Ends that wait until files of their attempt are in the place for files: a large result, and artifacts.

An attempt without either is reported at once. One with artifacts is reported when they are there, or when nothing has
moved for a minute although the coordinator answers: then the end says so, and they are sent later. A result that cannot
be kept makes a task that ended with code 0 a failed one (`bad_result`), for its result must not vanish unsaid. While
the coordinator is away nothing is given up, because the end could not be reported either.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from phalanx.clock import Clock
from phalanx.core.model.files import (
    ARTIFACTS_LATE,
    MANIFEST_PATH,
    RESULT_PATH,
    Artifact,
    Manifest,
    part_path,
)
from phalanx.core.model.orders import RESULT_BYTES_MAX, AttemptKey
from phalanx.core.model.task_results import PartResult, loaded_in, shortened
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.logger import logger
from phalanx.runner import log_files
from phalanx.runner.artifacts import ArtifactLimits, Found, find_artifacts, opened
from phalanx.runner.keeper.files import ARTIFACTS, RESULT, STDERR, STDOUT
from phalanx.runner.launches import Launches
from phalanx.runner.merging import large_parts
from phalanx.runner.trees import remove_tree
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.uploads import RunnerUploads, UploadFailed

log = logger("runner")
T = TypeVar("T")
HOLD_S = 60.0  # how long an end waits for files of which none is taken
PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 30.0
ANY = STDOUT | STDERR | RESULT | ARTIFACTS
READ_AT_ONCE_MAX = RESULT_BYTES_MAX  # bytes of a file; a longer one is read by a thread
SENT = ".sent"  # the end of the name of a folder whose artifacts are in the place for files


class AttemptEndings:
    """The attempts of this runner that have ended and are not reported yet."""

    def __init__(
        self,
        launches: Launches,
        uploads: RunnerUploads,
        limits: ArtifactLimits,
        clock: Clock,
        engine: RunnerEngine,
        ended: Callable[[AttemptKey, ProcessEnd], None],
    ) -> None:
        self._launches = launches
        self._uploads = uploads
        self._limits = limits
        self._clock = clock
        self._engine = engine
        self._ended = ended
        self._waiting: dict[AttemptKey, asyncio.Event] = {}  # ends; the event says to wait no longer
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reading = asyncio.Lock()  # one long result after another, in the order of the ends

    def finish(self, key: AttemptKey, exit: ProcessEnd) -> ProcessEnd | None:
        """The end with its result; None if it waits for files, and then `ended` is called with it later."""
        if key in self._waiting:
            return None
        files = ANY if exit.files is None else exit.files
        end = self._launches.with_result(key, exit, READ_AT_ONCE_MAX) if files & RESULT else exit
        has_artifacts = bool(files & ARTIFACTS) and self._launches.close_artifacts(key)
        if end is not None and not has_artifacts and not _has_large(end):
            if files & (STDOUT | STDERR):
                self._uploads.add((key,))
            return end
        self._waiting[key] = asyncio.Event()
        bringing = self._begin(self._bring(key, exit, end, has_artifacts))
        bringing.add_done_callback(partial(self._finished, key, end or exit))
        return None

    def hurry(self, key: AttemptKey) -> None:
        """It was asked to stop: report its end without waiting for its files."""
        if (waiting := self._waiting.get(key)) is not None:
            waiting.set()

    async def settled(self, within_s: float) -> None:
        """Wait until no end waits any more, but not too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._waiting:
                    await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    def resume(self, live: set[AttemptKey]) -> None:
        """Send artifacts of attempts whose ends were reported before they were sent; remove those that were sent."""
        for path in self._launches.log_root.glob(f"*/*.*.{log_files.ARTIFACTS}*"):
            if path.suffix == SENT:
                self._begin(asyncio.to_thread(_remove, str(path)))
            key, _ = log_files.read_name(path.parent.name, path.name) or (None, "")
            if key is None or key in live or key in self._waiting:
                continue
            self._launches.find_files(key)
            if self._launches.close_artifacts(key):
                reported = asyncio.Event()
                reported.set()
                self._begin(self._copy_artifacts(key, reported))

    def _begin(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _finished(self, key: AttemptKey, end: ProcessEnd, brought: asyncio.Task[ProcessEnd]) -> None:
        """Report an end, with its files or, whatever went wrong, without."""
        self._waiting.pop(key, None)
        if brought.cancelled():  # the runner stops, and the next one begins anew
            return
        if (error := brought.exception()) is not None:
            log.error("the files of an attempt were not kept", attempt=key, exc_info=error)
            text = "its files were not kept; the runner's log says why"
            end = structs.replace(end, result="", result_error=text, note=text, parts=())
        self._uploads.add((key,))
        self._ended(key, end if error is not None else brought.result())

    async def _bring(
        self, key: AttemptKey, exit: ProcessEnd, end: ProcessEnd | None, has_artifacts: bool
    ) -> ProcessEnd:
        """Bring the files of an attempt to the place for files; returns its end, with what there is to say of them.

        `end` is the exit with its result; None if that is still to be read.
        """
        hurried = self._waiting[key]
        if end is None:
            end = await self._with_long_result(key, exit)
        if len(end.result.encode()) > RESULT_BYTES_MAX:
            end = await self._with_kept_result(key, end, hurried)
        if end.parts:
            end = await self._with_kept_parts(key, end, hurried)
        if not has_artifacts:
            return end
        copying = self._begin(self._copy_artifacts(key, hurried))
        waiting = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({copying, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        note = copying.result() if copying.done() else ARTIFACTS_LATE
        return structs.replace(end, note=note)

    async def _with_long_result(self, key: AttemptKey, exit: ProcessEnd) -> ProcessEnd:
        """The end with its result, read by a thread, so that heartbeats and other ends do not wait for it."""
        async with self._reading:
            try:
                end = await asyncio.to_thread(self._launches.with_result, key, exit)
            except RuntimeError:  # there is no thread, and a result must not be lost for that
                end = self._launches.with_result(key, exit)
        return end or exit

    async def _with_kept_result(self, key: AttemptKey, end: ProcessEnd, hurried: asyncio.Event) -> ProcessEnd:
        """The end of an attempt with a large result, which is in the place for files then, or the reason why not."""
        data = end.result.encode()
        try:
            sha256 = await self._kept(key, RESULT_PATH, data, hurried)
        except UploadFailed as error:
            text = f"its result of {len(data)} bytes could not be kept: {error}"
            return structs.replace(end, result="", result_error=text, parts=())
        loaded = shortened(loaded_in(end.result))
        return structs.replace(end, result="", result_bytes=len(data), result_sha256=sha256, loaded=loaded)

    async def _with_kept_parts(self, key: AttemptKey, end: ProcessEnd, hurried: asyncio.Event) -> ProcessEnd:
        """The same for results of tasks that were merged into it; what cannot be kept is left out of the answer."""
        large = large_parts(end.parts)

        async def kept(part: PartResult) -> PartResult | None:
            if part.job not in large:
                return part
            data = part.result.encode()
            try:
                sha256 = await self._kept(key, part_path(part.job), data, hurried)
            except UploadFailed as error:
                log.warning("a result was not kept", attempt=key, job=part.job, error=str(error))
                return None
            return PartResult(part.job, "", len(data), sha256)

        parts = await asyncio.gather(*map(kept, end.parts))
        return structs.replace(end, parts=tuple(part for part in parts if part is not None))

    async def _kept(self, key: AttemptKey, path: str, data: bytes, hurried: asyncio.Event) -> str:
        """Send a result; its digest."""
        return await self._patiently(
            lambda: self._uploads.put(key, "result", path, len(data), lambda at, n: data[at : at + n]),
            hurried,
            give_up=True,
        )

    async def _copy_artifacts(self, key: AttemptKey, hurried: asyncio.Event) -> str:
        """Send all artifacts of an attempt, then their list, and remove them here; returns what was not kept."""
        folder = self._launches.artifacts_path(key)
        try:
            found = await asyncio.to_thread(find_artifacts, folder, self._limits)
            sent = [
                artifact
                for path, size in found.files
                if (artifact := await self._sent(key, path, size, found, hurried)) is not None
            ]
            manifest = Manifest(tuple(sent), tuple(found.left_out), found.left_out_count)
            await self._list(key, manifest, hurried)
        except (
            UploadFailed,
            OSError,
        ) as error:  # the folder is gone, or the coordinator will never take them
            log.warning("artifacts were not kept", attempt=key, error=str(error))
            if isinstance(error, OSError) and hurried.is_set():  # a stage may wait for them
                with suppress(UploadFailed):
                    await self._list(key, Manifest((), (f"all of them: {error}",), 1), hurried)
            return f"its artifacts were not kept: {error}"
        await asyncio.to_thread(_remove_sent, str(folder))
        if not manifest.left_out_count:
            return ""
        return f"{manifest.left_out_count} of its artifacts were not kept, such as {manifest.left_out[0]}"

    async def _list(self, key: AttemptKey, manifest: Manifest, hurried: asyncio.Event) -> None:
        """Send the list of artifacts, which says that no more will come."""
        data = msgspec.json.encode(manifest)
        await self._patiently(
            lambda: self._uploads.put(
                key, "manifest", MANIFEST_PATH, len(data), lambda at, n: data[at : at + n]
            ),
            hurried,
        )

    async def _sent(
        self, key: AttemptKey, path: str, size: int, found: Found, hurried: asyncio.Event
    ) -> Artifact | None:
        try:
            with opened(self._launches.artifacts_path(key), path) as file:
                sha256 = await self._patiently(
                    lambda: self._uploads.put(
                        key, "artifacts", path, size, lambda at, n: os.pread(file, n, at)
                    ),
                    hurried,
                )
        except (UploadFailed, OSError) as error:
            found.leave_out(path, (isinstance(error, OSError) and error.strerror) or str(error))
            return None
        return Artifact(path, size, sha256)

    async def _patiently(
        self, put: Callable[[], Awaitable[str]], hurried: asyncio.Event, give_up: bool = False
    ) -> str:
        """Try again while it is refused for now. After a minute without success nobody waits for it any more."""
        waited_s, pause_s = 0.0, PAUSE_FIRST_S
        while True:
            began = self._clock.monotonic()
            try:
                return await put()
            except UploadFailed as error:
                if not error.retry or (give_up and hurried.is_set()):
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(hurried.wait() if give_up else asyncio.sleep(pause_s), pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)
            waited_s += self._clock.monotonic() - began if self._engine.welcomed else 0.0
            if waited_s > HOLD_S:
                hurried.set()


def _has_large(end: ProcessEnd) -> bool:
    """Whether a result of it goes to the place for files."""
    return len(end.result.encode()) > RESULT_BYTES_MAX or bool(end.parts and large_parts(end.parts))


def _remove_sent(folder: str) -> None:
    """Remove artifacts that are in the place for files.

    Under another name first: what a runner that was killed meanwhile has left must not be sent once more, in place of
    the whole.
    """
    sent = folder + SENT
    if os.path.lexists(sent):
        _remove(sent)
    try:
        os.rename(folder, sent)  # noqa: PTH104 - as in the keeper
    except OSError as error:  # the next runner sends all of them once more, which changes nothing
        log.warning("artifacts that were kept stay on the node", folder=folder, error=str(error))
    else:
        _remove(sent)


def _remove(sent: str) -> None:
    try:
        remove_tree(sent)
    except OSError as error:
        log.warning("artifacts that were kept cannot be removed", folder=sent, error=str(error))
