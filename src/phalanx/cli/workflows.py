"""What commands about workflows share: their limits, handing one in, and waiting for its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from phalanx.api.schema.exports import ALL, NONE
from phalanx.api.schema.workflows import (
    StageView,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowView,
)
from phalanx.cli.environment import exported_variables, warn_of_virtualenv
from phalanx.cli.labels import label
from phalanx.cli.output import Table, emit, moment, note, span
from phalanx.cli.wait import TimedOut
from phalanx.clock import Deadline
from phalanx.errors import BadRequest
from phalanx.settings import Output

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.manifests.workflows import ParsedWorkflow

DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline", help="Stop it then: 2h from now, or a time with its zone, as 2027-01-31T08:00:00Z."
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", min=0, help="Stop it once it has cost so much, by the prices of its nodes."),
]
WorkflowExportOption = Annotated[
    str | None,
    typer.Option(
        "--export",
        metavar="ALL|NONE|A,B",
        help="Which variables of this shell the stages get besides what the file says.",
        show_default="ALL; NONE for files of FlowMesh",
    ),
]
POLL_S = 2.0
ENDED = ("Completed", "Failed", "Cancelled")
ORDER = ("Running", "Assigned", "Pending", "Waiting", "Completed", "Skipped", "Failed", "Cancelled")


def hand_in(
    client: Client, found: ParsedWorkflow, allow_infeasible: bool, exported: dict[str, str]
) -> SubmittedWorkflow:
    """Submit one workflow; a refusal names its file."""
    try:
        request = WorkflowRequest(found.spec, allow_infeasible, exported=exported)
        reply = client.submit_workflow(request, export=NONE)
    except BadRequest as error:
        error.detail = f"{found.where}: {error.detail}"
        raise
    for warning in reply.warnings:
        note(f"warning: {reply.name or label(reply)}: {warning}")
    return reply


def exported_to(found: ParsedWorkflow, export: str | None) -> dict[str, str]:
    """What of this shell's environment the stages get. A file of FlowMesh says itself what its stages have."""
    if export is None and found.is_foreign:
        warn_of_virtualenv([stage.job for stage in found.spec.stages])
    return exported_variables(export, default=NONE if found.is_foreign else ALL)


def with_limits(found: ParsedWorkflow, deadline: str | None, budget: float | None) -> ParsedWorkflow:
    """The same with limits of the command line instead of those of its file."""
    given = {name: value for name, value in (("deadline", deadline), ("budget", budget)) if value is not None}
    return structs.replace(found, spec=structs.replace(found.spec, **given))


def limit_lines(view: WorkflowView) -> list[str]:
    """What it has cost, and its limits."""
    words = [f"cost {view.cost:.2f}" + ("" if view.budget is None else f" of {view.budget:g}")]
    if view.deadline_at is not None:
        words.append(f"deadline {moment(view.deadline_at)}")
    has_any = view.cost or view.budget is not None or view.deadline_at is not None
    return ([", ".join(words)] if has_any else []) + ([f"stopped: {view.reason}"] if view.reason else [])


def show_submitted(replies: Sequence[SubmittedWorkflow], output: Output) -> None:
    """The ids, as `phalanx submit` prints them; wide, a table."""
    ids = [label(each) for each in replies]
    emit(replies, output, ids, lambda wide: _submitted_table(replies) if wide else ids)


def _submitted_table(replies: Sequence[SubmittedWorkflow]) -> Table:
    table = Table("ID", "NAME", "STAGES", narrows={"STAGES": 16, "NAME": 12})
    for each in replies:
        table.add(label(each), each.name, len(each.jobs))
    return table


def await_workflow(client: Client, id: str, until: Deadline) -> WorkflowView:
    """The workflow as it ended, or TimedOut; on a terminal its progress is shown."""
    view = client.wait_workflow(id, timeout=0, must_end=False)
    shown = ""
    while view.status not in ENDED:
        if counted(view) != shown and sys.stderr.isatty():
            shown = counted(view)
            note(f"{label(view)}: {shown}")
        if until.is_over:
            raise TimedOut(
                f"{label(view)} is still {view.status}",
                hint=f"`phalanx workflow show {label(view)}` says more",
            )
        view = client.wait_workflow(view.id, timeout=until.left_s(POLL_S), must_end=False)
    return view


def exit_of(views: Sequence[WorkflowView]) -> int:
    return int(any(view.status != "Completed" for view in views))


def tell_ends(views: list[WorkflowView], output: Output) -> None:
    if output in {"json", "yaml"}:
        emit(views[0] if len(views) == 1 else views, output, [], lambda _wide: [])
        return
    for view in views:
        note(f"{label(view)} {view.status} after {span(view.submitted_at, view.ended_at)}: {counted(view)}")
        for stage in view.stages:
            if stage.status == "Failed" and stage.parent is None:
                why = f": {stage.reason}" if stage.reason else ""
                more = (
                    f"logs {stage.number or stage.job_id}"
                    if has_job(stage)
                    else f"why {label(view)}:{stage.name}"
                )
                note(f"  {stage.name} failed{why} (phalanx {more})")


def has_job(stage: StageView) -> bool:
    """Whether a stage has a job to look at: not while it waits, nor if it ended without having begun."""
    if stage.status in {"Failed", "Cancelled"}:
        return stage.started_at is not None or stage.attempts > 0
    return stage.status not in {"Waiting", "Skipped"}


def counted(view: WorkflowView) -> str:
    """3 Running, 2 Waiting."""
    return ", ".join(f"{view.counts[word]} {word}" for word in ORDER if view.counts.get(word))
