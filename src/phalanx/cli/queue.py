"""`phalanx queue`: the quota and usage of each queue."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.api.schema.cluster import QueueView, QuotaSpec
from phalanx.cli.output import OutputOption, Table, emit, fields, size
from phalanx.cli.session import read_cores, session
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.settings import Output

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def queues(ctx: typer.Context, output: OutputOption = None) -> None:
    """List queues: usage, quota and number of waiting jobs."""
    here = session(ctx)
    found = here.client().queues()
    table = Table("NAME", "TASKS", "CORES", "MEMORY", "GPUS", "WAITING")
    for view in found:
        table.add(view.name, *_held(view), view.waiting)
    emit(found, here.output(output), [view.name for view in found], lambda _wide: table)


def show(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Show one queue."""
    here = session(ctx)
    _tell(here.client().queue(name), here.output(output))


def set_quota(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    name: NameArgument,
    tasks: Annotated[int | None, typer.Option(min=0, help="Maximum number of tasks.")] = None,
    cores: Annotated[
        float | None,
        typer.Option(parser=read_cores, metavar="CORES", help="Maximum number of cores, such as 64 or 7.5."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Maximum memory, such as 2TiB.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="Maximum number of GPUs.")] = None,
    priority_max: Annotated[
        int | None,
        typer.Option(
            help="Maximum priority of its jobs.", show_default="1000 for users, 1000000 for operators"
        ),
    ] = None,
    dispatch_mode: Annotated[
        DispatchMode | None,
        typer.Option(help="How its jobs are given their nodes.", show_default="the cluster's, for workflows"),
    ] = None,
    selection: Annotated[
        Selection | None,
        typer.Option(help="Which node the adaptive mode prefers.", show_default="the cluster's"),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Create a queue or set its quota; what is left out is unlimited.

    Running tasks beyond the quota continue; nothing more is started until usage is below it.
    """
    here = session(ctx)
    spec = QuotaSpec(tasks, cores, memory, gpus, priority_max, dispatch_mode, selection)
    _tell(here.client().set_quota(name, spec), here.output(output))


def unset_quota(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Remove a queue and its quota: new submits to it are rejected. Jobs waiting in it stay."""
    here = session(ctx)
    _tell(here.client().set_quota(name, None), here.output(output))


def _tell(view: QueueView, output: Output) -> None:
    names = ("Tasks", "Cores", "Memory", "GPUs")
    pairs: list[tuple[str, object]] = [*zip(names, _held(view), strict=True)]
    if view.quota is not None:
        pairs.append(("Priority at most", view.quota.priority_max))
        if view.quota.dispatch_mode is not None:
            pairs.append(("Dispatch mode", view.quota.dispatch_mode))
        if view.quota.selection is not None:
            pairs.append(("Selection", view.quota.selection))
    emit(
        view,
        output,
        [view.name],
        lambda _wide: fields([("Queue", view.name), *pairs, ("Waiting", view.waiting)]),
    )


def _held(view: QueueView) -> list[str]:
    """`12/64` where there is a limit, `12` where there is none."""
    used, quota = view.used, view.quota
    terms = [
        (str(used.tasks), quota and quota.tasks),
        (str(used.cores), quota and quota.cores),
        (str(used.gpus), quota and quota.gpus),
    ]
    told = [held if limit is None else f"{held}/{limit}" for held, limit in terms]
    memory = size(used.memory_bytes) if used.memory_bytes else "0"
    if quota is not None and quota.memory_bytes is not None:
        memory = f"{memory}/{size(quota.memory_bytes)}"
    return [told[0], told[1], memory, told[2]]
