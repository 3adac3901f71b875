"""The metrics as JSON, in the form of FlowMesh's `metrics.json`. A worker there is a node here."""

from __future__ import annotations

from msgspec import Struct


class MetricsCounters(Struct):
    """Counts since this coordinator process started, of durable events only."""

    tasks_submitted: int
    tasks_succeeded: int
    tasks_failed: int
    tasks_requeued: int
    workers_registered: int
    workers_unregistered: int
    worker_heartbeats: int
    tasks_cancelled: int
    tasks_requeued_by_reason: dict[str, int]


class TaskTimings(Struct):
    """Durations of one category. `queue` counts tasks that were placed, the others tasks that ran to their end."""

    queue_avg_sec: float
    queue_count: int
    queue_total_sec: float
    execution_avg_sec: float
    execution_count: int
    execution_total_sec: float
    total_avg_sec: float
    total_count: int
    total_total_sec: float


class WorkerMetrics(Struct):
    """One node: its price and the time, cost and nominal energy that counted. Nothing here is measured."""

    status: str
    cost_per_hour: float | None  # as its runner says; 1.0 is assumed if it says nothing
    uptime_sec: float
    accrued_cost_usd: float
    estimated_energy_kwh: float
    cpu_energy_kwh: float
    gpu_energy_kwh: float
    energy_is_complete: bool  # False: the power of some of its devices is not known, and left out
    elastic_disabled: bool


class WorkerTotals(Struct):
    """Sums over all nodes, removed ones too."""

    accrued_cost_usd: float
    uptime_sec: float
    estimated_energy_kwh: float
    cpu_energy_kwh: float
    gpu_energy_kwh: float
    workers_with_energy: int
    gpu_memory_total_bytes: int


class WorkersMetrics(Struct):
    totals: WorkerTotals
    workers: dict[str, WorkerMetrics]  # the first 10,000 by name


class MetricsReport(Struct, omit_defaults=True):
    """The same counts as `/metrics`, as JSON."""

    generated_at: str
    coordinator: str
    epoch: int
    counters: MetricsCounters
    task_timings: dict[str, TaskTimings]
    workers: WorkersMetrics
    active_workers_count: int
    elastic_disabled_workers: list[str]
    completed_tasks: list[str]  # the newest 1,000, sorted
    ready_tasks: int
    tasks: dict[str, int]  # by status, of the jobs in memory
    finalized_at: str | None = None  # only in final_report.json
