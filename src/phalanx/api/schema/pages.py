"""What the dashboard shows that no other route has: the overview, the map, rows of jobs, times, and changes.

A job is named by its number, which is how people call it. Fields that have their default are left out of what is long.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import Counts, StatusWord
from phalanx.api.schema.queries import Word
from phalanx.core.model.resources import Cores

SEARCH_MAX = 200
ROWS_MAX = 500
BARS_MAX = 5000

Severity = Literal["critical", "warning", "notice"]
Sort = Literal[
    "number", "-number", "name", "-name", "user", "-user", "queue", "-queue", "priority", "-priority", "status",
    "-status", "tasks", "-tasks", "gpus", "-gpus", "submitted", "-submitted", "started", "-started", "ended", "-ended",
]  # fmt: skip


class AlarmView(Struct, omit_defaults=True):
    """Something to look at: of a node, a job or task (by its number), a coordinator, or the cluster."""

    severity: Severity
    about: Literal["cluster", "coordinator", "node", "job"]
    subject: str
    text: str
    at: float | None = None  # when it happened; without it, it is so now
    name: str = ""  # of the job
    user: str = ""  # who submitted it


class WaitingReason(Struct, omit_defaults=True):
    """How many jobs wait for one reason, as `why` tells it of one of them."""

    code: str
    text: str
    jobs: int
    tasks: int
    number: int = 0  # of a job that waits for it


class UseHistory(Struct):
    """Means over `every_s` seconds each, oldest first, as this coordinator has seen them: one value per instant."""

    every_s: float
    at: list[float]
    devices: list[float]  # of all nodes, as cores
    devices_used: list[float]
    cores: list[float]
    cores_used: list[float]
    running: list[float]  # tasks
    waiting: list[float]


class NodeCounts(Struct):
    """Each node is counted once."""

    all: int
    taking_work: int
    away: int  # offline or unreachable
    drained: int  # or disabled
    other: int  # excluded for a while, unhealthy, stopping or quarantined


class HeldCounts(Struct):
    """GPUs or cores of all nodes. Free is what work may be placed on; what is neither is on nodes that take no work."""

    all: float
    held: float
    free: float


class OverviewView(Struct):
    """The cluster in one look."""

    at: float
    revision: int
    cluster: ClusterView
    jobs: Counts  # those in memory by their status
    waiting_jobs: int  # those with a task that waits, whatever else of them runs
    nodes: NodeCounts
    gpus: HeldCounts
    cores: HeldCounts
    alarms: list[AlarmView]  # the worst first
    recent: list[
        AlarmView
    ]  # jobs that failed or have failed tasks, and lost nodes: of the last day, newest first
    waiting: list[WaitingReason]  # most jobs first
    waiting_at: float  # when they were counted
    use: UseHistory


class MapNode(Struct, omit_defaults=True):
    """One node. `held` has for each of its devices the number of the job that holds it, 0 where it is free.

    `task` has the position of that job's task. The lists are empty where all of their values are 0.
    """

    name: str
    path: list[str] = []  # its domains, the outermost first, as `layers` names them
    status: str = "Online"
    drained: bool = False
    note: str = ""
    cores: Cores = 0
    cores_free: Cores = 0
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    kind: str = ""  # of its devices
    devices: int = 0
    index: list[int] = []  # of its devices, if not 0, 1, 2, …
    held: list[int] = []
    task: list[int] = []
    idle_s: list[float] = []  # how long what is held has not been used
    failed: list[int] = []  # indexes of devices out of service
    tasks: int = 0  # attempts that it holds
    jobs: list[int] = []  # the numbers of their jobs, the first of them


class MapHolder(Struct, omit_defaults=True):
    """A job that holds something."""

    number: int
    id: str
    user: str
    name: str = ""
    queue: str = ""
    tasks: int = 1
    gang: bool = False
    workflow: str = ""
    status: str = "Running"
    first: int = 0  # the index of its first task
    step: int = 1  # between the indexes of two tasks


class MapView(Struct):
    """Every node and who holds its devices, in the order of the network."""

    at: float
    revision: int
    layers: list[str]
    nodes: list[MapNode]
    holders: list[MapHolder]


class JobRow(Struct, omit_defaults=True):
    """A job in one line."""

    number: int
    id: str
    user: str
    status: StatusWord
    counts: Counts
    submitted_at: float
    name: str = ""
    queue: str = "default"
    priority: int = 0
    reason: str = (
        ""  # a code: how it ended, or why it or its rest waits, as the last count of waiting jobs found
    )
    tasks: int = 1
    gpus: int = 0  # of one task, of the group whose tasks have most
    cores: Cores = 0
    memory_bytes: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    command: str = ""  # its beginning
    nodes: list[str] = []  # up to four
    gang: bool = False
    array: bool = False
    vps: bool = False
    workflow: str = ""  # ID:STAGE
    held: bool = False
    unapproved: bool = False
    paused: int = 0
    finished: int = 0


class JobRowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, in which order, from which row on."""

    status: Annotated[str, Meta(max_length=100)] = ""  # several with commas
    waiting: bool = False  # those with a task that waits, whatever else of them runs
    reason: Word | None = None  # those that wait for it, as the last count of waiting jobs found
    queue: Word | None = None
    user: Word | None = None
    mine: bool = False
    search: Annotated[str, Meta(max_length=SEARCH_MAX)] = ""  # in number, id, name, user, queue and command
    since: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    sort: Sort = "-number"
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = 100


