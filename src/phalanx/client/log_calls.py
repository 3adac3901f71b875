"""Calls about the output of tasks: what they wrote, where it stands in their logs, and when it was written."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from msgspec import Struct

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.api.schema.log_times import LogTimesView, gap_mark
from phalanx.api.schema.queries import Follow, Stream
from phalanx.client import calls
from phalanx.client.calls import Call, path_of, query_of
from phalanx.client.http import Answer
from phalanx.client.ids import AnyId, id_of
from phalanx.client.leader import LogPosition, RetryDelays
from phalanx.client.log_output import LogBytes
from phalanx.client.log_reader import FollowedLog, Next
from phalanx.errors import NotFound, TooMany, Unavailable


class LogPiece(Struct, frozen=True):
    """Bytes of one log of one attempt, and where they begin in it."""

    offset: int
    data: bytes
    attempt: int  # 0: there was none yet
    gap: int = 0  # bytes right before `offset` that were not kept


def log_times(id: AnyId, attempt: int | None, after: float) -> Call[LogTimesView]:
    query = query_of(attempt=attempt, after=after or None)
    path = path_of("tasks", id, "log-times")
    return Call(method="GET", path=path, answer=LogTimesView, query=query, repeatable=True)


class LogCalls:
    """The methods of `Client` that are about the output of tasks."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def _opened(self, call: Call[Any]) -> Answer:
        raise NotImplementedError

    def _pause(self, patience: RetryDelays, error: Unavailable | TooMany) -> None:
        raise NotImplementedError

    def wait(self, id: AnyId, timeout: float | None = None, *, must_end: bool = True) -> JobView | TaskView:
        raise NotImplementedError

    def logs(
        self,
        id: AnyId,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        offset: int | None = None,
        lines: int | None = None,
        follow: Follow = False,
    ) -> LogBytes:
        """What a task wrote, in pieces of bytes; its `text()` is one text, as `job.logs()` of a handle gives it. A cut
        connection is taken up again where it broke.

        `stdout` is all that it wrote, unless its job has `split_output`. With `follow` it goes on until the task ends:
        when it is evicted, lost or tried again, a line such as `--- attempt 2 on n3 ---` comes before what the next
        attempt writes. With `attempt` it is that attempt alone. `follow` may be "hold": an attached task then waits
        for us, one attempt long.
        """
        return LogBytes(self._log_bytes(id, stream, attempt, offset, lines, follow), id_of(id))

    def _log_bytes(
        self,
        id: AnyId,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        follow: Follow,
    ) -> Generator[bytes, None, None]:
        if follow is True and attempt is None:
            yield from self._all_attempts(id, stream, FollowedLog(offset, lines))
            return
        for piece in self.log_pieces(
            id, stream=stream, attempt=attempt, offset=offset, lines=lines, follow=follow
        ):
            if piece.gap:
                yield gap_mark(piece.gap)
            if piece.data:
                yield piece.data

    def _all_attempts(self, id: AnyId, stream: Stream, log: FollowedLog) -> Iterator[bytes]:
        # Another job may be called so while this one is followed.
        id = id if calls.is_lasting(id) else self._ask(calls.task(id)).id
        then: Next = "read"
        while then != "end":
            try:
                for piece in self.log_pieces(id, stream=stream, follow=True, **log.place()):
                    yield from log.shown(piece)
            except (NotFound, Unavailable) as error:
                log.broke(error)
            while isinstance(then := log.after(task := self._ask(calls.task(id))), float):
                self.wait(task.id, timeout=then, must_end=False)
            yield from log.marks()

    def log_pieces(
        self,
        id: AnyId,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        offset: int | None = None,
        lines: int | None = None,
        follow: Follow = False,
    ) -> Iterator[LogPiece]:
        """What one attempt wrote, by default the newest, with the place of each piece.

        The first piece comes at once, empty if nothing is written yet.
        """
        place = LogPosition(id_of(id), stream, attempt, offset, lines, follow=follow)
        patience = RetryDelays(begun=follow == "hold")
        while True:
            try:
                with closing(self._opened(place.call())) as answer:
                    patience.renew()
                    place.begin(answer.headers)
                    yield LogPiece(place.offset, b"", place.attempt, place.gap)
                    for data in answer.pieces():
                        at = place.offset
                        place.advance(data)
                        yield LogPiece(at, data, place.attempt)
                if place.is_at_end():
                    return
            except (Unavailable, TooMany) as error:
                self._pause(patience, error)

    def log_times(self, id: AnyId, *, attempt: int | None = None, after: float = 0.0) -> LogTimesView:
        """When the output of a task was written, and on which node: of its newest attempt, or of another one."""
        found: LogTimesView = self._ask(log_times(id, attempt, after))
        return found
