"""`phalanx coordinator` and `phalanx runner`: the parts of a cluster as separate daemons.

They stay in the foreground and log to standard output, as an init system wants it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.session import SERVING, session, tls_files_in
from phalanx.cli.state import announced, claimed, endpoint_of, prepare


def coordinator(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    bind: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the REST API.", show_default="7433")] = None,
    link_port: Annotated[
        int | None, typer.Option(help="Port that runners connect to.", show_default="7434")
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port of the gRPC interface.", show_default="none")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where the cluster's state is kept: sqlite:PATH, etcd://h1:2379,h2:2379/prefix, redis://host:6379,"
            " memory:. Coordinators with the same store are one cluster.",
            show_default="sqlite: in the state folder",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="This coordinator's name among several.", show_default="the host name"),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(help="Address at which clients reach it.", show_default="http://BIND:PORT")
    ] = None,
    link_advertise: Annotated[
        str | None, typer.Option(help="Address at which runners reach it.", show_default="BIND:LINK_PORT")
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(help="Leader lease: how long before a standby may take over.", show_default="6s"),
    ] = None,
    tls: Annotated[
        Path | None, typer.Option(help="Folder with certificates made by `phalanx ca issue`.")
    ] = None,
) -> int:
    """Run a coordinator.

    Several with the same --store elect one leader; the others are standbys, which answer reads and take over.
    """
    settings = session(ctx).settings_of(
        *SERVING,
        state_dir=state,
        coordinator_bind=bind,
        coordinator_port=port,
        coordinator_link_port=link_port,
        coordinator_grpc_port=grpc_port,
        coordinator_store=store,
        coordinator_name=name,
        coordinator_advertise=advertise,
        coordinator_link_advertise=link_advertise,
        coordinator_lease_s=lease,
        **tls_files_in("coordinator", tls),
    )
    from phalanx.coordinator.main import run

    prepare(settings.state_dir)
    with claimed(settings.state_dir), announced(settings.state_dir, endpoint_of(settings)):
        return run(settings)


def runner(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    join: Annotated[
        str | None, typer.Option(help="The coordinator's host:link_port; several separated by commas.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The node's name.", show_default="the host name")] = None,
    pretend: Annotated[str | None, typer.Option(help="Simulated hardware: gpus=8,type=h100,cpus=64.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A label of the node, such as rack=r1; repeatable.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address at which other nodes reach this one.", show_default="its end of the connection"
        ),
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Token for the coordinator.")] = None,
    tls: Annotated[
        Path | None, typer.Option(help="Folder with certificates made by `phalanx ca issue`.")
    ] = None,
) -> int:
    """Run a runner: make this machine a node of a cluster.

    When stopped, it leaves its tasks running for as long as its lease lasts; `phalanx runner stop` can extend that.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    settings = session(ctx).settings_of(
        *SERVING,
        state_dir=state,
        runner_join=join,
        runner_name=name,
        runner_pretend=pretend,
        runner_address=address,
        runner_labels=";".join(label) if label else None,
        runner_token_file=token_file,
        **tls_files_in("runner", tls),
    )
    from phalanx.runner.main import run

    prepare(settings.state_dir)
    return run(settings)
