"""`phalanx exec` and `phalanx attach`: a command, or a shell, beside a running task."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.sessions import ExecRequest
from phalanx.cli.completion import job_ids
from phalanx.cli.job import id_of
from phalanx.cli.run_input import standard_input
from phalanx.cli.session import session
from phalanx.config import environment
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from phalanx.client.client import Client

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", autocompletion=job_ids)]
RankOption = Annotated[
    int | None, typer.Option(min=0, help="Member of a gang with this rank; TASK is then the gang's id.")
]
KeysOption = Annotated[
    str, typer.Option(help="Keys that leave a terminal, such as ctrl-p,ctrl-q; empty = none.")
]
KEYS = "ctrl-]"


def exec_command(
    ctx: typer.Context,
    task: TaskArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="CMD...", show_default=False, help="Command to run.")
    ] = None,
    tty: Annotated[bool, typer.Option("-t", "--tty", help="Give the command a terminal: this one.")] = False,
    stdin: Annotated[
        bool | None,
        typer.Option(
            "-i/-I",
            "--stdin/--no-stdin",
            help="Pass standard input on; with --tty this is always so.",
            show_default="unless it is a terminal",
        ),
    ] = None,
    rank: RankOption = None,
    detach_keys: KeysOption = KEYS,
) -> int:
    """Run a command beside a running task.

    `phalanx exec 01kx… -- nvidia-smi` runs on the task's node with its environment, folder, account, devices and
    limits, and exits with the command's own code: 127 if it is not found, 126 if it cannot be executed, 128 and its
    number after a signal. With -t it has a terminal and Ctrl-C is for the command; ctrl-] leaves. A command whose user
    is gone is ended; so is one whose task has ended. `tar c data | phalanx exec 17 -- tar x` passes standard input on,
    a terminal only with -i or -t; in a loop that reads a file itself, -I leaves its lines alone.
    """
    if not command:
        raise typer.BadParameter("no command: give the command to run last, after `--`", param_hint="CMD")
    if tty and not os.isatty(0):
        raise BadRequest(
            "--tty: standard input is not a terminal",
            hint="leave --tty out; standard input is passed on without it",
        )
    client = session(ctx).client()
    request = request_of(command, tty=tty, stdin=standard_input(stdin) is not None, rank=rank)
    return run_in(client, id_of(client, task), request, detach_keys)


def attach(
    ctx: typer.Context,
    task: TaskArgument,
    shell: Annotated[
        str | None,
        typer.Option("-s", "--shell", help="Shell to run.", show_default="$SHELL of the task, or sh"),
    ] = None,
    rank: RankOption = None,
    detach_keys: KeysOption = KEYS,
) -> int:
    """Open a shell in a running task (also: `connect`).

    It runs beside the task, as with `phalanx exec -t`. Without a terminal the shell reads standard input. What the
    task itself writes is shown by `phalanx logs -f`.
    """
    client = session(ctx).client()
    request = request_of([shell] if shell else [], tty=os.isatty(0), stdin=True, rank=rank)
    return run_in(client, id_of(client, task), request, detach_keys)


def request_of(command: list[str], *, tty: bool, stdin: bool, rank: int | None = None) -> ExecRequest:
    """The request for a command with the streams of this process."""
    from phalanx.cli.terminal import size_of

    rows, columns = size_of() if tty else (0, 0)
    for word in command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{word!r} is not UTF-8", param_hint="CMD") from None
    return ExecRequest(
        command=command,
        tty=tty,
        stdin=stdin or tty,
        rows=rows,
        columns=columns,
        term=_terminal_kind() if tty else "",
        rank=rank,
    )


def _terminal_kind() -> str:
    """The kind of this terminal, for the programs that draw on it."""
    kind = environment().get("TERM", "")
    return kind if re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", kind) else ""


def run_in(client: Client, task: str, request: ExecRequest, keys: str) -> int:
    """Run a command with the streams of this process; its exit code."""
    from phalanx.cli.terminal import KeyScanner, run_session

    KeyScanner(keys)  # a wrong one is told before anything begins
    ticket = client.exec_ticket(task, request)
    return run_session(client.session_access(), ticket, terminal=request.tty, stdin=request.stdin, keys=keys)
