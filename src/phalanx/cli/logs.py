"""`phalanx logs`: what a task wrote, in its order; of a task with two logs, standard output, then standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.completion import job_ids
from phalanx.cli.job import id_of
from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from phalanx.api.schema.documents import Stream

SCREEN_LINES = 1000
PIECES_AHEAD = 16
Read = Callable[["Stream"], Iterator[bytes]]


def logs(
    ctx: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", autocompletion=job_ids)],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Follow the output until the attempt ends.")
    ] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Show only the last lines; 0 = all.")] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Show only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Show only standard error.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Attempt number; by default the newest.")] = None,
) -> None:
    """Show the output of a task, in the order in which it was written.

    A task of a job with --split-output has two logs: standard output is shown, then standard error; with -f, both as
    they come. On a terminal, the last 1000 lines of each unless --tail says otherwise.
    """
    if stdout and stderr:
        raise BadRequest("--stdout and --stderr: give one of them, or none for both")
    lines, client = _lines(tail), session(ctx).client()
    id = id_of(client, id)

    def read(stream: Stream) -> Iterator[bytes]:
        try:
            yield from client.logs(id, stream=stream, attempt=attempt, lines=lines, follow=follow)
        except BadRequest as error:
            if error.reason != "OneLog" or stderr:  # what was read as the first stream is all there is
                raise

    if stdout or stderr:
        _write(read("stderr" if stderr else "stdout"))
    elif follow:
        _write(_as_they_come(read))
    else:
        _write(_one_after_the_other(read))


def _one_after_the_other(read: Read) -> Iterator[bytes]:
    """All of standard output, then all of standard error under a heading."""
    last = b"\n"
    for piece in read("stdout"):
        last = piece or last
        yield piece
    for number, piece in enumerate(read("stderr")):
        if number == 0 and piece:
            if not last.endswith(b"\n"):
                yield b"\n"
            sys.stdout.buffer.flush()
            note("--- standard error ---")
        yield piece


def _as_they_come(read: Read) -> Iterator[bytes]:
    """Pieces of both streams. Their order is that of their arrival; within a stream it is exact."""
    arriving: Queue[bytes | Exception | None] = Queue(PIECES_AHEAD)

    def copy(stream: Stream) -> None:
        try:
            for piece in read(stream):
                arriving.put(piece)
            arriving.put(None)
        except Exception as error:  # whatever it is, the reader of the next piece must see it
            arriving.put(error)

    for stream in ("stdout", "stderr"):
        Thread(target=copy, args=(stream,), daemon=True).start()
    open_streams = 2
    while open_streams:
        piece = arriving.get()
        if isinstance(piece, Exception):
            raise piece
        if piece is None:
            open_streams -= 1
        else:
            yield piece


def _write(pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _lines(tail: int | None) -> int | None:
    """How many lines to ask for. A file or a pipe gets everything, a screen what it can use."""
    if tail is None and sys.stdout.isatty():
        note(f"the last {SCREEN_LINES} lines; --tail 0 shows all")
        return SCREEN_LINES
    return tail or None
