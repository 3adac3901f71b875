"""Every metric of `/metrics`: name, help, labels, and where its samples come from. Histograms have no labels.

No label holds an id, a text that a user chose, or a path: `survey.py` and the route table give them from closed lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from phalanx.coordinator.metrics.dispatches import STICKY_WORKER_BUSY
from phalanx.coordinator.metrics.idle import IdleSamples
from phalanx.coordinator.metrics.recorder import RESTARTED, WORKER_FAILED, Recorder
from phalanx.coordinator.metrics.survey import Survey
from phalanx.coordinator.metrics.tallies import Histogram
from phalanx.core.model.orders import UNCHARGED, Status

REQUEUE_REASONS = sorted(
    {WORKER_FAILED, RESTARTED, STICKY_WORKER_BUSY, *(why.word for why in UNCHARGED)}
)  # shown from the start
NODE_STATES = ("Online", "Drained", "Unreachable", "Offline", "Quarantined", "Unhealthy", "Stopping")
ENDS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
Samples = Iterable[tuple[tuple[str, ...], float]]


class Moment(Struct):
    """Everything that one scrape shows."""

    recorder: Recorder
    survey: Survey
    counts: list[int]  # tasks by status
    epoch: int
    is_leader: bool
    behind_s: float
    requests: Mapping[tuple[str, int], int]
    idle: IdleSamples = field(default_factory=IdleSamples)


class Family(Struct):
    name: str
    help: str
    samples: Callable[[Moment], Samples]
    labels: tuple[str, ...] = ()


class HistogramFamily(Struct):
    name: str
    help: str
    histogram: Callable[[Recorder], Histogram]


def _gauge(name: str, text: str, value: Callable[[Moment], float]) -> Family:
    return Family(f"phalanx_{name}", text, lambda now: [((), value(now))])


def _counter(name: str, text: str, value: Callable[[Recorder], float]) -> Family:
    return Family(f"phalanx_{name}", text, lambda now: [((), value(now.recorder))])


def _requeued(now: Moment) -> Samples:
    counted = dict.fromkeys(REQUEUE_REASONS, 0) | now.recorder.requeued
    return [((reason,), count) for reason, count in counted.items()]


def _joules(now: Moment) -> Samples:
    total = now.recorder.accounts.total()
    return [(("cpu",), total.cpu_joules), (("gpu",), total.gpu_joules)]


def _version() -> str:
    """Read when it is asked for: finding it out takes a tenth of a coordinator's start."""
    from phalanx import __version__

    return __version__


