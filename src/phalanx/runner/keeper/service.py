"""The keeper as a service: one for each state folder, out of its starter's reach, listening on its socket.

The process that is started settles the past, opens the socket and leaves a child behind; when it exits with
0, a keeper can be connected to. It says on stderr why it could not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys

from . import journal, past, tree
from .loop import ALONE_S, Loop
from .mark import Mark
from .priority import go_first
from .table import Table
from .watchdog import Watchdog, take_over

SOCKET = "keeper.sock"
LOCK = "keeper.lock"
LOG = "keeper.log"


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -I -S keeper/__main__.py STATE_DIR [SECONDS_ALONE]\n")
        return 2
    alone_s = float(arguments[1]) if arguments[1:] else ALONE_S
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # a socket leaked by the starter would stay open for weeks
    state_dir = os.path.realpath(arguments[0])
    folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another keeper has this folder, which is all that was wanted
    boot = past.boot_id()
    told = journal.read(f"{state_dir}/{journal.NAME}")
    mark = Mark(state_dir)
    attempts = past.settle(told, boot, mark)
    settled = take_over(folder)
    listener = _listen(folder)
    if os.fork():
        os._exit(0)
    _detach(state_dir)
    try:
        for line in told.unreadable:
            sys.stderr.write(f"{journal.NAME}: skipped, it cannot be read: {line}\n")
        tree.become_subreaper()
        watchdog = Watchdog(mark)
        watchdog.ensure()
        go_first()
        written = journal.Journal(f"{state_dir}/{journal.NAME}")
        written.begin(boot, attempts, told.stopped)
        Loop(listener, Table(attempts, told.stopped), written, watchdog, boot, mark, alone_s).run()
        watchdog.dismiss()
    finally:
        os.unlink(SOCKET, dir_fd=folder)
        os.close(settled)
    return 0


def _listen(folder: int) -> socket.socket:
    """Bind by way of the open folder: its own path may be longer than a socket address can hold."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=folder)
    umask = os.umask(0o177)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
    finally:
        os.umask(umask)
    listener.listen(8)
    return listener


def _detach(state_dir: str) -> None:
    """Leave the starter's session, folder and descriptors; what goes wrong later is in the keeper's log."""
    os.setsid()
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(f"{state_dir}/{LOG}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for fd, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, target)
