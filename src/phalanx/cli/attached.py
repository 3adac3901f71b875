"""A task's output, copied as it comes: as it is for one task, line by line with a label for each of several.

Where the output comes from is the client's business; how the job ended is reported by the caller. That an attempt was
evicted or lost, and another one begins, is said on standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from math import inf
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from phalanx.cli.output import note, time_of_day
from phalanx.cli.signals import output_closed
from phalanx.cli.wait import ENDED
from phalanx.client.leader import RetryDelays
from phalanx.clock import SystemClock
from phalanx.core.model.reason import said
from phalanx.errors import NotFound, PhalanxError, Unavailable

if TYPE_CHECKING:
    from phalanx.api.schema.jobs import TaskView
    from phalanx.api.schema.queries import Stream
    from phalanx.client.client import Client

T = TypeVar("T")
STDOUT, STDERR = 1, 2
PACE_S = 0.2
STALLED_S = (
    60.0  # without any output, after the end of the task: longer than the client tries to reach its cluster
)
LOOK_S = 1.0


def streams_differ() -> bool:
    """Whether our standard output and standard error go to different places, so that a task's must stay apart."""
    try:
        return not os.path.samestat(os.fstat(STDOUT), os.fstat(STDERR))
    except OSError:  # one of them is closed
        return False


def write_whole(into: IO[bytes], piece: bytes) -> None:
    """Write all of it: with PYTHONUNBUFFERED a write may take only a part, as when we were stopped meanwhile."""
    rest = memoryview(piece)
    while rest:
        rest = rest[into.write(rest) or 0 :]
    into.flush()


def patiently(ask: Callable[[], T]) -> T:
    """The answer, also of a coordinator that is just being restarted or replaced."""
    delays = RetryDelays(begun=True)
    while True:
        try:
            return ask()
        except Unavailable as error:
            pause_s = delays.next(error)
            if pause_s is None:
                raise
            Event().wait(pause_s)


class Sink(Protocol):
    """Where a stream goes."""

    def write(self, piece: bytes) -> None: ...

    def end(self) -> None: ...


class Plain:
    """Bytes as they come: a program's output is its own."""

    def __init__(self, into: IO[bytes]) -> None:
        self._into = into

    def write(self, piece: bytes) -> None:
        write_whole(self._into, piece)

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
            write_whole(self._into, b"".join(self._label + line + b"\n" for line in lines))


