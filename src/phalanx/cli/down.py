"""`phalanx down`: stop the cluster that `phalanx up` started here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from phalanx.cli import keepers
from phalanx.cli.output import note
from phalanx.cli.session import connect, session
from phalanx.cli.state import end, owner
from phalanx.core.model.amounts import plural
from phalanx.errors import PhalanxError, Unavailable
from phalanx.settings import Settings


def down(
    ctx: typer.Context,
    state: Annotated[Path | None, typer.Option(help="State folder of the cluster.")] = None,
) -> None:
    """Stop the cluster on this machine.

    Tasks are stopped first, then the runners, then the coordinator. Pending jobs resume at the next `phalanx up`.
    """
    settings = session(ctx).settings_of("state_dir", state_dir=state)
    folder = settings.state_dir
    found = owner(folder)
    if found is None:
        _end_what_is_left(folder)
        return
    note(f"stopping the cluster in {folder} (pid {found.pid}){_with_tasks(settings)}")
    end(found)


def _end_what_is_left(folder: Path) -> None:
    """A supervisor that was killed leaves keepers with their tasks; of dead keepers, watchdogs."""
    left = keepers.left_in(folder)
    if left.is_nothing:
        note(f"no cluster is up in {folder}")
        return
    told = [f"stopping {_listed(left.keepers, 'keeper')} and their tasks"] if left.keepers else []
    if left.watchdogs:
        dogs = _listed(left.watchdogs, "watchdog")
        told.append(f"waiting for {dogs} to end the tasks of dead keepers with their lease")
    note(f"the cluster in {folder} was killed; {', '.join(told)}")
    rest = keepers.stop(folder, left)
    if rest.keepers:
        raise Unavailable(
            f"{_listed(rest.keepers, 'keeper')} did not end",
            hint="`kill -9` them; watchdogs then end their tasks with the lease",
        )
    if rest.watchdogs:
        raise Unavailable(
            f"{_listed(rest.watchdogs, 'watchdog')} did not end: tasks of dead keepers run until their lease ends",
            hint="try again later and do not kill them; `phalanx up` ends the tasks at once",
        )


def _listed(pids: list[int], noun: str) -> str:
    shown = ", ".join(map(str, pids[:10])) + (" …" if len(pids) > 10 else "")
    return f"{plural(len(pids), noun)} (pid {shown})"


def _with_tasks(settings: Settings) -> str:
    """How many tasks lose what they have done so far; empty if the cluster cannot be asked."""
    local = structs.replace(settings, client=structs.replace(settings.client, address=None))
    try:
        with connect(local, patience_s=0.0) as client:
            counts = client.cluster().tasks
    except PhalanxError:
        return ""
    running = counts.running + counts.assigned
    if not running:
        return "; no task is running"
    stopped = "is stopped and starts" if running == 1 else "are stopped and start"
    return f"; {plural(running, 'task')} on its nodes {stopped} again after the next `phalanx up`"
