"""`phalanx alloc`: hold resources as a job, and work in them with a shell or a command.

The job's own process only waits. While this command lives it changes a file of it from time to time, through a
session; when nothing has changed the file for a minute, the process ends and the resources are free. So a client that
is killed, or a machine that is switched off, holds nothing for long, and a coordinator that is restarted ends nothing.
"""

from __future__ import annotations

import math
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from phalanx.api.schema.exports import NONE
from phalanx.cli.command_words import tell_bare_seconds
from phalanx.cli.exec import KEYS, KeysOption, request_of, run_in
from phalanx.cli.labels import label
from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.cli.submit import SubmitOptions, takes_options
from phalanx.cli.wait import ENDED
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import parse_seconds
from phalanx.endpoint import connection
from phalanx.errors import BadRequest, Conflict, PhalanxError, Unavailable

if TYPE_CHECKING:
    from phalanx.api.schema.jobs import TaskView
    from phalanx.api.schema.sessions import ExecRequest
    from phalanx.client.client import Client

POLL_S = 0.5
TELL_AFTER_S = 2.0  # of waiting, before it is said why
AGAIN_S = 2.0
REOPEN_S = 60.0  # how long another shell is tried after a session was cut
FILE = 'f="${TMPDIR:-/tmp}/phalanx-alloc-$PHALANX_TASK_ID-$PHALANX_ATTEMPT"'
LOOK_S = 2
# $1: looks at an unchanged file after which it ends.
HOLD = f"""{FILE}
set -C; umask 077; : >"$f" || exit 1
trap 'rm -f "$f"; exit 0' TERM INT HUP
seen=; same=0
while [ "$same" -lt "$1" ]; do
  sleep {LOOK_S}
  now=$(cat "$f") || exit 1
  if [ "$now" = "$seen" ]; then same=$((same+1)); else same=0; seen=$now; fi
done
rm -f "$f"
"""
CHANGE = f'{FILE}; n=0; while [ -e "$f" ] && echo "$$ $n" >"$f"; do n=$((n+1)); sleep {LOOK_S}; done'
# $1: the user's own token file. Where this account can read it, `phalanx` in the shell works as outside.
OWN_ACCESS = """[ -r "$1" ] && export PHALANX_TOKEN_FILE="$1"
shift
[ $# -gt 0 ] && exec "$@"
exec "${SHELL:-/bin/sh}"
"""
WAIT = "exec sleep 2147483647"


@takes_options
def alloc(
    ctx: typer.Context,
    options: SubmitOptions,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            help="Give the resources back after this long: the same as --time-limit.",
            callback=tell_bare_seconds,
        ),
    ] = None,
    no_shell: Annotated[
        bool,
        typer.Option(
            "--no-shell", help="Only allocate: print the id and exit; `phalanx cancel` gives it back."
        ),
    ] = False,
    keep: Annotated[
        str, typer.Option(help="How long the resources are held after this command was killed or cut off.")
    ] = "60s",
    detach_keys: KeysOption = KEYS,
) -> int:
    """Allocate resources and open a shell in them.

    `phalanx alloc --gpus 2` waits until two GPUs are free, holds them, and opens a shell on their node;
    `phalanx alloc --gpus 2 -- python train.py` runs a command there instead and exits with its code. The resources
    are given back when the shell or the command ends, or this command does, at the latest after --time. `phalanx` in it
    has your token if your token file is there, else the allocation's own.
    """
    command = options.command or []
    _check(options, command, time, no_shell=no_shell)
    held = ["/bin/sh", "-c", WAIT if no_shell else HOLD, "alloc", str(_looks(keep))]
    limit = time or options.time_limit
    request = replace(
        options, command=held, shell=False, retries=0, name=options.name or "alloc", time_limit=limit
    ).request()
    here = session(ctx)
    client, token_file = here.client(), connection(here.settings).token_file
    reply = client.submit(request, export=NONE)
    for warning in reply.warnings:
        note(f"warning: {warning}")
    allocation = Allocation(client, reply.task_ids[0], token_file if not options.image else None)
    try:
        view = allocation.running()
    except BaseException:
        allocation.end()
        raise
    if no_shell:
        note(
            f"allocated {label(view)} on {view.node}; `phalanx attach {label(view)}` opens a shell, "
            f"`phalanx cancel {label(view)}` ends it"
        )
        print(label(view))
        return 0
    note(f"allocated {label(view)} on {view.node}")
    allocation.hold()
    try:
        return allocation.shell(detach_keys) if not command else allocation.command(options, detach_keys)
    finally:
        allocation.end()