class Attached:
    """Copies the output of tasks, each log in a thread of its own, until the tasks have ended."""

    def __init__(
        self,
        client: Client,
        tasks: dict[str, str],
        split: bool,
        begun: Callable[[int], None] | None = None,
    ) -> None:
        """`tasks` has a label for each id; it is shown if there are several. `split`: they have two logs each.

        `begun` is called for each attempt of the first task that has a node.
        """
        self._begun = {} if begun is None else {next(iter(tasks)): begun}
        self._client = client
        self._several = len(tasks) > 1
        self._told: set[str] = set()  # what happened to several tasks at once is told once
        self._telling = Lock()
        self._pace_s = PACE_S * max(1, len(tasks) // 4)
        self._copiers: list[Thread] = []
        self._moved = 0  # pieces that were copied
        self._writing = 0  # copiers whose piece is being taken by whoever reads our output
        lock = Lock()
        streams: list[tuple[Stream, IO[bytes]]] = [("stdout", sys.stdout.buffer)]
        if split:
            streams.append(("stderr", sys.stderr.buffer))
        for id, label in tasks.items():
            for stream, into in streams:
                sink = Plain(into) if len(tasks) == 1 else Labelled(into, label, lock)
                self._copiers.append(Thread(target=self._copy, args=(id, stream, sink, into), daemon=True))
        for copier in self._copiers:
            copier.start()

    @property
    def gives_input(self) -> bool:
        """Whether the first task has standard input from us."""
        return bool(self._begun)

    def drain(self, within_s: float = inf) -> None:
        """Wait until what was written has been copied, however slow its reader; but not for a cluster that is gone."""
        waited_s = stalled_s = 0.0
        for copier in self._copiers:
            while copier.is_alive() and waited_s < within_s:
                before = self._moved
                copier.join(min(LOOK_S, within_s - waited_s))
                waited_s += LOOK_S
                stalled_s = 0.0 if self._moved != before or self._writing else stalled_s + LOOK_S
                if stalled_s >= STALLED_S:
                    note("output may be missing: nothing more came from the node")
                    return

    def _copy(self, id: str, stream: Stream, sink: Sink, into: IO[bytes]) -> None:
        try:
            self._copy_attempts(id, stream, sink)
        except BrokenPipeError:
            # What is still buffered goes nowhere, or Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), into.fileno())
            output_closed()
        except PhalanxError as error:
            is_none = error.reason == "LogNotServed"
            note(error.detail if is_none else f"{stream} was cut off: {error.detail}")

    def _copy_attempts(self, id: str, stream: Stream, sink: Sink) -> None:
        """One attempt after another: a task that was lost with its node starts again on another."""
        copied = 0
        while True:
            task = patiently(lambda: self._client.task(id))
            if task.attempt > copied:
                copied += 1
                if stream == "stdout" and id in self._begun:
                    self._begun[id](copied)
                if copied > 1 and stream == "stdout":
                    self._tell_begin(id, task, copied)
                self._copy_attempt(id, stream, copied, sink)
                if stream == "stdout":
                    self._tell_end(id, patiently(lambda: self._client.task(id)), copied)
            elif task.status in ENDED:
                return
            else:
                patiently(lambda: self._client.wait(id, timeout=self._pace_s, must_end=False))

    def _copy_attempt(self, id: str, stream: Stream, attempt: int, sink: Sink) -> None:
        try:
            for piece in self._client.logs(id, stream=stream, attempt=attempt, offset=0, follow="hold"):
                self._writing += 1
                sink.write(piece)
                self._writing -= 1
                self._moved += 1
        except NotFound:  # An attempt that never started has no output.
            pass
        except Unavailable as error:  # It was lost with its node: the next one may be read.
            task = patiently(lambda: self._client.task(id))
            if task.status in ENDED or (task.attempt == attempt and task.status != "Pending"):
                raise
            note(f"{id}: {stream} of attempt {attempt} was cut off: {error.detail}")
        sink.end()

    def _tell_begin(self, id: str, task: TaskView, attempt: int) -> None:
        """A next attempt begins: of a gang, that of all its members."""
        if self._several:
            self._tell(f"{_job_of(id)}: attempt {attempt} begins")
            return
        where = f" on {task.node}" if task.attempt == attempt and task.node else ""
        self._tell(f"{id}: attempt {attempt}{where} begins")

    def _tell_end(self, id: str, task: TaskView, attempt: int) -> None:
        """Of an attempt that is over while its task is not: why. A member that did its part waits for the others."""
        if task.status in ENDED or (task.status == "Running" and task.exit_code == 0):
            return
        told = next((each for each in task.conditions if each.type == "DisruptionTarget"), None)
        if told is None or not (told.status == "True" or task.attempt > attempt):
            if task.attempt > attempt or task.status == "Pending":  # else its end is not recorded yet
                why = said(task.message.removeprefix("an earlier attempt: ")) or task.reason
                self._tell(f"{id}: attempt {attempt} ended: {why or 'it is tried again'}")
            return
        at = told.last_transition_at if told.status == "True" else SystemClock().now()
        whose = f"{_job_of(id) if self._several else id}: attempt {attempt} was evicted"
        self._tell(f"{whose} at {time_of_day(at)}: {said(told.message)}", once_by=whose)

    def _tell(self, text: str, once_by: str = "") -> None:
        with self._telling:
            if (key := once_by or text) not in self._told:
                self._told.add(key)
                note(text)


def _job_of(task: str) -> str:
    return task.rpartition(".")[0] or task
