"""`phalanx cluster` (or `status`): the whole in a few lines."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from phalanx.api.schema import ClusterView
from phalanx.cli.coordinators import coordinator_lines, describe_role
from phalanx.cli.output import OutputOption, emit, fields
from phalanx.cli.session import session
from phalanx.settings import Settings


def cluster(ctx: typer.Context, output: OutputOption = None) -> None:
    """Show the cluster in a few lines."""
    here = session(ctx)
    view = here.client().cluster()
    emit(view, here.output(output), [str(view.epoch)], lambda _wide: _lines(view, here.settings))


def _lines(view: ClusterView, settings: Settings) -> Iterable[str]:
    tasks = view.tasks
    return fields(
        [
            ("Alarm", view.brake or None),
            ("Nodes", f"{view.nodes_online} of {view.nodes} online"),
            ("Cores", f"{view.cores_free} of {view.cores} free"),
            ("GPUs", f"{view.devices_free} of {view.devices} free"),
            ("Jobs", view.jobs),
            ("Tasks", ", ".join(f"{getattr(tasks, name)} {name}" for name in tasks.__struct_fields__)),
            ("Coordinator", f"phalanx {view.version}, epoch {view.epoch}, revision {view.revision}"),
            *([("Role", describe_role(view.coordinator))] if view.coordinator else []),
            *coordinator_lines(settings),
        ]
    )
