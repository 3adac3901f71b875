"""Standard input of an attached `run`: what this process reads is given to the first task of its job.

Each attempt gets the input from its first byte. A file is read again; of anything else the first MiB is kept, and if
more was read, an attempt that is tried again cannot have it and the job is cancelled: half an input must not pass for
the whole. A connection that was cut goes on at the byte that the node names.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Protocol

from phalanx.cli.output import note
from phalanx.cli.wait import ENDED
from phalanx.client.leader import RetryDelays
from phalanx.core.model.amounts import describe_bytes
from phalanx.errors import Conflict, PhalanxError, TooMany, Unavailable

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.client.session_calls import ExecSession

PIECE_BYTES = 64 * 1024
KEPT_BYTES = 1 << 20  # of what cannot be read again, from the beginning
SENT_BYTES = 512 * 1024  # the last ones, which may have to be sent again: twice the window of a session
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 0.5  # between two tries to reach an attempt that is about to start
OVER = frozenset({"TaskEnded", "AttemptEnded"})
NEVER = frozenset({"SessionsNotServed", "SessionsNeedHttp"})  # by this runner, or over this connection


class InputLost(Exception):
    """What is asked for was read, and is not kept."""


class InputSource(Protocol):
    """What is read, by offset."""

    def read(self, at: int, is_over: Callable[[], bool]) -> bytes | None:
        """What begins there, empty at the end; None if it is not needed any more. Raises InputLost."""
        ...

    def wake(self) -> None:
        """Whoever waits for something to come looks again whether it is over."""
        ...


class FileInput:
    """A plain file, which can be read again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._first = os.lseek(fd, 0, os.SEEK_CUR)

    def read(self, at: int, is_over: Callable[[], bool]) -> bytes | None:
        piece = os.pread(self._fd, PIECE_BYTES, self._first + at)
        os.lseek(self._fd, self._first + at + len(piece), os.SEEK_SET)  # who shares it reads on from there
        return piece

    def wake(self) -> None:
        """Reading a file does not wait."""


class PipeInput:
    """A pipe, a terminal or a device: read by a thread of its own, not far ahead."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = bytearray()
        self._first = 0  # the offset of what is kept
        self._asked = 0  # for what is there from this offset on
        self._has_ended = False
        self._changed = Condition()
        self._reader: Thread | None = None

    def read(self, at: int, is_over: Callable[[], bool]) -> bytes | None:
        with self._changed:
            if at < self._first:
                raise InputLost
            self._asked = at
            self._changed.notify_all()
            if self._reader is None:
                self._reader = Thread(target=self._fill, daemon=True)
                self._reader.start()
            while at >= self._end and not self._has_ended and not is_over():
                self._changed.wait()
            if is_over():
                return None
            begin = at - self._first
            return bytes(memoryview(self._kept)[begin : begin + PIECE_BYTES])

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def _end(self) -> int:
        return self._first + len(self._kept)

    def _fill(self) -> None:
        while not self._has_ended:
            with self._changed:
                while self._end - self._asked > PIECE_BYTES:
                    self._changed.wait()
            piece = _read(self._fd)
            with self._changed:
                self._kept += piece
                self._has_ended = not piece
                if self._end > KEPT_BYTES and (old := self._asked - SENT_BYTES - self._first) > 0:
                    del self._kept[:old]
                    self._first += old
                self._changed.notify_all()


def _read(fd: int) -> bytes:
    """What comes next; nothing at the end, also where a terminal is gone."""
    while True:
        try:
            return os.read(fd, PIECE_BYTES)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError:
            return b""


def standard_input(wanted: bool | None) -> InputSource | None:
    """What is given to the task: nothing if standard input is closed or /dev/null, or a terminal and not asked for."""
    try:
        fd = sys.stdin.fileno() if sys.stdin is not None and wanted is not False else -1
        found = os.fstat(fd)
    except (OSError, ValueError):  # closed, or no file: within a Python program
        return None
    if os.isatty(fd) and not wanted:
        return None
    if stat.S_ISREG(found.st_mode):
        return FileInput(fd)
    is_null = stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev
    return None if is_null else PipeInput(fd)


class TaskInput:
    """Gives a task its input, one attempt after another, in a thread of its own."""

    def __init__(self, client: Client, job: str, task: str, source: InputSource) -> None:
        self._client = client
        self._job = job
        self._task = task
        self._source = source
        self._attempt = 0
        self._changed = Condition()
        Thread(target=self._run, daemon=True).start()

    def begun(self, attempt: int) -> None:
        """An attempt has a node: it starts, or is about to."""
        with self._changed:
            self._attempt = max(attempt, self._attempt)
            self._changed.notify_all()

    def _run(self) -> None:
        given = 0
        try:
            while True:
                with self._changed:
                    while self._attempt <= given:
                        self._changed.wait()
                    given = self._attempt
                self._give(given)
        except InputLost:
            kept = describe_bytes(KEPT_BYTES)
            self._give_up(
                f"attempt {given} cannot have its input: more than {kept} of it was read, and it is not a file that can"
                " be read again (`< FILE`)"
            )
        except PhalanxError as error:
            self._give_up(f"attempt {given} cannot have its input: {error.detail}")

    def _give(self, attempt: int) -> None:
        """Until the attempt has all of it, or is over; over as many connections as it takes."""
        pause_s, delays = PAUSE_FIRST_S, RetryDelays(begun=True)
        while True:
            try:
                with self._client.stdin_session(self._task, attempt) as session:
                    delays.renew()
                    self._send(session)
                return
            except Conflict as error:
                if error.reason in OVER or (error.reason == "TaskNotRunning" and self._is_over(attempt)):
                    return
                if error.reason != "TaskNotRunning":
                    raise
                Event().wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            except TooMany as error:  # sessions: those of others end
                if self._is_over(attempt):
                    return
                Event().wait(error.retry_after_s or PAUSE_MAX_S)
            except Unavailable as error:
                if error.reason in NEVER or (wait_s := delays.next(error)) is None:
                    raise
                Event().wait(wait_s)

    def _send(self, session: ExecSession) -> None:
        session.when_over(self._source.wake)
        at = session.input_at()
        while (piece := self._source.read(at, lambda: session.is_over)) is not None:
            if not piece:
                session.end_input()
                break
            session.write(piece)
            at += len(piece)
        session.wait()

    def _is_over(self, attempt: int) -> bool:
        task = self._client.task(self._task)
        return task.status in ENDED or task.attempt > attempt

    def _give_up(self, why: str) -> None:
        note(f"{self._job}: {why}")
        try:
            self._client.cancel(self._job)
            note(f"cancelled {self._job}, which would go on without its input")
        except PhalanxError as error:
            note(f"{self._job} could not be cancelled: {error.detail}")
