"""The queues of all executors: who waits for what, which limits there are, and when a queue is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.calls import (
    EXECUTOR_TAG,
    CallBatch,
    CallResult,
    CallsRequest,
    GiveRequest,
    PostedCall,
    ResultsQuery,
    TakeRequest,
)
from phalanx.coordinator import call_queues, call_shares
from phalanx.coordinator.call_queue import LEASE_S
from phalanx.coordinator.call_queues import LEFT_S, CallQueues
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.resources import Grant
from phalanx.errors import BadRequest, Conflict, NotActive, TooMany
from tests.support.builders import a_job
from tests.support.clocks import ManualClock
from tests.support.waiting import pause_task

pytestmark = pytest.mark.anyio

NAME = "e1"


class AskedLoop:
    """What the queues ask of the coordinator's loop."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.is_active = True

    def require_active(self) -> None:
        if not self.is_active:
            raise NotActive("a standby")


class Stage:
    """The queues, a job of two workers that run, and a clock."""

    def __init__(self) -> None:
        self.loop, self.clock = AskedLoop(), ManualClock()
        job = structs.replace(a_job(array="0-1"), id="j", user="ada", tags=((EXECUTOR_TAG, NAME),))
        state = self.loop.state.jobs["j"] = JobState(job, 0, [0] * 6)
        for position in range(2):
            state.live[position] = Attempt(("j", position, 1), "n1", 0, Grant(1, 0), 0.0)
        self.queues = CallQueues(self.loop, self.clock)  # type: ignore[arg-type]

    async def post(self, *ids: int, queue: str = "", user: str = "ada", name: str = NAME) -> str:
        batches = [CallBatch("f", [PostedCall(id, b"x") for id in ids], b"function")] if ids else []
        reply = await self.queues.post_calls(user, name, CallsRequest("3.12", queue, batches))
        return reply.queue

    async def take(self, task: str = "j.0", number: int = 1, **fields: Any) -> list[int]:
        request = TakeRequest(task, 1, "3.12", number, number - 1, 1, timeout_s=0.0)
        reply = await self.queues.take_calls("j", structs.replace(request, **fields))
        return [call.id for batch in reply.batches for call in batch.calls]


async def test_a_worker_waits_for_calls_and_a_client_for_results():
    stage = Stage()
    queue = await stage.post(queue="")
    taking = asyncio.create_task(stage.take(timeout_s=20.0))
    await pause_task()
    assert await stage.post(7, queue=queue) == queue
    assert await asyncio.wait_for(taking, 5.0) == [7]
    await stage.queues.call_results("ada", NAME, ResultsQuery(queue, timeout_s=0.0))
    reading = asyncio.create_task(stage.queues.call_results("ada", NAME, ResultsQuery(queue, timeout_s=20.0)))
    await pause_task()
    await stage.queues.give_results("j", GiveRequest("j.0", 1, [CallResult(7, "returned", b"r")]))
    assert [each.id for each in (await asyncio.wait_for(reading, 5.0)).results] == [7]


async def test_a_queue_belongs_to_its_user():
    stage = Stage()
    queue = await stage.post(1)
    assert (await stage.queues.call_results("bob", NAME, ResultsQuery(queue))).queue == ""
    await stage.queues.close_calls("bob", NAME)
    assert await stage.post(queue=queue) == queue


async def test_a_question_that_was_asked_anew_gets_no_calls_on_the_former_connection():
    stage = Stage()
    queue = await stage.post()
    former = asyncio.create_task(stage.take(number=1, timeout_s=20.0))
    await pause_task()
    current = asyncio.create_task(stage.take(number=2, timeout_s=20.0, received=0))
    await pause_task()
    await stage.post(3, queue=queue)
    assert await asyncio.wait_for(former, 5.0) == []
    assert await asyncio.wait_for(current, 5.0) == [3]


async def test_the_calls_of_a_silent_worker_and_of_an_ended_one_go_to_others():
    stage = Stage()
    queue = await stage.post(1, 2)
    assert await stage.take("j.0") == [1]
    assert await stage.take("j.1") == [2]
    stage.clock.at += LEASE_S + 1
    del stage.loop.state.jobs["j"].live[1]
    reply = await stage.queues.call_results("ada", NAME, ResultsQuery(queue, timeout_s=0.0))
    assert (reply.silent, reply.workers) == (["j.0"], 0)
    with pytest.raises(Conflict, match=r"attempt 1 of task 'j\.1' does not run"):
        await stage.take("j.1", 2)
    stage.loop.state.jobs["j"].live[1] = Attempt(("j", 1, 2), "n1", 0, Grant(1, 0), 0.0)
    assert sorted([await stage.take("j.0", 2), await stage.take("j.1", attempt=2)]) == [[1], [2]]


