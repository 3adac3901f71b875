"""`phalanx workflow`: submit files of stages, look at how far they are, cancel, run stages again; an example."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phalanx.api.schema.workflows import StageView
from phalanx.cli.apply import read_or_exit, texts_of
from phalanx.cli.drafts import read_files
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, Table, emit, moment, note, span
from phalanx.cli.pages import collected
from phalanx.cli.session import TimeoutOption, session
from phalanx.cli.session import deadline as deadline_of
from phalanx.cli.wait import tell_goes_on
from phalanx.cli.workflow_graph import GraphForm, draw_graph, follow_graph
from phalanx.cli.workflows import (
    BudgetOption,
    DeadlineOption,
    WorkflowExportOption,
    await_workflow,
    counted,
    exit_of,
    exported_to,
    hand_in,
    has_job,
    limit_lines,
    show_submitted,
    tell_ends,
    with_limits,
)
from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest

WorkflowArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the workflow, or a prefix of it.")]


EXAMPLE = """\
# Submit it with `phalanx workflow submit -f flow.yaml`, look at it with `phalanx workflow show last`.
name: example
stages:
  - name: prepare
    command: |  # a text is for /bin/sh
      echo '{"rows": 100}' > "$PHALANX_RESULT"

  - name: train
    needs: [prepare]
    env: {ROWS: "${prepare.result.rows}"}  # a value of the result of another stage
    command: |
      echo "training on $ROWS rows"
      echo '{"loss": 0.25}' > "$PHALANX_RESULT"
    cores: 1  # gpus, memory, time_limit, ...: every field of a job file
    retries: 1

  - name: report
    needs: [train]
    command: [echo, "loss:", "${train.result.loss}"]  # a list is a program and its arguments
"""


def submit(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    file: Annotated[
        list[Path], typer.Option("-f", "--file", help="Workflow file; - is standard input; repeatable.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Treat unsupported fields as errors.")] = False,
    allow_infeasible: Annotated[
        bool, typer.Option("--allow-infeasible", help="Queue stages even if no node could ever run them.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends; exit with 1 unless it completed.")
    ] = False,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    export: WorkflowExportOption = None,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
) -> int:
    """Submit workflows: stages that become jobs as their inputs are there.

    Commands run in the current folder unless the file names another, with the environment of this shell.
    """
    here = session(ctx)
    chosen, until = here.output(output), deadline_of(timeout)
    texts = read_or_exit(lambda: texts_of(file))
    made = read_or_exit(lambda: read_files(texts, [], strict=strict))
    if made.found or not made.workflows:
        raise BadRequest(
            "there are jobs in these files that are no workflows"
            if made.found
            else "there is no workflow in it",
            hint="phalanx apply takes files of every kind",
        )
    for caution in made.warnings:
        note(f"warning: {caution}")
    client = here.client()
    flows = [with_limits(each, deadline, budget) for each in made.workflows]
    exports = [exported_to(each, export) for each in flows]
    replies = [
        hand_in(client, each, allow_infeasible, exported)
        for each, exported in zip(flows, exports, strict=True)
    ]
    if not wait or chosen not in {"json", "yaml"}:
        show_submitted(replies, chosen)
        sys.stdout.flush()
    if not wait:
        return 0
    try:
        views = [await_workflow(client, each.id, until) for each in replies]
    except KeyboardInterrupt:
        names = [label(each) for each in replies]
        tell_goes_on(names, "phalanx workflow cancel", "phalanx workflow wait")
        raise
    tell_ends(views, chosen)
    return exit_of(views)


def example() -> None:
    """Print a small workflow file that runs as it is: phalanx workflow example > flow.yaml."""
    sys.stdout.write(EXAMPLE)


def workflows(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of workflows.")] = 100,
    output: OutputOption = None,
) -> None:
    """List workflows, the newest first, with the number of stages by status."""
    here = session(ctx)
    items, more = collected(here.client().workflows, limit)
    narrows = {"STAGES": 16, "NAME": 12, "USER": 6, "SUBMITTED": 10}
    table = Table("ID", "NAME", "USER", "STATUS", "STAGES", "SUBMITTED", narrows=narrows)
    for each in items:
        table.add(label(each), each.name, each.user, each.status, counted(each), moment(each.submitted_at))
    emit(items, here.output(output), [label(each) for each in items], lambda _wide: table)
    if more:
        note(f"showing {limit} workflows; use --limit for more")


def show(ctx: typer.Context, id: WorkflowArgument, output: OutputOption = None) -> None:
    """Show a workflow and its stages: the job of each, where it runs, and what it waits for."""
    here = session(ctx)
    view = here.client().workflow_view(id)
    table = _stage_table(view.stages)
    took = span(view.submitted_at, view.ended_at)
    lines = [
        f"{label(view)}  {view.name or '(no name)'}  {view.status}  {counted(view)}",
        f"submitted {moment(view.submitted_at)} by {view.user}" + ("" if took == "-" else f", took {took}"),
        *limit_lines(view),
        "",
        *table.lines(),
    ]
    emit(view, here.output(output), [label(view)], lambda _wide: lines)


def graph(
    ctx: typer.Context,
    id: WorkflowArgument,
    form: Annotated[GraphForm, typer.Option("--format", help="tree, dot (Graphviz) or mermaid.")] = "tree",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Redraw until the workflow has ended.")
    ] = False,
) -> None:
    """Draw a workflow's stages and what each builds on."""
    here = session(ctx)
    if watch:
        follow_graph(here, id, form)
        return
    sys.stdout.write(draw_graph(here.client().workflow_view(id), form))


