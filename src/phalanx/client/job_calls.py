"""What handles on jobs ask of their client, which may be any client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.api.schema.jobs import CancelReply, JobView, Page, TaskView, WhyReply
from phalanx.api.schema.queries import Stream

if TYPE_CHECKING:
    from phalanx.client.job_handles import AsyncJobHandle, JobHandle


class JobCalls(Protocol):
    """What a handle asks of its client."""

    def job(self, id: str) -> JobView: ...

    def cancel(self, id: str) -> CancelReply: ...

    def wait(self, id: str, timeout: float | None = None, *, must_end: bool = True) -> JobView | TaskView: ...

    def why(self, id: str) -> WhyReply: ...

    def retry(self, job: str, *, cancelled: bool = False) -> JobHandle: ...

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

    async def wait(
        self,
        id: str,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        must_end: bool = True,
    ) -> JobView | TaskView: ...

    async def why(self, id: str) -> WhyReply: ...

    async def retry(self, job: str, *, cancelled: bool = False) -> AsyncJobHandle: ...

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
