"""`phalanx run`: submit one piece of work, show its output as it comes, and exit with its code.

Ctrl-C cancels it, and shows what it writes until it has ended; Ctrl-C again leaves at once. What one task wrote is
copied byte by byte; the tasks of a gang have their lines labelled. `signals.py` has the signals.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from phalanx.api.schema.exports import NONE
from phalanx.cli.attached import Attached, patiently, streams_differ
from phalanx.cli.labels import label
from phalanx.cli.option_form import with_options
from phalanx.cli.output import note
from phalanx.cli.run_input import InputSource, TaskInput, standard_input
from phalanx.cli.session import deadline, session
from phalanx.cli.signals import HungUp, LeavesRunning, OnHangUp, caught_signals
from phalanx.cli.submit import SubmitOptions
from phalanx.cli.wait import ENDED, TimedOut, View, exit_code
from phalanx.clock import Deadline
from phalanx.errors import BadRequest, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.schema.submission import SubmitReply, SubmitRequest
    from phalanx.client.client import Client

WAIT_PACE_S = 60.0
LAST_S = 60.0  # for a cancelled task to end, within which its output is shown
SHOWN_MAX = 32  # members of a gang whose output is shown


@with_options(SubmitOptions, hidden=("array", "names"))
def run(
    ctx: typer.Context,
    options: SubmitOptions,
    timeout: Annotated[
        str | None, typer.Option(help="Cancel the job after this long and exit with 124.")
    ] = None,
    on_hangup: Annotated[
        OnHangUp,
        typer.Option(
            help="What SIGHUP, SIGTERM and a closed output do: cancel the job, or leave it running."
        ),
    ] = "cancel",
    stdin: Annotated[
        bool | None,
        typer.Option(
            "-i/-I",
            "--stdin/--no-stdin",
            help="Give the command standard input.",
            show_default="unless it is a terminal",
        ),
    ] = None,
) -> int:
    """Run a command and show its output.

    `phalanx run --gpus 1 -- nvidia-smi` exits with the command's own code. Ctrl-C cancels it, and so does a closed
    terminal unless `--on-hangup detach` is given; Ctrl-\\ detaches. A failure is not
    tried again unless `--retries` says so. With `--tasks N` the lines of N tasks that start together are shown,
    each behind the number of its task. If standard output and standard error go to different places, so do the
    task's (--split-output); else their order is kept. Arrays and several targets are for `phalanx submit`.
    `echo in | phalanx run -- cat` gives the command standard input, a terminal only with `-i`; of several tasks the
    first has it.
    """
    until = deadline(timeout)
    split = options.split_output or streams_differ()
    request = replace(options, retries=options.retries or 0, split_output=split).request()
    source = standard_input(stdin)
    request = replace(request, attached=request.tasks <= SHOWN_MAX, stdin=source is not None)
    if request.array or len(request.targets) > 1:
        raise BadRequest(
            "`run` shows the output of one task, or of a gang (--tasks), not of arrays or several targets",
            hint="use `phalanx submit` for them",
        )
    client = session(ctx).client()
    reply = _submitted(client, request, () if options.split_output else ("split_output",))
    for warning in reply.warnings:
        note(f"warning: {warning}")
    id = label(reply.accepted[0])
    try:
        with caught_signals():
            attached = _attached(client, id, request.tasks, split, source)
            view = _shown_to_its_end(client, id, attached, until, on_hangup)
    except HungUp as signalled:
        return signalled.exit_code
    except PhalanxError:
        note(f"connection lost; {id} is still running: `phalanx wait {id}`, `phalanx logs {id} -f`")
        raise
    if view.status != "Completed":
        said = _why(client, id, request.tasks) or view.reason or "see phalanx why"
        note(f"{id} {view.status}: {said}")
    return exit_code([view])


def _submitted(client: Client, request: SubmitRequest, chosen: tuple[str, ...]) -> SubmitReply:
    """Submit it. What we chose ourselves for its output, a coordinator of an older version need not know."""
    for _ in range(3):
        try:
            return client.submit(request, export=NONE)
        except BadRequest as refused:
            known = {f"unknown field {name!r}": name for name in (*chosen, "attached")}
            field = next((known[text] for text in known if refused.detail.startswith(text)), None)
            if field is None:
                raise
            request = replace(request, **{field: False})
    raise AssertionError("each field is left out once")


def _attached(client: Client, id: str, tasks: int, split: bool, source: InputSource | None) -> Attached:
    shown = _shown(id, tasks)
    if source is None:
        return Attached(client, shown, split)
    return Attached(client, shown, split, TaskInput(client, id, next(iter(shown)), source).begun)


def _shown(id: str, tasks: int) -> dict[str, str]:
    """The tasks whose output is shown, and the label of each."""
    if tasks == 1:
        return {id: ""}
    if tasks > SHOWN_MAX:
        note(f"showing the output of task 0 of {tasks}; `phalanx logs {id}.N` shows that of another")
        return {f"{id}.0": "0"}
    return {f"{id}.{number}": str(number) for number in range(tasks)}


def _why(client: Client, id: str, tasks: int) -> str:
    """The sentence that says why it did not complete, if it can still be had."""
    with suppress(PhalanxError):
        return client.task(id).message if tasks == 1 else client.why(id).dominant.text
    return ""


def _shown_to_its_end(
    client: Client, id: str, attached: Attached, until: Deadline, on_hangup: OnHangUp
) -> View:
    """Copy the output while the work runs; the work as it ended. Whatever ends us before is raised again."""
    try:
        return _awaited(client, id, attached, until)
    except (KeyboardInterrupt, TimedOut):
        _cancel(client, id)
        attached.drain(LAST_S)
        raise
    except HungUp as signalled:
        if on_hangup == "detach" or isinstance(signalled, LeavesRunning):
            with suppress(OSError):  # its terminal may be closed
                told = "its standard input ends; " if attached.gives_input else ""
                note(f"detached; {told}{id} is still running: `phalanx wait {id}`, `phalanx logs {id} -f`")
            raise
        _cancel(client, id)
        if signalled.number == signal.SIGTERM:
            attached.drain(LAST_S)
        raise


def _awaited(client: Client, id: str, attached: Attached, until: Deadline) -> View:
    view = patiently(lambda: client.wait(id, timeout=until.left_s(WAIT_PACE_S), must_end=False))
    while view.status not in ENDED:
        if until.is_over:
            raise TimedOut(f"{id} was still {view.status}, and is cancelled")
        view = patiently(lambda: client.wait(id, timeout=until.left_s(WAIT_PACE_S), must_end=False))
    attached.drain()
    return view


def _cancel(client: Client, id: str) -> None:
    with suppress(OSError):  # of what is said: the terminal may be closed
        try:
            client.cancel(id)
            note(f"cancelled {id}")
        except PhalanxError as error:
            note(f"{id} could not be cancelled: {error.detail}")