def cancel(ctx: typer.Context, id: WorkflowArgument, output: OutputOption = None) -> None:
    """Cancel every stage of a workflow that has not ended."""
    here = session(ctx)
    reply = here.client().cancel_workflow(id)
    stopping = plural(reply.stopping, "task")
    line = f"{label(reply)} cancelled ({plural(reply.cancelled, 'stage')}, {stopping} being stopped)"
    emit(reply, here.output(output), [label(reply)], lambda _wide: [line])


def retry(
    ctx: typer.Context,
    id: WorkflowArgument,
    from_stage: Annotated[
        str | None, typer.Option("--from-stage", help="Run this stage and all that build on it again.")
    ] = None,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    output: OutputOption = None,
) -> None:
    """Run stages of an ended workflow again: whatever did not complete. Finished results are kept."""
    here = session(ctx)
    client = here.client()
    reply = client.retry_workflow(id, from_stage, deadline=deadline, budget=budget)
    again, name = plural(len(reply.jobs), "stage"), label(client.workflow_view(reply.id))
    lines = [f"{name}: {again} {'runs' if len(reply.jobs) == 1 else 'run'} again: {', '.join(reply.jobs)}"]
    emit(reply, here.output(output), list(reply.jobs.values()), lambda _wide: lines)


def wait(
    ctx: typer.Context, id: WorkflowArgument, timeout: TimeoutOption = None, output: OutputOption = None
) -> int:
    """Wait until a workflow has ended. Exits with 0 if it completed, else with 1."""
    here = session(ctx)
    view = await_workflow(here.client(), id, deadline_of(timeout))
    tell_ends([view], here.output(output))
    return exit_of([view])


def _stage_table(stages: Sequence[StageView]) -> Table:
    narrows = {"REASON": 16, "STAGE": 12, "NODE": 8}
    table = Table("STAGE", "STATUS", "JOB", "NODE", "TIME", "REASON", narrows=narrows)
    for stage in stages:
        job = (stage.number or stage.job_id) if has_job(stage) else None
        took = span(stage.started_at, stage.ended_at)
        table.add(stage.name, stage.status, job, stage.node, took, stage.reason)
    return table
