"""Every test of the contract that asks for a backend is run in one of each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.store.protocol import Store
from tests.contract.backends import KINDS, Backend, a_backend


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    found = a_backend(request.param, tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def store(backend: Backend) -> Store:
    return await backend.store()
