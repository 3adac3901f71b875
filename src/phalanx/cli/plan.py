"""`phalanx plan`: what would happen to a job, on a running cluster or one described by files. Nothing is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from phalanx.api.schema.apply import Called, PlanReply, PlanRequest
from phalanx.cli.command_words import refuse_file_as_command
from phalanx.cli.manifests import ClusterOption, StrictOption, read_files, read_with_drafts
from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.planned import jobs_of, lines
from phalanx.cli.session import session
from phalanx.cli.submit import SubmitOptions, takes_options
from phalanx.cli.workflows import BudgetOption, DeadlineOption, with_limits
from phalanx.client.surroundings import in_this_folder
from phalanx.clock import SystemClock
from phalanx.errors import BadRequest
from phalanx.preview.refusals import located, refusals_at, workflow_refusals_at

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.manifests.read import Manifests

LIMITS_OF = "limits are of workflows: give their files with -f, and plan on a running cluster"


@takes_options
def plan(
    ctx: typer.Context,
    options: SubmitOptions,
    file: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", help="Job files or manifests to plan; - is standard input; repeatable."),
    ] = None,
    cluster: ClusterOption = None,
    strict: StrictOption = False,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    output: OutputOption = None,
) -> int:
    """Show where a job would be placed, what it would preempt, or why it must wait.

    `phalanx plan -f job.yaml` or `phalanx plan --gpus 8 -- python train.py` asks the running cluster; with --cluster it
    reads files and needs no server. The exit code is 0 if it would start now, evicting others if need be; 3 if it
    must wait; 4 if it can never run there; 1 if a file cannot be read.
    """
    here = session(ctx)
    chosen = here.output(output)
    _check(options, file, cluster)
    if (deadline is not None or budget is not None) and (cluster or not file):
        raise typer.BadParameter(LIMITS_OF, param_hint="--deadline, --budget")
    if cluster:
        reply = _offline(read_files(file or [], cluster, strict), options)
    elif file:
        reply = _online(here.client(), file, strict, deadline, budget)
    else:
        reply = here.client().plan(PlanRequest(submit=options.request()))
    kept = [f"{flow.name}: {warning}" for flow in reply.workflows for warning in flow.warnings]
    _tell([*reply.warnings, *kept], strict)
    if not (reply.placements or reply.reasons):
        note("no job waits there, so there is nothing to plan")
    emit(structs.replace(reply, warnings=[]), chosen, jobs_of(reply), lambda wide: lines(reply, wide))
    return reply.exit


def _check(options: SubmitOptions, file: list[Path] | None, cluster: list[Path] | None) -> None:
    refuse_file_as_command(options.command or [])
    if options.command and file:
        raise typer.BadParameter("give files with -f or a command, not both", param_hint="CMD")
    if not (options.command or file or cluster):
        raise typer.BadParameter(
            "nothing to plan: give files with -f, or a command after `--`", param_hint="-f"
        )


def _tell(warnings: list[str], strict: bool) -> None:
    """Warnings about what was read or does not fit; with --strict they are errors."""
    for warning in warnings:
        note(f"warning: {warning}")
    if warnings and strict:
        raise typer.Exit(BadRequest.exit_code)


def _offline(made: Manifests, options: SubmitOptions) -> PlanReply:
    from phalanx.preview.offline import Offline

    found = Offline(made, SystemClock().now(), options.request() if options.command else None)
    return structs.replace(found.plan(), warnings=found.warnings)


def _online(
    client: Client, files: list[Path], strict: bool, deadline: str | None, budget: float | None
) -> PlanReply:
    from phalanx.preview.incomplete import with_incomplete

    made, drafts = read_with_drafts(files, client, strict)
    if made.topology is not None or made.queues:
        note(
            "warning: a plan asks the cluster as it is; layers and quotas of these files are not applied to it"
        )
    if (deadline is not None or budget is not None) and not made.workflows:
        raise typer.BadParameter(LIMITS_OF, param_hint="--deadline, --budget")
    flows = [with_limits(each, deadline, budget) for each in made.workflows]
    names = [Called(each.id, list(each.names)) for each in made.found]
    specs = [drafts.spec(each) for each in made.found]
    request = PlanRequest(specs, names=names, workflows=[in_this_folder(each.spec) for each in flows])
    with refusals_at(made.found), workflow_refusals_at(made.workflows):
        reply = client.plan(request) if specs or request.workflows else PlanReply([], [], [], 0)
    reply.warnings = [located(warning, made.found) for warning in reply.warnings]
    return with_incomplete(reply, made.incomplete)
