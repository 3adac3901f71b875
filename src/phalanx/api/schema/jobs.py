"""Jobs, tasks and their gangs as REST and the Python client show them; also names, logs and watches.

The OpenAPI document is generated from these structs. What is asked for is in `submission.py` and `jobspec.py`, what the
cluster around the jobs is in `cluster.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, TypedDict, TypeVar

from msgspec import Struct

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.view_of_work import ViewOfWork
from phalanx.core.model.resources import Cores

PhaseWord = Literal["Pending", "PreScheduling", "Scheduling", "Scheduled", "Running", "Failed", "Finished"]

T = TypeVar("T")
StatusWord = Literal["Pending", "Assigned", "Running", "Completed", "Failed", "Cancelled"]

EXCLUDED = (
    "temporarily excluded"  # how the note of a node begins that gets no new work before `excluded_until`
)


class FormationView(Struct):
    """Members that are placed and wait for each other. `until` is when all let go if they are not whole."""

    number: int
    formed_at: float
    until: float
    placed: int
    ready: int


class PromiseView(Struct):
    """Places reserved for a job until its victims have ended."""

    made_at: float
    until: float  # when the promise is withdrawn
    victims: list[str]  # tasks that have yet to leave
    nominated: dict[str, int]  # node: how many members will stand there
    numbers: list[str] = []  # of the victims


class GangView(Struct):
    """What holds the tasks of a job together, and how far they have come. `phase` is that of a PodGroup."""

    phase: PhaseWord
    placed: int  # members that hold a place and will keep it
    needed: int  # of all groups together
    strict: bool
    match: str
    wait_s: float
    gather: list[GatherSpec]
    id: str  # what a manifest calls it
    formations: int  # tries to start whole
    formation: FormationView | None
    promise: PromiseView | None
    members: int | None = None  # of one that waits for members: how many have come


class ConditionView(Struct):
    """Something that is so of a task, in the words of Kubernetes: DisruptionTarget for one that is evicted."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_at: float


class Counts(Struct):
    """How many tasks of a job stand where."""

    pending: int = 0
    assigned: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class RequestView(Struct, omit_defaults=True):
    """What each task asks for."""

    cores: Cores
    memory_bytes: int = 0
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory_bytes: int = 0
    target: str | None = None
    labels: dict[str, str] = {}
    require_isolation: bool = False
    nodes: list[str] = []  # only one of these; empty: any
    exclude: list[str] = []  # none of these
    exclusive: bool = False  # a node for itself
    spread: bool = False  # tasks on as many different nodes as there is room on


class GroupView(Struct):
    """One group of a job: tasks with one command and one request. `needed` of them make a gang whole."""

    name: str
    tasks: int
    needed: int
    replicas: int
    at_once: int  # of each replica; 0: all
    counts: Counts
    command: list[str]
    request: RequestView
    after: list[str]  # "other started": who has to come first
    finished: int = 0  # of the running ones: ended with code 0, Completed once the whole job is
    tags: dict[str, str] = {}  # besides those of the job


class UsageSummary(Struct):
    """What an attempt used: so far while it runs, in all once it has ended. Shares are of what it was granted."""

    cpu_s: float
    cpu_efficiency: float | None  # of granted cores times run time
    memory_peak_bytes: int
    memory_share: float | None  # the peak against the requested memory
    read_bytes: int
    written_bytes: int
    device_use: float | None = None  # mean utilisation of its devices while sampled
    device_idle_s: float = 0.0
    device_memory_peak_bytes: int = 0


