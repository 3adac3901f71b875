"""Fake of the coordinator's answers about usage: one task that runs, and a report of one user."""

from __future__ import annotations

from phalanx.api.schema.jobs import UsageSummary
from phalanx.api.schema.usage import (
    CurvePoint,
    DeviceUsage,
    ReportQuery,
    ReportReply,
    ReportRow,
    TaskUsage,
    UsageReply,
    UsageSums,
)

SUMMARY = UsageSummary(90.0, 0.45, 3 << 30, 0.75, 4096, 1 << 20, 0.6, 120.0, 5 << 30)


class FakeUsage:
    """Implements the part of `Commands` about usage."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[ReportQuery] = []

    async def usage(self, id: str, *, points: int, cursor: str | None, limit: int) -> UsageReply:
        return UsageReply(id, "Running", [a_usage(id, points)], UsageSums(tasks=1), 1000.0, 5.0)

    async def report(self, query: ReportQuery) -> ReportReply:
        self.reported.append(query)
        row = ReportRow(query.user or "ada", 1, UsageSums(tasks=2, core_hours=3.0))
        return ReportReply(query.by, query.since, query.until, 1000.0, [row], row)


def a_usage(id: str, points: int = 3) -> TaskUsage:
    """A running task whose use of processors rises."""
    curve = [
        CurvePoint(1000.0 + 5 * n, 5.0, float(n), (n + 1) << 30, 0.0, 1024.0, 2, 0.5) for n in range(points)
    ]
    return TaskUsage(
        id=id,
        status="Running",
        attempt=1,
        node="n1",
        run_s=50.0,
        cores=4,
        memory_bytes=4 << 30,
        gpus=1,
        summary=SUMMARY,
        now=curve[-1] if curve else None,
        devices=[DeviceUsage(0, 0.0, 0.6, 5 << 30, True, 1200.0)],
        points=curve,
        source="processes",
    )
