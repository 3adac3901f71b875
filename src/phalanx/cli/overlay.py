"""`phalanx node ip-…`: addresses of the overlay network, reserved before a task is submitted, and what is free.

The token of a reservation is shown once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from phalanx.api.schema.overlay import AddressesView, NewReservation, ReservationView
from phalanx.cli.node import NameArgument
from phalanx.cli.output import OutputOption, Table, emit, fields, moment
from phalanx.cli.session import session


def reserve(
    ctx: typer.Context,
    name: NameArgument,
    ip: Annotated[
        str | None, typer.Option("-i", "--ip", help="The address.", show_default="any free one")
    ] = None,
    ttl: Annotated[
        int, typer.Option("--ttl", help="Seconds until it expires if no task uses it, 60 to 1800.")
    ] = 300,
    output: OutputOption = None,
) -> None:
    """Reserve an address of a node in the overlay network.

    `phalanx task submit -t NAME --ip-token TOKEN -- CMD` starts a task that has it. The token is shown once.
    """
    here = session(ctx)
    made = here.client().reserve_address(name, ip=ip, ttl=ttl)
    emit(made, here.output(output), [made.token], lambda _wide: _made(made))


def release(
    ctx: typer.Context,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Token of a reservation, or its id.")],
    output: OutputOption = None,
) -> None:
    """Give a reservation back that no task has used."""
    here = session(ctx)
    view = here.client().release_reservation(token)
    emit(view, here.output(output), [view.id], lambda _wide: [f"{view.ip} on {view.node} released"])


def listed(ctx: typer.Context, output: OutputOption = None) -> None:
    """List reservations of addresses: your own, or all of them as operator."""
    here = session(ctx)
    found = here.client().reservations()
    emit(found, here.output(output), [each.id for each in found], lambda _wide: _table(found))


def info(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Show the addresses of one node."""
    here = session(ctx)
    view = here.client().node_addresses(name)
    emit(view, here.output(output), [view.node], lambda _wide: _lines(view))


def available(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", show_default=False, help="Only of this node.")
    ] = None,
    limit: Annotated[
        int, typer.Option("-l", "--limit", min=1, max=1000, help="Addresses shown of each node.")
    ] = 20,
    output: OutputOption = None,
) -> None:
    """List free addresses of the nodes."""
    here = session(ctx)
    client = here.client()
    found = client.addresses(limit=limit) if name is None else [client.node_addresses(name, limit=limit)]
    names = [ip for each in found for ip in each.available]
    emit(found, here.output(output), names, lambda _wide: _free(found))


def _made(made: NewReservation) -> Iterable[str]:
    return fields([
        ("IP", made.ip),
        ("Token", made.token),
        ("Node", made.reservation.node),
        ("Expires", moment(made.reservation.expires_at)),
    ])  # fmt: skip


def _table(found: list[ReservationView]) -> Table:
    table = Table("ID", "NODE", "IP", "USER", "EXPIRES", "JOB", narrows={"EXPIRES": 10, "USER": 6})
    for each in found:
        table.add(each.id, each.node, each.ip, each.user, moment(each.expires_at), each.job or None)
    return table


def _lines(view: AddressesView) -> Iterable[str]:
    return fields([
        ("Node", view.node),
        ("Block", view.block),
        ("Gateway", view.gateway),
        ("Addresses", f"{view.free} of {view.total} free"),
        ("In use", view.in_use),
        ("Reserved", view.reserved),
        ("Resting", view.resting),
        ("Next free", " ".join(view.available[:5]) or None),
    ])  # fmt: skip


def _free(found: list[AddressesView]) -> Table:
    table = Table("NODE", "BLOCK", "FREE", "AVAILABLE", narrows={"AVAILABLE": 16})
    for each in found:
        table.add(each.node, each.block, f"{each.free}/{each.total}", " ".join(each.available))
    return table
