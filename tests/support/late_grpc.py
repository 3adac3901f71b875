"""What gRPC says to event loops that are closed.

It has one queue of events for all loops of a process. One that comes for a loop that a test has closed in the middle of
a call would fail in the loop of the next test, over nothing that is wrong there. It is noted instead; where it matters
that nothing comes late, a test asks for `heard`.
"""

from __future__ import annotations

import asyncio
from asyncio import BaseEventLoop, Handle
from collections.abc import Callable
from typing import Any

heard: list[str] = []
_GRPC = "grpc._cython"
_call_soon_threadsafe = BaseEventLoop.call_soon_threadsafe


def note_late_words() -> None:
    """From now on, for asyncio's own loops; uvloop's cannot be changed."""

    def call_soon_threadsafe(
        self: BaseEventLoop, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Handle:
        if self.is_closed() and (getattr(callback, "__module__", "") or "").startswith(_GRPC):
            heard.append(repr(callback))
            return Handle(callback, args, asyncio.get_running_loop(), context)
        return _call_soon_threadsafe(self, callback, *args, context=context)

    BaseEventLoop.call_soon_threadsafe = call_soon_threadsafe  # type: ignore[method-assign, assignment]
