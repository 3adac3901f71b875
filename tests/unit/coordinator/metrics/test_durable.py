"""A count never runs ahead of the store: with a store that fails, that loses its answer, and with a standby."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator.credentials import Credentials, TokenSet
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.leadership import LeadershipConfig, Role
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.secret import ClusterSecret
from phalanx.errors import Unavailable
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Candidate, StoreError
from tests.support.candidates import FaultyStore
from tests.support.clocks import JumpingClock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
A_TASK = SubmitRequest(command=["/bin/true"])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Member:
    """One coordinator on a store that can be made to fail."""

    def __init__(self, memory: Memory, name: str) -> None:
        self.clock = JumpingClock()
        self.store = FaultyStore(MemoryStore(memory, self.clock.monotonic))
        users, nodes = TokenSet("users", ["a-token-of-users"]), TokenSet("runners", ["a-token-of-nodes"])
        keys = Credentials(users, nodes, ClusterSecret("of this cluster"), self.clock)
        self.parts = Coordinator(
            self.store,
            LeadershipConfig(),
            keys,
            SubmitDefaults(0),
            self.clock,
            Candidate(name, f"http://{name}", f"{name}:1"),
        )
        self.recorder = self.parts.recorder

    def can_write(self) -> bool:
        loop = self.parts.leadership.loop
        return loop is not None and loop.trouble is None

    async def submit(self) -> None:
        await self.parts.commands.submit(A_TASK, "ada")


@asynccontextmanager
async def running(*members: Member) -> AsyncIterator[None]:
    tasks = []
    try:
        for member in members:
            await member.parts.leadership.open()
            tasks.append(asyncio.ensure_future(member.parts.leadership.run()))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_could_not_be_written_is_not_counted():
    one = Member(Memory(), "a")
    async with running(one):
        await one.submit()
        one.store.broken = {"append"}
        with pytest.raises(Unavailable):
            await one.submit()
        assert one.recorder.submitted == 1
        one.store.broken = set()
        await until(one.can_write)
        await one.submit()
        assert one.recorder.submitted == 2 == len(one.parts.leadership.state.jobs)


async def test_what_was_kept_although_the_answer_was_lost_is_counted_once():
    one = Member(Memory(), "a")

    def lose_the_answer() -> None:
        del one.store.after["append"]
        raise StoreError("the answer was lost")

    async with running(one):
        one.store.after["append"] = lose_the_answer
        with pytest.raises(Unavailable):
            await one.submit()
        await until(one.can_write)
        assert one.recorder.submitted == 1
        await one.submit()
        assert one.recorder.submitted == 2 == len(one.parts.leadership.state.jobs)


async def test_a_standby_counts_what_it_follows_and_goes_on_when_it_leads():
    memory = Memory()
    first, second = Member(memory, "a"), Member(memory, "b")
    async with running(first, second):
        await first.submit()
        await until(lambda: second.recorder.submitted == 1)
        first.parts.leadership.stop()
        await until(lambda: second.parts.leadership.role is Role.ACTIVE)
        await second.submit()
        assert second.recorder.submitted == 2
        text = (await second.parts.commands.metrics()).decode()
        assert "phalanx_coordinator_leader 1.0" in text
        assert f"phalanx_coordinator_epoch {second.parts.leadership.state.epoch:.1f}" in text


async def test_the_times_of_plans_and_writes_are_counted():
    one = Member(Memory(), "a")
    async with running(one):
        await one.submit()
        assert one.recorder.append.count > 0
        assert one.recorder.placement.count > 0
