"""Lines of logs: cut from pieces, dated, chosen by a pattern, and those of two logs brought into their order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge
from typing import TYPE_CHECKING

from msgspec import Struct

from phalanx.api.schema.log_times import gap_mark
from phalanx.core.model.patterns import LinePattern

if TYPE_CHECKING:
    from phalanx.api.schema.log_times import LogTimesView
    from phalanx.api.schema.queries import Stream
    from phalanx.client.client import Client
    from phalanx.client.log_calls import LogPiece
    from phalanx.core.model.log_times import LogRow

LINE_MAX = 1 << 20  # what has no end by then is shown as it is
ASK_AGAIN_S = 0.5


class LogLine(Struct, frozen=True):
    """A line with its end, and where it begins in its log."""

    stream: Stream
    offset: int
    data: bytes


def cut(pieces: Iterable[LogPiece], stream: Stream) -> Iterator[LogLine]:
    """Whole lines. The last one gets an end if it has none."""
    at, rest = 0, b""
    for piece in pieces:
        if piece.gap:
            if rest:
                yield LogLine(stream, at, rest + b"\n")
            yield LogLine(stream, piece.offset, gap_mark(piece.gap).lstrip(b"\n"))
            rest = b""
        if not rest:
            at = piece.offset
        rest += piece.data
        if b"\n" not in piece.data and len(rest) < LINE_MAX:
            continue
        *whole, last = rest.split(b"\n")
        for line in whole:
            yield LogLine(stream, at, line + b"\n")
            at += len(line) + 1
        rest = last
    if rest:
        yield LogLine(stream, at, rest + b"\n")


def without_first(pieces: Iterable[LogPiece]) -> Iterator[LogPiece]:
    """What follows the first end of a line: before it is the rest of a line that began earlier."""
    is_inside = True
    for piece in pieces:
        if not is_inside or piece.gap:
            is_inside = False
            yield piece
            continue
        before, end, after = piece.data.partition(b"\n")
        is_inside = not end  # until then there are only places, by which a reader knows how far it has come
        yield type(piece)(piece.offset + len(before) + len(end), after, piece.attempt)


class LineTimes:
    """When the bytes of one attempt were written; asked for again when more was."""

    def __init__(self, client: Client, id: str, found: LogTimesView, since_start: float) -> None:
        self._client, self._id, self._found = client, id, found
        self._asked_at = since_start
        self._rows: list[LogRow] = []
        self._take(found.rows)

    def _take(self, rows: list[LogRow]) -> None:
        """New rows stand for what the last one, which was only of that moment, said."""
        self._rows = [*self._rows[:-1], *rows] if rows else self._rows
        self._sizes = {
            "stdout": [row.stdout for row in self._rows],
            "stderr": [row.stderr or 0 for row in self._rows],
        }

    @property
    def are_known(self) -> bool:
        return bool(self._rows)

    def row(self, line: LogLine) -> int:
        """The place of the row that a line belongs to."""
        return bisect_right(self._sizes[line.stream], line.offset)

    def at(self, line: LogLine, now: float) -> float | None:
        """When a line was begun; `now` is by a clock that does not step. None if it is not known."""
        place = self.row(line)
        if place >= len(self._rows) and self._found.is_live and now - self._asked_at >= ASK_AGAIN_S:
            self.renew(now)
            place = self.row(line)
        if place < len(self._rows):
            return self._rows[place].at
        if self._found.is_live:
            return self._found.now + now - self._asked_at
        return self._rows[-1].at if self._rows else None

    def renew(self, now: float) -> None:
        """Ask for what was written since the last time."""
        after = self._rows[-2].at if len(self._rows) > 1 else 0.0
        self._found = self._client.log_times(self._id, attempt=self._found.attempt, after=after)
        self._asked_at = now
        self._take(self._found.rows)

    def size(self, stream: Stream) -> int:
        """How much a log had when its times were asked for."""
        return self._sizes[stream][-1] if self._rows else 0

    def offset_since(self, at: float, stream: Stream) -> int:
        """Where that begins which was written since then."""
        place = bisect_right([row.at for row in self._rows], at)
        return self._sizes[stream][place - 1] if place else 0


def merged(first: Iterator[LogLine], second: Iterator[LogLine], times: LineTimes) -> Iterator[LogLine]:
    """The lines of two logs by their times; of one moment, standard output first."""
    return merge(first, second, key=times.row)


def matching(lines: Iterator[LogLine], pattern: LinePattern) -> Iterator[LogLine]:
    return (line for line in lines if pattern.is_in(line.data))


def stamp(at: float | None) -> bytes:
    """A time where we are, with its zone, as long as any other."""
    text = "" if at is None else datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
    return f"{text or '-':25} ".encode()
