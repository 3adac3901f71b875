"""`phalanx cluster` (or `status`): the whole in a few lines."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from phalanx.api.schema.cluster import ClusterView
from phalanx.cli.coordinators import Coordinators, describe_role
from phalanx.cli.members import counted
from phalanx.cli.output import OutputOption, emit, fields
from phalanx.cli.session import session


def cluster(ctx: typer.Context, output: OutputOption = None) -> None:
    """Show a summary of the cluster."""
    here = session(ctx)
    chosen = here.output(output)
    client = here.client()
    asked = Coordinators(here.settings) if chosen in {"table", "wide"} else None
    view = client.cluster()
    emit(view, chosen, [str(view.epoch)], lambda _wide: _lines(view, asked))


def _lines(view: ClusterView, asked: Coordinators | None) -> Iterable[str]:
    return fields(
        [
            ("Alarm", view.brake or None),
            ("Nodes", f"{view.nodes_online} of {view.nodes} online"),
            ("Cores", f"{view.cores_free} of {view.cores} free"),
            ("GPUs", f"{view.devices_free} of {view.devices} free"),
            ("Jobs", view.jobs),
            ("Tasks", counted(view.tasks) or "none"),
            ("Coordinator", f"phalanx {view.version}, epoch {view.epoch}, revision {view.revision}"),
            *([("Role", describe_role(view.coordinator))] if view.coordinator else []),
            *(asked.lines() if asked else ()),
        ]
    )
