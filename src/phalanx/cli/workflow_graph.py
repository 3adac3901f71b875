"""A workflow's stages drawn: as a tree in the terminal, or in the languages of Graphviz and Mermaid.

In the tree each stage stands below the first stage that it builds on; further ones are named behind it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from phalanx.api.schema.workflows import StageView, WorkflowView
from phalanx.cli.labels import label
from phalanx.cli.output import STYLES, clean, span
from phalanx.cli.session import CliSession

if TYPE_CHECKING:
    from rich.tree import Tree

GraphForm = Literal["tree", "dot", "mermaid"]
PACE_S = 1.0
SHOWN_MAX = 500  # stages in a tree
MARKS = {
    "Waiting": "·", "Pending": "○", "Assigned": "◔", "Running": "▶", "Completed": "✔", "Skipped": "↷", "Failed": "✘",
    "Cancelled": "⊘",
}  # fmt: skip
_COLOURS = {
    "Waiting": "#dddddd", "Pending": "#ffe9a8", "Assigned": "#bfe3ff", "Running": "#a8e6a1", "Completed": "#d5e8d4",
    "Skipped": "#eeeeee", "Failed": "#f8b4b4", "Cancelled": "#e1c4f0",
}  # fmt: skip


def draw_graph(view: WorkflowView, form: GraphForm) -> str:
    """The whole graph as a text."""
    if form == "dot":
        return _dot(view)
    if form == "mermaid":
        return _mermaid(view)
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    with console.capture() as captured:
        console.print(_tree(view))
    return captured.get()


def follow_graph(here: CliSession, id: str, form: GraphForm) -> None:
    """Redraw on a terminal until the workflow has ended; the last picture stays. Elsewhere the end is drawn once."""
    from rich.console import Console
    from rich.live import Live

    client = here.client()
    view = client.workflow_view(id)
    if form != "tree" or not sys.stdout.isatty():
        sys.stdout.write(draw_graph(client.wait_workflow(view.id), form))
        return
    with Live(_tree(view), console=Console(markup=False, highlight=False), auto_refresh=False) as screen:
        while view.status not in ("Completed", "Failed", "Cancelled"):
            view = client.wait_workflow(view.id, timeout=PACE_S, must_end=False)
            screen.update(_tree(view), refresh=True)


def _tree(view: WorkflowView) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    done = sum(view.counts.get(word, 0) for word in ("Completed", "Skipped"))
    tree = Tree(Text(clean(f"{view.name or label(view)}  {view.status}  {done}/{len(view.stages)}")))
    branches: dict[str, Tree] = {}
    waiting = list(view.stages[:SHOWN_MAX])
    while waiting:  # a stage may stand before those that it builds on
        rest = []
        for stage in waiting:
            above = branches.get(stage.after[0]) if stage.after else tree
            if above is None:
                rest.append(stage)
                continue
            text = Text(_label(stage), style=STYLES.get(stage.status, ""))
            branches[stage.name] = above.add(text)
        if len(rest) == len(waiting):  # those below a stage that is not shown
            for stage in rest:
                tree.add(Text(_label(stage)))
            break
        waiting = rest
    if len(view.stages) > SHOWN_MAX:
        tree.add(Text(f"… and {len(view.stages) - SHOWN_MAX} more"))
    return tree


def _label(stage: StageView) -> str:
    took = span(stage.started_at, stage.ended_at)
    others = f"  (and after {', '.join(stage.after[1:4])}{', …' if len(stage.after) > 4 else ''})"
    parts = [MARKS[stage.status], stage.name]
    if took != "-":
        parts.append(took)
    elif stage.node and stage.status == "Running":
        parts.append(f"on {stage.node}")
    return clean(" ".join(parts) + (others if len(stage.after) > 1 else ""))


def _dot(view: WorkflowView) -> str:
    lines = ["digraph workflow {", "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for stage in view.stages:
        lines.append(
            f'  "{stage.name}" [label="{stage.name}\\n{stage.status}", fillcolor="{_COLOURS[stage.status]}"];'
        )
        lines += [f'  "{other}" -> "{stage.name}";' for other in stage.after]
    return "\n".join([*lines, "}"]) + "\n"


def _mermaid(view: WorkflowView) -> str:
    numbers = {stage.name: number for number, stage in enumerate(view.stages)}
    lines = ["flowchart LR"]
    for stage in view.stages:
        lines.append(f'  s{numbers[stage.name]}["{stage.name}<br/>{stage.status}"]')
        lines += [f"  s{numbers[other]} --> s{numbers[stage.name]}" for other in stage.after]
    return "\n".join(lines) + "\n"
