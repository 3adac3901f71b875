"""`phalanx coordinator` and `phalanx runner`: the parts of a cluster as separate daemons.

They stay in the foreground and log to standard output, as an init system wants it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.session import session
from phalanx.cli.state import announced, claimed, endpoint_of, prepare


def coordinator(
    ctx: typer.Context,
    bind: Annotated[
        str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Where REST listens.", show_default="7433")] = None,
    link_port: Annotated[int | None, typer.Option(help="Where runners dial in.", show_default="7434")] = None,
    state: Annotated[Path | None, typer.Option(help="Where to keep everything.")] = None,
) -> int:
    """Run a coordinator."""
    settings = session(ctx).settings_with(
        state_dir=state, coordinator_bind=bind, coordinator_port=port, coordinator_link_port=link_port
    )
    from phalanx.coordinator.main import run

    prepare(settings.state_dir)
    with claimed(settings.state_dir), announced(settings.state_dir, endpoint_of(settings)):
        return run(settings)


def runner(
    ctx: typer.Context,
    join: Annotated[str | None, typer.Option(help="The coordinator's host:link_port.")] = None,
    name: Annotated[str | None, typer.Option(help="The node's name.", show_default="the host name")] = None,
    pretend: Annotated[str | None, typer.Option(help="Invented hardware: gpus=8,type=h100,cpus=64.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A label of the node, such as rack=r1; repeatable.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Where other nodes reach this one.", show_default="its end of the connection"),
    ] = None,
    state: Annotated[Path | None, typer.Option(help="Where to keep everything.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="The token to show to the coordinator.")] = None,
) -> int:
    """Offer this machine to a coordinator."""
    settings = session(ctx).settings_with(
        state_dir=state,
        runner_join=join,
        runner_name=name,
        runner_pretend=pretend,
        runner_address=address,
        runner_labels=";".join(label) if label else None,
        runner_token_file=token_file,
    )
    from phalanx.runner.main import run

    prepare(settings.state_dir)
    return run(settings)
