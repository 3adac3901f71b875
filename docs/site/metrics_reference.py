"""Every metric of `/metrics` as a Markdown table: name, labels, what it says."""

from __future__ import annotations

from phalanx.coordinator.metrics.families import COUNTERS, GAUGES, HISTOGRAMS


def text() -> str:
    """A table for each type."""
    counters = [(f"{row.name}_total", row.labels, row.help) for row in COUNTERS]
    histograms: list[tuple[str, tuple[str, ...], str]] = [(row.name, (), row.help) for row in HISTOGRAMS]
    parts = [
        _table("Gauges", [(row.name, row.labels, row.help) for row in GAUGES]),
        _table("Counters", counters),
        _table("Histograms", histograms),
    ]
    return "\n".join(parts)


def _table(title: str, rows: list[tuple[str, tuple[str, ...], str]]) -> str:
    lines = [f"### {title}", "", "| metric | labels | meaning |", "|---|---|---|"]
    for name, labels, meaning in rows:
        lines.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels) or '—'} | {meaning} |")
    return "\n".join(lines) + "\n"
