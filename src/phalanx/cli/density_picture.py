"""The density plot as a picture, drawn by matplotlib: bars of submissions above, a line of active nodes below."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from phalanx.cli.density import DensityFile

BLUE, ORANGE = "#2a6fbb", "#d9822b"


def draw(series: DensityFile, output: Path) -> None:
    """Write a picture in the format that the file's name says."""
    figure = Figure(figsize=(10, 5.5), dpi=120, layout="constrained")
    tasks, nodes = figure.subplots(2, 1, sharex=True)
    width = timedelta(seconds=series.bucket_seconds)
    starts = [each.bucket_start for each in series.task_density_buckets]
    rates = [each.tasks_per_minute for each in series.task_density_buckets]
    tasks.bar(starts, rates, width=width, align="edge", color=BLUE, edgecolor="white", linewidth=0.3)
    tasks.set_ylabel("tasks submitted per minute")
    tasks.set_title(f"Task submissions and active nodes (intervals of {series.bucket_seconds:g} s)")
    times = [each.ts for each in series.worker_count_series]
    counts = [each.active_workers for each in series.worker_count_series]
    nodes.step(times, counts, where="post", color=ORANGE, linewidth=1.8)
    nodes.fill_between(times, counts, step="post", color=ORANGE, alpha=0.2)
    nodes.set_ylabel("active nodes")
    nodes.set_xlabel("time (UTC)")
    nodes.yaxis.set_major_locator(MaxNLocator(integer=True))
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    nodes.xaxis.set_major_locator(locator)
    nodes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    for axes in (tasks, nodes):
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    still = {"Date": None} if output.suffix.lower() == ".svg" else None  # the same picture each time
    figure.savefig(output, metadata=still)
