"""`phalanx login …`: the browsers that are logged in to the dashboard, and their end."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.api.schema.logins import LoginRecord
from phalanx.cli.output import OutputOption, Table, emit, moment, span
from phalanx.cli.session import session
from phalanx.clock import SystemClock

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id as shown by `phalanx login list`.")]


def logins(ctx: typer.Context, output: OutputOption = None) -> None:
    """List the browsers that are logged in: your own, or all of them as admin."""
    here = session(ctx)
    found = here.client().logins()
    emit(found, here.output(output), [each.id for each in found], lambda wide: _table(found, wide))


def end_login(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Log a browser out."""
    here = session(ctx)
    ended = here.client().end_login(id)
    emit(ended, here.output(output), [ended.id], lambda _wide: [f"{ended.id} ({ended.name}) logged out"])


def _table(found: list[LoginRecord], wide: bool) -> Table:
    table = Table("ID", "NAME", "ROLE", "TOKEN", "STATE", "ENDS", "LAST USED", narrows={"NAME": 8})
    now = SystemClock().now()
    for each in found:
        ends = moment(each.expires_at) if wide else f"in {span(now, each.expires_at)}"
        used = moment(each.used_at) if wide else f"{span(each.used_at, now)} ago"
        state = "valid" if each.valid else "ended"
        table.add(each.id, each.name, each.role, each.token or "(proxy)", state, ends, used)
    return table
