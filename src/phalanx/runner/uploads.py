"""Files on their way from this node to the place for files, over the connection for logs.

Each piece waits for the answer to the one before. A file that was refused for now, or whose connection was lost, is
sent again from its beginning. The logs of ended attempts are copied in the background: the queue is the folder of logs
itself, in which a log that was copied cannot be written to any more, so that a restarted runner knows which were not.
Ends that have to wait for files are in `endings.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from phalanx.clock import Clock, SystemClock
from phalanx.core.model.files import LOG_RUNS_MAX, FileKind
from phalanx.core.model.log_times import TIMES
from phalanx.core.model.orders import AttemptKey
from phalanx.link import wire
from phalanx.logger import logger
from phalanx.runner.log_files import LogPath, log_path, open_file, read_name
from phalanx.runner.log_times import times_to_keep
from phalanx.runner.logs import data_runs

log = logger("runner")
PIECE_BYTES = 256 * 1024
SENT_AT_ONCE = 8  # files, so that not much is on its way
ATTEMPTS_AT_ONCE = 64
ANSWER_WITHIN_S = 90.0
GATHER_S = 0.05
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
QUEUE_MAX = 100_000  # beyond it the oldest logs stay on the node alone
COPIED_LATE_S = 86_400.0  # a log older than this is not copied after a restart
STREAMS: tuple[FileKind, ...] = ("stderr", "stdout")  # the last one says that both are there
Read = Callable[[int, int], bytes]  # offset and size


class UploadFailed(Exception):
    """A file was not taken; `retry` says whether it may be later."""

    def __init__(self, text: str, retry: bool) -> None:
        super().__init__(text)
        self.retry = retry


class LogRun(Struct, frozen=True):
    """A part of a log between gaps. Small ones have been read."""

    stream: FileKind
    offset: int
    size: int
    data: bytes | None = None
    is_times: bool = False  # no part of the log, but when it was written


class RunnerUploads:
    """What this node sends. The log connection tells when files may be sent, and brings the answers."""

    def __init__(self, log_root: Path, log_max_bytes: int, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._root = log_root
        self._log_max_bytes = log_max_bytes
        self._send: Callable[[wire.Message], None] | None = None
        self._is_ready = asyncio.Event()
        self.max_bytes = 0
        self._answers: dict[int, asyncio.Future[wire.FileTaken]] = {}
        self._next_id = 0
        self._room = asyncio.Semaphore(SENT_AT_ONCE)
        self._queue: deque[AttemptKey] = deque(maxlen=QUEUE_MAX)
        self._wanted, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    # What the connection delivers.

    def opened(self, send: Callable[[wire.Message], None], max_bytes: int) -> None:
        self._send, self.max_bytes = send, max_bytes
        self._is_ready.set()

    def taken(self, answer: wire.FileTaken) -> None:
        waiting = self._answers.get(answer.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def lost(self) -> None:
        self._send = None
        self._is_ready.clear()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(UploadFailed("the connection was lost", retry=True))

    # Files.

    async def put(self, key: AttemptKey, kind: FileKind, path: str, size: int, read: Read) -> str:
        """Send one file; returns its digest, or raises UploadFailed, or OSError of `read`."""
        if not self._is_ready.is_set():
            raise UploadFailed("the coordinator takes no files now", retry=True)
        if size > self.max_bytes:
            raise UploadFailed(f"it has {size} bytes, at most {self.max_bytes} are kept", retry=False)
        async with self._room:
            return await self._put(key, kind, path, size, read)

    async def _put(self, key: AttemptKey, kind: FileKind, path: str, size: int, read: Read) -> str:
        self._next_id += 1
        id, offset, digest = self._next_id, 0, hashlib.sha256()
        while True:
            length = min(PIECE_BYTES, size - offset)
            data = (
                read(offset, length) if size <= PIECE_BYTES else await asyncio.to_thread(read, offset, length)
            )
            if len(data) != length:
                raise UploadFailed("it became shorter while it was read", retry=False)
            digest.update(data)
            end = offset + length
            sha256 = digest.hexdigest() if end == size else ""
            answer = await self._ask(wire.PutFile(id, key, kind, path, size, offset, data, sha256))
            if answer.error:
                raise UploadFailed(answer.error, answer.retry)
            if sha256:
                return sha256
            offset = end

    async def _ask(self, piece: wire.PutFile) -> wire.FileTaken:
        if self._send is None:
            raise UploadFailed("the connection was lost", retry=True)
        answer: asyncio.Future[wire.FileTaken] = asyncio.get_running_loop().create_future()
        self._answers[piece.id] = answer
        try:
            self._send(piece)
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await answer
        except TimeoutError:
            raise UploadFailed(f"no answer within {ANSWER_WITHIN_S:g} s", retry=True) from None
        finally:
            del self._answers[piece.id]

    # Logs of ended attempts.

    def add(self, keys: Iterable[AttemptKey]) -> None:
        """These attempts have ended: copy their logs as soon as there is time for it."""
        self._queue.extend(keys)
        if self._queue:
            self._idle.clear()
            self._wanted.set()

    async def keep(self, live: Callable[[], set[AttemptKey]], now: float) -> None:
        """Copy logs, as long as the runner lives; first those that an earlier runner could not."""
        pause_s = PAUSE_FIRST_S
        self.add(await asyncio.to_thread(uncopied, self._root, live(), now - COPIED_LATE_S))
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await asyncio.sleep(GATHER_S)
            await self._is_ready.wait()
            keys = [self._queue.popleft() for _ in range(min(ATTEMPTS_AT_ONCE, len(self._queue)))]
            failed = [key for key in await self._copied(keys) if key is not None]
            if failed:
                self._queue.extendleft(reversed(failed))
                await asyncio.sleep(pause_s)
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)
            else:
                pause_s = PAUSE_FIRST_S
            if self._queue:
                self._wanted.set()
            else:
                self._idle.set()

    async def drained(self, within_s: float) -> bool:
        """Wait until all logs were copied, but not too long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), within_s)
        return self._idle.is_set()

    async def _copied(self, keys: list[AttemptKey]) -> list[AttemptKey | None]:
        found = await asyncio.to_thread(lambda: [self._look(key) for key in keys])
        return await asyncio.gather(
            *(self._copy(key, runs) for key, runs in zip(keys, found, strict=True) if runs)
        )

    async def _copy(self, key: AttemptKey, runs: list[LogRun]) -> AttemptKey | None:
        """Copy the logs of one attempt; returns its key if that has to be tried again."""
        try:
            for run in runs:
                await self._copy_run(key, run)
            self._mark(key)
        except UploadFailed as error:
            if error.retry:
                return key
            log.warning("a log was not copied", attempt=key, error=str(error))
        except OSError as error:  # it was removed meanwhile
            log.info("a log was not copied", attempt=key, error=str(error))
        return None

    async def _copy_run(self, key: AttemptKey, run: LogRun) -> None:
        path = TIMES if run.is_times else str(run.offset)
        if (data := run.data) is not None:
            await self.put(key, run.stream, path, run.size, lambda at, size: data[at : at + size])
            return
        fd = open_file(log_path(self._root, *key, run.stream))
        try:
            await self.put(
                key, run.stream, path, run.size, lambda at, size: os.pread(fd, size, run.offset + at)
            )
        finally:
            os.close(fd)

    def _look(self, key: AttemptKey) -> list[LogRun]:
        """What there is to copy of an attempt: nothing, if it wrote nothing."""
        runs: list[LogRun] = []
        for stream in STREAMS:
            with suppress(OSError):
                path = log_path(self._root, *key, stream)
                if _is_empty(path):  # as those of most tasks, and then this is all that it costs
                    continue
                fd = open_file(path)
                try:
                    if os.fstat(fd).st_mode & stat.S_IWUSR:  # else it was copied before
                        runs += self._runs(fd, stream)
                finally:
                    os.close(fd)
        if runs and runs[-1].stream != STREAMS[-1]:
            runs.append(LogRun(STREAMS[-1], 0, 0, b""))
        if runs and (times := times_to_keep(self._root, key, self._clock.now())):
            runs.insert(0, LogRun(STREAMS[-1], 0, len(times), times, is_times=True))
        return runs

    def _runs(self, fd: int, stream: FileKind) -> list[LogRun]:
        """The last runs of a log, as many as are kept; a task can make more of them than the keeper does."""
        found, left = [], 2 * self._log_max_bytes or 1 << 60  # 0: no limit
        for offset, length in reversed(data_runs(fd, LOG_RUNS_MAX)):
            size = min(length, left)
            left -= size
            data = os.pread(fd, size, offset) if size <= PIECE_BYTES // SENT_AT_ONCE else None
            if size and (data is None or len(data) == size):
                found.append(LogRun(stream, offset, size, data))
        return found[::-1]

    def _mark(self, key: AttemptKey) -> None:
        """Note in the logs themselves that they were copied."""
        for stream in STREAMS:
            with suppress(OSError):
                fd = open_file(log_path(self._root, *key, stream))
                try:
                    os.fchmod(fd, stat.S_IRUSR)
                finally:
                    os.close(fd)


def _is_empty(path: LogPath) -> bool:
    try:
        about = os.lstat(path)
    except FileNotFoundError:  # an earlier version may have written it elsewhere
        return False
    return stat.S_ISREG(about.st_mode) and not about.st_size


def uncopied(root: Path, live: set[AttemptKey], since: float) -> list[AttemptKey]:
    """Ended attempts with logs that were written since then and not copied."""
    found: dict[AttemptKey, None] = {}
    for folder in _entries(root):
        for file in _entries(Path(folder.path)) if folder.is_dir(follow_symlinks=False) else ():
            named = read_name(folder.name, file.name)
            if named is None or named[1] not in STREAMS:
                continue
            with suppress(OSError):
                about = file.stat(follow_symlinks=False)
                key = named[0]
                is_new = about.st_size and about.st_mtime >= since and about.st_mode & stat.S_IWUSR
                if is_new and stat.S_ISREG(about.st_mode) and key not in live:
                    found[key] = None
    return list(found)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
