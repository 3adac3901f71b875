"""`phalanx vps connect`: the SSH client of this machine, through the cluster, to the server of a VPS.

The connection goes the way of `phalanx port-forward`, so no route to the node is needed. The host key is known before:
it is asked of the coordinator and given to ssh, which accepts no other.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.sessions import ForwardRequest
from phalanx.api.schema.vps import VpsView
from phalanx.cli.exec import KEYS, request_of, run_in
from phalanx.cli.labels import label
from phalanx.cli.session import session
from phalanx.cli.vps import VpsArgument, asked
from phalanx.clock import SystemClock
from phalanx.errors import BadRequest, Conflict, PhalanxError, Unavailable

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.client.session_connection import AsyncExecSession

USER = "vps"  # any name will do: keys decide
PIECE_BYTES = 32 * 1024
LISTENS_WITHIN_S = 20.0  # of its start
AGAIN_S = 0.3
STARTING = ("PortRefused", "TaskNotRunning")

IdentityOption = Annotated[
    Path | None,
    typer.Option("-i", "--identity", help="File of the private key.", show_default="as ssh is configured"),
]


def connect(
    ctx: typer.Context,
    vps: VpsArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[CMD...]", show_default=False, help="Command to run.")
    ] = None,
    identity: IdentityOption = None,
) -> int:
    """Open a shell in a VPS with ssh, or run a command there.

    Without SSH (mode disabled) the shell is that of `phalanx attach`. For scp, rsync and editors:
    `phalanx vps ssh-config VPS > FILE`, then `scp -F FILE data vps:`.
    """
    here = session(ctx)
    client = here.client()
    view = _not_ended(asked(client.vps, vps))
    if view.ssh == "disabled":
        tty = os.isatty(0) and not command
        return run_in(client, view.id, request_of(command or [], tty=tty, stdin=True), KEYS)
    program = shutil.which("ssh")
    if program is None:
        raise BadRequest(
            "there is no program ssh on this machine",
            hint=f"install OpenSSH's client, or use phalanx attach {label(view)}",
        )
    words = [program]
    for name, value in _options(view, _own_words(ctx), identity).items():
        words += ["-o", f"{name}={value}"]
    words += [*(["-t"] if not command and os.isatty(0) else []), view.id, *(command or [])]
    return subprocess.run(words, check=False).returncode


def ssh_config(ctx: typer.Context, vps: VpsArgument, identity: IdentityOption = None) -> None:
    """Print a part of an ssh configuration for a VPS, for ssh, scp, rsync and editors."""
    view = asked(session(ctx).client().vps, vps)
    if view.ssh == "disabled":
        raise Conflict(f"VPS {label(view)} has no SSH (mode disabled)", reason="NoSsh")
    lines = [f"Host {' '.join(filter(None, (view.name, view.id)))}"]
    lines += [f"    {name} {value}" for name, value in _options(view, _own_words(ctx), identity).items()]
    sys.stdout.write("\n".join(lines) + "\n")


def _not_ended(view: VpsView) -> VpsView:
    if view.status in ("Completed", "Failed", "Cancelled"):
        raise Conflict(f"VPS {label(view)} has ended ({view.status})", reason="AlreadyEnded")
    return view


def proxy(ctx: typer.Context, vps: VpsArgument) -> int:
    """Connect standard input and output to the SSH server of a VPS; for ssh's ProxyCommand."""
    client = session(ctx).client()
    return asyncio.run(_proxy(client, vps))


def _options(view: VpsView, own: list[str], identity: Path | None) -> dict[str, str]:
    """What ssh has to be told; no file of ours is needed for it."""
    named = {"IdentityFile": str(identity.absolute()), "IdentitiesOnly": "yes"} if identity else {}
    alias = f"phalanx-{view.id}"
    return named | {
        "User": USER,
        "HostKeyAlias": alias,
        "KnownHostsCommand": f"/bin/echo {alias} {view.host_key}",
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "ProxyCommand": shlex.join([*own, "vps", "proxy", view.id]).replace("%", "%%"),
    }


def _own_words(ctx: typer.Context) -> list[str]:
    """This program, with the flags that say which cluster is meant."""
    flags = session(ctx).words_before()
    return [sys.executable, "-m", "phalanx", *flags]


async def _proxy(client: Client, vps: str) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    async with await _opened(client, vps) as there:
        feeding = asyncio.ensure_future(_feed(reader, there))
        try:
            async for _, piece in there:
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass  # ssh has gone
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    return 0


async def _opened(client: Client, vps: str) -> AsyncExecSession:
    """A connection to its port; one that has just started does not listen yet."""
    from phalanx.client.session_connection import open_session

    clock = SystemClock()
    until = clock.monotonic() + LISTENS_WITHIN_S
    while True:
        try:
            view = _not_ended(await asyncio.to_thread(client.vps, vps))
            if view.ssh_port is None:
                raise Unavailable(
                    f"VPS {label(view)} is {view.status}",
                    reason=STARTING[1],
                    hint=f"phalanx why {label(view)}",
                )
            ticket = await asyncio.to_thread(
                client.forward_ticket, view.id, ForwardRequest(port=view.ssh_port)
            )
            return await open_session(client.session_access(), ticket)
        except PhalanxError as error:
            if error.reason not in STARTING or clock.monotonic() >= until:
                raise
        await asyncio.sleep(AGAIN_S)


async def _feed(reader: asyncio.StreamReader, there: AsyncExecSession) -> None:
    while piece := await reader.read(PIECE_BYTES):
        await there.write(piece)
    await there.end_input()
