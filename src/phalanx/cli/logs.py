"""`phalanx logs`: what a task wrote, as it wrote it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from phalanx.cli.completion import job_ids
from phalanx.cli.output import note
from phalanx.cli.session import session

SCREEN_LINES = 1000


def logs(
    ctx: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", autocompletion=job_ids)],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the attempt ends.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines; 0 for all of them.")] = None,
    stderr: Annotated[bool, typer.Option("--stderr", help="Standard error instead of output.")] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="An earlier attempt; by default the newest.")
    ] = None,
) -> None:
    """Show what a task wrote. On a terminal, the last 1000 lines unless --tail says otherwise."""
    lines = _lines(tail)
    pieces = (
        session(ctx)
        .client()
        .logs(id, stream="stderr" if stderr else "stdout", attempt=attempt, lines=lines, follow=follow)
    )
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _lines(tail: int | None) -> int | None:
    """How many lines to ask for. A file or a pipe gets everything, a screen what it can use."""
    if tail is None and sys.stdout.isatty():
        note(f"the last {SCREEN_LINES} lines; --tail 0 shows all")
        return SCREEN_LINES
    return tail or None
