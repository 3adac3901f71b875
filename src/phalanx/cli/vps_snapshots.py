"""`phalanx vps snapshot`, `snapshots` and `restore`: images of a VPS in a container, on its node."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from phalanx.api.schema.vps import SnapshotView
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, Table, emit, moment, size
from phalanx.cli.session import session
from phalanx.cli.vps import VpsArgument, asked


def snapshot(
    ctx: typer.Context,
    vps: VpsArgument,
    name: Annotated[
        str, typer.Option("-n", "--name", help="Name of the snapshot.", show_default="the time")
    ] = "",
    output: OutputOption = None,
) -> None:
    """Make an image of the container of a VPS, which goes on meanwhile.

    Everything in the container is in it but its home folder and other mounts, and what is only in memory.
    """
    here = session(ctx)
    made = asked(partial(here.client().snapshot_vps, name=name), vps)
    emit(made, here.output(output), [made.name], lambda _wide: [f"{made.name} ({size(made.size_bytes)})"])


def snapshots(
    ctx: typer.Context,
    vps: VpsArgument,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="NAME", help="Remove this one first.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """List the snapshots of a VPS."""
    here = session(ctx)
    client = here.client()
    found = asked(
        client.vps_snapshots if remove is None else partial(client.remove_snapshot, name=remove), vps
    )
    emit(found, here.output(output), [each.name for each in found], lambda _wide: _table(found))


def restore(
    ctx: typer.Context,
    vps: VpsArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")],
    output: OutputOption = None,
) -> None:
    """Start a VPS anew from a snapshot, now and at later restarts; its home folder stays as it is."""
    here = session(ctx)
    view = asked(partial(here.client().restore_vps, name=name), vps)
    emit(view, here.output(output), [label(view)], lambda _wide: [f"{label(view)} restarts from {name}"])


def _table(found: list[SnapshotView]) -> Table:
    table = Table("NAME", "TAKEN", "SIZE", "CURRENT", narrows={"NAME": 16})
    for each in found:
        table.add(each.name, moment(each.taken_at), size(each.size_bytes), "yes" if each.current else "")
    return table
