"""Plain numbers that are cheap to count with: histograms, sums of durations, and the categories of tasks.

`prometheus_client` writes the exposition, but its counters take a lock each time; these are one addition on the one
thread that counts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, get_args

from msgspec import Struct

from phalanx.core.model.dispatch import TASK_TYPE_TAG
from phalanx.core.model.job import Job

Category = Literal["inference", "training", "other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
TRAINING = frozenset({"sft", "lora_sft", "ppo", "dpo", "training", "image_classification_training"})
FAST_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SLOW_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86_400.0)


class Histogram:
    """How many durations were at most so long."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        total, found = 0, list[tuple[str, float]]()
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return found


class Duration(Struct):
    """The sum of some durations, and of how many."""

    count: int = 0
    total_s: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.total_s += seconds

    @property
    def average_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0


class Timings(Struct):
    """How long tasks of one category waited and ran, and how long it took from their submission to their end."""

    queue: Duration
    execution: Duration
    total: Duration


def no_timings() -> Timings:
    return Timings(Duration(), Duration(), Duration())


def summed(each: list[Timings]) -> Timings:
    """All categories together."""
    total = no_timings()
    for timings in each:
        for name in ("queue", "execution", "total"):
            part: Duration = getattr(timings, name)
            getattr(total, name).add(part.total_s, part.count)
    return total


def category_of(job: Job) -> Category:
    """By the job's task type, which stands in a tag."""
    for key, value in job.tags:
        if key == TASK_TYPE_TAG:
            return "inference" if value == "inference" else "training" if value in TRAINING else "other"
    return "other"
