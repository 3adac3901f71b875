"""The keeper's socket: made in the state folder, made again when it is gone, and closed to tasks.

Tasks run under the same account and can reach and remove it. Every descendant of the keeper is a task, whatever it did
to get away (the keeper is a subreaper), and its connection is closed: it must not replace the runner or prolong the
lease.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct

from . import files, log, lookup

NAME = "keeper.sock"
BACKLOG = 8
EXHAUSTED_PAUSE_S = 0.02
_CREDENTIALS = struct.Struct("iii")  # pid, uid, gid


class SocketListener:
    """Listens once created. Raises OSError when it cannot."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        # The folder stays open: its own path may be longer than a socket address allows.
        self._folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
        self._socket, self._found = self._bind()

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """The connection of a runner, or None if there is none: a task's is closed."""
        try:
            peer, _ = self._socket.accept()
        except OSError as error:
            if error.errno in files.EXHAUSTED:  # it stays in the queue, and would be found again at once
                select.select([], [], [], EXHAUSTED_PAUSE_S)
            return None
        pid, uid = peer_of(peer)
        if uid == os.geteuid() and not lookup.descends_from(pid, os.getpid()):
            return peer
        log.write("refused", f"{NAME}: refused the process {pid} of user {uid}, which is not a runner")
        peer.close()
        return None

    def sign(self) -> None:
        """A client sees the pid of the process that listened last (SO_PEERCRED): from now on ours."""
        self._socket.listen(BACKLOG)

    def is_gone(self) -> bool:
        """Whether no client can connect any more, because the name is gone or another's."""
        return self._stat() != self._found

    def renew(self) -> None:
        """Listen again; connections waiting in the old socket are refused. On OSError the old one stays."""
        old = self._socket
        self._socket, self._found = self._bind()
        old.close()
        log.write("gone", f"{NAME} was removed; it is created again")

    def close(self) -> None:
        """Remove the socket."""
        self._socket.close()
        if not self.is_gone():
            os.unlink(NAME, dir_fd=self._folder)

    def _bind(self) -> tuple[socket.socket, tuple[int, int]]:
        files.set_aside(f"{self._state_dir}/{NAME}", unless=stat.S_ISSOCK)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        umask = os.umask(0o177)
        try:
            if any(self._stat()):
                os.unlink(NAME, dir_fd=self._folder)
            listener.bind(f"/proc/self/fd/{self._folder}/{NAME}")
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(umask)
        return listener, self._stat()

    def _stat(self) -> tuple[int, int]:
        """The identity of the file and who may connect to it; zeros when there is none."""
        try:
            found = os.stat(NAME, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return 0, 0
        return found.st_ino, found.st_mode


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel saw them when it connected, or listened."""
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(option)
    return pid, uid
