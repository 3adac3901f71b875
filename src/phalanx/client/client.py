"""The client for programs that wait: every call of the API as a method. `client/async_client.py` is its async twin.

Errors are those of `phalanx.errors`. How calls travel is left to an exchange.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
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
from phalanx.client.access import ClientToken, access, transport
from phalanx.client.approvals import ApprovalCalls
from phalanx.client.calls import Call, Noun, Spec
from phalanx.client.executor_access import WorkerReach
from phalanx.client.file_calls import ArrivingFile
from phalanx.client.http import Answer, Transport
from phalanx.client.ids import AnyId, id_of
from phalanx.client.job_endings import check_ended
from phalanx.client.leader import RetryDelays, addresses_of
from phalanx.client.log_calls import LogCalls
from phalanx.client.logins import LoginCalls
from phalanx.client.overlay import OverlayCalls
from phalanx.client.session_calls import SessionAccess, SessionCalls, reach_of
from phalanx.client.submissions import SubmitCalls
from phalanx.client.usage import UsageCalls
from phalanx.client.vps import VpsCalls
from phalanx.client.workflow_files import WorkflowFileCalls
from phalanx.clock import SystemClock
from phalanx.errors import TooMany, Unauthorized, Unavailable
from phalanx.tls import NO_TLS, TlsFiles

T = TypeVar("T")
V = TypeVar("V")


class Client(
    SubmitCalls,
    WorkflowFileCalls,
    ApprovalCalls,
    UsageCalls,
    OverlayCalls,
    SessionCalls,
    VpsCalls,
    LogCalls,
    LoginCalls,
):
    """Talks to a cluster: that of `address` (or several), or the one that the settings name. Threads may share it."""

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        tls_files: TlsFiles = NO_TLS,
        token_file: Path | None = None,
        exchange: Transport | None = None,
    ) -> None:
        """For https, `tls_files` names the cluster's ca.crt and what else is needed; the settings may do so, too.

        A token that came out of `token_file`, or of a file that the settings name, is read again when it is refused.
        """
        self._reach = WorkerReach(() if address is None else addresses_of(address), tls_files)
        if exchange is None or token is None:
            found = access(address, token, tls_files)
            self._reach = WorkerReach(found.addresses, found.tls_files)
            token, token_file = found.token, found.token_file
            exchange = exchange or transport(found)
        self._token = ClientToken(token, token_file)
        self._exchange = exchange
        self._clock = SystemClock()
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._reach.addresses)})"

    def _carrier(self) -> object:
        return self._exchange

    def close(self) -> None:
        """End open streams and close the connections. A `with` block does this at its end."""
        self._closed.set()
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cancel(self, id: AnyId) -> CancelReply:
        """Cancel a job, or one task of an array."""
        return self._ask(calls.cancel(id))

    def evict(self, id: AnyId) -> EvictReply:
        """Take the places of a job's tasks, or of one task. What follows is up to its restart policy."""
        return self._ask(calls.evict(id))

    def pause(self, id: AnyId) -> TaskView:
        """Stop the processes of a running task. It keeps its node and everything it was granted."""
        return self._ask(calls.pause(id))

    def resume(self, id: AnyId) -> TaskView:
        """Let the processes of a paused task run again."""
        return self._ask(calls.resume(id))

    def jobs(
        self, *, cursor: str | None = None, limit: int = 100, **filters: Unpack[JobFilters]
    ) -> Page[JobView]:
        """Newest first, of those that fit all of `status`, `queue`, `name` (`exp*` for all that begin so), `user`,
        `mine` (your own), `since` (submitted then or later, in seconds since 1970), `until` (before that), `node`, and
        `selector` as for `phalanx ps -l`.
        """
        return self._ask(calls.jobs(filters, cursor, limit))

    def job(self, id: AnyId) -> JobView:
        """One job, by its number, its id or the beginning of it, its name, `last`, or its `namespace/name`."""
        return self._ask(calls.job(id))

    def task(self, id: AnyId) -> TaskView:
        """One task: `JOB.INDEX` of an array or a gang, or the id of a job of one task."""
        return self._ask(calls.task(id))

    def tasks(
        self,
        job: AnyId,
        *,
        status: StatusWord | None = None,
        selector: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[TaskView]:
        """The tasks of a job, in order; `next_cursor` of a page leads to the next one."""
        return self._ask(calls.tasks(job, status, selector, cursor, limit))

    def draft(self, id: AnyId) -> DraftView:
        """A gang that waits for members; NotFound if it waits for none."""
        return self._ask(calls.draft(id))

    def named(self, name: str, *, own: bool = False) -> NamedView:
        """The id of what this number, name, `last` or namespace/name means; with `own` never another user's."""
        return self._ask(calls.named(name, own=own))

    def wait(self, id: AnyId, timeout: float | None = None, *, must_end: bool = True) -> JobView | TaskView:
        """Return when it has ended, as it ended: look at its status. TimeoutError if that takes more than `timeout` s.

        With `must_end=False` it is returned as it stands when the time is over. A coordinator that goes away meanwhile
        is waited for: one that was restarted knows the answer too.
        """
        # Another job may be called so while we wait.
        asked = id if calls.is_lasting(id) else self.named(id_of(id)).id
        view = self._waited(partial(calls.wait, asked), calls.has_ended, timeout)
        if must_end:
            check_ended(view)
        return view

    def _waited(
        self, call: Callable[[float], Call[V]], has_ended: Callable[[V], bool], timeout_s: float | None
    ) -> V:
        """The view when it has ended, or when the time is over."""
        until, patience = None if timeout_s is None else self._clock.monotonic() + timeout_s, RetryDelays()
        while True:
            left_s = calls.WAIT_S if until is None else until - self._clock.monotonic()
            try:
                view = self._ask(call(min(max(0.0, left_s), calls.WAIT_S)))
            except Unavailable as error:
                patience.meet(error)
                self._pause(patience, error)
                continue
            patience.renew()
            if has_ended(view) or left_s <= 0:
                return view

    def why(self, id: AnyId) -> WhyReply:
        """Why a job or a task is where it is, and the nearest fix."""
        return self._ask(calls.why(id))

    def reasons(self, ids: Iterable[AnyId]) -> list[JobReason]:
        """Why each of these jobs waits, in its first reason; those that do not wait are left out. At most 100.

        In a cluster where that takes longer than half a second the last ones are left out, too.
        """
        return self._ask(calls.reasons(ids))

    def story(
        self, id: AnyId, *, of: Noun | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[StoryLine]:
        """All that happened to a job or a task, or to a node with `of="nodes"`."""
        return self._ask(calls.story(id, of, cursor, limit))

    def nodes(self) -> list[NodeView]:
        """Every node: its hardware, what is free, and its status."""
        return self._ask(calls.nodes())

    def node(self, name: str) -> NodeView:
        """One node, with the task on each device."""
        return self._ask(calls.node(name))

    def drain(self, name: str, reason: str = "", *, evict: bool = False) -> NodeView:
        """Place nothing more on a node; with `evict`, what runs there moves elsewhere, gangs as a whole."""
        return self._ask(calls.drain(name, reason, evict=evict))

    def undrain(self, name: str) -> NodeView:
        """Place tasks on a drained node again; this also ends a temporary exclusion."""
        return self._ask(calls.undrain(name))

    def set_elastic(self, name: str, *, enabled: bool, reason: str = "") -> NodeView:
        """Disable an elastic node, so that it takes no work of any kind while what runs there goes on, or enable it."""
        return self._ask(calls.set_elastic(name, enabled=enabled, reason=reason))

    def lose(self, name: str, reason: str) -> NodeView:
        """Declare an unreachable node lost, so that its tasks are placed elsewhere."""
        return self._ask(calls.lose(name, reason))

    def remove_node(self, name: str) -> RemovedNode:
        """Forget a node that is gone and holds nothing."""
        return self._ask(calls.remove_node(name))

    def queues(self) -> list[QueueView]:
        """Every queue: its quota, what its jobs hold, and how many wait."""
        return self._ask(calls.queues())

    def queue(self, name: str) -> QueueView:
        """One queue."""
        return self._ask(calls.queue(name))

    def set_quota(self, name: str, quota: QuotaSpec | None) -> QueueView:
        """Limit what tasks of a queue may hold together; None lifts the limits."""
        return self._ask(calls.set_quota(name, quota))

    def set_topology(self, topology: TopologySpec | Mapping[str, Any]) -> TopologyReply:
        """Declare the layers of the network, the outermost first."""
        return self._ask(calls.set_topology(topology))

    def plan(self, request: PlanRequest | SubmitRequest | Spec | Sequence[Spec], /) -> PlanReply:
        """What the scheduler would do with work that nobody has submitted; `exit` is 0 now, 3 must wait, 4 never."""
        return self._ask(calls.plan(request))

    def topology(self) -> TopologyView:
        """The tree of the network, what is free in it, and who sits where."""
        return self._ask(calls.topology())

    def cluster(self) -> ClusterView:
        """The cluster in one line: version, coordinators, nodes, tasks."""
        return self._ask(calls.cluster())

    def tokens(self) -> list[TokenView]:
        """The tokens that were created: one's own, or for an admin all."""
        return self._ask(token_calls.tokens())

    def create_token(self, request: TokenRequest, /) -> NewToken:
        """A new token; this answer is the only one that ever holds it."""
        return self._ask(token_calls.create_token(request))

    def revoke_token(self, id: str) -> TokenView:
        """End a token now."""
        return self._ask(token_calls.revoke_token(id))

    def rotate_token(self, id: str, overlap: float | str | None = None) -> NewToken:
        """Another token in the place of one, which stays good for `overlap`, or for an hour."""
        return self._ask(token_calls.rotate_token(id, overlap))

    def audit(self, tail: int = 100) -> list[AuditLine]:
        """Who did what: the newest lines."""
        return self._ask(token_calls.audit(tail))

    def ready(self) -> None:
        """Return if the coordinator can serve; raise Unavailable if not."""
        self._ask(calls.ready())

    def result(self, id: AnyId) -> Any:
        """What a task gave as its result, however large; raises NotFound if it gave none."""
        return self._ask(file_calls.result(id))

    def files(self, id: AnyId, *, attempt: int | None = None) -> FilesView:
        """The artifacts of a task: of its newest attempt, or of another one."""
        return self._ask(file_calls.files(id, attempt))

    def file(self, id: AnyId, path: str, *, attempt: int | None = None) -> Iterator[bytes]:
        """The bytes of an artifact, in pieces. They end with Unavailable if they are not what the task wrote.

        A cut connection is taken up again where it broke.
        """
        arriving, patience, is_whole = ArrivingFile(), RetryDelays(), False
        while not is_whole:
            try:
                with closing(self._opened(file_calls.file(id, path, attempt))) as answer:
                    arriving.begin(answer.headers)
                    for piece in answer.pieces():
                        if new := arriving.advance(piece):
                            patience.renew()
                            yield new
                is_whole = True
            except Unavailable as error:
                if arriving.ends_there_again:
                    raise
                self._pause(patience, error)
        arriving.check()

    def watch(self, *, after: int | None = None, job: AnyId | None = None) -> Iterator[WatchEvent]:
        """What happens, as it happens, without end. A cut connection is taken up again without a gap."""
        feed, patience = EventReader(after), RetryDelays()
        while True:
            try:
                feed.restart()
                with closing(self._opened(calls.watch(feed.last, job))) as answer:
                    patience.renew()
                    for piece in answer.pieces():
                        yield from feed.take(piece)
                raise Unavailable("the watch ended", reason="Dropped")
            except (Unavailable, TooMany) as error:
                self._pause(patience, error)

    def _worker_access(self) -> dict[str, str]:
        """The variables by which workers of an `Executor` find the coordinators: as this client does, over REST."""
        return self._reach.variables(lambda: self.cluster().coordinator)

    def session_access(self) -> SessionAccess:
        """Where a session is opened, and as whom; for programs that open it themselves."""
        return reach_of(self._exchange, self._token.value)

    def _ask(self, call: Call[T]) -> T:
        with closing(self._sent(call)) as answer:
            body = b"".join(answer.pieces())
        try:
            return call.read(answer.status, answer.headers, body)
        except Unauthorized as error:
            raise self._token.blamed(error) from None

    def _opened(self, call: Call[Any]) -> Answer:
        answer = self._sent(call)
        if answer.status < 400:
            return answer
        with closing(answer):
            body = b"".join(answer.pieces())
        raise self._token.blamed(read_problem(answer.status, body, answer.headers.get("retry-after")))

    def _sent(self, call: Call[Any]) -> Answer:
        """The answer; if the token was refused and there is another by now, the answer to that one."""
        shown = self._token.value
        answer = self._exchange.send(call, shown)
        if answer.status != 401 or not self._token.is_replaced(shown):
            return answer
        answer.close()
        return self._exchange.send(call, self._token.value)

    def _pause(self, patience: RetryDelays, error: Unavailable | TooMany) -> None:
        """Return when it is time to try again; closing the client ends the pause, and the trying."""
        pause_s = patience.next(error)
        if pause_s is None or self._closed.wait(pause_s):
            raise error
