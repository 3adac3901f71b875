"""Alarms: what an operator should look at, from one snapshot and the failures that the watch stream reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from phalanx.api.schema.jobs import JobView, WatchEvent
from phalanx.cli.labels import label
from phalanx.cli.output import clean
from phalanx.cli.top.heat_map import natural
from phalanx.cli.top.job_rows import ended_by
from phalanx.cli.top.snapshot import ClusterSnapshot
from phalanx.core.model.amounts import describe_seconds, plural

Severity = Literal["critical", "warning", "notice"]
RANKS: dict[Severity, int] = {"critical": 0, "warning": 1, "notice": 2}
FAILURES_MAX = 200
BEHIND_S = 5.0


class Alarm(Struct, frozen=True):
    """One thing to look at. `subject` is a node or a task, or empty for the cluster."""

    severity: Severity
    subject: str
    text: str
    at: float | None = None  # when it happened; None: it is so now


def alarms_of(snapshot: ClusterSnapshot) -> list[Alarm]:
    """Everything that is unusual now, the worst first."""
    found = [*_of_cluster(snapshot), *_of_nodes(snapshot), *_of_devices(snapshot)]
    return sorted(found, key=lambda alarm: (RANKS[alarm.severity], natural(alarm.subject)))


def _of_cluster(snapshot: ClusterSnapshot) -> Iterable[Alarm]:
    cluster, by = snapshot.cluster, snapshot.cluster.coordinator
    if cluster.brake:
        yield Alarm("critical", "", clean(cluster.brake))
    if by is None:
        return
    if by.trouble:
        yield Alarm("critical", by.name, f"coordinator in trouble: {clean(by.trouble)}")
    if by.role != "Active":
        text = f"no active coordinator; {by.name} answers from a state {describe_seconds(by.behind_s)} old"
        yield Alarm("critical" if by.behind_s > BEHIND_S else "warning", by.name, text)


def _of_nodes(snapshot: ClusterSnapshot) -> Iterable[Alarm]:
    for node in snapshot.nodes:
        note = f": {clean(node.note)}" if node.note else ""
        if node.status not in {"Online", "Stopping"}:
            there = f", {plural(node.task_count, 'task')} there" if node.task_count else ""
            yield Alarm("critical", node.name, f"{node.status}{there}{note}")
        elif node.drained:
            yield Alarm("notice", node.name, f"drained: {clean(node.drain_reason) or 'no reason given'}")
        elif node.note:
            yield Alarm("warning", node.name, clean(node.note))


def _of_devices(snapshot: ClusterSnapshot) -> Iterable[Alarm]:
    for node in snapshot.nodes:
        for device in node.devices:
            if device.out_of_service:
                yield Alarm(
                    "warning", node.name, f"GPU {device.index} out of service: {clean(device.out_of_service)}"
                )
            elif device.task is not None and device.idle_s:
                holder = device.number or device.task
                text = f"GPU {device.index} held by {holder} and idle for {describe_seconds(device.idle_s)}"
                yield Alarm("notice", node.name, text)


class Failures:
    """The newest failures of tasks and losses of nodes, and before those the jobs that had failed already."""

    def __init__(self) -> None:
        self._kept: deque[Alarm] = deque(maxlen=FAILURES_MAX)
        self._before: list[Alarm] = []

    def begin(self, failed: Iterable[JobView]) -> None:
        """Jobs that had failed before `phalanx top` was opened."""
        ended = sorted(failed, key=lambda job: job.ended_at or 0.0, reverse=True)
        self._before = [
            Alarm("notice", label(job), clean(f"{job.name} {job.user}: {ended_by(job)}"), job.ended_at)
            for job in ended
        ]

    def take(self, event: WatchEvent) -> bool:
        """Keep the event if it is one of those."""
        is_lost = event.event == "NodeLost"
        if event.status != "Failed" and not is_lost:
            return False
        subject = (event.node or "") if is_lost else event.number or event.task or event.job or ""
        text = event.text or " ".join(filter(None, (event.status or event.event, event.reason)))
        self._kept.appendleft(
            Alarm("critical" if is_lost else "notice", clean(subject), clean(text), event.at)
        )
        return True

    def newest(self) -> list[Alarm]:
        known = {alarm.subject.partition(".")[0] for alarm in self._kept}
        return [*self._kept, *(alarm for alarm in self._before if alarm.subject not in known)][:FAILURES_MAX]
