"""Async tests of `api` run under asyncio, which the app is written for."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