class JobView(ViewOfWork, Struct):
    """One job. `status` sums up its tasks; `exit_code` is its only task's, or the first failed one's.

    `command`, `request`, `cwd` and `env` are those of its first group. In a list, `env` is only that of job files.
    """

    id: str
    batch_id: str
    name: str
    user: str
    queue: str
    priority: int
    status: StatusWord
    reason: str
    tasks: int
    counts: Counts
    command: list[str]
    request: RequestView
    array: str | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    time_limit_s: float | None
    max_retries: int
    cwd: str | None = None
    env: dict[str, str] = {}
    groups: list[GroupView] = []
    gang: GangView | None = None  # None: every task starts as soon as there is room for it
    restarts: int = 0  # of the whole job, those that count
    restart_limit: int | None = None  # None: it is never restarted as a whole
    setbacks: int = 0  # restarts of the whole job that were nobody's doing, and do not count
    retry_at: float | None = None  # nothing of it is placed before this
    finished: int = 0  # of the running tasks: ended with code 0, Completed once the whole job is
    failures: int = 0  # attempts of all tasks that counted against their retries
    unapproved: bool = False  # it waits for an approval
    held: str | None = None  # why it does not run until it is released, or completed with what it lacks
    object: str = ""  # what Kubernetes calls it: namespace/name, of several PodGroups with commas
    tags: dict[str, str] = {}
    after: list[str] = []  # jobs that come first, such as ID:ok
    after_numbers: list[str] = []  # the same as people write them, such as 17:ok or 12:fit:any
    workflow: str = ""  # of a stage: the workflow and the stage, as ID:STAGE
    image: str = ""  # the container it runs in
    mounts: list[str] = []  # what of the node that container sees
    split_output: bool = False  # it has two logs, of standard output and standard error, instead of one
    written: list[str] = []  # of a stage: its command with references; others see no other one
    kind: Literal["command", "vps"] = "command"
    number: int = 0  # by arrival, among all jobs and workflows; it names the job wherever its id does
    paused: int = 0  # of the running tasks: those that are paused
    nodes: list[str] = []  # that its tasks are on, or were on if it has ended; of many, the first 256
    begin_at: float | None = None  # nothing of it is placed before this instant
    revision: int = 0  # how often its settings were changed after it was submitted
    evicted: str = ""  # of one that waits for a place again: by whom, and for whom
    evicted_at: float | None = None  # and when
    exported: list[str] = []  # names of the variables it was submitted with; not in lists of jobs
    params: dict[str, str] = {}  # of a sweep: the values of each parameter, such as 1..5; rows: how many
    repeats: str = ""  # the job whose failed tasks it runs again
    retries: list[str] = []  # the jobs that run failed tasks of it again, oldest first
    unread: int = 0  # of the running tasks: those stopped until the client of `run` reads their output
    unreachable: int = 0  # of the running tasks: those whose node is not connected
    may: list[str] = []  # for the asker: cancel, hold, release, retry, resubmit, approve; not in lists


class EnvironmentView(Struct):
    """The variables of a job's first group: those of the environment that it was submitted in, and its own."""

    exported: dict[str, str]
    env: dict[str, str]


class TaskView(ViewOfWork, Struct):
    """One task and its newest attempt. A paused task is Running with `paused` true and keeps its grant."""

    id: str
    job_id: str
    batch_id: str
    name: str
    index: int | None
    status: StatusWord
    reason: str  # a code from the closed list: exited, oom, lost, timeout, …
    message: str  # a sentence
    exit_code: int | None  # −N for signal N, −1 when lost
    attempt: int  # 0 before the first
    node: str | None
    devices: list[int]
    target: str | None
    target_numa_node_id: int | None
    paused: bool
    retries_used: int
    losses: int
    retry_at: float | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    stderr_tail: str
    group: str = ""
    rank: int | None = None  # of a gang: its place among the members, by their index in the network
    ready: bool = False  # of a gang: it is held at the barrier and waits for the others
    nominated_node: str | None = None  # where it will be placed once the victims there have ended
    conditions: list[ConditionView] = []
    object: str = ""  # what Kubernetes calls it: namespace/name
    result: Any = None  # what it gave as its result, any JSON
    result_bytes: int = 0  # of a large one, which is in the place for files: lists of tasks do not have it
    result_error: str = ""  # why that one cannot be read
    usage: UsageSummary | None = None  # of the newest attempt, once that has ended
    address: str | None = None  # its own in the overlay network, while it has one
    preparing: str = ""  # its node gets its image ready, and how far that is
    number: str = ""  # the job's number, and the index of the task: 17.3
    params: dict[str, str] = {}  # of a sweep: what it is given
    unread: bool = False  # it is stopped until the client of `run` reads its output
    unreachable: bool = False  # it runs on a node that is not connected; it is tried again once that is lost


