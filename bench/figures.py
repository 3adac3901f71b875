"""Figures: what was measured, its target, and whether that was met. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from bench.machine import Weather

Table = tuple[str, list[str], list[list[str]]]  # a heading, the columns, the rows


@dataclass
class Figure:
    """One quantity, once per round, judged by its median."""

    name: str
    unit: str
    values: list[float]
    target: float | None = None
    better: Literal["more", "less"] = "more"

    @property
    def measured(self) -> float:
        return median(self.values)

    @property
    def met(self) -> bool:
        assert self.target is not None
        return self.measured >= self.target if self.better == "more" else self.measured <= self.target

    @property
    def aim(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.better == 'more' else '≤'} {number(self.target)} {self.unit}".strip()

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self.met:
            return "met"
        return f"missed by {abs(self.measured - self.target) / self.target:.0%}"

    @property
    def spread(self) -> str:
        if len(self.values) < 2:
            return ""
        return f"{number(min(self.values))} to {number(max(self.values))}"

    def __str__(self) -> str:
        aim = f"  ({self.aim}: {self.verdict})" if self.target is not None else ""
        return f"{self.name}: {number(self.measured)} {self.unit}{aim}"


@dataclass
class Chapter:
    """What one cell found. `not_run` says why it found nothing."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_run: str = ""
    took_s: float = 0.0
    weather: Weather | None = None


def number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 or value == 0 else f"{value:.3f}"


def quantile(values: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
