"""The keeper's socket: made in the state folder, closed to tasks; and its connection to the runner, never blocking.

Tasks run under the same account and can reach and remove the socket, which is then made again. Every descendant of the
keeper is a task, whatever it did to get away (the keeper is a subreaper), and its connection is closed: it must not
replace the runner or prolong the lease.

Frames of JSON travel with their length before them. A peer that sends what is not a frame, or does not read its
answers, is dropped: it can connect again and ask for a listing. What the keeper sends is an answer as JSON text; a
fact goes into the journal first. Answers that can wait (a start, an end whose lane continues) wait for a few
milliseconds, so that those of short tasks travel in one frame: waking the runner costs more than anything sent to it.
Of a task that ends within that time only the end is sent, which says when it started.
"""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import struct

from . import log, lookup, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempt import RecordAndSend
    from .journal import Journal

NAME = "keeper.sock"
BACKLOG = 8
EXHAUSTED_PAUSE_S = 0.02
FRAME_BYTES_MAX = 16 << 20
UNSENT_BYTES_MAX = 64 << 20
PATIENCE_S = 0.005
_READ_BYTES = 16 << 10
_CREDENTIALS = struct.Struct("iii")  # pid, uid, gid
_decode = json.JSONDecoder().decode


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
            if error.errno in system.EXHAUSTED:  # it stays in the queue, and would be found again at once
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
        system.set_aside(f"{self._state_dir}/{NAME}", unless=stat.S_ISSOCK)
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


class Lost(Exception):
    """The peer closed, or cannot be understood any more."""


class SocketLink:
    """One connection to the runner."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self.blocked = False  # whether not everything could be sent
        self._received = b""
        self._unsent = b""

    def fileno(self) -> int:
        return self.peer.fileno()

    def receive(self) -> list[Any]:
        """The requests of all frames that have fully arrived; raises Lost at the end of the stream."""
        try:
            received = self.peer.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise Lost(str(error)) from None
        if not received:
            raise Lost("the runner closed the connection")
        buffer = self._received + received if self._received else received
        requests: list[Any] = []
        at = 0
        while (end := _frame_end(buffer, at)) <= len(buffer):
            requests += _read_frame(buffer[at + 4 : end])
            at = end
        self._received = buffer[at:]
        return requests

    def send(self, answers: list[str]) -> None:
        """Send these answers as one frame, after what is left of earlier ones."""
        if answers:
            body = f"[{','.join(answers)}]".encode()
            self._unsent += len(body).to_bytes(4, "big") + body
        if self._unsent:
            self._send_some()
        self.blocked = bool(self._unsent)

    def _send_some(self) -> None:
        try:
            sent = self.peer.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            raise Lost(str(error)) from None
        self._unsent = self._unsent[sent:]
        if len(self._unsent) > UNSENT_BYTES_MAX:
            raise Lost("the runner does not read its answers")

    def close(self) -> None:
        self.peer.close()


def _frame_end(buffer: bytes, at: int) -> int:
    """Where the frame that starts here ends; past the buffer's end while its length is not known."""
    if len(buffer) < at + 4:
        return len(buffer) + 1
    length = int.from_bytes(buffer[at : at + 4], "big")
    if length > FRAME_BYTES_MAX:
        raise Lost(f"a frame of {length} bytes is longer than {FRAME_BYTES_MAX}")
    return at + 4 + length


def _read_frame(body: bytes) -> list[Any]:
    try:
        frame = _decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Lost(f"a frame is not JSON: {error}") from None
    if not isinstance(frame, list):
        raise Lost("a frame is not an array of requests")
    return frame


class Outbox:
    """What is sent to the runner. Without a connection it is dropped: a listing contains all of it."""

    def __init__(self, journal: Journal) -> None:
        self.link: SocketLink | None = None
        self.waiting_since: float | None = None  # since when answers wait for others
        self._journal = journal
        self._lines: list[str] = []  # empty ones are not sent
        self._starts: dict[str, int] = {}  # where those of starts are among them, by key
        self._urgent = False

    def record_and_send(self, effect: RecordAndSend) -> None:
        """Write it to the journal, and send it."""
        self._journal.note(effect.line)
        if self.link is None:
            return
        if effect.began:
            self._starts[effect.began] = len(self._lines)
        elif (at := self._starts.pop(effect.ended, -1)) >= 0:
            self._lines[at] = ""
        self._lines.append(effect.line)
        self._urgent |= effect.urgent

    def send(self, line: str) -> None:
        if self.link is not None:
            self._lines.append(line)
            self._urgent = True

    def mark_urgent(self) -> None:
        """Send what waits with the next turn."""
        self._urgent = True

    def wait_s(self) -> float:
        """How long the waiting answers may still wait."""
        return max(0.0, (self.waiting_since or 0.0) + PATIENCE_S - system.since_boot())

    def flush(self) -> None:
        """Send the answers, unless they can wait a little; raises Lost."""
        if self._lines and not self._urgent:
            if self.waiting_since is None:
                self.waiting_since = system.since_boot()
            if self.wait_s() > 0.0:
                return
        lines, self._lines = self._lines, []
        self._starts.clear()
        self._urgent, self.waiting_since = False, None
        if self.link is not None and (lines or self.link.blocked):
            self.link.send([line for line in lines if line])