class JobRows(Struct):
    """Some of the rows that were asked for. `total` is how many there are.

    `revision` is that of the list, which may be a moment old; the rows themselves show at least `rows_revision`.
    """

    at: float
    revision: int
    total: int
    offset: int
    rows: list[JobRow]
    loading: bool = False  # rows of older jobs are still being read: ask again
    rows_revision: int = 0


class TaskStates(Struct):
    """A letter for each task of a job.

    P pending, A assigned, R running, p paused, d done (ended well, and Completed once its job is), C completed,
    F failed, X cancelled.
    """

    number: int
    id: str
    revision: int
    states: str
    counts: Counts
    first_index: int  # of the array
    step: int
    ranks: list[int]  # of a gang: the rank of each position, −1 for none


class TimesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which time; by default the last hour. A node or a job narrows it down."""

    since: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    until: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    node: Word | None = None
    job: Word | None = None
    limit: Annotated[int, Meta(ge=1, le=BARS_MAX)] = 2000


class TimeBar(Struct, omit_defaults=True):
    """An attempt in time. Without `ended_at` it runs; `limit_at` is when its time limit ends it."""

    number: int
    task: int  # its position
    attempt: int
    node: str
    started_at: float
    ended_at: float | None = None
    limit_at: float | None = None
    status: str = "Running"
    reason: str = ""
    devices: list[int] = []  # of those that ended only while this coordinator saw them


class FutureStart(Struct, omit_defaults=True):
    """When and where the planner expects a job to start: the head of the queue, whose places are kept for it."""

    number: int
    id: str
    nodes: list[str]
    at: float | None = None  # without it, time limits do not say when
    passes_s: float = 0.0  # what runs no longer than this may go first
    text: str = ""


class TimesView(Struct):
    """What ran and runs in a time, and what is to start."""

    at: float
    revision: int
    since: float
    until: float
    bars: list[TimeBar]
    holders: list[MapHolder]  # the jobs of the bars, and of what is to start
    future: list[FutureStart]
    left_out: bool  # there are more bars than were asked for
    whole_since: float | None = (
        None  # jobs that ended before may have left memory, and are not told; None: none has
    )


class ChangesView(Struct, omit_defaults=True):
    """What has changed since the last message of a stream. Rows and nodes are whole: they replace what was known.

    With `many` more rows have changed than are told: ask again for those that are shown.
    """

    at: float
    revision: int
    tasks: Counts
    gpus: HeldCounts
    nodes: list[MapNode] = []
    removed: list[str] = []  # nodes that are gone
    holders: list[MapHolder] = []
    rows: list[JobRow] = []
    workflows: list[str] = []  # ids of those of which something changed
    queues: bool = False  # something was declared: quotas, layers, tokens of nodes
    alarms: list[AlarmView] = []  # failures and lost nodes that are new
    many: bool = False
