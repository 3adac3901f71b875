"""The logs of all tasks of a job: one after another, or followed side by side, each line behind its task.

However many tasks there are, a few are read at a time, and no more than a few pieces of each are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from msgspec import structs

from phalanx.cli.labels import label
from phalanx.cli.output import note
from phalanx.cli.task_log import ORDER_OF_TWO, LogOptions, TaskLog
from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.schema.jobs import JobView, TaskView
    from phalanx.client.client import Client

READ_AT_ONCE = 8
FOLLOWED_AT_ONCE = 64
LINES_AHEAD = 256
PAGE = 100
Item = bytes | Exception | None  # None: it has ended


class JobLogs:
    """Reads the logs of a job's tasks."""

    def __init__(self, client: Client, id: str, attempt: int | None, options: LogOptions) -> None:
        self._client = client
        self._attempt = attempt
        self._options = structs.replace(options, whole_lines=True)
        self._job = client.job(id)
        self._left_out = self._newest = 0

    def lines(self) -> Iterator[bytes]:
        if self._job.split_output and self._options.stream is None:
            note(ORDER_OF_TWO)
        yield from self._followed() if self._options.follow else self._in_order()
        if self._newest < (self._attempt or 0):
            raise BadRequest(
                f"--attempt {self._attempt}: no task of {label(self._job)} has had more than "
                f"{plural(self._newest, 'attempt')}",
                hint=f"phalanx ps --tasks {label(self._job)} has the newest attempt of each",
            )
        if self._left_out:
            note(
                f"{self._left_out} of {self._job.tasks} tasks have no log; `phalanx ps --tasks {label(self._job)}`"
            )

    def _in_order(self) -> Iterator[bytes]:
        """Task by task. The next ones are read ahead."""
        ahead: deque[Queue[Item]] = deque()
        for task in self._tasks():
            if task.attempt < (self._attempt or 1):
                self._left_out += 1
                continue
            ahead.append(self._begin(task, Queue(LINES_AHEAD)))
            if len(ahead) == READ_AT_ONCE:
                yield from _until_end(ahead.popleft())
        while ahead:
            yield from _until_end(ahead.popleft())

    def _followed(self) -> Iterator[bytes]:
        """Side by side, as they come; the next task when one has ended."""
        if self._job.tasks > FOLLOWED_AT_ONCE:
            note(
                f"following {FOLLOWED_AT_ONCE} of {self._job.tasks} tasks at a time, the next when one has ended"
            )
        arriving: Queue[Item] = Queue(LINES_AHEAD)
        tasks, running = self._tasks(), 0
        while True:
            while running < FOLLOWED_AT_ONCE and (task := next(tasks, None)) is not None:
                self._begin(task, arriving)
                running += 1
            if not running:
                return
            item = arriving.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item

    def _begin(self, task: TaskView, into: Queue[Item]) -> Queue[Item]:
        Thread(target=self._copy, args=(task, into.put), daemon=True).start()
        return into

    def _copy(self, task: TaskView, put: Callable[[Item], None]) -> None:
        prefix = prefix_of(self._job, task)

        def say(text: str) -> None:
            put(prefix + text.encode() + b"\n")

        log = TaskLog(self._client, task.id, self._options, say, label(task))
        is_whole = self._options.follow and self._attempt is None
        try:
            for line in log.all_attempts() if is_whole else log.attempt(self._attempt):
                put(prefix + line)
        except NotFound:
            self._left_out += 1
        except PhalanxError as error:
            if error.reason == "OneLog":  # so it is with all of them
                put(error)
            else:  # others may be readable
                say(f"--- {error.detail} ---")
        except Exception as error:  # whatever it is, the reader of the next line must see it
            put(error)
        put(None)

    def _tasks(self) -> Iterator[TaskView]:
        cursor: str | None = None
        while True:
            page = self._client.tasks(self._job.id, cursor=cursor, limit=PAGE)
            self._newest = max(self._newest, *(task.attempt for task in page.items), 0)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return


def prefix_of(job: JobView, task: TaskView) -> bytes:
    """What the lines of a task begin with: its index, or its rank and node in a gang."""
    index = task.id.rpartition(".")[2]
    if job.gang is None:
        return f"{index:>{len(str(job.tasks))}}| ".encode()
    rank = index if task.rank is None else str(task.rank)
    return f"{rank:>{len(str(job.tasks - 1))}}@{task.node or '-'}| ".encode()


def _until_end(items: Queue[Item]) -> Iterator[bytes]:
    while (item := items.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item