class JobFilters(TypedDict, total=False):
    """Which jobs are listed, for `jobs(mine=True, status="Running")` of the Python client: those that fit all."""

    status: StatusWord | None
    queue: str | None
    name: str | None
    selector: str | None
    user: str | None
    mine: bool
    since: float | None
    until: float | None
    node: str | None


class ReasonView(Struct, omit_defaults=True):
    """Why not, as data: a code, its tier (never, held, policy, capacity, progress), a sentence, numbers."""

    code: str
    tier: str
    text: str
    numbers: dict[str, Any] = {}


class NodeReasons(Struct):
    """So many nodes say no for the same reason."""

    count: int
    reason: ReasonView
    nodes: list[str]  # the first few


class Fix(Struct, omit_defaults=True):
    """The nearest change that would let it start; `change` gives fields of SubmitRequest their new values."""

    text: str
    change: dict[str, Any] = {}
    command: str = ""  # a command line that does it, if one does


class DomainSlots(Struct, omit_defaults=True):
    """How many tasks one domain of the network could take, against what is needed there."""

    layer: str
    domain: list[str]  # its path from outside in; empty: the whole cluster
    slots: int
    nodes: int = 0


class WhyReply(Struct):
    """Why a job or task is where it is: one dominant reason, all others, counts by node, the nearest fix.

    For a gang `domains` says what each domain of its layer could hold against the `needed` members.
    """

    id: str
    status: StatusWord
    dominant: ReasonView
    others: list[ReasonView]
    nodes: list[NodeReasons]
    fix: Fix | None
    position: int | None  # in the queue, from 1
    waiting: int  # how many tasks wait in all
    at: float
    epoch: int
    needed: int | None = None
    domains: list[DomainSlots] = []
    object: str = ""  # what Kubernetes calls it: namespace/name
    number: str = ""  # such as 17 or 17.3


class StoryLine(Struct, omit_defaults=True):
    """One thing that happened, in order; `cause` names what led to it."""

    revision: int
    at: float
    event: str
    text: str
    task: str | None = None
    node: str | None = None
    cause: str = ""
    epoch: int = 0
    number: str = ""  # of the task, such as 17.3


class CancelReply(Struct):
    """What was cancelled. Tasks on a node are being stopped; `stopping` counts them."""

    id: str
    cancelled: int
    stopping: int
    number: str = ""  # such as 17 or 17.3


class EvictReply(Struct):
    """How many tasks were asked to leave their places; they wait again as their job's restart policy says."""

    id: str
    evicted: int
    number: str = ""  # such as 17 or 17.3


class WatchEvent(Struct, omit_defaults=True):
    """One line of a watch. `revision` is the Last-Event-ID to resume after."""

    revision: int
    at: float
    event: str
    job: str | None = None
    task: str | None = None
    status: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    node: str | None = None
    text: str = ""
    number: str = ""  # of the task or job, such as 17.3


class LogChunk(Struct):
    """A piece of one stream of one attempt. `data` is bytes as written; `size` the file's length then."""

    offset: int
    data: bytes
    size: int
    attempt: int
    end: bool  # nothing will follow
    gap: int = 0  # bytes right before `offset` that were not kept


class Page(Struct, Generic[T]):
    """A piece of a list, to be looped over. Give `next_cursor` back to get the next; null means this was the last."""

    items: list[T]
    next_cursor: str | None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class JobReason(Struct):
    """Why a job waits, or the rest of one of which a part runs: the first reason of `why`."""

    id: str
    reason: ReasonView


class NamedView(Struct):
    """Which job, task or workflow a number, `last`, a name or a namespace/name is; of a task with `.INDEX`."""

    name: str
    id: str
    number: int = 0  # of the job, if it was named by its name
    namesakes: list[int] = []  # the numbers of all jobs of its user with this name that are in memory
