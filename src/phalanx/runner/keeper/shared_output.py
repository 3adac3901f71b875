"""The pipes of output that the watchdog has, too: while the keeper lives it only has them, and then it reads them.

Without a reader a task that writes would be ended by that (SIGPIPE), before it is asked to end and can save its work.
"""

from __future__ import annotations

import json
import os
import select
import socket

from . import log
from .output import REST_S, LogWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 200  # of the descriptors in one message the kernel takes 253
_MESSAGE_BYTES = 1 << 20


def send_shared(peer: socket.socket, outputs: dict[str, int]) -> None:
    """Send these descriptors by the logs that they are for; OSError if they cannot be sent."""
    for part in _parts(outputs):
        text = json.dumps(["share", part]).encode()
        socket.send_fds(peer, [text], [outputs[path] for path in part], socket.MSG_DONTWAIT)


def send_unshared(peer: socket.socket, path: str) -> None:
    peer.send(json.dumps(["unshare", [path]]).encode(), socket.MSG_DONTWAIT)


def _parts(outputs: dict[str, int]) -> Iterator[list[str]]:
    paths = [*outputs]
    for begin in range(0, len(paths), _AT_ONCE):
        yield paths[begin : begin + _AT_ONCE]


class SharedOutput:
    """The watchdog's side."""

    def __init__(self) -> None:
        self._outputs: dict[str, int] = {}
        self._writer: LogWriter | None = None  # once the keeper is dead

    def receive(self, peer: socket.socket) -> bool:
        """One message of the keeper; False if it is dead."""
        try:
            text, fds, _, _ = socket.recv_fds(peer, _MESSAGE_BYTES, _AT_ONCE)
        except OSError as error:
            log.write("shared", f"watchdog: cannot read what the keeper shares: {error}")
            return False
        if not text:
            return False
        verb, paths = json.loads(text)
        if verb == "share":  # without room for all descriptors the last ones are left out
            self._outputs.update(zip(paths, fds, strict=False))
        else:
            for path in paths:
                if (fd := self._outputs.pop(path, None)) is not None:
                    os.close(fd)
        return True

    def read_for(self, seconds: float) -> None:
        """Read what is written in that time."""
        self._writer = self._writer or LogWriter()
        poll = select.poll()
        for fd in self._outputs.values():
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000 * seconds)}
        for path, fd in [*self._outputs.items()]:
            if fd in ready and self._writer.take(fd, path) == 0:
                del self._outputs[path]
                os.close(fd)
        if ready:
            select.select([], [], [], REST_S)
