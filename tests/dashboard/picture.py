"""The panels as one picture, drawn by matplotlib where Grafana is not at hand: the same places, titles and legends."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tests.dashboard.panels import Panel

COLUMNS, ROW_INCHES, WIDTH_INCHES = 24, 0.34, 18.0
BACK, PANEL, INK, FAINT = "#111217", "#181b1f", "#d8d9da", "#2c3235"
LINES_MAX = 12  # of a panel in its legend
COLOURS = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#37872d", "#fade2a", "#c4162a",
)  # fmt: skip


def draw(panels: list[Panel], began: float, ended: float, output: Path) -> None:
    """Write the picture."""
    rows = max(panel.y + panel.height for panel in panels)
    figure = Figure(figsize=(WIDTH_INCHES, rows * ROW_INCHES), dpi=72, facecolor=BACK)
    for panel in panels:
        left, width = panel.x / COLUMNS, panel.width / COLUMNS
        bottom, height = 1 - (panel.y + panel.height) / rows, panel.height / rows
        room = (left + 0.028, bottom + 0.3 / rows + 0.0085, width - 0.036, height - 1.75 / rows - 0.0085)
        axes = figure.add_axes(room, facecolor=PANEL)
        axes.set_title(panel.title, color=INK, fontsize=10, loc="left", pad=4)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
        if panel.kind == "timeseries":
            _lines(axes, panel, began, ended)
        else:
            _texts(axes, panel)
    figure.savefig(output, facecolor=BACK)


def _lines(axes: Axes, panel: Panel, began: float, ended: float) -> None:
    drawn = 0
    for query in panel.queries:
        for series in query.series:
            times = [_day(at) for at, _ in series.points]
            values = [value for _, value in series.points]
            is_named = drawn < LINES_MAX
            axes.plot(
                times,
                values,
                color=COLOURS[drawn % len(COLOURS)],
                linewidth=1.3,
                marker="." if len(values) < 4 else "",
                label=query.name(series) if is_named else None,
            )
            drawn += 1
    axes.set_xlim(_day(began), _day(ended))
    locator = AutoDateLocator(minticks=4, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _spelled(value, panel.unit)))
    axes.tick_params(colors=INK, labelsize=7, color=FAINT)
    axes.grid(color=FAINT, linewidth=0.6)
    if axes.get_ylim()[0] > 0 or all(value == 0 for value in axes.get_ylim()):
        axes.set_ylim(bottom=0)
    if drawn:
        axes.legend(
            fontsize=7,
            loc="upper left",
            labelcolor=INK,
            facecolor=PANEL,
            edgecolor=FAINT,
            framealpha=0.7,
            ncols=2,
        )
    else:
        axes.text(0.5, 0.5, "no data", color=INK, ha="center", va="center", transform=axes.transAxes)


def _texts(axes: Axes, panel: Panel) -> None:
    """The newest values: one large, or several below each other."""
    axes.set_xticks([])
    axes.set_yticks([])
    found = [
        (query.name(series), series.points[-1][1])
        for query in panel.queries
        for series in query.series
        if series.points
    ]
    if panel.kind == "stat":
        text = "\n".join(_spelled(value, panel.unit) for _, value in found) or "no data"
        axes.text(
            0.5, 0.45, text, color=COLOURS[0], fontsize=24, ha="center", va="center", transform=axes.transAxes
        )
        return
    text = "\n".join(name for name, _ in found) or "no data"
    axes.text(0.03, 0.92, text, color=INK, fontsize=9, va="top", transform=axes.transAxes, linespacing=1.8)


def _day(at: float) -> float:
    """An instant as matplotlib counts: in days."""
    return at / 86_400.0


def _spelled(value: float, unit: str) -> str:
    """A number with its unit, as short as Grafana has it."""
    if math.isnan(value):
        return "—"
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    ends = {"s": " s", "ops": " /s", "reqps": " /s", "watt": " W"}
    sign = "$" if unit == "currencyUSD" else ""
    return f"{sign}{value:.4g}{ends.get(unit, '')}"
