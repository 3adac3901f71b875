"""The only task of a job is named by the job's id, and by `ID.0` (M6)."""

from __future__ import annotations

import pytest

from phalanx.api.schema import SubmitRequest
from phalanx.errors import NotFound
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_only_task_is_number_0():
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"]), "ada")).task_ids
        assert (await here.commands.task(f"{id}.0")).id == (await here.commands.task(id)).id == id
        for wrong in ("1", "x", "-0", ""):
            with pytest.raises(NotFound):
                await here.commands.task(f"{id}.{wrong}")
        assert (await here.commands.cancel(f"{id}.0")).cancelled == 1
