"""Input of a session on its way to its reader: no more of it waits here than the window allows."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from phalanx.api.schema.session_frames import WINDOW_BYTES, FrameError, FrameKind, pack_window
from phalanx.duplex import Duplex


class WaitingInput:
    """Input that has come and was not taken yet: never more than the window. What is taken opens it again."""

    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._bytes = 0  # that the client has sent and was not given back
        self._has_ended = self._is_discarded = False
        self._news = asyncio.Event()

    def take(self, kind: FrameKind, content: bytes) -> None:
        """A frame of the client, if it is input or the end of it."""
        if kind is FrameKind.STDIN:
            self.add(content)
        elif kind is FrameKind.STDIN_END:
            self.end()

    def add(self, piece: bytes) -> None:
        self._bytes += len(piece)
        if self._bytes > WINDOW_BYTES:
            raise FrameError("more input than the window allows")
        if self._is_discarded:
            self._give_back(len(piece))
        else:
            self._pieces.append(piece)
            self._news.set()

    def end(self) -> None:
        self._has_ended = True
        self._news.set()

    def discard(self) -> None:
        """Nothing reads it any more."""
        self._is_discarded = True
        while self._pieces:
            self._give_back(len(self._pieces.popleft()))

    async def next(self) -> bytes | None:
        """The next piece, None at the end. The one before has been taken."""
        while not self._pieces:
            if self._has_ended:
                return None
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._give_back(len(piece))
        return piece

    def _give_back(self, count: int) -> None:
        self._bytes -= count
        with suppress(ConnectionError):  # whoever reads the connection will notice
            self._connection.put(pack_window(count))
