"""Answers that grow with what one user made: however many ask at once, one is made in each round of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator.main import Coordinator
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_listing import a_round

pytestmark = pytest.mark.anyio
ASKED = 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def the_tokens(here: Coordinator, _job: str) -> Awaitable[Any]:
    return here.commands.tokens("ada")


def the_states(here: Coordinator, job: str) -> Awaitable[Any]:
    return here.commands.task_states(job)


@pytest.mark.parametrize("ask", [the_tokens, the_states])
async def test_answers_are_made_one_after_another(ask: Callable[[Coordinator, str], Awaitable[Any]]):
    async with a_coordinator() as here:
        job = (await here.commands.submit(SubmitRequest(["true"], array="1-100", hold=True), "ada")).batch_id
        asked = [asyncio.ensure_future(ask(here, job)) for _ in range(ASKED)]
        done, most = 0, 0
        while done < ASKED:
            await a_round()
            before, done = done, sum(each.done() for each in asked)
            most = max(most, done - before)
        assert most <= 2  # two rounds of the loop; all 20 were made in one
