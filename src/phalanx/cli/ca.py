"""`phalanx ca`: an authority of the cluster's own, and the certificates that coordinators, nodes and clients show.

How certificates are made is `certificates.py`'s business; it is imported late, because it takes a while.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.output import OutputOption, emit, fields, note
from phalanx.cli.session import session
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from phalanx.certificates import CertificateView, Kind

Authority = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the CA.", show_default=False)]
PLACE = "/etc/phalanx/tls"
SETTINGS = {
    "coordinator": "phalanx coordinator --tls {place} --bind ADDRESS",
    "node": "phalanx runner --tls {place} --name {name} --join HOST:7434",
    "client": "PHALANX_CA_FILE={place}/ca.crt PHALANX_CERT_FILE={place}/tls.crt PHALANX_KEY_FILE={place}/tls.key",
}


def init(
    folder: Authority,
    name: Annotated[str, typer.Option(help="Name of the CA.")] = "Phalanx",
    days: Annotated[int, typer.Option(min=1, max=36500, help="Validity.")] = 3650,
) -> None:
    """Create a CA: ca.crt, to be distributed, and ca.key, which stays here.

    Anyone who has ca.key can act as any node and any coordinator of the cluster.
    """
    from phalanx.certificates import make_authority

    make_authority(folder, name, days)
    note(f"made {folder / 'ca.crt'} and {folder / 'ca.key'}; keep the key on this machine, and a copy off it")
    note(f"next: phalanx ca issue {folder} --coordinator c1 --host HOSTNAME")


def issue(
    folder: Authority,
    node: Annotated[str | None, typer.Option(help="Name of the node the certificate is for.")] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="Name of the coordinator the certificate is for.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Name of the user or program the certificate is for.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Host name or address at which the coordinator is reached; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity.")] = 90,
    out: Annotated[
        Path | None, typer.Option(help="Output folder.", show_default="one in DIR with its name")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate.")] = False,
) -> None:
    """Issue a certificate: a folder with ca.crt, tls.crt and tls.key, to be copied to its machine.

    Daemons load a renewed certificate without a restart.
    """
    from phalanx.certificates import issue as issue_certificate

    kind, name = _wanted(node, coordinator, client)
    target = out or folder / f"{kind}s" / name
    issue_certificate(folder, kind, name, host or [], target, days, renew=renew)
    print(target)
    note(f"valid for {days} days; copy ca.crt, tls.crt and tls.key to {PLACE} on its machine, then:")
    note("  " + SETTINGS[kind].format(place=PLACE, name=name))


def show(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    output: OutputOption = None,
) -> None:
    """Show a certificate's subject and validity."""
    from phalanx.certificates import show as show_certificate

    view = show_certificate(file)
    emit(view, session(ctx).output(output), [view.name], lambda _wide: _lines(view))


def _wanted(node: str | None, coordinator: str | None, client: str | None) -> tuple[Kind, str]:
    kinds: list[tuple[Kind, str | None]] = [
        ("node", node),
        ("coordinator", coordinator),
        ("client", client),
    ]
    given = [(kind, name) for kind, name in kinds if name is not None]
    if len(given) != 1:
        what = "a certificate is for one only" if given else "no subject given"
        raise BadRequest(what, hint="give one of --node NAME, --coordinator NAME, --client NAME")
    return given[0]


def _lines(view: CertificateView) -> list[str]:
    left = f"{view.days_left} days left" if view.days_left >= 0 else "EXPIRED"
    return list(
        fields(
            [
                ("Kind", view.kind),
                ("Name", view.name),
                ("Hosts", ", ".join(view.hosts)),
                ("Issuer", view.issuer),
                ("From", view.valid_from),
                ("Until", f"{view.valid_until} ({left})"),
                ("SHA-256", view.fingerprint),
            ]
        )
    )
