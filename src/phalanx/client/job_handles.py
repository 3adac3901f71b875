"""What `submit` returns: the answer of the cluster, which is also a handle on the job.

`JobHandle` belongs to the client that waits, `AsyncJobHandle` to the async one. A submission to several targets is
several jobs; then everything here is about all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from msgspec import structs

from phalanx.api.schema.jobs import CancelReply, JobView, Page, StatusWord, TaskView
from phalanx.api.schema.queries import Stream
from phalanx.api.schema.submission import AcceptedTask, SubmitReply
from phalanx.client.calls import FINAL
from phalanx.client.waited_jobs import AsyncWaitedJob, WaitedJob, async_waited_job, waited_job
from phalanx.errors import BadRequest, JobFailed, PhalanxError

TAIL_LINES = 20  # of the log, in an error
_ORDER: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending", "Failed", "Cancelled")


class JobCalls(Protocol):
    """What a handle asks of its client."""

    def job(self, id: str) -> JobView: ...

    def cancel(self, id: str) -> CancelReply: ...

    def wait(self, id: str, timeout: float | None = None) -> JobView | TaskView: ...

    def result(self, id: str) -> Any: ...

    def tasks(self, job: str, *, cursor: str | None = None, limit: int = 100) -> Page[TaskView]: ...

    def logs(
        self,
        id: str,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]: ...


class AsyncJobCalls(Protocol):
    """The same of an async client."""

    async def job(self, id: str) -> JobView: ...

    async def cancel(self, id: str) -> CancelReply: ...

    async def wait(self, id: str, timeout: float | None = None) -> JobView | TaskView: ...  # noqa: ASYNC109

    async def result(self, id: str) -> Any: ...

    async def tasks(self, job: str, *, cursor: str | None = None, limit: int = 100) -> Page[TaskView]: ...

    def logs(
        self,
        id: str,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[bytes]: ...


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

    def __repr__(self) -> str:
        called = [each.number or each.id for each in self.accepted] or self.task_ids
        return f"{type(self).__name__}({', '.join(map(str, called))})"

    def task_id(self, index: int | None) -> str:
        """The id of one task, by its index in the array or gang; None is the only one."""
        tasks = self.accepted[0].tasks if self.accepted else 1
        if index is None and tasks > 1:
            called = self.accepted[0].number or self.id
            raise BadRequest(
                f"{called} has {tasks} tasks: give the index of one, such as job.logs(1); "
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
        return _least(self.views())

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
            cursor: str | None = None
            while True:
                page = self.client.tasks(id, cursor=cursor, limit=1000)
                yield from page.items
                if (cursor := page.next_cursor) is None:
                    break

    def wait(self, timeout: float | None = None, *, check: bool = False) -> WaitedJob:
        """Return when it has ended, or after `timeout` seconds as it then stands: look at its status.

        With `check`, JobFailed is raised if it did not complete, and TimeoutError if it has not ended in time. Of
        several jobs all are waited for, and the view is that of the first that did not complete, or of the first.
        """
        views = [_job_of(self.client.wait(id, timeout)) for id in self.job_ids]
        chosen = _chosen(views)
        if check:
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
        """What its task has written so far, as text, or its last `lines`. Of an array or gang say which task."""
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
        return _only(found, self.id)

    def results(self, timeout: float | None = None, *, check: bool = True) -> list[Any]:
        """Wait, and return the result of each task, in order; None for one that gave none.

        Raises as `result` does. Without `check` it does not: tasks that failed, or have not ended in time, give None.
        """
        self.wait(timeout, check=check)
        return [self.client.result(each.id) if each.result_bytes else each.result for each in self.tasks()]

    def cancel(self) -> list[CancelReply]:
        """Cancel it, each of its jobs."""
        return [self.client.cancel(id) for id in self.job_ids]

    def _check(self, view: JobView) -> None:
        _check_ended(view)
        if view.status != "Completed":
            failed = next((each for each in self.tasks() if each.status == view.status), None)
            raise _failure(view, failed, "" if failed is None else self._tail(failed))

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
        return _least(await self.views())

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
            cursor: str | None = None
            while True:
                page = await self.client.tasks(id, cursor=cursor, limit=1000)
                for task in page.items:
                    yield task
                if (cursor := page.next_cursor) is None:
                    break

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        check: bool = False,
    ) -> AsyncWaitedJob:
        """Return when it has ended, or after `timeout` seconds as it then stands; `check` raises as in `JobHandle`."""
        views = [_job_of(await self.client.wait(id, timeout)) for id in self.job_ids]
        chosen = _chosen(views)
        if check:
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
        """What its task has written so far, as text, or its last `lines`. Of an array or gang say which task."""
        found = self.client.logs(self.task_id(index), stream=stream, attempt=attempt, lines=lines)
        return b"".join([piece async for piece in found]).decode("utf-8", "replace")

    def follow(self, index: int | None = None, *, stream: Stream = "stdout") -> AsyncIterator[bytes]:
        """What its task writes, as it comes, until it ends: over all attempts, with a line before each further one."""
        return self.client.logs(self.task_id(index), stream=stream, follow=True)

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Wait, and return what its only task gave as its result; raises as in `JobHandle`."""
        return _only(await self.results(timeout), self.id)

    async def results(self, timeout: float | None = None, *, check: bool = True) -> list[Any]:  # noqa: ASYNC109
        """Wait, and return the result of each task, in order; `check` and what it raises are as in `JobHandle`."""
        await self.wait(timeout, check=check)
        return [
            await self.client.result(each.id) if each.result_bytes else each.result
            async for each in self.tasks()
        ]

    async def cancel(self) -> list[CancelReply]:
        """Cancel it, each of its jobs."""
        return [await self.client.cancel(id) for id in self.job_ids]

    async def _check(self, view: JobView) -> None:
        _check_ended(view)
        if view.status != "Completed":
            async for task in self.tasks():
                if task.status == view.status:
                    raise _failure(view, task, await self._tail(task))
            raise _failure(view, None, "")

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


