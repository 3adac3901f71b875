"""Why several jobs wait, in one answer: the first reason of each, as `why` has it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.routes.jobs import REASONS_MAX
from phalanx.client.async_client import AsyncClient
from phalanx.client.in_process import InProcessTransport
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest
from tests.support.waiting import until
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_first_reason_of_each_that_waits():
    async with a_coordinator() as here:

        async def submit(**fields: Any) -> str:
            return (await here.commands.submit(SubmitRequest(["true"], **fields), "ada")).task_ids[0]

        runs = await submit(gpus=8)
        await until(lambda: here.leadership.state.jobs[runs].live)
        held, after = await submit(hold=True), await submit(after=[runs])
        large, many = await submit(gpus=8, tasks=4), await submit(array="1-60", gpus=1)
        asked = [held, runs, after, large, many, held, "99999"]
        found = {each.id: each.reason for each in await here.commands.reasons(asked)}
        assert list(found) == [held, after, large, many], "what runs or is unknown is left out"
        for id, reason in found.items():
            told = (await here.commands.why(id)).dominant
            assert reason == structs.replace(told, text=here.commands.in_numbers(told.text))
        assert len({reason.code for reason in found.values()}) >= 3


async def test_over_rest_by_number_and_not_too_many():
    async with a_coordinator() as here:
        await here.commands.submit(SubmitRequest(["true"], hold=True), "ada")
        app = build_app(here.commands, Tokens([("ada", "secret")]))
        async with AsyncClient(token="secret", exchange=InProcessTransport(app)) as client:
            (found,) = await client.reasons([1])
            assert found.reason.code == "Held"
            assert await client.reasons([found.id, found.id, 99999]) == [found]
            with pytest.raises(BadRequest, match="'last' is neither the number nor the id"):
                await client.reasons(["last"])
            assert await client.reasons([]) == []
            with pytest.raises(BadRequest, match=f"at most {REASONS_MAX}"):
                await client.reasons([1] * (REASONS_MAX + 1))


async def test_of_a_job_that_runs_in_part_what_waits_is_explained_if_that_is_asked_for():
    async with a_coordinator() as here:
        request = SubmitRequest(["true"], array="1-60", gpus=1)
        job = (await here.commands.submit(request, "ada")).task_ids[0]
        await until(lambda: here.leadership.state.jobs[job].live)
        state = here.leadership.state.jobs[job]
        whole, rest = await here.commands.why(job), await here.commands.why(job, of_waiting=True)
        first = state.job.task_id(state.status.index(Status.PENDING))
        assert (whole.status, rest.status, rest.id) == ("Assigned", "Pending", first)
        assert rest.dominant == (await here.commands.why(first)).dominant
        held = (await here.commands.submit(SubmitRequest(["true"], hold=True), "ada")).task_ids[0]
        assert (await here.commands.why(held, of_waiting=True)).dominant.code == "Held"
