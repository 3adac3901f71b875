"""Fake of the coordinator's commands: jobs are stored, ended by the test, and watched; nothing runs."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from msgspec import Raw

from phalanx.api.schema.apply import (
    AppliedJob,
    ApplyReply,
    ApplyRequest,
    DraftView,
    LayerView,
    PlanFilesRequest,
    PlanReply,
    PlanRequest,
    TopologyView,
)
from phalanx.api.schema.approvals import ApprovalReply
from phalanx.api.schema.changes import HoldRequest, UpdateRequest
from phalanx.api.schema.cluster import (
    ClusterView,
    NewToken,
    NodeView,
    RemovedNode,
    TokenRequest,
    TokenView,
    TopologyReply,
    TopologySpec,
    to_topology,
)
from phalanx.api.schema.files import FilesView, FileView
from phalanx.api.schema.jobs import (
    CancelReply,
    Counts,
    EnvironmentView,
    EvictReply,
    JobReason,
    JobView,
    LogChunk,
    Page,
    ReasonView,
    RequestView,
    StatusWord,
    StoryLine,
    TaskView,
    WatchEvent,
    WhyReply,
)
from phalanx.api.schema.jobspec import to_job
from phalanx.api.schema.log_times import LogTimesView
from phalanx.api.schema.metrics import (
    MetricsCounters,
    MetricsReport,
    WorkersMetrics,
    WorkerTotals,
)
from phalanx.api.schema.queries import JobsQuery, Stream
from phalanx.api.schema.queues import QueueView, QuotaSpec, QuotaView, UsageView, to_quota
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest, to_jobs
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece, RowsTaken
from phalanx.api.server.auth import Identity
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Job, ulid
from phalanx.core.model.queues import Quota
from phalanx.core.model.topology import DEFAULT
from phalanx.errors import BadRequest, Conflict, Gone, NotActive, NotFound
from tests.support.fake_calls import FakeCalls
from tests.support.fake_logins import FakeLogins
from tests.support.fake_overlay import FakeOverlay
from tests.support.fake_pages import FakePages
from tests.support.fake_sessions import FakeSessions
from tests.support.fake_usage import FakeUsage
from tests.support.fake_vps import FakeVps
from tests.support.fake_workflows import FakeWorkflows


class FakeCommands(
    FakeLogins, FakeSessions, FakeCalls, FakeOverlay, FakeUsage, FakeVps, FakeWorkflows, FakePages
):
    """Implements `Commands`. With `endless` false, watches and waits end at once with what is known."""

    def __init__(self, *, endless: bool = True) -> None:
        super().__init__()
        self.endless = endless
        self.held: dict[str, Job] = {}
        self.status: dict[str, StatusWord] = {}
        self.paused: set[str] = set()
        self.quotas: dict[str, Quota | None] = {"default": None}
        self.layers = DEFAULT
        self.planned: list[PlanRequest] = []
        self.answered: dict[str, SubmitReply] = {}
        self.drained: dict[str, str] = {"n1": "", "n2": ""}
        self.output: dict[str, bytes] = {}
        self.events: list[WatchEvent] = []
        self.compacted = 0
        self.open_streams = 0
        self.changed = asyncio.Condition()
        self.closed = asyncio.Event()  # set whenever the last open stream ends
        self.waits: asyncio.Queue[str] = asyncio.Queue()  # each id somebody began to wait for
        self.leaves: asyncio.Queue[str] = asyncio.Queue()  # and no longer does
        self.failure: Exception | None = None
        self.granted: dict[str, TokenView] = {}
        self.standby: NotActive | None = None  # what a standby answers to requests
        self.behind = 0.0
        self.counted: Counter[tuple[str, int]] = Counter()  # requests, by noun and status
        self._ids = itertools.count(1)

    async def submit(self, request: SubmitRequest, user: str, role: str = "user") -> SubmitReply:
        if request.request_id in self.answered:
            reply = self.answered[request.request_id]
            return SubmitReply(reply.task_ids, reply.batch_id, reply.accepted, replayed=True)
        jobs, failed = to_jobs(request, new_id=self._new_id, now=1.0, user=user, default_retries=3)
        if not jobs:
            raise BadRequest("every target was refused", extra={"failed_targets": failed})
        for _, job in jobs:
            self.held[job.id], self.status[job.id] = job, "Pending"
            self.record("JobSubmitted", job.id)
        accepted = [AcceptedTask(job.id, job.tasks, text) for text, job in jobs]
        reply = SubmitReply([job.id for _, job in jobs], jobs[0][1].id, accepted, failed)
        if request.request_id is not None:
            self.answered[request.request_id] = reply
        return reply

    async def take_rows(self, piece: RowsPiece, user: str) -> RowsTaken:
        return RowsTaken(piece.upload, piece.piece + 1, len(piece.rows), 60.0)

    async def retry(self, id: str, request: RetryTasksRequest, user: str, role: str = "user") -> SubmitReply:
        return SubmitReply([id], id, [AcceptedTask(id)])

    async def resubmit(self, id: str, request: ResubmitRequest, user: str, role: str = "user") -> SubmitReply:
        return SubmitReply([id], id, [AcceptedTask(id)])

    async def apply(self, request: ApplyRequest, user: str, role: str = "user") -> ApplyReply:
        made = [
            to_job(spec, id=self._new_id(), now=1.0, user=user, default_retries=3) for spec in request.specs
        ]
        for job in made:
            self.held[job.id], self.status[job.id] = job, "Pending"
        if request.topology is not None:
            await self.set_topology(request.topology, user)
        for queue, quota in request.quotas.items():
            await self.set_quota(queue, quota, user)
        return ApplyReply([AppliedJob(job.id, job.name, job.tasks) for job in made])

    async def evict(self, id: str, user: str) -> EvictReply:
        return EvictReply(self._find(id).id, 1)

    async def approve(
        self, id: str, user: str, role: str, *, approves: bool = True, text: str = ""
    ) -> ApprovalReply:
        return ApprovalReply(id, approves, user)

    async def queues(self) -> list[QueueView]:
        return [await self.queue(name) for name in self.quotas]

    async def queue(self, name: str) -> QueueView:
        quota = self.quotas.get(name)
        limits = (
            None if quota is None else QuotaView(quota.tasks, quota.cores, quota.memory_bytes, quota.gpus)
        )
        return QueueView(name, limits, UsageView(0, 0, 0, 0), 0)

    async def set_quota(self, name: str, quota: QuotaSpec | None, user: str) -> QueueView:
        self.quotas[name] = None if quota is None else to_quota(quota)
        return await self.queue(name)

    async def set_topology(self, topology: TopologySpec, user: str) -> TopologyReply:
        self.layers = to_topology(topology)
        return TopologyReply(self.layers.names(), True)

    async def plan(
        self, request: PlanRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        self.planned.append(request)
        return PlanReply([], [], [], 0)

    async def plan_files(
        self, request: PlanFilesRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        return PlanReply([], [], [], 0)

    async def topology(self) -> TopologyView:
        layers = [LayerView(each.name, list(each.keys)) for each in self.layers.layers]
        return TopologyView(self.layers.cluster, layers, self.layers.node, [], [])

    async def cancel(self, id: str, user: str = "") -> CancelReply:
        job = self._find(id)
        if self.status[job.id] in ("Completed", "Cancelled"):
            raise Conflict(f"{id} has ended")
        await self.end(job.id, "Cancelled")
        return CancelReply(id, job.tasks, 0)

    async def pause(self, id: str) -> TaskView:
        job = self._find(id)
        if job.id in self.paused:
            raise Conflict(f"{id} is paused already")
        self.paused.add(job.id)
        return self._task_view(job)

    async def resume(self, id: str) -> TaskView:
        job = self._find(id)
        self.paused.discard(job.id)
        return self._task_view(job)

    async def hold(self, id: str, request: HoldRequest, user: str, *, is_operator: bool = False) -> JobView:
        return self._job_view(self._find(id))

    async def release(self, id: str, user: str, *, is_operator: bool) -> JobView:
        return self._job_view(self._find(id))

    async def update(self, id: str, request: UpdateRequest, user: str, role: str) -> JobView:
        return self._job_view(self._find(id))

    async def jobs(self, query: JobsQuery, user: str) -> Page[JobView]:
        if self.failure is not None:
            raise self.failure
        found = [
            job
            for job in reversed(self.held.values())
            if query.status in (None, self.status[job.id])
            and query.queue in (None, job.queue)
            and query.name in (None, job.name)
            and (user if query.mine else query.user) in (None, job.user)
            and (query.cursor is None or job.id < query.cursor)
        ]
        more = found[query.limit - 1].id if len(found) > query.limit else None
        return Page([self._job_view(job) for job in found[: query.limit]], more)

    async def job(self, id: str, asker: Asker = ADMIN) -> JobView:
        return self._job_view(self._find(id))

    async def named(self, name: str, user: str, *, of_all: bool, kind: str = "job") -> str:
        for job in self.held.values():
            if name in job.whole_objects and (of_all or job.user == user):
                return job.id
        return self._find(name).id if "/" in name else name

    def namesakes(self, name: str, id: str) -> tuple[int, list[int]]:
        return 0, []

    def in_numbers(self, text: str) -> str:
        return text

    async def environment(self, id: str) -> EnvironmentView:
        return EnvironmentView({}, self._find(id).groups[0].command.env)

    async def draft(self, id: str) -> DraftView:
        return DraftView(self._find(id).id, 0, "it lacks members", "")

    async def is_of_same_workflow(self, job: str, other: str) -> bool:
        return False

    async def owner(self, id: str, *, kind: str = "job") -> tuple[str, str]:
        if id in self.flows:
            return id, self.flows[id].user
        job = self._find(id)
        return job.id, job.user

    async def tokens(self, user: str | None = None) -> list[TokenView]:
        return [each for each in self.granted.values() if user in (None, each.name)]

    async def token(self, id: str) -> TokenView | None:
        return self.granted.get(id)

    async def create_token(self, request: TokenRequest, span_s: float | None, by: Identity) -> NewToken:
        id = f"{len(self.granted) + 1:016x}"
        ends_at = None if span_s is None else 1.0 + span_s
        name, role = request.name or request.node or "", request.role or ""
        view = TokenView(id, request.kind, name, role, True, False, 1.0, by.name, ends_at, None)
        self.granted[id] = view
        return NewToken(f"phx_{id}", view)

    async def revoke_token(self, id: str, by: Identity) -> TokenView:
        self.granted[id].is_valid = False
        return self.granted[id]

    async def rotate_token(self, id: str, overlap_s: float, by: Identity) -> NewToken:
        return NewToken("phx_new", self.granted[id])

    async def task(self, id: str) -> TaskView:
        return self._task_view(self._find(id))

    async def tasks(
        self,
        job: str,
        *,
        status: StatusWord | None,
        selector: str | None = None,
        cursor: str | None,
        limit: int,
    ) -> Page[TaskView]:
        return Page([self._task_view(self._find(job))], None)

    async def wait(self, id: str, timeout_s: float) -> JobView | TaskView:
        job = self._find(id)
        self.waits.put_nowait(id)
        try:
            async with asyncio.timeout(timeout_s if self.endless else 0), self.changed:
                await self.changed.wait_for(lambda: self.status[job.id] not in ("Pending", "Running"))
        except TimeoutError:
            pass
        finally:
            self.leaves.put_nowait(id)
        return self._task_view(job) if "." in id else self._job_view(job)

    async def reasons(self, ids: Sequence[str]) -> list[JobReason]:
        return [JobReason(id, (await self.why(id)).dominant) for id in ids]

    async def why(self, id: str, asker: Asker = ADMIN, *, of_waiting: bool = False) -> WhyReply:
        job = self._find(id)
        reason = ReasonView("WaitingCapacity", "capacity", "no node has 1 core free", {"cores": 1})
        return WhyReply(job.id, "Pending", reason, [], [], None, 1, 1, 1.0, 1)

    async def story(
        self, id: str, *, cursor: str | None, limit: int, inspects: bool = False
    ) -> Page[StoryLine]:
        if id in self.flows:
            return Page([], None)
        if id not in self.drained:
            self._find(id)
        lines = [StoryLine(each.revision, each.at, each.event, each.text) for each in self.events]
        return Page(lines[:limit], None)

    async def nodes(self) -> list[NodeView]:
        return [_node_view(name, reason) for name, reason in self.drained.items()]

    async def node(self, name: str) -> NodeView:
        return _node_view(name, self._reason(name))

    async def drain(self, name: str, reason: str, *, evict: bool = False) -> NodeView:
        self._reason(name)
        self.drained[name] = reason
        return _node_view(name, reason)

    async def undrain(self, name: str) -> NodeView:
        self._reason(name)
        self.drained[name] = ""
        return _node_view(name, "")

    async def set_elastic(self, name: str, enabled: bool, reason: str, user: str) -> NodeView:
        self._reason(name)
        view = _node_view(name, "")
        view.elastic_disabled = not enabled
        view.disabled_reason = "" if enabled else f"by {user}: {reason}"
        return view

    async def lose(self, name: str, reason: str, user: str) -> NodeView:
        return _node_view(name, self._reason(name))

    async def remove_node(self, name: str, user: str) -> RemovedNode:
        self._reason(name)
        self.drained.pop(name, None)
        return RemovedNode(name)

    async def cluster(self) -> ClusterView:
        return ClusterView("0", 1, len(self.events), 2, 2, 8, 8, 0, 0, len(self.held), Counts())

    async def watch(self, *, after: int | None, job: str | None) -> AsyncIterator[WatchEvent]:
        position = len(self.events) if after is None else after
        if position < self.compacted:
            raise Gone(f"revision {position} is no longer kept, list again")
        self.open_streams += 1
        try:
            while True:
                while position < len(self.events):
                    event = self.events[position]
                    position += 1
                    if job in (None, event.job):
                        yield event
                if not self.endless:
                    return
                await self._until_more_than(position)
        finally:
            self._stream_ends()

    async def log_times(self, id: str, *, attempt: int | None, after: float) -> LogTimesView:
        return LogTimesView(attempt or 1, "n1", 1.0, False)

    async def logs(
        self,
        id: str,
        *,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        follow: bool,
        hold: bool = False,
    ) -> AsyncIterator[LogChunk]:
        job = self._find(id)
        position = self._log_start(job.id, offset, lines)
        self.open_streams += 1
        try:
            while True:
                data = self.output.get(job.id, b"")
                over = not follow or not self.endless or self.status[job.id] != "Pending"
                yield LogChunk(position, data[position:], len(data), attempt or 1, over)
                position = max(position, len(data))
                if over:
                    return
                await self._until_written_or_ended(job.id, position)
        finally:
            self._stream_ends()

    async def metrics(self) -> bytes:
        return b"# TYPE phalanx_build_info gauge\nphalanx_build_info 1.0\n"

    async def metrics_report(self) -> MetricsReport:
        totals = WorkerTotals(0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)
        counters = MetricsCounters(0, 0, 0, 0, 0, 0, 0, 0, {})
        return MetricsReport("", "fake", 1, counters, {}, WorkersMetrics(totals, {}), 0, [], [], 0, {})

    def count_request(self, route: str, status: int) -> None:
        self.counted[route, status] += 1

    async def result(self, id: str) -> Raw:
        self._find(id)
        return Raw(b'{"loss": 0.5}')

    async def files(self, id: str, *, attempt: int | None) -> FilesView:
        self._find(id)
        return FilesView(id, attempt or 1, [FileView("a.txt", 5, hashlib.sha256(b"hello").hexdigest())])

    async def file(self, id: str, path: str, *, attempt: int | None) -> tuple[FileView, AsyncIterator[bytes]]:
        self._find(id)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"hello"

        return FileView(path, 5, hashlib.sha256(b"hello").hexdigest()), pieces()

    async def ready(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def lead(self) -> int:
        self.require_active()
        return 1

    async def catch_up(self) -> bool:
        return False

    def revision(self) -> int:
        return len(self.events)

    def behind_s(self) -> float:
        return self.behind

    def require_active(self) -> None:
        if self.standby is not None:
            raise self.standby

    async def require_leader(self) -> None:
        self.require_active()

    # What the tests do to it.

    def record(self, event: str, job: str) -> None:
        self.events.append(WatchEvent(len(self.events) + 1, 1.0, event, job=job, status=self.status[job]))

    async def end(self, job: str, status: StatusWord = "Completed") -> None:
        async with self.changed:
            self.status[job] = status
            self.record("JobEnded", job)
            self.changed.notify_all()

    async def write(self, job: str, data: bytes) -> None:
        async with self.changed:
            self.output[job] = self.output.get(job, b"") + data
            self.changed.notify_all()

    async def _until_more_than(self, position: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: position < len(self.events))

    async def _until_written_or_ended(self, job: str, position: int) -> None:
        async with self.changed:
            await self.changed.wait_for(
                lambda: len(self.output.get(job, b"")) > position or self.status[job] != "Pending"
            )

    def _stream_ends(self) -> None:
        self.open_streams -= 1
        if not self.open_streams:
            self.closed.set()

    def _new_id(self) -> str:
        return ulid(1_700_000_000_000, next(self._ids))

    def _find(self, id: str) -> Job:
        found = [job for job in self.held.values() if job.id.startswith(id.partition(".")[0])]
        if len(found) != 1:
            raise NotFound(f"no job {id!r}")
        return found[0]

    def _reason(self, name: str) -> str:
        if name not in self.drained:
            raise NotFound(f"no node {name!r}", reason="NodeNotFound")
        return self.drained[name]

    def _log_start(self, job: str, offset: int | None, lines: int | None) -> int:
        data = self.output.get(job, b"")
        if lines is not None:
            return len(data) - len(b"".join(data.splitlines(keepends=True)[-lines:])) if lines else len(data)
        return min(offset or 0, len(data))

    def _job_view(self, job: Job) -> JobView:
        return JobView(
            id=job.id,
            batch_id=job.batch,
            name=job.name,
            user=job.user,
            queue=job.queue,
            priority=job.priority,
            status=self.status[job.id],
            reason="",
            tasks=job.tasks,
            counts=Counts(pending=job.tasks),
            command=list(job.groups[0].command.argv),
            request=RequestView(job.groups[0].request.cores),
            array=None if job.array is None else str(job.array),
            submitted_at=job.submitted_at,
            started_at=None,
            ended_at=None,
            exit_code=0 if self.status[job.id] == "Completed" else None,
            time_limit_s=job.time_limit_s,
            max_retries=job.max_retries,
            env=job.groups[0].command.env,
        )

    def _task_view(self, job: Job) -> TaskView:
        return TaskView(
            id=job.task_id(0),
            job_id=job.id,
            batch_id=job.batch,
            name=job.name,
            index=None,
            status=self.status[job.id],
            reason="",
            message="",
            exit_code=None,
            attempt=0,
            node=None,
            devices=[],
            target=None,
            target_numa_node_id=None,
            paused=job.id in self.paused,
            retries_used=0,
            losses=0,
            retry_at=None,
            submitted_at=job.submitted_at,
            started_at=None,
            ended_at=None,
            stderr_tail="its last words",
            result={"loss": 0.5},
        )


def _node_view(name: str, reason: str) -> NodeView:
    return NodeView(name, "Online", bool(reason), reason, 4, 4, 1024, 1024, [], [], {}, [], 0, "i1", 1.0)
