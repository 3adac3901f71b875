"""How many tasks were submitted in each interval, and how many nodes were there: the series of a density plot.

Both series are bounded; the oldest go first. Intervals begin at multiples of their length. The number of nodes is noted
when one registers, leaves or is heard of, but an equal number not twice within a second. A coordinator that starts
again goes on with what its predecessor has written.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

BUCKETS_MAX = 20_160  # two weeks of minutes
SERIES_MAX = 50_000
SAME_WITHIN_S = 1.0


class WrittenBucket(Struct):
    bucket_start: datetime
    count: int


class WrittenNodes(Struct):
    ts: datetime
    active_workers: int


class WrittenDensity(Struct):
    """The file, as far as it is read again."""

    bucket_seconds: float
    task_density_buckets: list[WrittenBucket]
    worker_count_series: list[WrittenNodes]


class Density:
    def __init__(self, bucket_s: float = 60.0) -> None:
        self.bucket_s = bucket_s
        self._buckets: OrderedDict[float, int] = OrderedDict()
        self._nodes: deque[tuple[float, int]] = deque(maxlen=SERIES_MAX)

    def submitted(self, at: float, tasks: int) -> None:
        start = at // self.bucket_s * self.bucket_s
        self._add(start, tasks)

    def counted(self, at: float, nodes: int) -> None:
        """So many nodes are active now."""
        if self._nodes:
            last_at, last = self._nodes[-1]
            if last == nodes and at - last_at < SAME_WITHIN_S:
                return
        self._nodes.append((at, nodes))

    def end(self, at: float) -> None:
        """Nothing more comes: an empty interval follows the last one, so that a plot ends at zero."""
        last = max(self._buckets, default=None)
        start = at // self.bucket_s * self.bucket_s
        if last is not None:
            start = max(start, last + self.bucket_s)
        self._add(start, 0)

    def go_on(self, written: WrittenDensity) -> None:
        """Begin with these series; ValueError if their intervals do not fit into ours."""
        if not written.bucket_seconds > 0 or self.bucket_s % written.bucket_seconds:
            raise ValueError(
                f"its intervals have {written.bucket_seconds:g} s, and are to have {self.bucket_s:g} s"
            )
        for bucket in sorted(written.task_density_buckets, key=lambda each: each.bucket_start):
            self.submitted(bucket.bucket_start.timestamp(), bucket.count)
        self._nodes.extend((each.ts.timestamp(), each.active_workers) for each in written.worker_count_series)

    def document(self, at: float) -> dict[str, Any]:
        """The file, as FlowMesh has it."""
        return {
            "generated_at": iso(at),
            "bucket_seconds": int(self.bucket_s) if self.bucket_s.is_integer() else self.bucket_s,
            "task_density_buckets": [
                {"bucket_start": iso(start), "count": count, "tasks_per_minute": count * 60.0 / self.bucket_s}
                for start, count in sorted(self._buckets.items())
            ],
            "worker_count_series": [{"ts": iso(at), "active_workers": count} for at, count in self._nodes],
        }

    def _add(self, start: float, tasks: int) -> None:
        self._buckets[start] = self._buckets.get(start, 0) + tasks
        while len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)


def iso(at: float) -> str:
    """An instant as ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
