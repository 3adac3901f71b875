"""What the REST app may ask of a coordinator, and the audit it writes. The coordinator implements both.

Every method raises an error of `phalanx.errors` when the answer is no. An id may be a unique prefix. A method that
changes something returns only when it is durable. The audit never has a token or the body of a request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

from msgspec import Raw

from phalanx.api.schema.apply import (
    ApplyReply,
    ApplyRequest,
    DraftView,
    TopologyView,
)
from phalanx.api.schema.calls import (
    CallsReply,
    CallsRequest,
    GiveReply,
    GiveRequest,
    ResultsQuery,
    ResultsReply,
    TakeReply,
    TakeRequest,
)
from phalanx.api.schema.changes import HoldRequest, UpdateRequest
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
from phalanx.api.schema.files import FilesView, FileView
from phalanx.api.schema.jobs import (
    CancelReply,
    EvictReply,
    JobReason,
    JobView,
    Page,
    StatusWord,
    StoryLine,
    TaskView,
    WatchEvent,
    WhyReply,
)
from phalanx.api.schema.metrics import MetricsReport
from phalanx.api.schema.overlay import AddressesView, NewReservation, ReservationView, ReserveRequest
from phalanx.api.schema.queries import JobsQuery
from phalanx.api.schema.queues import QueueView, QuotaSpec
from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, InputRequest, SessionTicket
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.usage import ReportQuery, ReportReply, UsageReply
from phalanx.api.schema.vps import NewVps, SnapshotView, StoppedVps, VpsRequest, VpsView
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowView,
)
from phalanx.api.server.approval_commands import ApprovalCommands
from phalanx.api.server.auth import Identity
from phalanx.api.server.file_commands import FileCommands
from phalanx.api.server.log_commands import LogCommands
from phalanx.api.server.login_commands import LoginCommands
from phalanx.api.server.page_commands import PageCommands
from phalanx.api.server.sweep_commands import SweepCommands
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.duplex import Duplex

LINES_MAX = 10_000


class Commands(
    SweepCommands, ApprovalCommands, LogCommands, LoginCommands, PageCommands, FileCommands, Protocol
):
    async def submit(self, request: SubmitRequest, user: str, role: str = "user") -> SubmitReply:
        """`role` is the user's: a queue may ask for it, and it limits the priority."""
        ...

    async def apply(self, request: ApplyRequest, user: str, role: str = "user") -> ApplyReply:
        """Everything of the request, or nothing: a refusal names what it is about."""
        ...

    async def cancel(self, id: str, user: str = "") -> CancelReply:
        """Cancel a job (all its tasks) or one task. Conflict if it has ended."""
        ...

    async def evict(self, id: str, user: str) -> EvictReply:
        """Take the places of a job's tasks, or of one task. Conflict if it holds none."""
        ...

    async def pause(self, id: str) -> TaskView: ...

    async def resume(self, id: str) -> TaskView:
        """Let a paused task go on. Conflict `Held` if it is not paused and its job is held back."""
        ...

    async def hold(self, id: str, request: HoldRequest, user: str, *, is_operator: bool = False) -> JobView:
        """Place nothing more of a job until it is released. Conflict if nothing of it waits."""
        ...

    async def release(self, id: str, user: str, *, is_operator: bool) -> JobView:
        """End a hold. Forbidden if another user holds it and this one is no operator."""
        ...

    async def update(self, id: str, request: UpdateRequest, user: str, role: str) -> JobView:
        """Give a job other settings."""
        ...

    async def jobs(self, query: JobsQuery, user: str) -> Page[JobView]:
        """Newest first."""
        ...

    async def job(self, id: str, asker: Asker = ADMIN) -> JobView: ...

    async def named(
        self, name: str, user: str, *, of_all: bool, kind: Literal["job", "workflow"] = "job"
    ) -> str:
        """The id of a job, task, workflow or stage that a user names: all others take ids only.

        He may give a number, `last`, a name of his own, or `namespace/name` of Kubernetes; what is none of these is
        returned as it is. With `of_all`, where he has none: another user's. Conflict if several fit.
        """
        ...

    def namesakes(self, name: str, id: str) -> tuple[int, list[int]]: ...

    def in_numbers(self, text: str) -> str:
        """A sentence for people, with the ids in it as numbers."""
        ...

    async def draft(self, id: str) -> DraftView:
        """Of a gang that waits for members. NotFound if it waits for none."""
        ...

    async def owner(self, id: str, *, kind: Literal["job", "workflow"] = "job") -> tuple[str, str]:
        """Of a job, a task or a workflow: the whole id of the job or workflow, and its user."""
        ...

    async def is_of_same_workflow(self, job: str, other: str) -> bool:
        """Whether a job is a stage of a workflow, and `other` another stage of it or the workflow itself."""
        ...

    async def task(self, id: str) -> TaskView: ...

    async def tasks(
        self,
        job: str,
        *,
        status: StatusWord | None,
        selector: str | None = None,
        cursor: str | None,
        limit: int,
    ) -> Page[TaskView]: ...

    async def wait(self, id: str, timeout_s: float) -> JobView | TaskView:
        """Return when it has ended or when the time is over, whichever is first, as it then stands."""
        ...

    async def why(self, id: str, asker: Asker = ADMIN, *, of_waiting: bool = False) -> WhyReply: ...

    async def reasons(self, ids: Sequence[str]) -> list[JobReason]:
        """Why each of these jobs waits; those that do not are left out, and the last ones if it takes too long."""
        ...

    async def story(
        self, id: str, *, cursor: str | None, limit: int, inspects: bool = False
    ) -> Page[StoryLine]:
        """Of a job, a task or a node; with why stages of a workflow ended if the asker may see their results."""
        ...

    async def nodes(self) -> list[NodeView]: ...

    async def node(self, name: str) -> NodeView: ...

    async def drain(self, name: str, reason: str, *, evict: bool = False) -> NodeView: ...

    async def undrain(self, name: str) -> NodeView: ...

    async def set_elastic(self, name: str, enabled: bool, reason: str, user: str) -> NodeView:
        """Disable an elastic node, or enable it."""
        ...

    async def lose(self, name: str, reason: str, user: str) -> NodeView:
        """Declare a silent node lost."""
        ...

    async def remove_node(self, name: str, user: str) -> RemovedNode: ...

    async def reserve_address(self, node: str, request: ReserveRequest, user: str) -> NewReservation: ...

    async def reservations(self) -> list[ReservationView]:
        """Everybody's; who may see them is asked before."""
        ...

    async def release_reservation(self, id: str, user: str, is_operator: bool) -> ReservationView:
        """NotFound unless it is the user's, or he is an operator, and no task has used it."""
        ...

    async def addresses(self, limit: int) -> list[AddressesView]: ...

    async def node_addresses(self, name: str, limit: int) -> AddressesView: ...

    async def create_vps(self, request: VpsRequest, user: str, role: str) -> NewVps:
        """Its private key, if one was made, is in this answer alone."""
        ...

    async def list_vps(self, user: str | None, *, ended: bool) -> list[VpsView]:
        """Those of a user, or everybody's."""
        ...

    async def vps(self, id: str) -> VpsView: ...

    async def stop_vps(self, id: str) -> StoppedVps: ...

    async def restart_vps(self, id: str, user: str) -> VpsView: ...

    async def vps_snapshots(self, id: str) -> list[SnapshotView]: ...

    async def snapshot_vps(self, id: str, name: str) -> SnapshotView: ...

    async def restore_vps(self, id: str, name: str, user: str) -> VpsView: ...

    async def remove_snapshot(self, id: str, name: str) -> list[SnapshotView]: ...

    async def queues(self) -> list[QueueView]: ...

    async def queue(self, name: str) -> QueueView: ...

    async def set_quota(self, name: str, quota: QuotaSpec | None, user: str) -> QueueView:
        """Declare a queue and what it may hold; None forgets it."""
        ...

    async def set_topology(self, topology: TopologySpec, user: str) -> TopologyReply: ...

    async def submit_workflow(
        self, request: WorkflowRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        """All stages of it, or nothing: a refusal names the stage."""
        ...

    async def workflows(self, *, cursor: str | None, limit: int) -> Page[WorkflowView]:
        """Newest first, without their stages."""
        ...

    async def workflow(self, id: str) -> WorkflowView: ...

    async def wait_workflow(self, id: str, timeout_s: float) -> WorkflowView:
        """Return when it has ended or when the time is over, whichever is first, as it then stands."""
        ...

    async def cancel_workflow(self, id: str, user: str = "") -> CancelReply:
        """Cancel every stage that has not ended. Conflict if all have."""
        ...

    async def retry_workflow(self, id: str, request: RetryRequest, role: str = "user") -> RetryReply:
        """Run stages again. Conflict if the workflow has not ended."""
        ...

    async def topology(self) -> TopologyView: ...

    async def cluster(self) -> ClusterView: ...

    def watch(self, *, after: int | None, job: str | None) -> AsyncIterator[WatchEvent]:
        """Everything after revision `after` (None: from now on). Gone if that is no longer kept."""
        ...

    async def result(self, id: str) -> Raw:
        """The result of a task as JSON, verified if it was large. NotFound if it has given none."""
        ...

    async def usage(self, id: str, *, points: int, cursor: str | None, limit: int) -> UsageReply:
        """What a job or task uses, or used; of what runs, its runner is asked."""
        ...

    async def report(self, query: ReportQuery) -> ReportReply:
        """Sums over all jobs that are kept. Whose a user may see is decided before."""
        ...

    async def files(self, id: str, *, attempt: int | None) -> FilesView:
        """The artifacts of a task."""
        ...

    async def file(self, id: str, path: str, *, attempt: int | None) -> tuple[FileView, AsyncIterator[bytes]]:
        """One of them, and its bytes, which end with an error if they are not what the task wrote."""
        ...

    async def open_exec(self, id: str, request: ExecRequest, user: str) -> SessionTicket:
        """A ticket for a command beside a running task. Conflict if it does not run."""
        ...

    async def open_forward(self, id: str, request: ForwardRequest, user: str) -> SessionTicket:
        """A ticket for a connection to a port of a running task."""
        ...

    async def open_input(self, id: str, request: InputRequest, user: str) -> SessionTicket:
        """A ticket for the standard input of a running attempt. Conflict if it does not run, or has none."""
        ...

    async def join_session(self, id: str, ticket: str, user: str) -> Duplex:
        """The runner's connection of the session that a ticket is for, which is used up by this."""
        ...

    async def post_calls(self, user: str, name: str, request: CallsRequest) -> CallsReply:
        """Calls for the workers of a user's executor, which are not durable: its client sends them again."""
        ...

    async def call_results(self, user: str, name: str, query: ResultsQuery) -> ResultsReply:
        """Results of such calls, as soon as there are some."""
        ...

    async def close_calls(self, user: str, name: str) -> CallsReply:
        """Let the workers of a user's executor end."""
        ...

    async def take_calls(self, job: str, request: TakeRequest) -> TakeReply:
        """Calls for a worker of a job, as soon as there are some."""
        ...

    async def give_results(self, job: str, request: GiveRequest) -> GiveReply: ...

    async def tokens(self, user: str | None = None) -> list[TokenView]:
        """Every token that was created, newest first, or those of one user. Who may see which is decided before."""
        ...

    async def token(self, id: str) -> TokenView | None: ...

    async def create_token(self, request: TokenRequest, span_s: float | None, by: Identity) -> NewToken: ...

    async def revoke_token(self, id: str, by: Identity) -> TokenView: ...

    async def rotate_token(self, id: str, overlap_s: float, by: Identity) -> NewToken: ...

    async def metrics(self) -> bytes:
        """In the Prometheus text format."""
        ...

    async def metrics_report(self) -> MetricsReport: ...

    def count_request(self, route: str, status: int) -> None:
        """A request was answered so; `route` is the noun of a path in the route table, or `none`."""
        ...

    async def ready(self) -> None:
        """Exercise the real path (mailbox and store); raise Unavailable if it does not answer. A standby follows."""
        ...

    async def lead(self) -> int:
        """The epoch, if this one is active and its lease holds; else raise NotActive, which names who is."""
        ...

    async def catch_up(self) -> bool:
        """A standby reads the log to its end. False for the active one, which has nothing to read."""
        ...

    def behind_s(self) -> float:
        """How old this coordinator's state may be, in seconds: 0 for the active one."""
        ...

    def require_active(self) -> None:
        """Raise NotActive unless this coordinator accepts changes."""
        ...

    async def require_leader(self) -> None:
        """Raise NotActive if another may lead, which one that was paused cannot know by itself."""
        ...


class Audit(Protocol):
    """Takes lines, and gives the newest back."""

    def note(self, line: AuditLine) -> None: ...

    def tail(self, count: int) -> list[AuditLine]: ...


class NoAudit:
    """For a cluster inside one process, which has one user."""

    def note(self, line: AuditLine) -> None:
        """Nobody else was there."""

    def tail(self, count: int) -> list[AuditLine]:
        return []


NO_AUDIT = NoAudit()
