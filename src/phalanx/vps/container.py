"""A VPS in a container: its server is started beside the container, with all that it will need loaded, and moves in.

So an image needs no SSH server and no Python. From there on shells, files and forwarded ports are the container's own,
with the rights of its first process. What is imported later would be looked for in the container, so nothing may be.
"""

from __future__ import annotations

import concurrent.futures.thread
import ctypes
import encodings.idna
import os
import signal
import stringprep
import tempfile
from pathlib import Path

from msgspec import structs

from phalanx.config import environment
from phalanx.runner import session_child
from phalanx.runner.keeper.spawn import KEY_VARIABLE
from phalanx.runner.session_environment import AttemptLeader, enter

# Loaded by others when they first need them.
LOADED = (concurrent.futures.thread, encodings.idna, stringprep, tempfile)
CAPABILITY_VERSION = 0x20080522
_RESET = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def move_in(pid: int, home: Path) -> dict[str, str]:
    """Be where the container's first process is, with no more rights than it has; returns its environment.

    `home` is given to its account. Raises OSError, PhalanxError or session_child.Failed.
    """
    for number in _RESET:  # which the container's process ignores, and shells must not
        signal.signal(number, signal.SIG_DFL)
    there = enter(AttemptLeader(pid, (0, 0), environment().get(KEY_VARIABLE, "")))
    held = _capabilities(pid)
    os.chown(home, there.uid, there.gid, follow_symlinks=False)
    told = structs.asdict(there) | {"argv": (), "tty": False, "port": 0, "parent": os.getppid()}
    session_child.enter(told)
    os.close(there.leader_fd)
    _keep_only(held)
    return dict(there.env)


def _capabilities(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapPrm":
            return int(value, 16)
    return 0


def _keep_only(held: int) -> None:
    """A new program would lose all that is not in its bounding set; we go on as we are."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    low, high = held & 0xFFFF_FFFF, held >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if os.geteuid() == 0 and libc.capset(header, sets) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
