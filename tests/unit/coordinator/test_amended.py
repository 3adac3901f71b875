"""A client that follows or waits for one member of a gang finds it again when others have come; holds end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from phalanx.api.schema.apply import AmendSpec, ApplyRequest
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.jobspec import DraftSpec, GangSpec, JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.apply.grants import hold_back
from phalanx.core.model.orders import AttemptKey
from phalanx.errors import Conflict, NotFound
from phalanx.link import wire
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio
WHOLE: dict[str, Any] = {"stream": "stdout", "attempt": None, "offset": None, "lines": None}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeLogLink:
    """The log connection of a node whose every log is empty and has ended."""

    def __init__(self, here: Coordinator, node: str) -> None:
        self.asked: list[AttemptKey] = []
        self._log_links = here.log_links
        assert here.log_links.opened(self, wire.LogHello(wire.VERSION, "node", node, "a"))

    def send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            assert isinstance(message, wire.ReadLog), message
            self.asked.append(message.key)
            answer = wire.LogData(message.id, 0, b"", 0, True)
            asyncio.get_running_loop().call_soon(self._log_links.arrived, self, answer)

    def close(self) -> None:
        raise AssertionError


def a_gang(*pods: str, lacks: str = "") -> JobSpec:
    group = GroupSpec(command=["true"], tasks=len(pods), objects=[f"default/{pod}" for pod in pods])
    return JobSpec([group], gang=GangSpec(id="default/g"), draft=DraftSpec(lacks, "") if lacks else None)


async def a_draft(here: Coordinator) -> str:
    (job,) = (await here.commands.apply(ApplyRequest([a_gang("a", "b", "c", lacks="more")]), "ada")).jobs
    return job.id


async def amend(here: Coordinator, job: str, *pods: str) -> None:
    await here.commands.apply(ApplyRequest([a_gang(*pods)], amends=AmendSpec(job, 0)), "ada")


async def follow(here: Coordinator, id: str) -> tuple[AsyncIterator[LogChunk], asyncio.Future[LogChunk]]:
    """A follower that waits for the task to be placed."""
    chunks = here.commands.logs(id, follow=True, **WHOLE)
    assert (await anext(chunks)).attempt == 1
    reading = asyncio.ensure_future(anext(chunks))
    done, _ = await asyncio.wait([reading], timeout=0.02)
    assert not done
    return chunks, reading


@pytest.mark.parametrize(("index", "pods", "at"), [(2, ("c", "b"), 0), (0, ("b", "c", "a"), 2)])
async def test_a_follower_reads_the_pod_it_asked_for_wherever_it_stands_now(
    index: int, pods: tuple[str, ...], at: int
):
    async with a_coordinator() as here:
        log_links = [FakeLogLink(here, f"n{number}") for number in range(4)]
        job = await a_draft(here)
        _, reading = await follow(here, f"{job}.{index}")
        await amend(here, job, *pods)
        await asyncio.wait_for(reading, 5.0)
        assert [key for log_link in log_links for key in log_link.asked] == [(job, at, 1)]


async def test_a_follower_of_a_pod_that_is_gone_is_at_its_end():
    async with a_coordinator() as here:
        log_links = [FakeLogLink(here, f"n{number}") for number in range(4)]
        job = await a_draft(here)
        _, reading = await follow(here, f"{job}.2")
        await amend(here, job, "a", "b")
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(reading, 5.0)
        assert [key for log_link in log_links for key in log_link.asked] == []


async def test_who_waits_for_a_task_gets_it_or_learns_that_it_is_gone():
    async with a_coordinator() as here:
        for pods, found in ((("c", "b"), "default/c"), (("a", "b"), "")):
            job = await a_draft(here)
            waiting = asyncio.ensure_future(here.commands.wait(f"{job}.2", 0.2))
            await asyncio.wait([waiting], timeout=0.02)
            await amend(here, job, *pods)
            if found:
                assert (await waiting).object == found
                continue
            with pytest.raises(NotFound, match="not a task of its gang"):
                await waiting


async def test_a_job_that_is_held_back_is_released_as_a_whole():
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"], array="0-3"), "ada")).task_ids
        with pytest.raises(Conflict) as refused:
            await here.commands.release(id, "ada", is_operator=False)
        assert refused.value.reason == "NotHeld"
        state = here.leadership.state
        hold_back(state, state.jobs[id], "it may have ended")
        for name in (id, f"{id}.3"):
            with pytest.raises(Conflict, match="is held: it may have ended") as refused:
                await here.commands.resume(name)
            assert refused.value.reason == "Held"
        released = await here.commands.release(f"{id}.3", "ada", is_operator=False)
        assert (released.id, released.held) == (id, None)