GAUGES = (
    Family(
        "phalanx_build_info",
        "Version of this coordinator; always 1.",
        lambda _now: [((_version(),), 1)],
        ("version",),
    ),
    _gauge("coordinator_leader", "1 if this coordinator is active.", lambda now: now.is_leader),
    _gauge("coordinator_epoch", "Epoch of the term, as this coordinator knows it.", lambda now: now.epoch),
    _gauge(
        "coordinator_behind_seconds",
        "Time since a standby read the log to its end.",
        lambda now: min(now.behind_s, 1e9),
    ),
    Family(
        "phalanx_tasks",
        "Tasks of the jobs in memory, by status.",
        lambda now: [((status.word,), now.counts[status]) for status in Status],
        ("status",),
    ),
    _gauge("ready_tasks", "Tasks that wait for nothing but room or quota.", lambda now: now.survey.ready),
    Family(
        "phalanx_jobs",
        "Jobs in memory, by status and queue.",
        lambda now: now.survey.jobs.items(),
        ("state", "queue"),
    ),
    Family(
        "phalanx_unplaced_jobs",
        "Jobs that wait and hold no place, by the kind of wait and what they wait for.",
        lambda now: now.survey.unplaced.items(),
        ("queue", "reason", "cause"),
    ),
    Family(
        "phalanx_nodes",
        "Nodes, by state.",
        lambda now: [((state,), now.survey.nodes[state]) for state in NODE_STATES],
        ("state",),
    ),
    _gauge("devices", "Devices of nodes that are not lost.", lambda now: now.survey.devices),
    _gauge(
        "devices_failed",
        "Devices that a health check took out of service, of those.",
        lambda now: now.survey.devices_failed,
    ),
    _gauge("devices_allocated", "Devices that tasks hold.", lambda now: now.survey.devices_allocated),
    _gauge("cores", "Cores of nodes that are not lost.", lambda now: now.survey.millicores / 1000),
    _gauge(
        "cores_allocated",
        "Cores that tasks hold, of those nodes.",
        lambda now: now.survey.millicores_allocated / 1000,
    ),
    _gauge("allocations", "Grants that are held.", lambda now: now.survey.allocations),
    Family(
        "phalanx_heartbeat_age_seconds",
        "Time since a node was last heard of.",
        lambda now: [((name,), each.heard_s) for name, each in now.survey.by_node.items()],
        ("node",),
    ),
    Family(
        "phalanx_gpu_allocated",
        "Devices of a node that tasks hold.",
        lambda now: [((name,), each.devices_allocated) for name, each in now.survey.by_node.items()],
        ("node",),
    ),
    Family(
        "phalanx_gpu_idle_allocated",
        "Devices of a node that tasks hold and hardly use.",
        lambda now: [((name,), now.idle.by_node.get(name, 0)) for name in now.survey.by_node],
        ("node",),
    ),
    _gauge(
        "nodes_active",
        "Nodes whose time counts in cost and energy.",
        lambda now: now.recorder.accounts.active,
    ),
    _gauge(
        "nodes_disabled",
        "Nodes that people or automatic scaling disabled.",
        lambda now: now.survey.nodes_disabled,
    ),
)
# Prometheus' own library adds `_total` to these names.
COUNTERS = (
    _counter("task_submitted", "Tasks submitted.", lambda recorder: recorder.submitted),
    _counter("task_started", "Attempts that started.", lambda recorder: recorder.started),
    Family(
        "phalanx_task_ended",
        "Tasks that ended for good, by status.",
        lambda now: [((status.word,), now.recorder.ended[status]) for status in ENDS],
        ("status",),
    ),
    Family(
        "phalanx_task_requeued",
        "Tasks whose attempt ended and that wait again, by reason.",
        _requeued,
        ("reason",),
    ),
    Family(
        "phalanx_preemptions",
        "Attempts that were asked to leave: for a job of higher priority, or by an operator.",
        lambda now: [((reason,), count) for reason, count in now.recorder.preemptions.items()],
        ("reason",),
    ),
    Family(
        "phalanx_dispatches",
        "Tasks that a dispatch mode gave a node, by how it was chosen.",
        lambda now: [((strategy,), count) for strategy, count in now.recorder.dispatches.by_strategy.items()],
        ("strategy",),
    ),
    _counter(
        "dispatch_reused",
        "Of these, tasks given to a node that had loaded a model or dataset of theirs.",
        lambda recorder: recorder.dispatches.reused,
    ),
    _counter(
        "task_merged", "Tasks that ran as a part of another.", lambda recorder: recorder.dispatches.merged
    ),
    _counter("fenced_reports", "Reports of runners refused as stale.", lambda recorder: recorder.fenced),
    _counter(
        "node_registered", "Nodes that joined or came back.", lambda recorder: recorder.accounts.registered
    ),
    _counter(
        "node_unregistered",
        "Nodes that stopped, were lost or were removed.",
        lambda recorder: recorder.accounts.unregistered,
    ),
    _counter("node_heartbeats", "Heartbeats received.", lambda recorder: recorder.heartbeats),
    _counter(
        "node_counted_seconds",
        "Time of nodes that counted in cost and energy.",
        lambda recorder: recorder.accounts.total().counted_s,
    ),
    _counter(
        "accrued_cost_usd",
        "Price of that time; 1.0 an hour where a runner reports none.",
        lambda recorder: recorder.accounts.total().cost,
    ),
    Family(
        "phalanx_estimated_energy_joules",
        "Nominal power of cores and devices times that time; nothing is measured.",
        _joules,
        ("part",),
    ),
    Family(
        "phalanx_gpu_idle_allocated_seconds",
        "Time in which devices were held and idle, by the queue of the job that held them.",
        lambda now: [((queue,), seconds) for queue, seconds in now.idle.seconds.items()],
        ("queue",),
    ),
    Family(
        "phalanx_http_requests",
        "Requests answered, by the noun of their path and the status.",
        lambda now: [((route, str(status)), count) for (route, status), count in now.requests.items()],
        ("route", "status"),
    ),
    _counter(
        "metrics_missed_events",
        "Events that this standby could not count, because the log was pruned before it read them.",
        lambda recorder: recorder.missed,
    ),
)
HISTOGRAMS = (
    HistogramFamily(
        "phalanx_queue_wait_seconds", "From submission or requeue to a place.", lambda r: r.queue_wait
    ),
    HistogramFamily(
        "phalanx_task_execution_seconds",
        "Run time of attempts after which their task did not wait again.",
        lambda r: r.execution,
    ),
    HistogramFamily(
        "phalanx_gang_barrier_wait_seconds",
        "From the first place of a gang to its release.",
        lambda r: r.barrier_wait,
    ),
    HistogramFamily("phalanx_placement_duration_seconds", "Time that one plan took.", lambda r: r.placement),
    HistogramFamily(
        "phalanx_store_append_duration_seconds",
        "Time that the store took to keep one batch.",
        lambda r: r.append,
    ),
)
