"""What `submit` returns: the answer of the cluster, which is also a handle on the job.

`JobHandle` belongs to the client that waits, `AsyncJobHandle` to the async one. A submission to several targets is
several jobs; then everything here is about all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec import structs

from phalanx.api.schema.jobs import CancelReply, JobView, StatusWord, TaskView, WhyReply
from phalanx.api.schema.queries import Stream
from phalanx.api.schema.submission import AcceptedTask, SubmitReply
from phalanx.client.calls import FINAL
from phalanx.client.job_calls import AsyncJobCalls, JobCalls
from phalanx.client.job_endings import (
    check_ended,
    failure,
    first_not_completed,
    first_of_failed,
    job_of,
    least_far,
    only_result,
)
from phalanx.client.job_results import (
    async_log_of,
    async_newest_tasks,
    async_tasks_of,
    log_of,
    newest_tasks,
    tasks_of,
    with_prefix,
)
from phalanx.client.waited_jobs import AsyncWaitedJob, WaitedJob, async_waited_job, waited_job
from phalanx.clock import Deadline
from phalanx.errors import BadRequest, PhalanxError

TAIL_LINES = 20  # of the log, in an error


class _Handle(SubmitReply, dict=True):
    """What both have in common: the fields of the answer, and the ids of the jobs."""

    @property
    def id(self) -> str:
        """The id of the job; of several, that of the first."""
        return self.batch_id

    @property
    def job_ids(self) -> list[str]:
        """The id of each job: one for each target that was accepted."""
        return list(self.task_ids)

    @property
    def number(self) -> int:
        """Its number, as the command line shows it; of several jobs, that of the first. 0: an older coordinator."""
        return self.accepted[0].number if self.accepted else 0

    @property
    def _count(self) -> int:
        """How many tasks it has; of several jobs, the first."""
        return self.accepted[0].tasks if self.accepted else 1

    def __repr__(self) -> str:
        called = [each.number or each.id for each in self.accepted] or self.task_ids
        return f"{type(self).__name__}({', '.join(map(str, called))})"

    def task_id(self, index: int | None) -> str:
        """The id of one task, by its index in the array or gang; None is the only one."""
        tasks = self._count
        if index is None and tasks > 1:
            called = self.accepted[0].number or self.id
            raise BadRequest(
                f"{called} has {tasks} tasks: give the index of one, such as job.follow(1); "
                "job.tasks() has the index of each",
                reason="IsArray",
            )
        return self.id if index is None else f"{self.id}.{index}"


class JobHandle(_Handle, dict=True):
    """A submitted job. The fields are those of `SubmitReply`; the methods ask the cluster."""

    @property
    def client(self) -> JobCalls:
        found: JobCalls = self.__dict__["client"]
        return found

    @property
    def status(self) -> StatusWord:
        """Where it is now: Pending, Assigned, Running, Completed, Failed, Cancelled. Of several jobs, the least far."""
        return least_far(self.views())

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status in FINAL

    def view(self) -> JobView:
        """All that the cluster tells of it now; of several jobs, of the first."""
        return self.client.job(self.id)

    def views(self) -> list[JobView]:
        """The same of each of its jobs."""
        return [self.client.job(id) for id in self.job_ids]

    def tasks(self) -> Iterator[TaskView]:
        """Its tasks, in order."""
        for id in self.job_ids:
            yield from tasks_of(self.client, id)

    @property
    def exit_code(self) -> int | None:
        """That of its only task, or of the first that failed; None while it has none."""
        return self.view().exit_code

    def wait(self, timeout: float | None = None, *, check: bool = False, must_end: bool = True) -> WaitedJob:
        """Return when it has ended, as it ended: look at its status. TimeoutError if that takes more than `timeout` s.

        With `check`, JobFailed is raised if it did not complete. With `must_end=False` it is returned as it stands when
        the time is over. Of several jobs all are waited for, and the view is that of the first that did not complete,
        or of the first.
        """
        views = [job_of(self.client.wait(id, timeout, must_end=False)) for id in self.job_ids]
        chosen = first_not_completed(views)
        if must_end:
            check_ended(chosen)
        if check and chosen.status in FINAL:
            self._check(chosen)
        return waited_job(chosen, self)

    def logs(
        self,
        index: int | None = None,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
    ) -> str:
        """What its task has written so far, as text, or its last `lines`.

        Of an array or gang without an index, what all of them wrote, each line behind the index of its task (`3| `).
        """
        if index is None and self._count > 1:
            return "".join(
                with_prefix(each, self._count, log_of(self.client, each.id, stream, attempt, lines))
                for each in self.tasks()
                if each.attempt >= (attempt or 1)
            )
        found = self.client.logs(self.task_id(index), stream=stream, attempt=attempt, lines=lines)
        return b"".join(found).decode("utf-8", "replace")

    def follow(self, index: int | None = None, *, stream: Stream = "stdout") -> Iterator[bytes]:
        """What its task writes, as it comes, until it ends: over all attempts, with a line before each further one."""
        return self.client.logs(self.task_id(index), stream=stream, follow=True)

    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return what its only task gave as its result, None if it gave none.

        Raises JobFailed if it did not complete, and TimeoutError if it has not ended in time.
        """
        found = self.results(timeout)
        return only_result(found, self.id)

    def results(self, timeout: float | None = None, *, check: bool = True) -> list[Any]:
        """Wait, and return the result of each task, in order; None for one that gave none.

        A task that was retried gives its newest result, and its retry is waited for. Raises as `result` does. Without
        `check` it does not: tasks that failed, or have not ended in time, give None.
        """
        until = Deadline(timeout)
        chosen = self.wait(timeout, must_end=check)
        tasks = [each for id in self.job_ids for each in newest_tasks(self.client, id, until, must_end=check)]
        if check and chosen.status != "Completed":
            self._check_all(chosen, tasks)
        return [self.client.result(each.id) if each.result_bytes else each.result for each in tasks]

    def _check_all(self, view: JobView, tasks: list[TaskView]) -> None:
        """Raise JobFailed if a newest outcome is not good; a job may have failed though all of them are."""
        failed = first_of_failed(tasks)
        if failed is None and view.retries:
            return
        if failed is not None and failed.job_id not in self.job_ids:
            view = self.client.job(failed.job_id)
        tail = "" if failed is None else self._tail(failed)
        raise failure(view, failed, tail, has_others=len(tasks) > 1)

    def cancel(self) -> list[CancelReply]:
        """Cancel it, each of its jobs."""
        return [self.client.cancel(id) for id in self.job_ids]

    def why(self) -> WhyReply:
        """Why it is where it is, and the nearest fix; of several jobs, the first."""
        return self.client.why(self.id)

    def retry(self, *, cancelled: bool = False) -> JobHandle:
        """Run its failed tasks again, with `cancelled` those that were cancelled as well: a new job, for its handle."""
        return self.client.retry(self.id, cancelled=cancelled)

    def _check(self, view: JobView) -> None:
        if view.status != "Completed":
            failed = next((each for each in self.tasks() if each.status == view.status), None)
            raise failure(view, failed, "" if failed is None else self._tail(failed))

    def _tail(self, task: TaskView) -> str:
        """The end of its log; what stderr had if the log cannot be read, as of a node that is gone."""
        try:
            found = b"".join(self.client.logs(task.id, lines=TAIL_LINES)) if task.attempt else b""
        except PhalanxError:
            found = b""
        return found.decode("utf-8", "replace") or task.stderr_tail