def _check(options: SubmitOptions, command: list[str], time: str | None, *, no_shell: bool) -> None:
    if options.array or options.tasks > 1 or len(options.target or ()) > 1:
        raise BadRequest(
            "alloc holds the resources of one task, not of arrays, gangs or several targets",
            hint="use `phalanx submit`, and `phalanx exec` into each task",
        )
    if time and options.time_limit:
        raise BadRequest("--time and --time-limit: give one of them, they are the same")
    if command and no_shell:
        raise BadRequest("--no-shell runs no command: leave one of them out")


def _looks(keep: str) -> int:
    """How many looks without a change a duration is."""
    try:
        seconds = parse_seconds(keep)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--keep") from error
    return max(2, math.ceil(seconds / LOOK_S))


class Allocation:
    """A job that holds resources for this process."""

    def __init__(self, client: Client, id: str, token_file: Path | None = None) -> None:
        self._client = client
        self._token_file = token_file
        self._id = id
        self._label = id
        self._ended = threading.Event()
        self._clock = SystemClock()

    def running(self) -> TaskView:
        """Wait until it runs; says why it waits, once."""
        began, is_told = self._clock.monotonic(), False
        while True:
            view = self._client.task(self._id)
            self._label = label(view)
            if view.status == "Running":
                return view
            if view.status in ENDED:
                why = view.message or view.reason or view.status
                raise Conflict(
                    f"the allocation {self._label} ended before it began: {why}", reason="AllocationEnded"
                )
            if not is_told and self._clock.monotonic() - began >= TELL_AFTER_S:
                is_told = True
                with suppress(PhalanxError):
                    note(f"{self._label} waits: {self._client.why(self._id).dominant.text}")
            self._client.wait(self._id, timeout=POLL_S, must_end=False)

    def hold(self) -> None:
        """Keep it, from now on until `end`."""
        threading.Thread(target=self._change, daemon=True).start()

    def shell(self, keys: str) -> int:
        """A shell in it. One whose connection was cut is followed by another, while the allocation is held."""
        until = self._clock.monotonic() + REOPEN_S
        while True:
            try:
                code = run_in(self._client, self._id, self._request([], os.isatty(0)), keys)
            except Unavailable as error:
                if not os.isatty(0) or self._clock.monotonic() >= until:
                    raise
                note(f"{error.detail}; {self._label} is still held, another shell is opened")
                self._ended.wait(AGAIN_S)
                continue
            return code

    def command(self, options: SubmitOptions, keys: str) -> int:
        """A command in it, with a terminal if this one has one."""
        words = options.command or []
        words = ["/bin/sh", "-c", *words] if options.shell else words
        is_terminal = os.isatty(0) and os.isatty(1)
        return run_in(self._client, self._id, self._request(words, is_terminal), keys)

    def _request(self, words: list[str], tty: bool) -> ExecRequest:
        """The session's request, with the user's own token for `phalanx` where the task's account can read it."""
        if self._token_file is not None:
            words = ["/bin/sh", "-c", OWN_ACCESS, "alloc", str(self._token_file.absolute()), *words]
        return request_of(words, tty=tty, stdin=True)

    def end(self) -> None:
        """Give it back."""
        self._ended.set()
        try:
            self._client.cancel(self._id)
        except Conflict:  # it has ended by itself, at its time limit for example
            note(f"the allocation {self._label} had ended")
        except PhalanxError as error:
            note(f"{self._label} could not be given back: {error.detail}; it ends by itself in a minute")
        else:
            note(f"gave back {self._label}")

    def _change(self) -> None:
        while not self._ended.is_set():
            with (
                suppress(PhalanxError, RuntimeError),  # a coordinator that is away is tried again
                self._client.exec_session(self._id, ["/bin/sh", "-c", CHANGE]) as kept,
            ):
                kept.wait()
            self._ended.wait(AGAIN_S)
