"""What users see of usage, as the words of REST: one task, and sums over many."""

from __future__ import annotations

from phalanx.api.schema.jobs import UsageSummary
from phalanx.api.schema.usage import CurvePoint, DeviceUsage, UsageSums
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.amounts import MILLI, MILLICORES
from phalanx.core.model.usage import AttemptUsage, UsageTotals, run_seconds, share
from phalanx.link.usage import DeviceSample, UsagePoint

HOUR_S = 3600.0


def ended_usage(job: JobState, position: int) -> UsageSummary | None:
    """Of the newest attempt of a task, which has ended; None if it was not measured."""
    used = job.usage.of(position)
    if used is None:
        return None
    return summary(job, position, used, run_seconds(job.started_at(position), job.finished_at(position)))


def summary(job: JobState, position: int, used: AttemptUsage, run_s: float) -> UsageSummary:
    """What was used in so many seconds against what its group asks for."""
    request = job.group_of(position).request
    return UsageSummary(
        cpu_s=used.cpu_s,
        cpu_efficiency=share(used.cpu_s, run_s * MILLICORES[request.cores] / MILLI),
        memory_peak_bytes=used.memory_peak_bytes,
        memory_share=share(used.memory_peak_bytes, request.memory_bytes),
        read_bytes=used.read_bytes,
        written_bytes=used.written_bytes,
        device_use=share(used.device_busy_s, used.device_s),
        device_idle_s=used.device_idle_s,
        device_memory_peak_bytes=used.device_memory_peak_bytes,
    )


def sums_view(totals: UsageTotals, tasks: int) -> UsageSums:
    return UsageSums(
        tasks=tasks,
        attempts=totals.attempts,
        core_hours=totals.core_s / HOUR_S,
        core_hours_used=totals.cpu_s / HOUR_S,
        cpu_efficiency=share(totals.cpu_s, totals.measured_core_s),
        device_hours=totals.device_s / HOUR_S,
        device_use=share(totals.device_busy_s, totals.sampled_device_s),
        device_hours_idle=totals.device_idle_s / HOUR_S,
        memory_peak_bytes=totals.memory_peak_bytes,
        memory_share=share(totals.peak_byte_s, totals.asked_byte_s),
        read_bytes=totals.read_bytes,
        written_bytes=totals.written_bytes,
        cost=totals.cost,
    )


def point_view(point: UsagePoint) -> CurvePoint:
    return CurvePoint(
        at=point.at,
        span_s=point.span_s,
        cores=point.cores,
        memory_bytes=int(point.memory_bytes),
        read_bytes_per_s=point.read_bytes_per_s,
        written_bytes_per_s=point.written_bytes_per_s,
        processes=int(point.processes),
        device_use=None if point.device_use < 0 else point.device_use,
        device_memory_bytes=int(point.device_memory_bytes),
    )


def device_view(sample: DeviceSample) -> DeviceUsage:
    return DeviceUsage(
        sample.index, sample.use, sample.mean_use, sample.memory_bytes, sample.is_own, sample.idle_s
    )
