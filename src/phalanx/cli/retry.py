"""`phalanx retry` and `phalanx resubmit`: failed tasks again, and a job again with changes. Both submit a new job."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.api.schema.submission import SubmitReply
from phalanx.cli.job import IdArgument, id_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.session import TimeoutOption, deadline, session
from phalanx.cli.values import pair
from phalanx.cli.wait import await_submitted, exit_code, tell_end
from phalanx.settings import Output

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it ends and exit with its exit code.")]
RequestIdOption = Annotated[
    str | None,
    typer.Option(help="Idempotency key: a repeated request with the same key is not done twice."),
]


def retry(
    ctx: typer.Context,
    id: IdArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Failed tasks only, which is the default.")] = True,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Cancelled tasks as well.")] = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    request_id: RequestIdOption = None,
    output: OutputOption = None,
) -> int:
    """Rerun the failed tasks of a finished job, or one of them by `job.index`.

    They are a new job, with the same indexes and parameters. `phalanx results` shows the newest outcome of each.
    """
    assert failed  # the option says what happens anyway
    here = session(ctx)
    client = here.client()
    reply = client.retry(id_of(client, id), cancelled=cancelled, request_id=request_id)
    _show(reply, here.output(output))
    if not wait:
        return 0
    views = await_submitted(client, reply.accepted, deadline(timeout))
    tell_end(views, here.output(output))
    return exit_code(views)


def resubmit(
    ctx: typer.Context,
    id: IdArgument,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change: gpus=2, memory=8GiB, time_limit=2h, queue=…, priority=…, exclude=n1,n2, nodes=…,"
            " env.NAME=…, param.NAME=…; repeatable.",
        ),
    ] = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    request_id: RequestIdOption = None,
    output: OutputOption = None,
) -> int:
    """Submit a job, or one task of an array by `job.index`, once more, with changes.

    `phalanx resubmit 17 --set memory=16GiB --set param.lr=0.1,0.2` keeps everything else as job 17 has it.
    """
    here = session(ctx)
    client = here.client()
    wanted: dict[str, str] = {}
    for text in changes or []:
        key, value = pair(text, "--set")
        if key in wanted:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint="--set")
        wanted[key] = value
    reply = client.resubmit(id_of(client, id), wanted, request_id=request_id)
    _show(reply, here.output(output))
    if not wait:
        return 0
    views = await_submitted(client, reply.accepted, deadline(timeout))
    tell_end(views, here.output(output))
    return exit_code(views)


def _show(reply: SubmitReply, output: Output) -> None:
    names = [label(each) for each in reply.accepted]
    emit(reply, output, names, lambda _wide: names)
    tasks = reply.accepted[0].tasks
    if tasks > 1 and output in {"table", "wide"}:
        note(f"{tasks} tasks")
