"""`phalanx run`: submit one piece of work, show its output as it comes, and exit with its code.

Ctrl-C cancels the task. What a task wrote is copied byte by byte; nothing is cleaned, because a program's
output is its own.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread
from typing import IO, TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.cli.wait import ENDED, Deadline, TimedOut, View, deadline, exit_code
from phalanx.cli.wish import Wish, takes_a_wish
from phalanx.errors import BadRequest, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.client import Client
    from phalanx.api.commands import Stream

START_PACE_S = 0.2
WAIT_PACE_S = 60.0
DRAIN_S = 10.0


@takes_a_wish
def run(
    ctx: typer.Context,
    wish: Wish,
    timeout: Annotated[str | None, typer.Option(help="Cancel it after this long, and exit with 124.")] = None,
) -> int:
    """Run a command and show its output.

    `phalanx run --gpus 1 -- nvidia-smi` exits with the command's own code. Ctrl-C cancels it. A failure is not
    tried again unless `--retries` says so.
    """
    until = deadline(timeout)
    request = replace(wish, retries=wish.retries or 0).request()
    if request.array or len(request.targets) > 1:
        raise BadRequest("`run` shows the output of one task", hint="use `phalanx submit` for several")
    client = session(ctx).client()
    id = client.submit(request).task_ids[0]
    try:
        view = _attached(client, id, until)
    except (KeyboardInterrupt, TimedOut):
        _cancel(client, id)
        raise
    if view.status != "Completed":
        note(f"{id} {view.status}: {_why(client, id) or view.reason or 'see phalanx why'}")
    return exit_code([view])


def _why(client: Client, id: str) -> str:
    """The sentence that says why it did not complete, if it can still be had."""
    with suppress(PhalanxError):
        return client.task(id).message
    return ""


def _attached(client: Client, id: str, until: Deadline) -> View:
    """Copy both streams while the task runs; the task as it ended."""
    copiers = [
        Thread(target=_copy, args=(client, id, "stdout", sys.stdout.buffer), daemon=True),
        Thread(target=_copy, args=(client, id, "stderr", sys.stderr.buffer), daemon=True),
    ]
    for copier in copiers:
        copier.start()
    view = client.wait(id, timeout=until.left_s(WAIT_PACE_S))
    while view.status not in ENDED:
        if until.is_over:
            raise TimedOut(f"{id} was still {view.status}, and is cancelled")
        view = client.wait(id, timeout=until.left_s(WAIT_PACE_S))
    for copier in copiers:
        copier.join(DRAIN_S)
    return view


def _copy(client: Client, id: str, stream: Stream, into: IO[bytes]) -> None:
    try:
        _copy_attempts(client, id, stream, into)
    except BrokenPipeError:
        return  # Nobody reads our output any more; the task goes on.
    except PhalanxError as error:
        note(f"{stream} is cut off: {error.detail}")


def _copy_attempts(client: Client, id: str, stream: Stream, into: IO[bytes]) -> None:
    """One attempt after another: a task that was lost with its node starts again on another."""
    copied = 0
    while True:
        task = client.task(id)
        if task.attempt > copied:
            copied += 1
            _copy_attempt(client, id, stream, copied, into)
        elif task.status in ENDED:
            return
        else:
            client.wait(id, timeout=START_PACE_S)


def _copy_attempt(client: Client, id: str, stream: Stream, attempt: int, into: IO[bytes]) -> None:
    with suppress(NotFound):  # An attempt that never started has no output.
        for piece in client.logs(id, stream=stream, attempt=attempt, offset=0, follow=True):
            into.write(piece)
            into.flush()


def _cancel(client: Client, id: str) -> None:
    try:
        client.cancel(id)
        note(f"cancelled {id}")
    except PhalanxError as error:
        note(f"{id} could not be cancelled: {error.detail}")
