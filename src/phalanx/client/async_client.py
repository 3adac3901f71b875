"""The client for programs that use asyncio. Its twin `client/client.py` has a sentence on each method.

`wait` takes a timeout of its own, unlike most of asyncio, because it gives the view as it then stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from inspect import isfunction
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from phalanx.api.schema.apply import DraftView, PlanReply, PlanRequest, TopologyView
from phalanx.api.schema.cluster import (
    AuditLine,
    ClusterView,
    NewToken,
    NodeView,
    RemovedNode,
    TokenRequest,
    TokenView,
    TopologyReply,
    TopologySpec,
)
from phalanx.api.schema.documents import read_problem
from phalanx.api.schema.files import FilesView
from phalanx.api.schema.jobs import (
    CancelReply,
    EvictReply,
    JobFilters,
    JobReason,
    JobView,
    NamedView,
    Page,
    StatusWord,
    StoryLine,
    TaskView,
    WatchEvent,
    WhyReply,
)
from phalanx.api.schema.queues import QueueView, QuotaSpec
from phalanx.api.schema.sse import EventReader
from phalanx.api.schema.submission import SubmitRequest
from phalanx.client import calls, file_calls, token_calls
from phalanx.client.access import ApiAccess, ClientToken, access
from phalanx.client.approvals import AsyncApprovalCalls
from phalanx.client.async_http import HttpxTransport
from phalanx.client.async_log_calls import AsyncLogCalls, pause
from phalanx.client.async_workflow_calls import AsyncWorkflowMethods
from phalanx.client.calls import Call, Noun, Spec
from phalanx.client.client import Client
from phalanx.client.file_calls import ArrivingFile
from phalanx.client.http import AsyncAnswer, AsyncTransport, read_whole
from phalanx.client.ids import AnyId, id_of
from phalanx.client.job_endings import check_ended
from phalanx.client.leader import PATIENCE_S, RetryDelays
from phalanx.client.logins import AsyncLoginCalls
from phalanx.client.overlay import AsyncOverlayCalls
from phalanx.client.sessions import AsyncSessionCalls
from phalanx.client.submissions import AsyncSubmitCalls
from phalanx.client.usage import AsyncUsageCalls
from phalanx.client.vps import AsyncVpsCalls
from phalanx.client.workflow_files import AsyncWorkflowFileCalls
from phalanx.errors import TooMany, Unauthorized, Unavailable
from phalanx.tls import NO_TLS, TlsFiles

T = TypeVar("T")
V = TypeVar("V")


def async_transport(found: ApiAccess, patience_s: float = PATIENCE_S) -> AsyncTransport:
    """What carries the calls. gRPC is loaded only if the address asks for it."""
    if found.is_grpc:
        from phalanx.client.rpc import GrpcTransport

        return GrpcTransport(found.addresses, found.tls_files, vouched=found.vouched, patience_s=patience_s)
    return HttpxTransport(found.addresses, found.tls, vouched=found.vouched, patience_s=patience_s)


class AsyncClient(
    AsyncSubmitCalls,
    AsyncWorkflowMethods,
    AsyncWorkflowFileCalls,
    AsyncApprovalCalls,
    AsyncUsageCalls,
    AsyncOverlayCalls,
    AsyncSessionCalls,
    AsyncVpsCalls,
    AsyncLogCalls,
    AsyncLoginCalls,
):
    """Talks to a cluster: that of `address` (or several), or the one that the settings name. Tasks may share it."""

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        tls_files: TlsFiles = NO_TLS,
        token_file: Path | None = None,
        exchange: AsyncTransport | None = None,
    ) -> None:
        """For https, `tls_files` names the cluster's ca.crt and what else is needed; the settings may do so, too.

        A token that came out of `token_file`, or of a file that the settings name, is read again when it is refused.
        """
        if exchange is None or token is None:
            found = access(address, token, tls_files)
            token, token_file = found.token, found.token_file
            exchange = exchange or async_transport(found)
        self._token = ClientToken(token, token_file)
        self._exchange = exchange

    async def close(self) -> None:
        await self._exchange.close()

    def _carrier(self) -> object:
        return self._exchange

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def cancel(self, id: AnyId) -> CancelReply:
        return await self._ask(calls.cancel(id))

    async def evict(self, id: AnyId) -> EvictReply:
        return await self._ask(calls.evict(id))

    async def pause(self, id: AnyId) -> TaskView:
        return await self._ask(calls.pause(id))

    async def resume(self, id: AnyId) -> TaskView:
        return await self._ask(calls.resume(id))

    async def jobs(
        self, *, cursor: str | None = None, limit: int = 100, **filters: Unpack[JobFilters]
    ) -> Page[JobView]:
        """Newest first, of those that fit all of `status`, `queue`, `name` (`exp*` for all that begin so), `user`,
        `mine` (your own), `since` (submitted then or later, in seconds since 1970), `until` (before that), `node`, and
        `selector` as for `phalanx ps -l`.
        """
        return await self._ask(calls.jobs(filters, cursor, limit))

    async def job(self, id: AnyId) -> JobView:
        return await self._ask(calls.job(id))

    async def task(self, id: AnyId) -> TaskView:
        return await self._ask(calls.task(id))

    async def tasks(
        self,
        job: AnyId,
        *,
        status: StatusWord | None = None,
        selector: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[TaskView]:
        return await self._ask(calls.tasks(job, status, selector, cursor, limit))

    async def draft(self, id: AnyId) -> DraftView:
        """A gang that waits for members; NotFound if it waits for none."""
        return await self._ask(calls.draft(id))

    async def named(self, name: str, *, own: bool = False) -> NamedView:
        """The id of what this number, name, `last` or namespace/name means; with `own` never another user's."""
        return await self._ask(calls.named(name, own=own))

    async def wait(
        self,
        id: AnyId,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        must_end: bool = True,
    ) -> JobView | TaskView:
        # Another job may be called so while we wait.
        asked = id if calls.is_lasting(id) else (await self.named(id_of(id))).id
        view = await self._waited(partial(calls.wait, asked), calls.has_ended, timeout)
        if must_end:
            check_ended(view)
        return view

    async def _waited(
        self, call: Callable[[float], Call[V]], has_ended: Callable[[V], bool], timeout_s: float | None
    ) -> V:
        """The view when it has ended, or when the time is over. A coordinator that goes away is waited for."""
        loop = asyncio.get_running_loop()
        until, patience = None if timeout_s is None else loop.time() + timeout_s, RetryDelays()
        while True:
            left_s = calls.WAIT_S if until is None else until - loop.time()
            try:
                view = await self._ask(call(min(max(0.0, left_s), calls.WAIT_S)))
            except Unavailable as error:
                patience.meet(error)
                await pause(patience, error)
                continue
            patience.renew()
            if has_ended(view) or left_s <= 0:
                return view

    async def why(self, id: AnyId) -> WhyReply:
        return await self._ask(calls.why(id))

    async def reasons(self, ids: Iterable[AnyId]) -> list[JobReason]:
        """Why each of these jobs waits, in its first reason; those that do not wait are left out. At most 100.

        In a cluster where that takes longer than half a second the last ones are left out, too.
        """
        return await self._ask(calls.reasons(ids))

    async def story(
        self, id: AnyId, *, of: Noun | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[StoryLine]:
        return await self._ask(calls.story(id, of, cursor, limit))

    async def nodes(self) -> list[NodeView]:
        return await self._ask(calls.nodes())

    async def node(self, name: str) -> NodeView:
        return await self._ask(calls.node(name))

    async def drain(self, name: str, reason: str = "", *, evict: bool = False) -> NodeView:
        """Place nothing more on a node; with `evict`, what runs there moves elsewhere, gangs as a whole."""
        return await self._ask(calls.drain(name, reason, evict=evict))

    async def undrain(self, name: str) -> NodeView:
        return await self._ask(calls.undrain(name))

    async def set_elastic(self, name: str, *, enabled: bool, reason: str = "") -> NodeView:
        """Disable an elastic node, so that it takes no work of any kind while what runs there goes on, or enable it."""
        return await self._ask(calls.set_elastic(name, enabled=enabled, reason=reason))

    async def lose(self, name: str, reason: str) -> NodeView:
        return await self._ask(calls.lose(name, reason))

    async def remove_node(self, name: str) -> RemovedNode:
        return await self._ask(calls.remove_node(name))

    async def queues(self) -> list[QueueView]:
        return await self._ask(calls.queues())

    async def queue(self, name: str) -> QueueView:
        return await self._ask(calls.queue(name))

    async def set_quota(self, name: str, quota: QuotaSpec | None) -> QueueView:
        return await self._ask(calls.set_quota(name, quota))

    async def set_topology(self, topology: TopologySpec | Mapping[str, Any]) -> TopologyReply:
        return await self._ask(calls.set_topology(topology))

    async def plan(self, request: PlanRequest | SubmitRequest | Spec | Sequence[Spec], /) -> PlanReply:
        """What the scheduler would do with work that nobody has submitted; `exit` is 0 now, 3 must wait, 4 never."""
        return await self._ask(calls.plan(request))

    async def topology(self) -> TopologyView:
        """The tree of the network, what is free in it, and who sits where."""
        return await self._ask(calls.topology())

    async def cluster(self) -> ClusterView:
        return await self._ask(calls.cluster())

    async def tokens(self) -> list[TokenView]:
        return await self._ask(token_calls.tokens())

    async def create_token(self, request: TokenRequest, /) -> NewToken:
        return await self._ask(token_calls.create_token(request))

    async def revoke_token(self, id: str) -> TokenView:
        return await self._ask(token_calls.revoke_token(id))

    async def rotate_token(self, id: str, overlap: float | str | None = None) -> NewToken:
        return await self._ask(token_calls.rotate_token(id, overlap))

    async def audit(self, tail: int = 100) -> list[AuditLine]:
        return await self._ask(token_calls.audit(tail))

    async def ready(self) -> None:
        await self._ask(calls.ready())

    async def result(self, id: AnyId) -> Any:
        return await self._ask(file_calls.result(id))

    async def files(self, id: AnyId, *, attempt: int | None = None) -> FilesView:
        return await self._ask(file_calls.files(id, attempt))

    async def file(self, id: AnyId, path: str, *, attempt: int | None = None) -> AsyncGenerator[bytes, None]:
        arriving, patience, is_whole = ArrivingFile(), RetryDelays(), False
        while not is_whole:
            try:
                async with aclosing(await self._opened(file_calls.file(id, path, attempt))) as answer:
                    arriving.begin(answer.headers)
                    async for piece in answer.pieces():
                        if new := arriving.advance(piece):
                            patience.renew()
                            yield new
                is_whole = True
            except Unavailable as error:
                if arriving.ends_there_again:
                    raise
                await pause(patience, error)
        arriving.check()

    async def watch(
        self, *, after: int | None = None, job: AnyId | None = None
    ) -> AsyncGenerator[WatchEvent, None]:
        feed, patience = EventReader(after), RetryDelays()
        while True:
            try:
                feed.restart()
                async with aclosing(await self._opened(calls.watch(feed.last, job))) as answer:
                    patience.renew()
                    async for piece in answer.pieces():
                        for event in feed.take(piece):
                            yield event
                raise Unavailable("the watch ended", reason="Dropped")
            except (Unavailable, TooMany) as error:
                await pause(patience, error)

    async def _ask(self, call: Call[T]) -> T:
        async with aclosing(await self._sent(call)) as answer:
            body = await read_whole(answer)
        try:
            return call.read(answer.status, answer.headers, body)
        except Unauthorized as error:
            raise self._token.blamed(error) from None

    async def _opened(self, call: Call[Any]) -> AsyncAnswer:
        answer = await self._sent(call)
        if answer.status < 400:
            return answer
        async with aclosing(answer):
            body = await read_whole(answer)
        raise self._token.blamed(read_problem(answer.status, body, answer.headers.get("retry-after")))

    async def _sent(self, call: Call[Any]) -> AsyncAnswer:
        shown = self._token.value
        answer = await self._exchange.send(call, shown)
        if answer.status != 401 or not self._token.is_replaced(shown):
            return answer
        await answer.aclose()
        return await self._exchange.send(call, self._token.value)


def share_docstrings(source: type, target: type) -> None:
    """Give each public method of `target` that says nothing of itself the sentence of its twin in `source`."""
    for each in target.__mro__:
        for name, method in vars(each).items():
            if not name.startswith("_") and isfunction(method) and method.__doc__ is None:
                method.__doc__ = getattr(getattr(source, name, None), "__doc__", None)


share_docstrings(Client, AsyncClient)
