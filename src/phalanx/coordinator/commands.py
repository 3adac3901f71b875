"""What users ask for, carried out: the `Commands` that the REST app speaks to.

Changes become inputs and are answered when durable. Reads are answered from the state at once. Refusals of the
core become errors here, with the same reason and the nearest fix.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import structs

from phalanx.api.schema.cluster import NodeView, RemovedNode
from phalanx.api.schema.jobs import JobView, TaskView, WatchEvent, WhyReply
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.addresses import AddressCommands
from phalanx.coordinator.approvals import CoordinatorApprovals
from phalanx.coordinator.attempt_files import AttemptFiles
from phalanx.coordinator.call_queues import CallQueues
from phalanx.coordinator.changes import ChangeCommands
from phalanx.coordinator.declarations import Declarations
from phalanx.coordinator.environments import EnvironmentReads, SealedJobs
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.log_reads import LogReads
from phalanx.coordinator.logins import CoordinatorLogins, LoginAccess
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.metrics.board import MetricsBoard
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.pages.reads import PageReads
from phalanx.coordinator.planned_files import PlannedFiles
from phalanx.coordinator.questions import StateReads
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.removals import Removals
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.retries import Repeats
from phalanx.coordinator.sessions import SessionCommands, Sessions
from phalanx.coordinator.story_reads import StoryReads
from phalanx.coordinator.submissions import Submissions
from phalanx.coordinator.tokens import TokenCommands
from phalanx.coordinator.usage import UsageReads
from phalanx.coordinator.usage_report import UsageReports
from phalanx.coordinator.views import job_view, task_view
from phalanx.coordinator.views_cluster import node_view
from phalanx.coordinator.vps import VpsCommands
from phalanx.coordinator.why_reads import WhyReads
from phalanx.coordinator.workflow_files import WorkflowFiles
from phalanx.coordinator.workflows import WorkflowCommands
from phalanx.core.cluster.inputs import (
    DeclareLost,
    Drain,
    RemoveNode,
    SetElastic,
    SetPaused,
    Undrain,
)
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.errors import BadRequest, Conflict, NotFound
from phalanx.store.protocol import Store


class CoordinatorCommands:
    """Everything REST may ask: changes of jobs and nodes, streams, and the reads of its three parts."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        feed: Feed,
        log_links: LogLinks,
        clock: Clock,
        defaults: SubmitDefaults,
        recorder: Recorder | None = None,
        files: FileStore | None = None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._feed = feed
        self._log_links = log_links
        self._clock = clock
        self.idle = IdleDevices()
        self._reads = reads = StateReads(loop, store, clock, self.idle)
        logs = LogReads(loop, store, feed, log_links, reads, clock, files)
        self.logs, self.log_times = logs.logs, logs.log_times
        self.usage = UsageReads(loop, store, log_links, clock).usage
        self.report = UsageReports(loop, store, clock, reads.slices).report
        self.jobs, self.tasks, self.task = reads.jobs, reads.tasks, reads.task
        sealing = self._take_jobs(defaults)
        self.named, self.owner, self.draft, self.images = reads.named, reads.owner, reads.draft, reads.images
        self.is_of_same_workflow, self.in_numbers = reads.is_of_same_workflow, reads.in_numbers
        self.namesakes = reads.namesakes
        self._whys = whys = WhyReads(loop, store, clock, reads.slices, reads.images)
        self.cluster, self.reasons, self.plan_job = reads.cluster, whys.reasons, whys.plan_job
        self.nodes, self.node, self.queues, self.queue = reads.nodes, reads.node, reads.queues, reads.queue
        flows = WorkflowCommands(loop, store, feed, clock, reads.slices, defaults.executors, sealing)
        declared = Declarations(loop, store, clock, defaults.retries, reads.slices, flows, sealing)
        self.apply, self.plan, self.topology = declared.apply, declared.plan, declared.topology
        self.plan_files = PlannedFiles(declared.plan).plan_files
        self.set_quota, self.set_topology = declared.set_quota, declared.set_topology
        self.approve = CoordinatorApprovals(loop, store).approve
        self.submit_workflow, self.wait_workflow = flows.submit_workflow, flows.wait_workflow
        self.submit_workflow_files = WorkflowFiles(flows.submit_workflow).submit_workflow_files
        self.workflows, self.workflow = flows.workflows, flows.workflow
        self.cancel_workflow, self.retry_workflow = flows.cancel_workflow, flows.retry_workflow
        self.attempt_files = left = AttemptFiles(loop, store, files, clock)
        self.result, self.files, self.file = left.result, left.files, left.file
        self._open_tasks(log_links)
        queues = CallQueues(loop, clock)
        self.post_calls, self.call_results = queues.post_calls, queues.call_results
        self.close_calls, self.take_calls = queues.close_calls, queues.take_calls
        self.give_results = queues.give_results
        self._take_addresses()
        changes = ChangeCommands(loop, store, clock)
        self.hold, self.release, self.update = changes.hold, changes.release, changes.update
        removals = Removals(loop, store)
        self.cancel, self.evict = removals.cancel, removals.evict
        self._let_in()
        self._open_pages()
        self.board = board = MetricsBoard(loop, recorder or Recorder(), clock, reads.slices, self.idle)
        self.metrics, self.metrics_report = board.metrics, board.metrics_report
        self.count_request = board.count_request

    def _open_pages(self) -> None:
        reads = self._reads
        self.pages = pages = PageReads(
            self._loop, self._store, self._clock, reads.slices, self.idle, reads.cluster, self.reasons
        )
        self.overview, self.map, self.job_rows = pages.overview, pages.map, pages.job_rows
        self.times, self.changes, self.revision = pages.times, pages.changes, pages.revision
        self.task_states = pages.task_states

    def _take_addresses(self) -> None:
        overlay = AddressCommands(self._loop, self._clock)
        self.reserve_address, self.reservations = overlay.reserve_address, overlay.reservations
        self.release_reservation = overlay.release_reservation
        self.addresses, self.node_addresses = overlay.addresses, overlay.node_addresses

    def _let_in(self) -> None:
        """Tokens, and logins of browsers."""
        loop, clock = self._loop, self._clock
        self.login_access = LoginAccess(loop, self._log_links.keys, clock)
        logins = CoordinatorLogins(loop, clock, self.login_access)
        self.make_login_ticket, self.open_login = logins.make_login_ticket, logins.open_login
        self.vouch_login, self.end_login = logins.vouch_login, logins.end_login
        self.logins = logins.logins
        tokens = TokenCommands(loop, clock, self._reads.slices)
        self.tokens, self.token, self.create_token = tokens.tokens, tokens.token, tokens.create_token
        self.revoke_token, self.rotate_token = tokens.revoke_token, tokens.rotate_token

    def _take_jobs(self, defaults: SubmitDefaults) -> SealedJobs:
        """What is submitted, for the first time or again, with its environment."""
        loop, store, keys = self._loop, self._store, self._log_links.keys.environments
        sealing = SealedJobs(keys, defaults.not_exported)
        opened = EnvironmentReads(loop, store, keys, self._reads.job)
        self.job, self.environment = opened.job, opened.environment
        submissions = Submissions(loop, store, self._clock, defaults.retries, self._new_id, sealing)
        self.submit, self.take_rows = submissions.submit, submissions.take_rows
        repeats = Repeats(loop, store, self._clock, self._new_id, opened, sealing)
        self.retry, self.resubmit = repeats.retry, repeats.resubmit
        return sealing

    def _open_tasks(self, log_links: LogLinks) -> None:
        """What is about single tasks: their stories and attempts, sessions in them, and VPSs."""
        log_links.sessions = sessions = Sessions(log_links.keys, log_links)
        stories = StoryReads(self._loop, self._store, self._reads.slices)
        self.story, self.attempts = stories.story, stories.attempts
        inside = SessionCommands(self._loop, self._store, sessions)
        self.open_exec, self.open_forward = inside.open_exec, inside.open_forward
        self.open_input = inside.open_input
        self.join_session = inside.join_session
        machines = VpsCommands(self._loop, self._store, log_links, self._clock, self.submit)
        self.create_vps, self.list_vps, self.vps = machines.create_vps, machines.list_vps, machines.vps
        self.stop_vps, self.restart_vps = machines.stop_vps, machines.restart_vps
        self.vps_snapshots, self.snapshot_vps = machines.vps_snapshots, machines.snapshot_vps
        self.restore_vps, self.remove_snapshot = machines.restore_vps, machines.remove_snapshot

    async def why(self, id: str, asker: Asker = ADMIN, *, of_waiting: bool = False) -> WhyReply:
        """Why; without the advice to read logs that the task's runner does not serve."""
        reply = self.idle.explained(self._loop.state, await self._whys.why(id, asker, of_waiting))
        command = "" if reply.fix is None else reply.fix.command
        if not command.startswith("phalanx logs "):
            return reply
        job, position = await lookup.find_one_task(self._loop, self._store, command.split()[2])
        node = self._reads.node_of(job, position, job.attempts[position])
        return reply if self._log_links.serves(node) else structs.replace(reply, fix=None)

    async def pause(self, id: str) -> TaskView:
        return await self._set_paused(id, True)

    async def resume(self, id: str) -> TaskView:
        job, position = await lookup.find_task(self._loop, self._store, id)
        attempt = None if position is None else job.live.get(position)
        if job.held_because and not job.is_over and not (attempt is not None and attempt.paused):
            raise Conflict(
                f"{job.job.id} is held: {job.held_because}",
                reason="Held",
                hint=f"phalanx release {job.job.id}",
            )
        return await self._set_paused(id, False)

    async def wait(self, id: str, timeout_s: float) -> JobView | TaskView:
        job, position = await lookup.find_task(self._loop, self._store, id)
        whole = position is None or lookup.job_part(id) == id
        over = job.is_over if position is None else job.status[position] >= 3
        if not over and timeout_s > 0:
            await self._feed.settled(job.job.id, position, timeout_s)
            before, job = job, await lookup.find_job(self._loop, self._store, job.job.id)
            position = lookup.position_in(job, before, position)
        if whole:
            return job_view(self._loop.state, job)
        if position is None:
            raise NotFound(f"{id} is not a task of its gang since others came", reason="TaskNotFound")
        return task_view(self._loop.state, job, position)

    async def drain(self, name: str, reason: str, *, evict: bool = False) -> NodeView:
        if not reason.strip() or len(reason) > 1000:
            raise BadRequest("a drain needs a reason of 1 to 1000 characters", reason="ReasonMissing")
        accepted(await self._loop.ask([Drain(name, reason, evict)]), name)
        return node_view(self._loop.state, self._loop.state.nodes[name])

    async def undrain(self, name: str) -> NodeView:
        accepted(await self._loop.ask([Undrain(name)]), name)
        return node_view(self._loop.state, self._loop.state.nodes[name])

    async def set_elastic(self, name: str, enabled: bool, reason: str, user: str) -> NodeView:
        accepted(await self._loop.ask([SetElastic(name, enabled, reason, user)]), name)
        return node_view(self._loop.state, self._loop.state.nodes[name])

    async def lose(self, name: str, reason: str, user: str) -> NodeView:
        accepted(await self._loop.ask([DeclareLost(name, reason, user)]), name)
        return await self.node(name)

    async def remove_node(self, name: str, user: str) -> RemovedNode:
        accepted(await self._loop.ask([RemoveNode(name, user)]), name)
        return RemovedNode(name)

    async def watch(self, *, after: int | None, job: str | None) -> AsyncIterator[WatchEvent]:
        only = (await lookup.find_job(self._loop, self._store, job)).job.id if job else None
        start = self._loop.state.revision if after is None else after
        async for event in self._feed.watch(start, only, lambda: self._loop.state):
            yield event

    async def ready(self) -> None:
        await self._loop.ready()

    async def lead(self) -> int:
        self._loop.require_lease()
        return self._loop.state.epoch

    async def catch_up(self) -> bool:
        return self._loop.behind_s() > 0.0 and await self._loop.catch_up()

    def behind_s(self) -> float:
        return self._loop.behind_s()

    def require_active(self) -> None:
        self._loop.require_active()

    async def require_leader(self) -> None:
        await self._loop.require_leader()

    async def _set_paused(self, id: str, paused: bool) -> TaskView:
        job, position = await lookup.find_one_task(self._loop, self._store, id)
        accepted(await self._loop.ask([SetPaused(job.job.id, position, paused)]), id)
        return task_view(self._loop.state, job, position)

    def _new_id(self) -> str:
        return lookup.new_ids(self._clock, 1)[0]
