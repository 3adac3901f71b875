"""The log of one task as it is shown: one attempt, or followed over all that come.

A task with one log, and nothing to be done with its lines, is copied byte by byte. Lines of two logs are brought into
their order by their times, also while they are followed (`split_logs.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from phalanx.api.schema.log_times import gap_mark
from phalanx.cli.instants import read_since
from phalanx.cli.log_lines import LineTimes, LogLine, cut, matching, merged, stamp, without_first
from phalanx.cli.pages import collected
from phalanx.cli.split_logs import TwoLogs
from phalanx.cli.wait import ENDED
from phalanx.clock import SystemClock
from phalanx.core.model.patterns import LinePattern
from phalanx.errors import BadRequest, NotFound, PhalanxError, Unavailable

if TYPE_CHECKING:
    from phalanx.api.schema.log_times import LogTimesView
    from phalanx.api.schema.queries import Stream
    from phalanx.client.client import Client
    from phalanx.client.log_calls import LogPiece

STORY_LINES_MAX = 2000
PACE_FIRST_S, PACE_MAX_S = 0.2, 5.0
ORDER_OF_TWO = "two logs, shown by their times: lines less than 50 ms apart may be in another order"
AWAY_PACE_S = 2.0  # after which a node that is not connected is asked again
Say = Callable[[str], None]


class LogOptions(Struct, frozen=True):
    """What of a log is shown, and how."""

    stream: Stream | None = None  # None: all that there is
    lines: int | None = None  # the last ones; None: all
    follow: bool = False
    since: str | None = None
    timestamps: bool = False
    pattern: LinePattern | None = None
    whole_lines: bool = False  # even if nothing is done with them
    on_cut: Callable[[], None] | None = None  # called if there is more than the last lines

    @property
    def by_line(self) -> bool:
        is_cut = self.since is not None and self.lines is not None
        return self.whole_lines or self.timestamps or self.pattern is not None or is_cut


class TaskLog:
    """Reads the log of one task."""

    def __init__(self, client: Client, id: str, options: LogOptions, say: Say, called: str = "") -> None:
        self._client = client
        self._id = id
        self._called = called or id  # in what is said to people
        self._options = options
        self._say = say
        self._clock = SystemClock()

    def attempt(self, number: int | None, found: LogTimesView | None = None) -> Iterator[bytes]:
        """What one attempt wrote; None: the newest."""
        found = found or self._client.log_times(self._id, attempt=number)
        if found.attempt == 0 and not self._options.follow:
            self._say(self._without_log())
            return iter(())
        options, streams = self._options, self._streams(found)
        times = LineTimes(self._client, self._id, found, self._clock.monotonic())
        if len(streams) == 1 and not options.by_line:
            return _bytes(self._pieces(streams[0], found, times, options.lines))
        return self._by_line(streams, found, times)

    def all_attempts(self) -> Iterator[bytes]:
        """What the newest attempt writes, and those that follow it: one that is evicted or fails may be tried again."""
        options, shown, told, pace_s = self._options, 0, 0, PACE_FIRST_S
        while True:
            task = self._client.task(self._id)
            if task.attempt > shown:
                number = shown + 1 if shown else task.attempt
                found = self._client.log_times(self._id, attempt=number)
                if shown > told:  # it was tried again at once
                    self._tell_end(shown, self._end_of(shown))
                if shown:
                    self._say(f"--- attempt {number} on {found.node} ---")
                yield from self._whole(number, found)
                shown, pace_s = number, PACE_FIRST_S
                self._options = structs.replace(options, lines=None, since=None)
            elif task.status in ENDED:
                return
            else:
                if shown and pace_s == PACE_FIRST_S:
                    self._tell_end(shown, task.message)
                    told = shown
                elif pace_s == PACE_FIRST_S:
                    self._say(f"{self._called} has not started yet")
                self._client.wait(self._id, timeout=pace_s, must_end=False)
                pace_s = min(PACE_MAX_S, 1.5 * pace_s)

    def _whole(self, number: int, found: LogTimesView) -> Iterator[bytes]:
        """One attempt to its end. A node that is not connected is waited for, if nothing was read from it yet."""
        is_begun = is_told = False
        while True:
            try:
                for piece in self.attempt(number, found):
                    is_begun = True
                    yield piece
            except NotFound:  # it never started, or is not kept any more
                self._say(f"--- attempt {number} has no log ---")
            except Unavailable as error:
                if is_begun or not self._is_unreachable(number):
                    self._pass_over(number, error)
                else:
                    if not is_told:
                        self._say(f"--- {error.detail}: waiting for it, or for another attempt ---")
                    is_told = True
                    self._client.wait(self._id, timeout=AWAY_PACE_S, must_end=False)
                    continue
            return

    def _is_unreachable(self, number: int) -> bool:
        """Whether an attempt is still believed to run on a node that is not connected: it may come back."""
        task = self._client.task(self._id)
        return task.attempt == number and task.unreachable

    def _pass_over(self, number: int, error: Unavailable) -> None:
        """Go on with the next attempt if there is or will be one: that the node of this one was lost is why."""
        task = self._client.task(self._id)
        if task.attempt == number and task.status != "Pending":
            raise error
        self._say(f"--- attempt {number}: {error.detail} ---")

    def _without_log(self) -> str:
        """Why there is nothing to show of a task that no node was given."""
        task = self._client.task(self._id)
        if task.status not in ENDED:
            return f"{self._called} has not started; `phalanx why {self._called}` says what it waits for"
        return f"{self._called} is {task.status} and never started; `phalanx why {self._called}` says why"

    def _tell_end(self, number: int, why: str) -> None:
        self._say(f"--- attempt {number} has ended{': ' if why else ''}{why} ---")

    def _end_of(self, number: int) -> str:
        """Why an earlier attempt ended, as its story tells; empty if that is not kept."""
        start = f"attempt {number} ended: "
        try:
            lines, _ = collected(partial(self._client.story, self._id), STORY_LINES_MAX)
        except PhalanxError:  # the log is what was asked for
            return ""
        told = [line.text for line in lines if line.event == "AttemptEnded" and line.text.startswith(start)]
        return told[-1].removeprefix(start).partition(";")[0] if told else ""

    def _streams(self, found: LogTimesView) -> list[Stream]:
        wanted = self._options.stream
        return ["stdout", "stderr"] if wanted is None and found.split_output else [wanted or "stdout"]

    def _pieces(
        self, stream: Stream, found: LogTimesView, times: LineTimes, lines: int | None
    ) -> Iterator[LogPiece]:
        since, follow = self._options.since, self._options.follow
        attempt = found.attempt or None
        if since is None:
            pieces = self._client.log_pieces(
                self._id, stream=stream, attempt=attempt, lines=lines, follow=follow
            )
            return pieces if self._options.on_cut is None else _told(pieces, self._options.on_cut)
        if not found.rows and not found.is_live:
            raise BadRequest(
                f"--since: nobody knows when attempt {found.attempt} of {self._called} wrote its log",
                hint=f"it ran under an earlier version on {found.node}; leave --since out",
            )
        offset = times.offset_since(read_since(since, found.now), stream)
        pieces = self._client.log_pieces(
            self._id, stream=stream, attempt=attempt, offset=max(0, offset - 1), follow=follow
        )
        return without_first(pieces) if offset else pieces

    def _by_line(self, streams: list[Stream], found: LogTimesView, times: LineTimes) -> Iterator[bytes]:
        options = self._options
        lines = self._lines(
            {each: self._pieces(each, found, times, options.lines) for each in streams}, times
        )
        if options.pattern is not None:
            lines = matching(lines, options.pattern)
        shown = (self._stamped(line, times) for line in lines) if options.timestamps else _data(lines)
        is_cut = options.lines is None or (len(streams) == 1 and options.since is None)
        return shown if is_cut or options.follow else _last(shown, options.lines or 0)

    def _lines(self, pieces: dict[Stream, Iterator[LogPiece]], times: LineTimes) -> Iterator[LogLine]:
        """The lines of one log, or of two in their order."""
        if len(pieces) > 1 and self._options.follow:
            return TwoLogs(pieces, times, self._clock).lines(self._options.lines)
        first, *others = [cut(each, stream) for stream, each in pieces.items()]
        if others and times.are_known:
            return merged(first, others[0], times)
        return chain(first, *others)

    def _stamped(self, line: LogLine, times: LineTimes) -> bytes:
        return stamp(times.at(line, self._clock.monotonic())) + line.data


def _data(lines: Iterator[LogLine]) -> Iterator[bytes]:
    return (line.data for line in lines)


def _told(pieces: Iterator[LogPiece], on_cut: Callable[[], None]) -> Iterator[LogPiece]:
    """The same pieces; a first one that is not the beginning of its log is told."""
    is_first = True
    for piece in pieces:
        if is_first and piece.offset > piece.gap:
            on_cut()
        is_first = False
        yield piece


def _bytes(pieces: Iterator[LogPiece]) -> Iterator[bytes]:
    for piece in pieces:
        if piece.gap:
            yield gap_mark(piece.gap)
        if piece.data:
            yield piece.data


def _last(lines: Iterator[bytes], most: int) -> Iterator[bytes]:
    yield from deque(lines, most)
