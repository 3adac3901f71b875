"""`phalanx vps …`: make, list, show, restart and stop VPSs. How to get into one is in `vps_connect.py`.

A private key that is made with a VPS is shown once: in a file (`--key-out`), or on standard output.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from msgspec import Struct

from phalanx.api.schema.vps import NewVps, VpsRequest, VpsView
from phalanx.cli.completion import job_ids, node_names
from phalanx.cli.environment import EnvFileOption, EnvOption, given_variables
from phalanx.cli.labels import label
from phalanx.cli.option_form import with_options
from phalanx.cli.output import OutputOption, Table, emit, fields, moment, note, size
from phalanx.cli.session import read_cores, read_memory, session
from phalanx.cli.values import pair
from phalanx.errors import BadRequest, Conflict, NotFound

VpsArgument = Annotated[
    str, typer.Argument(metavar="VPS", help="Number, name or id of the VPS.", autocompletion=job_ids)
]
KEY_BYTES_MAX = 1 << 20
T = TypeVar("T")


class VpsOptions(Struct, kw_only=True):
    """Each field is an option of `create`."""

    name: Annotated[str, typer.Option("-n", "--name", help="Name of the VPS.")] = ""
    target: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            help="Node to run on, host[:numa][::gpus]; any without.",
            autocompletion=node_names,
        ),
    ] = None
    ssh: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="upload, generate or disabled.", show_default="generate"),
    ] = None
    key: Annotated[
        Path | None,
        typer.Option("-k", "--key", help="File of the public key that may log in, such as id_ed25519.pub."),
    ] = None
    key_out: Annotated[
        Path | None, typer.Option("--key-out", help="New file for the private key that is generated.")
    ] = None
    cores: Annotated[
        float,
        typer.Option("-c", "--cores", parser=read_cores, metavar="CORES", help="Cores; 0 = unlimited."),
    ] = 1
    memory: Annotated[
        str,
        typer.Option("-m", "--memory", parser=read_memory, metavar="SIZE", help="Memory, such as 16GiB."),
    ] = "0"
    gpus: Annotated[int, typer.Option(min=0, help="GPUs.")] = 0
    gpu_type: Annotated[str | None, typer.Option(help="GPU model, such as h100; * stands for any text.")] = (
        None
    )
    gpu_memory: Annotated[str, typer.Option(help="Minimum memory of each GPU, such as 80GiB.")] = "0"
    priority: Annotated[int, typer.Option(help="Higher priorities go first.")] = 0
    queue: Annotated[str, typer.Option("-q", "--queue", help="Queue to submit to.")] = "default"
    label: Annotated[
        list[str] | None,
        typer.Option("-l", "--label", metavar="K=V", help="Label the node must have; repeatable."),
    ] = None
    env: EnvOption = None
    env_file: EnvFileOption = None
    require_isolation: Annotated[
        bool, typer.Option("--require-isolation", help="Only nodes that hold tasks to their grants.")
    ] = False
    network: Annotated[
        Literal["node", "overlay"],
        typer.Option(help="overlay: it has an address of its own in the overlay network."),
    ] = "node"
    ip_token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Token of a reserved address, from `phalanx node ip-reserve`."),
    ] = None
    image: Annotated[
        str,
        typer.Option(
            help="Container to run in: a name in a registry, /path/image.tar or rootfs:/path.",
            show_default="none",
        ),
    ] = ""
    mount: Annotated[
        list[str] | None,
        typer.Option(metavar="SRC:DST[:ro]", help="Folder of the node in the container; repeatable."),
    ] = None
    no_queue: Annotated[bool, typer.Option("--no-queue", help="Reject it if it cannot start now.")] = False

    def request(self) -> VpsRequest:
        """The same in the words of the API."""
        return VpsRequest(
            public_key="" if self.key is None else _public(self.key),
            targets=self.target or [],
            mounts=self.mount or [],
            labels=dict(pair(each, "--label") for each in self.label or []),
            env=given_variables(self.env, self.env_file),
            **{name: getattr(self, name) for name in _SAME},
        )


# The fields that have the same name and meaning on both sides.
_SAME = (
    *("ssh", "name", "cores", "memory", "gpus", "gpu_type", "gpu_memory", "priority", "queue"),
    *("require_isolation", "network", "ip_token", "no_queue", "image"),
)


@with_options(VpsOptions)
def create(ctx: typer.Context, options: VpsOptions, output: OutputOption = None) -> None:
    """Make a VPS: a task that runs until it is stopped, with SSH and a home folder of its own.

    `phalanx vps create --key ~/.ssh/id_ed25519.pub` lets that key in; without a key a pair is made, and its private key
    is shown once. `phalanx vps connect ID` goes there.
    """
    here = session(ctx)
    _check_new(options.key_out)
    made = here.client().create_vps(options.request())
    if made.replayed and made.ssh == "generate":
        note(
            f"the answer with the private key was lost on its way: phalanx vps stop {label(made)}, and make another"
        )
    elif made.private_key and options.key_out is not None:
        _keep(options.key_out, made.private_key)
        made.private_key = None
        note(f"private key in {options.key_out}")
    emit(made, here.output(output), [label(made)], lambda _wide: _made(made))


def listed(
    ctx: typer.Context,
    all_: Annotated[bool, typer.Option("-a", "--all", help="Also those that have ended.")] = False,
    output: OutputOption = None,
) -> None:
    """List VPSs: your own, or all of them as operator."""
    here = session(ctx)
    found = here.client().list_vps(ended=all_)
    emit(found, here.output(output), [label(each) for each in found], lambda wide: _table(found, wide))


def show(ctx: typer.Context, vps: VpsArgument, output: OutputOption = None) -> None:
    """Show one VPS."""
    here = session(ctx)
    view = asked(here.client().vps, vps)
    emit(view, here.output(output), [label(view)], lambda _wide: _lines(view))


def restart(ctx: typer.Context, vps: VpsArgument, output: OutputOption = None) -> None:
    """Start a VPS anew on its node; its files, keys and host key stay."""
    here = session(ctx)
    view = asked(here.client().restart_vps, vps)
    emit(
        view,
        here.output(output),
        [label(view)],
        lambda _wide: [f"{label(view)} restarts on {view.node or '-'}"],
    )


def stop(ctx: typer.Context, vps: VpsArgument, output: OutputOption = None) -> None:
    """Stop a VPS for good; its files are removed."""
    here = session(ctx)
    done = asked(here.client().stop_vps, vps)
    emit(done, here.output(output), [label(done)], lambda _wide: [f"{label(done)} stopped"])


def asked(ask: Callable[[str], T], vps: str) -> T:
    """The answer about a VPS. A name that nothing has is said to be that of no VPS."""
    try:
        return ask(vps)
    except NotFound as error:
        if error.reason != "JobNotFound":
            raise
        text = f"no VPS {vps[:80]!r}"
        raise NotFound(text, reason="VpsNotFound", hint="phalanx vps list --all shows them") from None


def _public(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(KEY_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"--key {file}: {getattr(error, 'strerror', None) or 'it is not text'}") from None


def _check_new(file: Path | None) -> None:
    """Told before the VPS is made, for its key could not be shown again."""
    if file is None:
        return
    if os.path.lexists(file):
        raise Conflict(f"--key-out {file}: it is there already", hint="give another name, or remove it")
    if not file.absolute().parent.is_dir():
        raise BadRequest(f"--key-out {file}: there is no folder {file.absolute().parent}")


def _keep(file: Path, private_key: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as opened:
        opened.write(private_key)


def _made(made: NewVps) -> Iterable[str]:
    yield from _lines(made)
    if made.private_key:
        yield "The private key, which is shown this once; save it with the rights 600:"
        yield from made.private_key.splitlines()


def _lines(view: VpsView) -> Iterable[str]:
    asked = view.request
    return fields(
        [
            ("Number", view.number),
            ("ID", view.id),
            ("Name", view.name),
            ("User", view.user),
            ("Status", f"{view.status}{f' ({view.reason})' if view.reason else ''}"),
            ("Message", view.message),
            ("Node", view.node),
            ("Address", view.address),
            ("Image", view.image),
            ("SSH", view.ssh),
            ("SSH port", view.ssh_port),
            ("Host key", view.host_key_fingerprint),
            ("Keys", ", ".join(view.key_fingerprints)),
            ("Cores", asked.cores),
            ("Memory", size(asked.memory_bytes) if asked.memory_bytes else ""),
            ("GPUs", ",".join(map(str, view.devices)) or asked.gpus or ""),
            ("Attempt", view.attempt),
            ("Submitted", moment(view.submitted_at)),
            ("Started", moment(view.started_at)),
            ("Ended", "" if view.ended_at is None else moment(view.ended_at)),
        ]
    )


def _table(found: list[VpsView], wide: bool) -> Table:
    more = ("KEYS", "HOST KEY", "LONG ID") if wide else ()
    table = Table(
        "ID", "NAME", "USER", "STATUS", "NODE", "SSH", "PORT", "ADDRESS", "STARTED", *more,
        narrows={"ADDRESS": 12, "NAME": 10, "NODE": 8, "USER": 6}, spare=("STARTED", "SSH"),
    )  # fmt: skip
    for each in found:
        cells = (
            [", ".join(each.key_fingerprints) or "-", each.host_key_fingerprint or "-", each.id]
            if wide
            else []
        )
        table.add(
            label(each),
            each.name or "-",
            each.user,
            each.status,
            each.node or "-",
            each.ssh,
            each.ssh_port or "-",
            each.address or "-",
            moment(each.started_at),
            *cells,
        )
    return table
