"""Where the server of a VPS goes before it serves: into its container, or into the account of its user.

It is started by the runner's account, with all that it will need loaded. So an image needs no SSH server and no Python,
and an account no right to read ours. From there on shells, files and forwarded ports have the rights of the container's
first process, or of the account. What is imported later may be out of reach, so nothing may be.
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

from phalanx.runner import session_child
from phalanx.runner.session_environment import CAPABILITIES, AttemptLeader, enter

# Loaded by others when they first need them.
LOADED = (concurrent.futures.thread, encodings.idna, stringprep, tempfile)
CAPABILITY_VERSION = 0x20080522
_RESET = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def move_in(leader: AttemptLeader, home: Path) -> dict[str, str]:
    """Be where the container's first process is, with no more rights than it has; returns its environment.

    `home` is given to its account. Raises OSError, PhalanxError or session_child.Failed, also if it has ended: its pid
    may be that of another user's process by then.
    """
    for number in _RESET:  # which the container's process ignores, and shells must not
        signal.signal(number, signal.SIG_DFL)
    there = enter(leader)
    held = _capabilities(leader.pid)
    os.chown(home, there.uid, there.gid, follow_symlinks=False)
    told = structs.asdict(there) | {"argv": (), "tty": False, "port": 0, "parent": os.getppid()}
    session_child.enter(told)
    os.close(there.leader_fd)
    _keep_only(held)
    return dict(there.env)


def become(account: tuple[int, int, tuple[int, ...]]) -> None:
    """Take on an account, for good, and no rights beyond it. Raises OSError."""
    uid, gid, groups = account
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(CAPABILITIES):
        libc.prctl(session_child.PR_CAPBSET_DROP, number, 0, 0, 0)  # those that the kernel has
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _keep_only(0)
    if libc.prctl(session_child.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


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
    if libc.capset(header, sets) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