class AsyncJobHandle(_Handle, dict=True):
    """A submitted job, for asyncio: the fields of `SubmitReply`, and every method of `JobHandle`, to be awaited."""

    @property
    def client(self) -> AsyncJobCalls:
        found: AsyncJobCalls = self.__dict__["client"]
        return found

    async def status(self) -> StatusWord:
        """Where it is now; of several jobs, the least far."""
        return least_far(await self.views())

    async def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return await self.status() in FINAL

    async def view(self) -> JobView:
        """All that the cluster tells of it now; of several jobs, of the first."""
        return await self.client.job(self.id)

    async def views(self) -> list[JobView]:
        """The same of each of its jobs."""
        return [await self.client.job(id) for id in self.job_ids]

    async def tasks(self) -> AsyncIterator[TaskView]:
        """Its tasks, in order."""
        for id in self.job_ids:
            for task in await async_tasks_of(self.client, id):
                yield task

    async def exit_code(self) -> int | None:
        """That of its only task, or of the first that failed; None while it has none."""
        return (await self.view()).exit_code

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        check: bool = False,
        must_end: bool = True,
    ) -> AsyncWaitedJob:
        """Return when it has ended; what is raised, and what is returned without `must_end`, is as in `JobHandle`."""
        views = [job_of(await self.client.wait(id, timeout, must_end=False)) for id in self.job_ids]
        chosen = first_not_completed(views)
        if must_end:
            check_ended(chosen)
        if check and chosen.status in FINAL:
            await self._check(chosen)
        return async_waited_job(chosen, self)

    async def logs(
        self,
        index: int | None = None,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
    ) -> str:
        """What its task has written so far, as text, or its last `lines`; of several tasks as in `JobHandle`."""
        if index is None and self._count > 1:
            return "".join(
                [
                    with_prefix(
                        each, self._count, await async_log_of(self.client, each.id, stream, attempt, lines)
                    )
                    async for each in self.tasks()
                    if each.attempt >= (attempt or 1)
                ]
            )
        found = self.client.logs(self.task_id(index), stream=stream, attempt=attempt, lines=lines)
        return b"".join([piece async for piece in found]).decode("utf-8", "replace")

    def follow(self, index: int | None = None, *, stream: Stream = "stdout") -> AsyncIterator[bytes]:
        """What its task writes, as it comes, until it ends: over all attempts, with a line before each further one."""
        return self.client.logs(self.task_id(index), stream=stream, follow=True)

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Wait, and return what its only task gave as its result; raises as in `JobHandle`."""
        return only_result(await self.results(timeout), self.id)

    async def results(self, timeout: float | None = None, *, check: bool = True) -> list[Any]:  # noqa: ASYNC109
        """Wait, and return the result of each task, in order; `check` and what it raises are as in `JobHandle`."""
        until = Deadline(timeout)
        chosen = await self.wait(timeout, must_end=check)
        tasks: list[TaskView] = []
        for id in self.job_ids:
            tasks += await async_newest_tasks(self.client, id, until, must_end=check)
        if check and chosen.status != "Completed":
            await self._check_all(chosen, tasks)
        return [await self.client.result(each.id) if each.result_bytes else each.result for each in tasks]

    async def _check_all(self, view: JobView, tasks: list[TaskView]) -> None:
        failed = first_of_failed(tasks)
        if failed is None and view.retries:
            return
        if failed is not None and failed.job_id not in self.job_ids:
            view = await self.client.job(failed.job_id)
        tail = "" if failed is None else await self._tail(failed)
        raise failure(view, failed, tail, has_others=len(tasks) > 1)

    async def cancel(self) -> list[CancelReply]:
        """Cancel it, each of its jobs."""
        return [await self.client.cancel(id) for id in self.job_ids]

    async def why(self) -> WhyReply:
        """Why it is where it is, and the nearest fix; of several jobs, the first."""
        return await self.client.why(self.id)

    async def retry(self, *, cancelled: bool = False) -> AsyncJobHandle:
        """Run its failed tasks again, with `cancelled` those that were cancelled as well: a new job, for its handle."""
        return await self.client.retry(self.id, cancelled=cancelled)

    async def _check(self, view: JobView) -> None:
        if view.status != "Completed":
            async for task in self.tasks():
                if task.status == view.status:
                    raise failure(view, task, await self._tail(task))
            raise failure(view, None, "")

    async def _tail(self, task: TaskView) -> str:
        try:
            pieces = self.client.logs(task.id, lines=TAIL_LINES)
            found = b"".join([piece async for piece in pieces]) if task.attempt else b""
        except PhalanxError:
            found = b""
        return found.decode("utf-8", "replace") or task.stderr_tail


def handle_of(view: JobView, client: JobCalls) -> JobHandle:
    """A handle on a job that was submitted before."""
    return job_handle(_reply_of(view), client)


def async_handle_of(view: JobView, client: AsyncJobCalls) -> AsyncJobHandle:
    return async_job_handle(_reply_of(view), client)


def _reply_of(view: JobView) -> SubmitReply:
    return SubmitReply([view.id], view.id, [AcceptedTask(view.id, view.tasks, number=view.number)])


def job_handle(reply: SubmitReply, client: JobCalls) -> JobHandle:
    """The answer to a submission as a handle of its client."""
    made = JobHandle(**structs.asdict(reply))
    made.__dict__["client"] = client
    return made


def async_job_handle(reply: SubmitReply, client: AsyncJobCalls) -> AsyncJobHandle:
    made = AsyncJobHandle(**structs.asdict(reply))
    made.__dict__["client"] = client
    return made
