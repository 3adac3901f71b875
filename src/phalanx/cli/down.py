"""`phalanx down`: stop the cluster that `phalanx up` started here."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.output import note
from phalanx.cli.owner import Owner
from phalanx.cli.session import session
from phalanx.cli.state import owner
from phalanx.errors import Unavailable

WITHIN_S = 45.0


def down(
    ctx: typer.Context,
    state: Annotated[Path | None, typer.Option(help="The cluster's state folder.")] = None,
) -> None:
    """Stop the cluster on this machine.

    Its tasks first, then its runners, then its coordinator. What waits goes on after the next `phalanx up`.
    """
    folder = session(ctx).settings_of("state_dir", state_dir=state).state_dir
    found = owner(folder)
    if found is None:
        note(f"no cluster is up in {folder}")
        return
    note(f"stopping the cluster in {folder} (pid {found.pid})")
    _stop(found)


def _stop(found: Owner) -> None:
    """Ask it to end and wait until it has. A pidfd cannot come to mean another process."""
    try:
        process = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return
    try:
        if not found.is_alive:
            return
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(WITHIN_S * 1000):
            raise Unavailable(f"process {found.pid} has not ended within {WITHIN_S:g} s", hint="try again")
    finally:
        os.close(process)
