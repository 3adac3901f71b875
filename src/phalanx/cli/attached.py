"""A task's output, copied as it comes: as it is for one task, line by line with a label for each of several.

Where the output comes from is the client's business; how the job ended is reported by the caller.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, Protocol

from phalanx.cli.output import note
from phalanx.cli.wait import ENDED
from phalanx.errors import NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.schema.documents import Stream
    from phalanx.client.client import Client

STDOUT, STDERR = 1, 2
PACE_S = 0.2
DRAIN_S = 10.0


def streams_differ() -> bool:
    """Whether our standard output and standard error go to different places, so that a task's must stay apart."""
    try:
        return not os.path.samestat(os.fstat(STDOUT), os.fstat(STDERR))
    except OSError:  # one of them is closed
        return False


class Sink(Protocol):
    """Where a stream goes."""

    def write(self, piece: bytes) -> None: ...

    def end(self) -> None: ...


class Plain:
    """Bytes as they come: a program's output is its own."""

    def __init__(self, into: IO[bytes]) -> None:
        self._into = into

    def write(self, piece: bytes) -> None:
        self._into.write(piece)
        self._into.flush()

    def end(self) -> None:
        """Nothing is held back."""


class Labelled:
    """Whole lines, each behind the name of its task, so that the lines of several tasks do not run together."""

    def __init__(self, into: IO[bytes], label: str, lock: Lock) -> None:
        self._into = into
        self._label = f"{label}: ".encode()
        self._lock = lock
        self._rest = b""

    def write(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._put(lines)

    def end(self) -> None:
        if self._rest:
            self._put([self._rest])
            self._rest = b""

    def _put(self, lines: list[bytes]) -> None:
        with self._lock:
            self._into.writelines(self._label + line + b"\n" for line in lines)
            self._into.flush()


class Attached:
    """Copies the output of tasks, each log in a thread of its own, until the tasks have ended."""

    def __init__(self, client: Client, tasks: dict[str, str], split: bool) -> None:
        """`tasks` has a label for each id; it is shown if there are several. `split`: they have two logs each."""
        self._client = client
        self._pace_s = PACE_S * max(1, len(tasks) // 4)
        self._copiers: list[Thread] = []
        lock = Lock()
        streams: list[tuple[Stream, IO[bytes]]] = [("stdout", sys.stdout.buffer)]
        if split:
            streams.append(("stderr", sys.stderr.buffer))
        for id, label in tasks.items():
            for stream, into in streams:
                sink = Plain(into) if len(tasks) == 1 else Labelled(into, label, lock)
                self._copiers.append(Thread(target=self._copy, args=(id, stream, sink), daemon=True))
        for copier in self._copiers:
            copier.start()

    def drain(self) -> None:
        """Wait until what was written has been copied, but not for ever."""
        for copier in self._copiers:
            copier.join(DRAIN_S)

    def _copy(self, id: str, stream: Stream, sink: Sink) -> None:
        try:
            self._copy_attempts(id, stream, sink)
        except BrokenPipeError:
            return  # Nobody reads our output any more; the task goes on.
        except PhalanxError as error:
            is_none = error.reason == "LogNotServed"
            note(error.detail if is_none else f"{stream} was cut off: {error.detail}")

    def _copy_attempts(self, id: str, stream: Stream, sink: Sink) -> None:
        """One attempt after another: a task that was lost with its node starts again on another."""
        copied = 0
        while True:
            task = self._client.task(id)
            if task.attempt > copied:
                copied += 1
                self._copy_attempt(id, stream, copied, sink)
            elif task.status in ENDED:
                return
            else:
                self._client.wait(id, timeout=self._pace_s)

    def _copy_attempt(self, id: str, stream: Stream, attempt: int, sink: Sink) -> None:
        with suppress(NotFound):  # An attempt that never started has no output.
            for piece in self._client.logs(id, stream=stream, attempt=attempt, offset=0, follow=True):
                sink.write(piece)
        sink.end()
