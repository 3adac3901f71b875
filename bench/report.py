"""The report: bench/RESULTS.md, written from the chapters and never by hand."""

from __future__ import annotations

import time
from pathlib import Path

from bench.figures import Chapter, Figure, Table, number
from bench.machine import QUIET, describe, filesystem
from bench.session import Session

_CAVEATS = """\
## How to read this

- Compare within one run only. On a shared machine tasks a second move by a quarter between runs; ratios are
  taken within a round, and CPU per task is the steadiest figure.
- HyperQueue's wheel from PyPI has no `hq` program. Its worker lives in a Python process and forks, which costs
  most of its CPU per task; the small static `hq` forks cheaper and will be faster than what is shown here.
- HyperQueue runs without a journal and Ray keeps no state on disk; ours is on the disk before anything is said.
- HyperQueue is given one description per task, as its Python API does it; arrays of its program are lighter.
- Ray does not run tasks as processes. What is measured is a warm worker that spawns one.
- The control CPU of a task is the CPU of all processes of a scheduler, tasks included, less that of the bare
  spawn. The clients' CPU counts for us and not for HyperQueue, whose client has to poll.
"""


def write(path: Path, session: Session, chapters: list[Chapter]) -> None:
    """Write all that is known so far."""
    parts = [_head(session, chapters), _summary(chapters), *map(_chapter, chapters), _CAVEATS]
    path.write_text("\n".join(parts), encoding="utf-8")


def _head(session: Session, chapters: list[Chapter]) -> str:
    rows = [[name, text] for name, text in describe()]
    rows.append(["state on", filesystem(session.folder)])
    weather = [chapter.weather for chapter in chapters if chapter.weather is not None]
    if weather:
        rows.append(
            ["load average", f"{min(w.load for w in weather):.1f} to {max(w.load for w in weather):.1f}"]
        )
        rows.append(["CPU used by others", _span([w.foreign for w in weather])])
        rows.append(["CPU stolen by the host", _span([w.stolen for w in weather])])
    kind = "A quick run: it shows that the cells work, its figures mean nothing." if session.quick else ""
    lines = [
        "# Bench results",
        "",
        f"Written by `make bench` on {time.strftime('%Y-%m-%d %H:%M %Z')}. {kind}".rstrip(),
        "",
        *_table(["machine", ""], rows),
        "",
    ]
    return "\n".join(lines)


def _summary(chapters: list[Chapter]) -> str:
    lines = [
        "## Targets",
        "",
        "| cell | figure | target | measured | rounds | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for chapter in chapters:
        name = chapter.title.partition(":")[0]
        if chapter.not_run:
            lines.append(f"| {name} | | | | | not run: {chapter.not_run} |")
        lines += [
            f"| {name} | {each.name} | {each.aim} | {_measured(each)} | {each.spread} | {_verdict(each, chapter)} |"
            for each in chapter.figures
            if each.target is not None
        ]
    return "\n".join([*lines, ""])


def _chapter(chapter: Chapter) -> str:
    lines = [f"## {chapter.title}", ""]
    if chapter.not_run:
        return "\n".join([*lines, f"Not run: {chapter.not_run}.", ""])
    if chapter.weather is not None:
        foreign, stolen = chapter.weather.foreign, chapter.weather.stolen
        lines += [
            f"{chapter.took_s:.0f} s; others used {foreign:.0%} of the CPUs, {stolen:.0%} was stolen.",
            "",
        ]
    rows = [[each.name, _measured(each), each.spread, each.aim, each.verdict] for each in chapter.figures]
    lines += [*_table(["figure", "median", "lowest to highest", "target", "verdict"], rows), ""]
    for table in chapter.tables:
        lines += [*_titled(table), ""]
    return "\n".join([*lines, *(f"- {note}" for note in chapter.notes), ""])


def _measured(figure: Figure) -> str:
    return f"{number(figure.measured)} {figure.unit}".strip()


def _verdict(figure: Figure, chapter: Chapter) -> str:
    noisy = chapter.weather is not None and not chapter.weather.is_quiet
    return f"{figure.verdict}{f' (others used over {QUIET:.0%})' if noisy else ''}"


def _titled(table: Table) -> list[str]:
    title, columns, rows = table
    return [f"{title}:", "", *_table(columns, rows)]


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def _span(shares: list[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"
