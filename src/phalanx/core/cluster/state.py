"""The cluster as it is: jobs, nodes, attempts, and the indexes over them.

`apply` owns this and changes it in place; everyone else reads. Everything here follows from the events but
for `heard_at`, the leases' clock: after a restart every node gets a whole lease from the start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Mapping

from msgspec import Struct, field, structs

from phalanx.core.cluster.brake import Brake
from phalanx.core.cluster.environments import Environments
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.names import JobNames
from phalanx.core.cluster.nodes import NodeState, Unfit
from phalanx.core.cluster.overlay import Overlay
from phalanx.core.cluster.request_ids import RequestIds
from phalanx.core.cluster.retries import RepeatedJobs
from phalanx.core.cluster.units import Attempt, Promise
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.bindings import Bindings, DispatchView
from phalanx.core.model.credential import Keyring
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.job import Job, JobId, NodeName, QueueUser
from phalanx.core.model.lanes import Lane, LanePools
from phalanx.core.model.login import Logins
from phalanx.core.model.orders import AttemptKey, Status, Why
from phalanx.core.model.overlay import OverlayRules
from phalanx.core.model.plan import PlanMemory, Snapshot
from phalanx.core.model.queues import Queues, Quota, add_to
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import TenantKey, Tenants
from phalanx.core.model.topology import Topology
from phalanx.core.model.waiting import Waiting

# In the heap of instants, instead of the position of a task: the backoff of a whole job ends, or it may begin.
BACKOFF, BEGIN = -1, -2
STALE_MAX = 1024  # so many of those instants may have been replaced by others

_FAILED_THERE = (Why.EXITED, Why.SIGNALLED, Why.REFUSED, Why.EXHAUSTED, Why.UNKNOWN)


class Timers(Struct, frozen=True):
    """The numbers that decisions rest on."""

    heartbeat_s: float = 5.0
    lost_after_s: float = 30.0  # silence after which a node is lost (T_lost)
    self_fence_s: float = 20.0  # silence after which a runner stops its tasks (T_self); less than T_lost
    suspicions_max: int = 3
    loss_limit: int = 5
    stuck_after_s: float = 90.0  # an attempt that its runner has not started by then is given up
    keep_max_s: float = 3600.0  # how much longer a lease may be that a stopping runner asks for
    backoff_s: float = 1.0
    backoff_max_s: float = 30.0
    pending_max: int = 2_000_000
    ended_jobs_max: int = 20_000  # how many ended jobs stay in memory
    ended_workflows_max: int = 1000  # how many ended workflows stay in memory
    ended_stages_max: int = 100_000  # and how many stages they may have in all
    results_bytes_max: int = 256 << 20  # how much ended jobs in memory may be, with their results
    request_ids_max: int = 50_000
    promise_s: float = 60.0  # how long after their grace victims may take before a promise is withdrawn
    aging_s: float = 0.0  # after waiting so long a job counts as one point of priority more urgent; 0: never
    breaker_failures: int = 5  # failures in a row, of several users, after which a node is excluded; 0: never
    breaker_pause_s: float = 60.0
    brake_share: float = 0.55  # if more than this share of the nodes is silent at once, nobody is lost
    brake_nodes_min: int = 5  # of fewer nodes, most may well be gone
    forget_after_s: float = 86_400.0  # a node that is lost for so long is removed
    elastic: ElasticRules = ElasticRules()
    dispatch: DispatchPolicy = DispatchPolicy()
    overlay: OverlayRules = OverlayRules()


class ClusterState(Struct, eq=False):
    """Tables and indexes. `revision` counts the events applied, `gain` the times room may have appeared."""

    rules: Timers = Timers()
    epoch: int = 0
    revision: int = 0
    arrivals: int = 0  # the highest number that a job or a workflow was given; none is given again
    gain: int = 0
    jobs: dict[JobId, JobState] = {}
    job_ids: list[JobId] = []  # sorted, for prefixes and pages
    names: JobNames = field(default_factory=JobNames)
    nodes: dict[NodeName, NodeState] = {}
    known_names: list[NodeName] = []  # by node number: whoever joined, removed ones too
    generation_floor: int = 0  # no lease generation up to this is given to a node that is new
    excluded: dict[NodeName, None] = {}
    could_work: int = 0  # how many nodes would take work if they were not excluded
    could_but_excluded: int = 0  # how many of those are excluded
    nobody_else: bool = True  # all of them do, so none is kept away
    brake: Brake | None = None
    needed_at: float | None = None  # when it was last said that a node is needed; not kept in images
    table: NodeTable = field(default_factory=NodeTable)
    waiting: Waiting = field(default_factory=Waiting)
    tenants: Tenants = field(default_factory=Tenants)
    pools: LanePools = field(default_factory=LanePools)  # lanes that stages share; not kept in images
    queues: Queues = field(default_factory=Queues)
    bindings: Bindings = field(default_factory=Bindings)
    overlay: Overlay = field(default_factory=Overlay)
    environments: Environments = field(default_factory=Environments)
    keyring: Keyring = field(default_factory=Keyring)  # the credentials that were created
    logins: Logins = field(default_factory=Logins)  # of browsers
    forming: dict[JobId, None] = {}  # gangs whose members wait at the barrier
    incomplete: set[JobId] = set()  # of them, those that hold only a part of what they need
    unapproved: dict[JobId, None] = {}  # jobs that wait for an approval
    promised: dict[JobId, None] = {}  # jobs for which places are set aside
    # By the job that comes first: those after it, of them those that wait task by task, and those for its start.
    dependents: dict[JobId, dict[JobId, None]] = {}
    task_dependents: dict[JobId, dict[JobId, None]] = {}
    start_dependents: dict[JobId, dict[JobId, None]] = {}
    # Jobs that can never start, and the one whose end is why; tasks of arrays that never can. Empty between turns.
    abandoned: dict[JobId, JobId] = {}
    abandoned_tasks: dict[JobId, dict[int, JobId]] = {}
    workflows: dict[JobId, WorkflowState] = {}
    due: dict[JobId, None] = {}  # workflows with stages that have ended or may begin; few turns leave any
    limited: dict[JobId, None] = {}  # those with a deadline or a budget that have not ended
    ended_workflows: OrderedDict[JobId, None] = field(default_factory=OrderedDict)  # oldest first
    stages_of: dict[str, int] = {}  # by user: the tasks of stages that have no job yet
    stage_tasks: int = 0  # of all users together
    # A heap of instants at which backoffs end; BACKOFF, BEGIN instead of a position: of the whole job.
    retries: list[tuple[float, JobId, int]] = []
    retries_most: int = STALE_MAX  # if there are more, those that no longer count are dropped
    ended: OrderedDict[JobId, None] = field(default_factory=OrderedDict)  # ended jobs, oldest first
    ended_bytes: int = 0  # of the results of those, and of what describes them
    requests: RequestIds = field(default_factory=RequestIds)
    repeated: RepeatedJobs = field(default_factory=RepeatedJobs)
    counts: list[int] = field(default_factory=lambda: [0] * 6)  # tasks by status, over the jobs in memory
    tasks_of: dict[str, int] = {}  # by user: the tasks of those jobs that have not ended
    bytes_of: dict[str, int] = {}  # by user: the jobs and workflows in memory
    skipped: int = 0  # events that named something unknown, after a damaged record

    def attempt(self, key: AttemptKey) -> Attempt | None:
        """The live attempt with this key."""
        job = self.jobs.get(key[0])
        found = job.live.get(key[1]) if job else None
        return found if found is not None and found.key == key else None

    def live(self, key: AttemptKey) -> Attempt:
        """The live attempt with this key; Unfit if it is over, as after a damaged record it may be."""
        attempt = self.attempt(key)
        if attempt is None:
            raise Unfit(f"no live attempt {key}")
        return attempt

    def job(self, id: JobId) -> JobState:
        """The job with this id; Unfit if there is none."""
        job = self.jobs.get(id)
        if job is None:
            raise Unfit(f"no job {id}")
        return job

    def node(self, name: NodeName) -> NodeState:
        """The node of this name; Unfit if there is none."""
        node = self.nodes.get(name)
        if node is None:
            raise Unfit(f"no node {name}")
        return node

    def lane(self, key: TenantKey) -> Lane | None:
        """The lane with this number of the node with this name, if both are there."""
        node = self.nodes.get(key[0])
        return None if node is None else node.lanes.get(key[1])

    def promises(self) -> list[tuple[JobState, Promise]]:
        """The jobs for which places are set aside, with their promises."""
        jobs = (self.jobs[id] for id in self.promised)
        return [(job, job.promise) for job in jobs if job.promise is not None]

    def holds_anything(self, node: NodeState) -> bool:
        """Whether attempts stand on the node or places of it are set aside."""
        return bool(node.attempts or node.lanes) or any(
            promise.is_on(node.name) for _, promise in self.promises()
        )

    def snapshot(self, now: float, memory: PlanMemory | None = None) -> Snapshot:
        """What placement may see: the live columns, to be read within this turn, and what the last plan remembered."""
        memory = memory or PlanMemory()
        gain = self.gain + memory.refusals
        view = DispatchView(self.rules.dispatch, self.bindings, self.nodes)
        seen = Snapshot(self.table, self.waiting, gain, self.tenants, self.queues, now, memory, view)
        seen.failed_on = self.failed_on
        return seen

    def failed_on(self, job: JobId, position: int) -> NodeName | None:
        """The node on which the last attempt of a task failed; None if that ended in another way."""
        found = self.jobs.get(job)
        if found is None or found.why[position] not in _FAILED_THERE:
            return None
        number = found.node_number(position, found.attempts[position])
        return None if number is None else self.known_names[number]

    def assuming(self, topology: Topology | None, quotas: Mapping[str, Quota]) -> ClusterState:
        """A state to ask, with other layers and quotas over the same jobs and nodes; this one stays as it is."""
        other = structs.replace(self, queues=self.queues.with_quotas(quotas))
        if (by_user := other.queues.by_user) != self.waiting.by_user:
            other.waiting = self.waiting.divided(by_user)
        if topology is not None and topology != self.table.topology:
            other.table = self.table.with_topology(topology)
        return other

    @property
    def next_due(self) -> float | None:
        """When the next backoff ends, or the next address has rested, and so a `BackoffsEnded` is due."""
        due = self.retries[0][0] if self.retries else None
        rested = self.overlay.next_due
        return rested if due is None or (rested is not None and rested < due) else due

    def add_job(self, job: JobState) -> None:
        self.jobs[job.job.id] = job
        self.counts[0] += job.counts[0]
        add_to(self.bytes_of, job.job.user, job.size_bytes)
        if not job.is_over:
            add_to(self.tasks_of, job.job.user, job.job.tasks)
            self.queues.submit(job.job.queue_user, job.job.tasks)
        insort(self.job_ids, job.job.id)
        self.names.add(job)

    def end_job(self, job: JobState) -> None:
        """Every task of it is over, for the first time or again."""
        if job.job.id not in self.ended:
            self.ended[job.job.id] = None
            self.unapproved.pop(job.job.id, None)
            self.ended_bytes += job.result_bytes + job.size_bytes
            self._uncount(job.job)

    def _uncount(self, job: Job) -> None:
        add_to(self.tasks_of, job.user, -job.tasks)
        self.queues.submit(job.queue_user, -job.tasks)

    def remove_job(self, id: JobId) -> None:
        if id not in self.ended:  # it is amended, or a record was damaged
            self._uncount(self.jobs[id].job)
        else:
            self.ended_bytes -= self.jobs[id].result_bytes + self.jobs[id].size_bytes
        job = self.jobs.pop(id)
        add_to(self.bytes_of, job.job.user, -job.size_bytes)
        self.unapproved.pop(id, None)
        self.bindings.deferred.discard(id)
        self.leave_dependencies(job)
        self.names.remove(job)
        for status, count in enumerate(job.counts):
            self.counts[status] -= count
        del self.job_ids[bisect_left(self.job_ids, id)]
        self.ended.pop(id, None)

    def count_stages(self, whose: QueueUser, tasks: int) -> None:
        """So many more tasks of a user belong to stages that have no job yet, or so many fewer."""
        user = whose[1]
        before = self.stages_of.get(user, 0)
        add_to(self.stages_of, user, tasks)
        self.stage_tasks += self.stages_of.get(user, 0) - before
        self.queues.submit(whose, tasks)

    @property
    def waiting_tasks(self) -> int:
        """How many tasks wait for a place, those of stages that have no job yet among them."""
        return self.counts[Status.PENDING] + self.stage_tasks

    def unfinished_tasks(self, user: str) -> int:
        """How many tasks of a user have not ended, those of stages that have no job yet among them."""
        return self.tasks_of.get(user, 0) + self.stages_of.get(user, 0)

    def note_due(self, flow: WorkflowState) -> None:
        """Something is to be decided about a workflow, or nothing any more."""
        if flow.is_due:
            self.due[flow.workflow.id] = None
        else:
            self.due.pop(flow.workflow.id, None)

    def leave_dependencies(self, job: JobState) -> None:
        """Nobody need tell this job what becomes of others."""
        id = job.job.id
        self.abandoned.pop(id, None)
        self.abandoned_tasks.pop(id, None)
        for after in job.job.after:
            for index in self.dependent_indexes:
                others = index.get(after.job, {})
                others.pop(id, None)
                if not others:
                    index.pop(after.job, None)

    @property
    def dependent_indexes(self) -> tuple[dict[JobId, dict[JobId, None]], ...]:
        return self.dependents, self.task_dependents, self.start_dependents

    def called(self, name: str, user: str) -> tuple[JobState, int | None] | None:
        """The job, and the position of its task, that Kubernetes calls so."""
        return self.names.called(self.jobs, name, user)

    def next_number(self) -> int:
        """The number of the job or workflow that comes next."""
        return self.arrivals + 1

    def take_number(self, recorded: int) -> int:
        """The number of a job or workflow as its event has it; those of old logs count on."""
        number = recorded or self.arrivals + 1
        self.arrivals = max(self.arrivals, number)
        return number

    def with_prefix(self, prefix: str, most: int = 3) -> list[JobId]:
        """Job ids that begin with `prefix`, the first few."""
        at = bisect_left(self.job_ids, prefix)
        found = self.job_ids[at : at + most]
        return [id for id in found if id.startswith(prefix)]
