"""Calls about the output of tasks, for `AsyncClient`: the same as `log_calls.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.api.schema.log_times import LogTimesView, gap_mark
from phalanx.api.schema.queries import Follow, Stream
from phalanx.client import calls
from phalanx.client.calls import Call
from phalanx.client.http import AsyncAnswer
from phalanx.client.ids import AnyId, id_of
from phalanx.client.leader import LogPosition, RetryDelays
from phalanx.client.log_calls import LogPiece, log_times
from phalanx.client.log_output import AsyncLogBytes
from phalanx.client.log_reader import FollowedLog, Next
from phalanx.errors import NotFound, TooMany, Unavailable


class AsyncLogCalls:
    """The methods of `AsyncClient` that are about the output of tasks."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def _opened(self, call: Call[Any]) -> AsyncAnswer:
        raise NotImplementedError

    async def wait(
        self,
        id: AnyId,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        must_end: bool = True,
    ) -> JobView | TaskView:
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
    ) -> AsyncLogBytes:
        return AsyncLogBytes(self._log_bytes(id, stream, attempt, offset, lines, follow), id_of(id))

    async def _log_bytes(
        self,
        id: AnyId,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        follow: Follow,
    ) -> AsyncGenerator[bytes, None]:
        if follow is True and attempt is None:
            async with aclosing(self._all_attempts(id, stream, FollowedLog(offset, lines))) as every:
                async for data in every:
                    yield data
            return
        pieces = self.log_pieces(
            id, stream=stream, attempt=attempt, offset=offset, lines=lines, follow=follow
        )
        async with aclosing(pieces):
            async for piece in pieces:
                if piece.gap:
                    yield gap_mark(piece.gap)
                if piece.data:
                    yield piece.data

    async def _all_attempts(self, id: AnyId, stream: Stream, log: FollowedLog) -> AsyncGenerator[bytes, None]:
        id = id if calls.is_lasting(id) else (await self._ask(calls.task(id))).id  # as in `LogCalls`
        then: Next = "read"
        while then != "end":
            try:
                async with aclosing(self.log_pieces(id, stream=stream, follow=True, **log.place())) as pieces:
                    async for piece in pieces:
                        for data in log.shown(piece):
                            yield data
            except (NotFound, Unavailable) as error:
                log.broke(error)
            while isinstance(then := log.after(task := await self._ask(calls.task(id))), float):
                await self.wait(task.id, timeout=then, must_end=False)
            for mark in log.marks():
                yield mark

    async def log_pieces(
        self,
        id: AnyId,
        *,
        stream: Stream = "stdout",
        attempt: int | None = None,
        offset: int | None = None,
        lines: int | None = None,
        follow: Follow = False,
    ) -> AsyncGenerator[LogPiece, None]:
        place = LogPosition(id_of(id), stream, attempt, offset, lines, follow=follow)
        patience = RetryDelays(begun=follow == "hold")
        while True:
            try:
                async with aclosing(await self._opened(place.call())) as answer:
                    patience.renew()
                    place.begin(answer.headers)
                    yield LogPiece(place.offset, b"", place.attempt, place.gap)
                    async for data in answer.pieces():
                        at = place.offset
                        place.advance(data)
                        yield LogPiece(at, data, place.attempt)
                if place.is_at_end():
                    return
            except (Unavailable, TooMany) as error:
                await pause(patience, error)

    async def log_times(self, id: AnyId, *, attempt: int | None = None, after: float = 0.0) -> LogTimesView:
        found: LogTimesView = await self._ask(log_times(id, attempt, after))
        return found


async def pause(patience: RetryDelays, error: Unavailable | TooMany) -> None:
    """Return when it is time to try again."""
    pause_s = patience.next(error)
    if pause_s is None:
        raise error
    await asyncio.sleep(pause_s)