@pytest.mark.parametrize("task", ["j.7", "j.0z", "j.", "j.00000000000001", "j.-1"])
async def test_workers_that_are_not_there_are_not_noted(task: str):
    stage = Stage()
    await stage.post(1)
    with pytest.raises(Conflict):
        await stage.take(task)


async def test_a_queue_that_its_client_has_left_is_forgotten():
    stage = Stage()
    queue = await stage.post(1)
    stage.clock.at += LEFT_S + 1
    assert await stage.take() == []
    assert await stage.post(queue=queue) == ""


async def test_another_version_of_python_is_refused_and_the_client_hears_of_it():
    stage = Stage()
    queue = await stage.post(1)
    with pytest.raises(Conflict, match=r"Python 3\.11.*Python 3\.12") as caught:
        await stage.take(python="3.11")
    assert caught.value.reason == "PythonMismatch"
    reply = await stage.queues.call_results("ada", NAME, ResultsQuery(queue))
    assert "3.11" in reply.trouble


async def test_a_worker_speaks_for_tasks_of_its_own_job_only():
    stage = Stage()
    await stage.post(1)
    with pytest.raises(BadRequest):
        await stage.take("other.0")


async def test_a_job_without_an_executor_gets_no_calls():
    stage = Stage()
    state = stage.loop.state.jobs["j"]
    state.job = structs.replace(state.job, tags=())
    with pytest.raises(Conflict) as caught:
        await stage.take()
    assert caught.value.reason == "NoExecutor"


async def test_one_user_has_so_many_executors(monkeypatch):
    monkeypatch.setattr(call_queues, "QUEUES_OF_USER_MAX", 2)
    stage = Stage()
    for name in ("e1", "e2", "e1"):
        await stage.post(name=name)
    with pytest.raises(TooMany, match="user ada has 2 executors") as caught:
        await stage.post(name="e3")
    assert caught.value.reason == "TooManyExecutors"
    await stage.post(name="e3", user="bob")


async def test_a_user_with_a_full_share_is_refused_and_others_are_not(monkeypatch):
    monkeypatch.setattr(call_shares, "USER_BYTES_MAX", 500)
    stage = Stage()
    first = await stage.post(1, name="e1")
    second = await stage.post(1, name="e2")  # with its function each call has about 210 bytes
    await stage.post(2, name="e2", queue=second)
    for name, queue in (("e1", first), ("e2", second), ("e3", "")):
        with pytest.raises(TooMany, match=r"user ada has .* the limit for one user is") as caught:
            await stage.post(5, name=name, queue=queue)
        assert (caught.value.reason, caught.value.retry_after_s) == ("TooManyCalls", 1)
    assert await stage.post(name="e3", user="ada")  # an executor without calls holds nothing
    await stage.post(1, user="bob")
    withdrawn = CallsRequest("3.12", second, withdrawn=[2])
    assert (await stage.queues.post_calls("ada", "e2", withdrawn)).withdrawn == [2]
    assert await stage.post(5, name="e1", queue=first) == first


async def test_a_new_queue_takes_the_place_of_a_former_one_that_was_full(monkeypatch):
    monkeypatch.setattr(call_shares, "USER_BYTES_MAX", 100)
    stage = Stage()
    former = await stage.post(1)
    assert await stage.post(1, queue="") != former


async def test_results_that_are_not_read_are_counted_for_their_user(monkeypatch):
    stage = Stage()
    queue = await stage.post(1, 2)
    assert await stage.take("j.0") == [1]
    assert await stage.take("j.1") == [2]
    monkeypatch.setattr(call_shares, "USER_BYTES_MAX", 200)
    for task, id, state in (("j.0", 1, "open"), ("j.1", 2, "full")):
        reply = await stage.queues.give_results("j", GiveRequest(task, 1, [CallResult(id, "returned", b"r")]))
        assert reply.state == state
    (read,) = (await stage.queues.call_results("ada", NAME, ResultsQuery(queue, timeout_s=0.0))).results
    await stage.queues.call_results("ada", NAME, ResultsQuery(queue, after=read.id, timeout_s=0.0))
    reply = await stage.queues.give_results("j", GiveRequest("j.1", 1, [CallResult(2, "returned", b"r")]))
    assert reply.state == "open"


async def test_a_standby_answers_nothing():
    stage = Stage()
    queue = await stage.post(1)
    stage.loop.is_active = False
    for asked in (stage.post(2), stage.take(), stage.queues.call_results("ada", NAME, ResultsQuery(queue))):
        with pytest.raises(NotActive):
            await asked
