"""The picture of `phalanx workflow graph` in the workflows guide: the command's own text, as on a terminal."""

from __future__ import annotations

import re
from html import escape

from phalanx.api.schema.workflows import StageView, StageWord, WorkflowView
from phalanx.cli.workflow_graph import MARKS, draw_graph

COMMAND = "$ phalanx workflow graph 01k8… --watch"
LINE, SIGN, MARGIN = 20, 8.4, 16  # pixels: height of a line, width of a character, around all of it
GROUND, PLAIN, FAINT = "#1d2229", "#d8dee6", "#7b8794"
COLOURS = {
    "✔": "#7ccf85",
    "▶": "#62b0f5",
    "◔": "#62b0f5",
    "✘": "#f07b72",
    "↷": "#9aa5b1",
    "○": "#e5c76b",
    "·": FAINT,
    "⊘": "#c792ea",
}
_RUN = re.compile(r"\S+(?: \S+)*")
assert set(COLOURS) == set(MARKS.values())


def view() -> WorkflowView:
    """A fine-tuning with three trials, of which one failed: what stands behind it does not run, other branches do."""
    stages = [
        _stage("fetch", "Completed", took_s=41),
        _stage("clean", "Completed", "fetch", took_s=73),
        _stage("train-small", "Completed", "clean", took_s=912),
        _stage("judge-small", "Completed", "train-small", took_s=64),
        _stage("train-large", "Running", "clean", node="gpu-3"),
        _stage("judge-large", "Waiting", "train-large"),
        _stage("train-wide", "Failed", "clean", took_s=205),
        _stage("judge-wide", "Failed", "train-wide"),
        _stage("compare", "Waiting", "judge-small", "judge-large"),
        _stage("publish", "Waiting", "compare"),
        _stage("tell", "Skipped", "judge-small"),
    ]
    counts: dict[str, int] = {}
    for stage in stages:
        counts[stage.status] = counts.get(stage.status, 0) + 1
    return WorkflowView("0" * 26, "fine-tune", "ada", "Running", 0.0, counts, stages=stages)


def _stage(
    name: str, status: StageWord, *after: str, took_s: float = 0.0, node: str | None = None
) -> StageView:
    ended = (1.0, 1.0 + took_s) if took_s else (None, None)
    return StageView(name, status, "0" * 26, list(after), node=node, started_at=ended[0], ended_at=ended[1])


def drawing() -> str:
    """The picture, as SVG."""
    lines = [COMMAND, *draw_graph(view(), "tree").rstrip("\n").split("\n")]
    width = 2 * MARGIN + SIGN * max(map(len, lines))
    height = 2 * MARGIN + LINE * len(lines)
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    label = 'role="img" aria-label="A workflow of eleven stages as a tree"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>',
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">',
    ]
    for number, line in enumerate(lines):
        y = MARGIN + LINE * number + 14
        mark = next((at for at, sign in enumerate(line) if sign in COLOURS), None)
        if mark is None:
            parts.append(_text(line, 0, y, FAINT if number == 0 else PLAIN))
        else:
            parts += [_text(line[:mark], 0, y, FAINT), _text(line[mark:], mark, y, COLOURS[line[mark]])]
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _text(text: str, at: int, y: int, colour: str) -> str:
    """A part of a line that begins in this column: words with single spaces between them, each run at its own place."""
    return "".join(
        f'<text x="{MARGIN + SIGN * (at + run.start()):.1f}" y="{y}" fill="{colour}"'
        f' textLength="{SIGN * len(run[0]):.1f}" lengthAdjust="spacingAndGlyphs">{escape(run[0])}</text>'
        for run in _RUN.finditer(text)
    )
