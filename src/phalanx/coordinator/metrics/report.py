"""The metrics as JSON: the form of FlowMesh's metrics.json, from the same counts as `/metrics`."""

from __future__ import annotations

from itertools import islice

from phalanx.api.schema.metrics import (
    MetricsCounters,
    MetricsReport,
    TaskTimings,
    WorkerMetrics,
    WorkersMetrics,
    WorkerTotals,
)
from phalanx.coordinator.metrics.accounts import NodeAccount, is_counted, is_disabled
from phalanx.coordinator.metrics.density import iso
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.survey import NODES_MAX
from phalanx.coordinator.metrics.tallies import Timings, summed
from phalanx.coordinator.views_cluster import node_status
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Status

JOULES_PER_KWH = 3_600_000


def metrics_report(
    recorder: Recorder, state: ClusterState, now: float, coordinator: str, ready: int
) -> MetricsReport:
    """Everything, as it is now."""
    recorder.accounts.settle(now)
    timings: dict[str, TaskTimings] = {name: _timings(each) for name, each in recorder.timings.items()}
    return MetricsReport(
        generated_at=iso(now),
        coordinator=coordinator,
        epoch=state.epoch,
        counters=_counters(recorder),
        task_timings={"overall": _timings(summed(list(recorder.timings.values()))), **timings},
        workers=_workers(recorder, state),
        active_workers_count=recorder.accounts.active,
        elastic_disabled_workers=sorted(node.name for node in state.nodes.values() if is_disabled(node)),
        completed_tasks=sorted(job.task_id(position) for job, position in recorder.completed),
        ready_tasks=ready,
        tasks={status.word: state.counts[status] for status in Status},
    )


def _counters(recorder: Recorder) -> MetricsCounters:
    return MetricsCounters(
        tasks_submitted=recorder.submitted,
        tasks_succeeded=recorder.ended[Status.COMPLETED],
        tasks_failed=recorder.ended[Status.FAILED],
        tasks_requeued=sum(recorder.requeued.values()),
        workers_registered=recorder.accounts.registered,
        workers_unregistered=recorder.accounts.unregistered,
        worker_heartbeats=recorder.heartbeats,
        tasks_cancelled=recorder.ended[Status.CANCELLED],
        tasks_requeued_by_reason=dict(sorted(recorder.requeued.items())),
    )


def _timings(of: Timings) -> TaskTimings:
    return TaskTimings(
        of.queue.average_s, of.queue.count, of.queue.total_s,
        of.execution.average_s, of.execution.count, of.execution.total_s,
        of.total.average_s, of.total.count, of.total.total_s,
    )  # fmt: skip


def _workers(recorder: Recorder, state: ClusterState) -> WorkersMetrics:
    accounts = recorder.accounts
    total = accounts.total()
    counted = [node for node in state.nodes.values() if is_counted(node)]
    totals = WorkerTotals(
        accrued_cost_usd=total.cost,
        uptime_sec=total.counted_s,
        estimated_energy_kwh=(total.cpu_joules + total.gpu_joules) / JOULES_PER_KWH,
        cpu_energy_kwh=total.cpu_joules / JOULES_PER_KWH,
        gpu_energy_kwh=total.gpu_joules / JOULES_PER_KWH,
        workers_with_energy=sum(account.power.is_whole for account in accounts.by_node.values()),
        gpu_memory_total_bytes=sum(each.memory_bytes for node in counted for each in node.capacity.devices),
    )
    names = islice(sorted(state.nodes), NODES_MAX)
    return WorkersMetrics(totals, {name: _worker(recorder, state, name) for name in names})


def _worker(recorder: Recorder, state: ClusterState, name: str) -> WorkerMetrics:
    node, account = state.nodes[name], recorder.accounts.by_node.get(name, NodeAccount())
    return WorkerMetrics(
        status=node_status(node),
        cost_per_hour=node.capacity.cost_per_hour,
        uptime_sec=account.counted_s,
        accrued_cost_usd=account.cost,
        estimated_energy_kwh=(account.cpu_joules + account.gpu_joules) / JOULES_PER_KWH,
        cpu_energy_kwh=account.cpu_joules / JOULES_PER_KWH,
        gpu_energy_kwh=account.gpu_joules / JOULES_PER_KWH,
        energy_is_complete=account.power.is_whole,
        elastic_disabled=is_disabled(node),
    )
