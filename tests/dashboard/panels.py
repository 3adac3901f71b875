"""The panels of the dashboard: where each stands, its queries, and what they gave."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

JOB = "phalanx"  # the name of the scrape job, for the variable $job


@dataclass
class Series:
    """One line: its labels, and its points as time and value."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass
class Query:
    expr: str
    legend: str
    series: list[Series] = field(default_factory=list)

    @property
    def has_data(self) -> bool:
        return any(not math.isnan(value) for series in self.series for _, value in series.points)

    def name(self, series: Series) -> str:
        """The legend with the labels of a series."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: series.labels.get(found[1], ""), self.legend)


@dataclass
class Panel:
    title: str
    kind: str
    x: int
    y: int
    width: int
    height: int
    unit: str
    queries: list[Query]

    def told(self) -> str:
        """A line for people: how many series each query gave."""
        counts = [
            f"{len(query.series)}" if query.has_data else f"NO DATA {query.expr}" for query in self.queries
        ]
        return f"{self.title:32} {', '.join(counts)}"


def read_panels(dashboard: dict[str, Any]) -> list[Panel]:
    """The panels of a dashboard, and its annotations as one more."""
    panels = [_panel(each) for each in dashboard["panels"]]
    bottom = max(panel.y + panel.height for panel in panels)
    marks = [Query(_asked(each["expr"]), each["name"]) for each in dashboard["annotations"]["list"]]
    return [*panels, Panel("Annotations", "timeseries", 0, bottom, 24, 4, "", marks)]


def _panel(document: dict[str, Any]) -> Panel:
    place = document["gridPos"]
    queries = [Query(_asked(each["expr"]), each["legendFormat"]) for each in document["targets"]]
    unit = document["fieldConfig"]["defaults"].get("unit", "")
    return Panel(
        document["title"], document["type"], place["x"], place["y"], place["w"], place["h"], unit, queries
    )


def _asked(expr: str) -> str:
    return expr.replace("$job", JOB)
