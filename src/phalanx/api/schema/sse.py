"""Server-sent events: a watch as text, and text as a watch again. No I/O; both sides of the wire use it.

Each event carries its revision as `id:`, so that a client that was cut off can resume where it stopped, and an `id:`
without data tells a new watcher where it begins. An error on the way is an event named `error`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from phalanx.api.schema.documents import (
    Problem,
    decoder,
    read_problem,
    spell_problem,
)
from phalanx.api.schema.jobs import WatchEvent
from phalanx.errors import PhalanxError, Unauthorized, Unavailable

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"
LINE_BYTES_MAX = 4 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WatchEvent).decode


def spell_event(event: WatchEvent | None) -> bytes:
    """An event as text; None is a sign of life that readers skip."""
    if event is None:
        return KEEP_ALIVE
    return b"id: %d\ndata: %b\n\n" % (event.revision, _encode(event))


def spell_position(revision: int) -> bytes:
    """Where a watch begins: moves the reader's last id and brings no event."""
    return b"id: %d\n\n" % revision


def spell_error(error: PhalanxError) -> bytes:
    return b"event: error\ndata: %b\n\n" % spell_problem(error)


class EventReader:
    """Reads a watch from pieces of text as they come. `last` is the revision to go on after."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self._rest = b""
        self._event = b""
        self._data: list[bytes] = []
        self._id: int | None = None

    def restart(self) -> None:
        """Forget half an event: the connection is a new one."""
        self._rest = b""
        self._clear()

    def take(self, piece: bytes) -> Iterator[WatchEvent]:
        """The events that `piece` completes; an event that tells of an error raises it."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            raise Unavailable("the watch sent a line without end", reason="Dropped")
        for line in lines:
            if line.rstrip(b"\r"):
                self._note(line.rstrip(b"\r"))
            else:
                yield from self._finish()

    def _note(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value
        elif field == b"id" and value.isdigit() and len(value) < 20:
            self._id = int(value)

    def _finish(self) -> Iterator[WatchEvent]:
        event, data, id = self._event, b"\n".join(self._data), self._id
        self._clear()
        if event == b"error":
            problem = read_problem(_status(data), data)
            if isinstance(problem, Unauthorized):  # a client that reconnects may have another token by now
                raise Unavailable(problem.detail, reason="Dropped")
            raise problem
        if id is not None:
            self.last = id
        if data:
            yield _decode(data)

    def _clear(self) -> None:
        self._event, self._data, self._id = b"", [], None


def _status(data: bytes) -> int:
    try:
        return int(decoder(Problem).decode(data).status)
    except msgspec.DecodeError:
        return Unavailable.status
