"""Calls that may hang: they have a deadline, and while one hangs no other is begun."""

from __future__ import annotations

import asyncio
import threading

import pytest

from phalanx.runner.health.background import BackgroundCall


def test_its_result_and_its_error_come_back() -> None:
    assert asyncio.run(BackgroundCall("x", lambda: 3, 5.0).ask()) == 3

    def fail() -> int:
        raise OSError(5, "input/output error")

    with pytest.raises(OSError, match="input/output"):
        asyncio.run(BackgroundCall("x", fail, 5.0).ask())


def test_one_that_hangs_is_not_begun_again() -> None:
    begun: list[int] = []
    may_end = threading.Event()

    def hang() -> int:
        begun.append(1)
        may_end.wait(20.0)
        return len(begun)

    async def ask() -> None:
        call = BackgroundCall("x", hang, 0.05)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await call.ask()
        assert len(begun) == 1
        may_end.set()
        call = BackgroundCall("x", hang, 5.0)
        assert await call.ask() == 2

    asyncio.run(ask())
