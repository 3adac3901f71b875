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

Authority = Annotated[Path, typer.Argument(metavar="DIR", help="The authority's folder.", show_default=False)]
PLACE = "/etc/phalanx/tls"
SETTINGS = {
    "coordinator": "phalanx coordinator --tls {place} --bind ADDRESS",
    "node": "phalanx runner --tls {place} --name {name} --join HOST:7434",
    "client": "PHALANX_CA_FILE={place}/ca.crt PHALANX_CERT_FILE={place}/tls.crt PHALANX_KEY_FILE={place}/tls.key",
}


def init(
    folder: Authority,
    name: Annotated[str, typer.Option(help="What the authority is called.")] = "Phalanx",
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long it is valid.")] = 3650,
) -> None:
    """Make an authority: ca.crt for everybody, and ca.key, which stays here.

    Whoever has ca.key can be any node and any coordinator of the cluster.
    """
    from phalanx.certificates import make_authority

    make_authority(folder, name, days)
    note(f"made {folder / 'ca.crt'} and {folder / 'ca.key'}; keep the key on this machine, and a copy off it")
    note(f"next: phalanx ca issue {folder} --coordinator c1 --host HOSTNAME")


def issue(
    folder: Authority,
    node: Annotated[str | None, typer.Option(help="For the runner of this node.")] = None,
    coordinator: Annotated[str | None, typer.Option(help="For this coordinator.")] = None,
    client: Annotated[str | None, typer.Option(help="For this user or program.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address that a coordinator is reached by; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is valid.")] = 90,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to.", show_default="one in DIR with its name")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the one that is there.")] = False,
) -> None:
    """Issue a certificate: a folder with ca.crt, tls.crt and tls.key, to be copied to its machine.

    A certificate that was renewed is taken up without a restart.
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
    """Show what a certificate says: whom it is for, and until when."""
    from phalanx.certificates import show as show_certificate

    view = show_certificate(file)
    emit(view, session(ctx).output(output), [view.name], lambda _wide: _lines(view))


def _wanted(node: str | None, coordinator: str | None, client: str | None) -> tuple[Kind, str]:
    wishes: list[tuple[Kind, str | None]] = [
        ("node", node),
        ("coordinator", coordinator),
        ("client", client),
    ]
    given = [(kind, name) for kind, name in wishes if name is not None]
    if len(given) != 1:
        what = "a certificate is for one only" if given else "whom is it for?"
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
