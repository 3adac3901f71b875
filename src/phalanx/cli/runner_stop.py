"""`phalanx runner stop`: stop the runner of this machine, and say what becomes of its tasks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.cli.state import end
from phalanx.core.model.amounts import describe_seconds, parse_seconds, plural
from phalanx.endpoint import ProcessOwner
from phalanx.errors import ConfigError, Conflict, NotFound, Unavailable
from phalanx.runner import claim, stopping
from phalanx.runner.stopping import StopOutcome, StopRequest


def stop(
    ctx: typer.Context,
    keep: Annotated[
        str | None,
        typer.Option(help="How long its tasks may keep running without a runner: 10m, at most 1h."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop its tasks first and report how each ended.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The node's name.", show_default="the host name")] = None,
    state: Annotated[Path | None, typer.Option(help="State folder it was started with.")] = None,
) -> int:
    """Stop the runner of this machine.

    Its tasks keep running for as long as its lease lasts, and a runner started by then takes them over. With
    --keep the coordinator is asked for a longer lease first; with --drain the tasks are stopped and start elsewhere.
    """
    request = StopRequest(drain, _keep_s(keep, drain))
    folder = (
        session(ctx).settings_of("state_dir", "runner", state_dir=state, runner_name=name).runner.state_dir
    )
    found = stopping.runner_of(folder)
    owner = None if found is None else ProcessOwner(found.pid, found.started)
    if owner is None or not owner.is_alive:
        raise NotFound(
            f"no runner is running in {folder}",
            hint="--name or --state says which; `phalanx down` stops `up`'s",
        )
    stopping.ask(folder, request)
    try:
        end(owner, partial(claim.is_runner, folder))
    except Conflict:
        stopping.withdraw(folder)
        raise
    word = stopping.read_outcome(folder)
    if word is None:
        raise Unavailable(f"the runner (pid {owner.pid}) ended without reporting what it left running")
    note(_told(word))
    if not word.knew:
        return 1
    if drain and not word.drained:
        note("warning: they could not be ended, as the keeper of the node does not answer")
        return 1
    if word.tasks and not word.told:
        note("warning: the coordinator could not be asked, or did not grant it")
        return 1
    return 0


def _keep_s(keep: str | None, drain: bool) -> float:
    if keep is None:
        return 0.0
    if drain:
        raise ConfigError("--keep and --drain: expected one of them", hint="--drain leaves nothing to keep")
    try:
        seconds = parse_seconds(keep)
    except ValueError as error:
        raise ConfigError(f"--keep: {error}") from None
    if seconds > stopping.KEEP_S_MAX:
        raise ConfigError(f"--keep = {keep!r}: expected at most {describe_seconds(stopping.KEEP_S_MAX)}")
    return seconds


def _told(word: StopOutcome) -> str:
    one, tasks = word.tasks == 1, plural(word.tasks, "task")
    if word.drained:
        left = f"; {word.unreported} will be reported by the next runner" if word.unreported else ""
        return f"stopped; {tasks} ended and {'was' if one else 'were'} reported{left}"
    if not word.knew:
        return "stopped before its keeper had answered; running tasks continue until their lease ends"
    if not word.tasks:
        return "stopped; nothing ran here"
    most = describe_seconds(word.lease_s)
    return (
        f"stopped; {tasks} {'runs' if one else 'run'} on for at most {most}: start the runner again by then"
    )
