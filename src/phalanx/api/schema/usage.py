"""Usage and reports as REST and the Python client show them: what tasks used of what they were granted.

Shares go from 0 to 1, and above it for what used more than it asked for; null means that it was not measured, or that
there is nothing to compare with. What is kept and how it is added up is in `core/model/usage.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from phalanx.api.schema.jobs import StatusWord, UsageSummary
from phalanx.core.model.resources import Cores

TASKS_MAX = 1000
POINTS_MAX = 240
ROWS_MAX = 10_000
TIME_MAX = 1e12
ReportBy = Literal["user", "queue", "job"]
Instant = Annotated[float, Meta(ge=0, le=TIME_MAX)]


class UsageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`points` of the curve of one running task; those of several tasks come without curves."""

    points: Annotated[int, Meta(ge=0, le=POINTS_MAX)] = 60
    cursor: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    limit: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = 100


class CurvePoint(Struct):
    """Means over a span of time that ended at `at`; memory and processes are the most in that time."""

    at: float
    span_s: float
    cores: float
    memory_bytes: int
    read_bytes_per_s: float
    written_bytes_per_s: float
    processes: int
    device_use: float | None = None
    device_memory_bytes: int = 0


class DeviceUsage(Struct):
    """One device of a running task."""

    index: int
    use: float  # as sampled last
    mean_use: float  # since the task holds it
    memory_bytes: int
    memory_is_own: bool = (
        False  # only that of the task's own processes; else all that is in use on the device
    )
    idle_s: float = 0.0  # for how long it has been idle; 0: it is in use, or not long enough


class TaskUsage(Struct, omit_defaults=True):
    """One task and its newest attempt. `now`, `devices` and `points` are there while it runs."""

    id: str
    status: StatusWord
    attempt: int
    node: str | None
    run_s: float
    cores: Cores  # that it asked for
    memory_bytes: int
    gpus: int
    summary: UsageSummary | None = None
    now: CurvePoint | None = None
    devices: list[DeviceUsage] = []
    points: list[CurvePoint] = []
    source: str = ""  # what the numbers of a running task rest on: cgroup or processes
    note: str = ""  # why there are no numbers
    number: str = ""  # such as 17.3


class UsageSums(Struct):
    """What many attempts were granted and used, in hours of cores and devices."""

    tasks: int = 0
    attempts: int = 0
    core_hours: float = 0.0  # granted
    core_hours_used: float = 0.0
    cpu_efficiency: float | None = None  # used of those that were measured
    device_hours: float = 0.0  # granted
    device_use: float | None = None  # mean utilisation while sampled
    device_hours_idle: float = 0.0
    memory_peak_bytes: int = 0
    memory_share: float | None = None  # peaks against requests, weighted by run time
    read_bytes: int = 0
    written_bytes: int = 0
    cost: float = 0.0


class UsageReply(Struct):
    """The usage of a job or task: its tasks, and sums over all attempts of the whole job."""

    id: str
    status: StatusWord
    tasks: list[TaskUsage]
    totals: UsageSums
    at: float
    interval_s: float | None = None  # between two samples of what runs
    next_cursor: str | None = None


class ReportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs count: those that ended in [since, until), and those that have not ended if now is in it."""

    by: ReportBy = "user"
    user: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    queue: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = 1000


class ReportRow(Struct):
    """One user, queue or job."""

    key: str
    jobs: int
    usage: UsageSums
    name: str = ""  # of a job
    user: str = ""
    queue: str = ""
    status: str = ""  # of a job
    number: int = 0  # of a job


class ReportReply(Struct):
    """Rows, the largest first; what did not find a row is in `others`, and `total` has everything."""

    by: ReportBy
    since: float | None
    until: float | None
    at: float
    rows: list[ReportRow]
    total: ReportRow
    others: ReportRow | None = None
