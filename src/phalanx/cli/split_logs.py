"""Two growing logs of one attempt as one: what is there in its order, then what comes, as far as that can be known.

What was written when we began is merged by its times. A line that comes later is held back for a moment, so that what
the other log got before it can come first; if both logs have lines then, their times are asked for. Lines that were
written less than 50 ms apart may change places. Not more than `LINES_AHEAD` lines of each log are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from heapq import merge
from threading import Condition, Thread
from typing import TYPE_CHECKING

from msgspec import Struct, field

from phalanx.cli.log_lines import ASK_AGAIN_S, LineTimes, LogLine, cut
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.api.schema.queries import Stream
    from phalanx.client.log_calls import LogPiece
    from phalanx.clock import Clock

HOLD_S = 0.15  # a node looks every 50 ms whether a log has grown
LINES_AHEAD = 1024


class HeldLine(Struct, frozen=True):
    line: LogLine
    came_at: float


class GrowingLog(Struct):
    """What has come of one log and was not shown yet."""

    pieces: Iterable[LogPiece]
    known: int  # its size when we began
    is_all_there: bool  # what it had when we began has come
    held: deque[HeldLine] = field(default_factory=deque)
    is_over: bool = False
    error: Exception | None = None


class TwoLogs:
    """Reads both logs, each in a thread of its own, and gives their lines."""

    def __init__(
        self,
        pieces: Mapping[Stream, Iterable[LogPiece]],
        times: LineTimes,
        clock: Clock,
        hold_s: float = HOLD_S,
    ) -> None:
        sizes = {each: times.size(each) for each in pieces}
        self._logs = {each: GrowingLog(pieces[each], size, size == 0) for each, size in sizes.items()}
        self._times, self._clock, self._hold_s = times, clock, hold_s
        self._changed = Condition()
        self._asked_at = clock.monotonic()

    def lines(self, last: int | None = None) -> Iterator[LogLine]:
        """All lines, as long as any come; of those that are there already only the `last` ones."""
        for stream, log in self._logs.items():
            Thread(target=self._read, args=(stream, log), daemon=True).start()
        there = merge(*map(self._there, self._logs.values()), key=self._times.row)
        yield from there if last is None else deque(there, last)
        while lines := self._next():
            yield from lines

    def _read(self, stream: Stream, log: GrowingLog) -> None:
        error: Exception | None = None
        try:
            for line in cut(self._noted(log), stream):
                with self._changed:
                    self._changed.wait_for(lambda: len(log.held) < LINES_AHEAD)
                    log.held.append(HeldLine(line, self._clock.monotonic()))
                    self._changed.notify_all()
        except Exception as raised:  # whatever it is, the reader of the next line must see it
            error = raised
        with self._changed:
            log.is_over, log.is_all_there, log.error = True, True, error
            self._changed.notify_all()

    def _noted(self, log: GrowingLog) -> Iterator[LogPiece]:
        """Its pieces; when the next one is asked for, the lines of the one before are held."""
        for piece in log.pieces:
            yield piece
            if not log.is_all_there and piece.offset + len(piece.data) >= log.known:
                with self._changed:
                    log.is_all_there = True
                    self._changed.notify_all()

    def _there(self, log: GrowingLog) -> Iterator[LogLine]:
        """What was written of one log when we began."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: log.held or log.is_all_there)
                if not log.held or log.held[0].line.offset >= log.known:
                    return
                line = log.held.popleft().line
                self._changed.notify_all()
            yield line

    def _next(self) -> list[LogLine]:
        """The next lines in their order; none if both logs are over."""
        logs = [*self._logs.values()]
        with self._changed:
            self._changed.wait_for(lambda: any(log.held or log.error for log in logs) or self._is_over())
            oldest = min((log.held[0].came_at for log in logs if log.held), default=None)
            if oldest is None:
                self._raise()
                return []
            self._wait_until(oldest + self._hold_s)
            is_of_both = all(log.held for log in logs)
            if is_of_both:
                self._wait_until(self._asked_at + ASK_AGAIN_S)
            is_due = self._clock.monotonic() - self._hold_s
            held = [[*log.held] for log in logs]
            takes_all = self._is_over() or self._is_full()
        if is_of_both:
            self._ask()
        ordered = [*merge(*held, key=lambda each: self._times.row(each.line))]
        due = [number for number, each in enumerate(ordered) if takes_all or each.came_at <= is_due]
        taken = [each.line for each in ordered[: due[-1] + 1]] if due else [ordered[0].line]
        with self._changed:
            for line in taken:
                self._logs[line.stream].held.popleft()
            self._changed.notify_all()
        return taken

    def _ask(self) -> None:
        self._asked_at = self._clock.monotonic()
        with suppress(PhalanxError):  # then by what is known; if the node is gone, the logs themselves end so
            self._times.renew(self._asked_at)

    def _wait_until(self, at: float) -> None:
        left_s = at - self._clock.monotonic()
        if left_s > 0.0:
            self._changed.wait_for(lambda: self._is_over() or self._is_full(), left_s)

    def _is_over(self) -> bool:
        return all(log.is_over for log in self._logs.values())

    def _is_full(self) -> bool:
        return any(len(log.held) >= LINES_AHEAD for log in self._logs.values())

    def _raise(self) -> None:
        for log in self._logs.values():
            if log.error is not None:
                raise log.error