def _number(view: JobView | TaskView) -> str:
    """What messages call it; an older coordinator gives no number."""
    return str(view.number or view.id)


def _called(task: TaskView) -> str:
    """The number of a task, and its parameters if it has some."""
    params = ", ".join(f"{name}={value}" for name, value in task.params.items())
    return f"{_number(task)} ({params})" if params else _number(task)


def _job_of(view: JobView | TaskView) -> JobView:
    assert isinstance(view, JobView), "the id of a job has no index"
    return view


def _least(views: Sequence[JobView]) -> StatusWord:
    """The status that says most of several jobs: one that has not ended, else one that did not complete."""
    found = {view.status for view in views}
    return next((status for status in _ORDER if status in found), "Completed")


def _chosen(views: Sequence[JobView]) -> JobView:
    return next((view for view in views if view.status != "Completed"), views[0])


def _check_ended(view: JobView) -> None:
    if view.status not in FINAL:
        raise TimeoutError(f"{_number(view)} has not ended: it is {view.status}")


def _only(results: list[Any], id: str) -> Any:
    if len(results) != 1:
        raise ValueError(f"{id} has {len(results)} tasks: results() gives the result of each")
    return results[0]


def _failure(view: JobView, task: TaskView | None, tail: str) -> JobFailed:
    """Why it did not complete, of the first task that did not."""
    what = view.name or (view.command[0] if view.command else view.id)
    code = view.exit_code if task is None else task.exit_code
    message = "" if task is None else task.message
    if task is not None and view.tasks > 1:
        count = view.counts.failed if view.status == "Failed" else view.counts.cancelled
        message = (
            f"{count} of {view.tasks} tasks, the first is {_called(task)}{f', {message}' if message else ''}"
        )
    detail = f"{what} ({_number(view)}) is {view.status}{f': {message}' if message else ''}"
    last = tail.strip()
    return JobFailed(
        f"{detail}\n{last}" if last else detail,
        reason=view.reason if task is None else task.reason,
        hint=f"phalanx logs {_number(view if task is None else task)} shows all that it wrote",
        job=view,
        task=task,
        code=code,
        log_tail=last,
    )
