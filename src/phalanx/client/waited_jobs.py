"""What `wait` of a job handle returns: the job as it then stood, which can still be asked for its logs and results.

So `client.submit(command=[…]).wait().logs()` works. What changes, such as its status, is the handle's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from phalanx.api.schema.jobs import JobView, WhyReply
from phalanx.api.schema.queries import Stream

if TYPE_CHECKING:
    from phalanx.client.job_handles import AsyncJobHandle, JobHandle

_TOLD = ("number", "name", "status", "reason", "exit_code")


class _Waited(JobView, dict=True):
    """What both have in common: in a few words what it was, for notebooks and prints."""

    def __repr__(self) -> str:
        told = ", ".join(
            f"{name}={value!r}" for name in _TOLD if (value := getattr(self, name)) not in ("", None)
        )
        return f"{type(self).__name__}({told})"


class WaitedJob(_Waited, dict=True):
    """A job as it stood when `wait` returned: a `JobView`, and the methods that ask for what it wrote and gave."""

    @property
    def handle(self) -> JobHandle:
        """The handle that was waited for."""
        found: JobHandle = self.__dict__["handle"]
        return found

    def logs(
        self,
        index: int | None = None,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
    ) -> str:
        """What its task has written, as text, or its last `lines`. Of an array or gang say which task."""
        return self.handle.logs(index, stream=stream, attempt=attempt, lines=lines)

    def result(self) -> Any:
        """What its only task gave as its result, None if it gave none; raises as that of the handle."""
        return self.handle.result()

    def results(self, *, check: bool = True) -> list[Any]:
        """The result of each task, in order; raises as that of the handle."""
        return self.handle.results(check=check)

    def why(self) -> WhyReply:
        """Why it ended so, and what to do next."""
        return self.handle.why()

    def retry(self, *, cancelled: bool = False) -> JobHandle:
        """Run its failed tasks again, as a new job."""
        return self.handle.retry(cancelled=cancelled)


class AsyncWaitedJob(_Waited, dict=True):
    """What `wait` of an async handle returns: a `JobView`, and the methods of `WaitedJob`, to be awaited."""

    @property
    def handle(self) -> AsyncJobHandle:
        """The handle that was waited for."""
        found: AsyncJobHandle = self.__dict__["handle"]
        return found

    async def logs(
        self,
        index: int | None = None,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        lines: int | None = None,
    ) -> str:
        """What its task has written, as text, or its last `lines`. Of an array or gang say which task."""
        return await self.handle.logs(index, stream=stream, attempt=attempt, lines=lines)

    async def result(self) -> Any:
        """What its only task gave as its result, None if it gave none; raises as that of the handle."""
        return await self.handle.result()

    async def results(self, *, check: bool = True) -> list[Any]:
        """The result of each task, in order; raises as that of the handle."""
        return await self.handle.results(check=check)

    async def why(self) -> WhyReply:
        """Why it ended so, and what to do next."""
        return await self.handle.why()

    async def retry(self, *, cancelled: bool = False) -> AsyncJobHandle:
        """Run its failed tasks again, as a new job."""
        return await self.handle.retry(cancelled=cancelled)


def waited_job(view: JobView, handle: JobHandle) -> WaitedJob:
    """The view that a wait ended with, and the handle that was waited for."""
    made = WaitedJob(**structs.asdict(view))
    made.__dict__["handle"] = handle
    return made


def async_waited_job(view: JobView, handle: AsyncJobHandle) -> AsyncWaitedJob:
    """The same of an async client."""
    made = AsyncWaitedJob(**structs.asdict(view))
    made.__dict__["handle"] = handle
    return made
