"""`phalanx approve` and `phalanx deny`: jobs of queues that ask for an approval."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.cli.completion import job_ids
from phalanx.cli.job import each_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, emit
from phalanx.cli.session import session

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", autocompletion=job_ids)]


def approve(ctx: typer.Context, ids: IdsArgument, output: OutputOption = None) -> int:
    """Approve jobs or workflows that wait for it, so that they may start.

    Operators and admins may, and those whom the queue names (`phalanx queue set NAME --approvers`).
    """
    here = session(ctx)
    replies, code = each_of(here.client().approve, ids)
    lines = [f"{label(each)} approved" for each in replies]
    emit(replies, here.output(output), [label(each) for each in replies], lambda _wide: lines)
    return code


def deny(
    ctx: typer.Context,
    ids: IdsArgument,
    reason: Annotated[str, typer.Option(help="Why; its user reads it.", show_default=False)],
    output: OutputOption = None,
) -> int:
    """Deny jobs or workflows that wait for an approval: they are cancelled."""
    here = session(ctx)
    client = here.client()
    replies, code = each_of(lambda id: client.deny(id, reason), ids)
    lines = [f"{label(each)} denied" for each in replies]
    emit(replies, here.output(output), [label(each) for each in replies], lambda _wide: lines)
    return code
