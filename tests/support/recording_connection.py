"""The coordinator's end of a runner's connection, for tests of what is said over it."""

from __future__ import annotations

import asyncio

from phalanx.link import wire


class RecordingConnection:
    """A connection that keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[wire.Message] = []
        self.is_closed = False
        self.heard = asyncio.Event()

    def send(self, messages: list[wire.Message]) -> None:
        self.sent += messages
        self.heard.set()

    def close(self) -> None:
        self.is_closed = True
