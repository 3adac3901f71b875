"""The tasks of a job with their newest outcomes, those of its retries among them, and what they wrote."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.api.schema.jobs import TaskView
from phalanx.api.schema.queries import Stream
from phalanx.client.job_calls import AsyncJobCalls, JobCalls
from phalanx.client.job_endings import check_ended
from phalanx.clock import Deadline
from phalanx.errors import NotFound

PAGE = 1000
LONGEST_S = 1e9  # to wait, where no time is given


def tasks_of(client: JobCalls, id: str) -> Iterator[TaskView]:
    """All tasks of a job, in order."""
    cursor: str | None = None
    while True:
        page = client.tasks(id, cursor=cursor, limit=PAGE)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


async def async_tasks_of(client: AsyncJobCalls, id: str) -> list[TaskView]:
    page = await client.tasks(id, limit=PAGE)
    found = page.items
    while page.next_cursor is not None:
        page = await client.tasks(id, cursor=page.next_cursor, limit=PAGE)
        found = found + page.items
    return found


def newest_tasks(client: JobCalls, id: str, until: Deadline, *, must_end: bool) -> list[TaskView]:
    """The tasks of a job, each as the last retry has it that ran it again; retries are waited for."""
    tasks = list(tasks_of(client, id))
    for retry in client.job(id).retries:
        try:
            view = client.wait(retry, until.left_s(LONGEST_S), must_end=False)
        except NotFound:  # it is no longer kept
            continue
        if must_end:
            check_ended(view)
        tasks = newest_of(tasks, list(tasks_of(client, retry)))
    return tasks


async def async_newest_tasks(
    client: AsyncJobCalls, id: str, until: Deadline, *, must_end: bool
) -> list[TaskView]:
    tasks = await async_tasks_of(client, id)
    for retry in (await client.job(id)).retries:
        try:
            view = await client.wait(retry, until.left_s(LONGEST_S), must_end=False)
        except NotFound:  # it is no longer kept
            continue
        if must_end:
            check_ended(view)
        tasks = newest_of(tasks, await async_tasks_of(client, retry))
    return tasks


def newest_of(tasks: list[TaskView], again: list[TaskView]) -> list[TaskView]:
    """The tasks of a job, those that a retry of it ran again as that has them; a gang or a single task as a whole."""
    if again and again[0].index is None:
        return again
    found = {task.index: task for task in again}
    return [found.get(task.index, task) for task in tasks]


def log_of(client: JobCalls, id: str, stream: Stream, attempt: int | None, lines: int | None) -> str:
    """What one of several tasks wrote; empty if it has no log."""
    try:
        found = b"".join(client.logs(id, stream=stream, attempt=attempt, lines=lines))
    except NotFound:
        return ""
    return found.decode("utf-8", "replace")


async def async_log_of(
    client: AsyncJobCalls, id: str, stream: Stream, attempt: int | None, lines: int | None
) -> str:
    found = client.logs(id, stream=stream, attempt=attempt, lines=lines)
    try:
        return b"".join([piece async for piece in found]).decode("utf-8", "replace")
    except NotFound:
        return ""


def with_prefix(task: TaskView, count: int, text: str) -> str:
    """Its lines, each behind its index, or its rank and node in a gang."""
    index = task.id.rpartition(".")[2]
    prefix = f"{index:>{len(str(count))}}| " if task.rank is None else f"{task.rank}@{task.node or '-'}| "
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())
