"""`phalanx submit`: hand in work and come back at once, or with its end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from phalanx.api.schema.jobs import SubmitReply
from phalanx.cli.options import SubmitOptions, takes_options
from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.session import session
from phalanx.cli.table import Table
from phalanx.cli.wait import TimeoutOption, await_all, deadline, exit_code, tell_end
from phalanx.settings import Output


@takes_options
def submit(
    ctx: typer.Context,
    options: SubmitOptions,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it ends, and exit with its code.")] = False,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
) -> int:
    """Submit work and come back at once.

    `phalanx submit -c 4 --gpus 1 -- python train.py` prints the id of what was accepted. With several
    targets there is one task on each; those that were refused are told on standard error, and the exit
    code is 1 then.
    """
    here = session(ctx)
    request, chosen, until = options.request(), here.output(output), deadline(timeout)
    client = here.client()
    reply = client.submit(request)
    for warning in reply.warnings:
        note(f"warning: {warning}")
    for failed in reply.failed_targets:
        note(f"refused {failed.target}: {failed.detail} ({failed.reason})")
    if not wait:
        _show(reply, chosen)
        return int(bool(reply.failed_targets))
    if chosen in {"table", "wide"}:
        _show(reply, chosen)
        sys.stdout.flush()
    views = await_all(client, reply.task_ids, until)
    tell_end(views, chosen)
    return exit_code(views) or int(bool(reply.failed_targets))


def _show(reply: SubmitReply, output: Output) -> None:
    emit(reply, output, reply.task_ids, lambda wide: _table(reply) if wide else reply.task_ids)


def _table(reply: SubmitReply) -> Table:
    table = Table("ID", "TASKS", "TARGET", "BATCH")
    for each in reply.accepted:
        table.add(each.id, each.tasks, each.target, reply.batch_id)
    return table
