"""The task of a VPS, from its start to the signal that ends it: an SSH server, or nothing but waiting.

It is the first process of its attempt, so that everything it starts is in the attempt's cgroup, account, devices and
network, and ends with it. It ends by a signal or with a code other than 0: a VPS never completes. What it writes is
the log of the VPS: who connected, and from where.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from importlib import import_module
from pathlib import Path

import msgspec

from phalanx.config import environment
from phalanx.errors import PhalanxError
from phalanx.runner.keeper.later import given_back
from phalanx.runner.keeper.spawn import KEY_VARIABLE
from phalanx.runner.session_child import Failed
from phalanx.runner.session_environment import AttemptLeader
from phalanx.runner.vps_options import HOME, OPTIONS, ServerOptions, decode
from phalanx.vps.log import complain, say

PORT_TAKEN, UNUSABLE = 98, 78  # exit codes: EADDRINUSE, and EX_CONFIG of sysexits.h


def main(folder: Path, container: tuple[int, int] | None = None) -> int:
    """Serve until a signal comes; the exit code where that is not possible.

    `container` is its first process: the pid, and the tick at which it began.
    """
    try:
        options = decode((folder / OPTIONS).read_bytes())
        env = _gone_there(options, container, folder / HOME)
        os.chdir(options.home)
    except (OSError, msgspec.MsgspecError, PhalanxError, Failed) as error:
        complain(f"the files of this VPS cannot be used: {error}")
        return UNUSABLE
    if not options.port:
        say("this VPS has no SSH; phalanx vps connect opens a shell in it")
        while True:
            signal.pause()
    try:
        asyncio.run(_serve(options, env | {"HOME": options.home}))
    except OSError as error:
        complain(f"cannot listen at port {options.port}: {error.strerror or error}")
        return PORT_TAKEN if error.errno == errno.EADDRINUSE else UNUSABLE
    except ImportError as error:
        complain(f"the SSH server cannot be loaded on this node: {error}")
        return UNUSABLE
    return UNUSABLE


def _gone_there(options: ServerOptions, container: tuple[int, int] | None, home: Path) -> dict[str, str]:
    """Load everything, then go to the container or into the account; the environment of what is started there."""
    if options.port:
        import_module("phalanx.vps.server")
    from phalanx.vps.places import become, move_in

    if container is not None:
        pid, born = container
        uid = None if options.account is None else options.account[0]
        return move_in(AttemptLeader(pid, (born, born), environment().get(KEY_VARIABLE, ""), uid), home)
    if options.account is not None:
        become(options.account)
    return given_back(dict(environment()))


async def _serve(options: ServerOptions, env: dict[str, str]) -> None:
    from phalanx.vps.server import listen

    servers = [await listen(options, address, env) for address in options.addresses]
    say(f"listening at {', '.join(options.addresses)}, port {options.port}")
    await asyncio.gather(*(server.wait_closed() for server in servers))
