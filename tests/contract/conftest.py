"""Every test of the contract that asks for a world is run in one of each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.store.protocol import Store
from tests.contract.worlds import KINDS, World, a_world


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    found = a_world(request.param, tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def store(world: World) -> Store:
    return await world.store()
