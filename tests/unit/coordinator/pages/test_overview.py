"""The overview: which jobs wait agrees with other pages, failures are told whenever they were, all nodes count."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.pages import HeldCounts, JobRowsQuery, NodeCounts
from phalanx.api.schema.queues import QuotaSpec
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.waiting_jobs import first_waiting
from phalanx.core.cluster.inputs import DeclareLost, Drain, Tell
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import Ended, Exit, Started, Why
from tests.support.builders import a_job
from tests.support.waiting import until
from tests.unit.coordinator.pages.test_pages import placed, submit
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ends(here: Coordinator, id: str, position: int, code: int) -> None:
    """The runner says that a task began, and how it ended."""
    attempt, now = here.leadership.state.jobs[id].live[position], here.clock.now()
    for said in (Started(attempt.key, now), Ended(attempt.key, Exit(Why.EXITED, code, now, now))):
        await here.leadership.ask([Tell(attempt.node, "a", 1, said, 1)])


async def an_array(here: Coordinator, array: str, live: int, **fields: Any) -> str:
    """The id of an array of which so many tasks hold places."""
    id = (await submit(here, array=array, **fields)).partition(".")[0]
    await until(lambda: len(here.leadership.state.jobs[id].live) == live)
    return id


async def test_the_rest_of_a_running_array_waits_and_every_page_counts_it():
    async with a_coordinator() as here:
        await here.commands.set_quota("lab", QuotaSpec(), "root")
        await submit(here, name="held", hold=True, queue="lab")
        await an_array(here, "1-5%2", 2, name="limited", queue="lab")
        await an_array(here, "1-6", 4, name="sweep", gpus=8)
        rows = (await here.commands.job_rows(JobRowsQuery(reason="ArrayLimit"), "ada")).rows
        assert [row.name for row in rows] == ["limited"]
        found = await here.commands.overview()
        reasons = {each.code: (each.jobs, each.tasks) for each in found.waiting}
        assert reasons == {"Held": (1, 1), "ArrayLimit": (1, 3), "WaitingCapacity": (1, 2)}
        assert (found.waiting_jobs, found.cluster.tasks.pending) == (3, 6)
        queues = {queue.name: queue.waiting for queue in await here.commands.queues()}
        assert queues == {"default": 1, "lab": 2}
        assert (await here.commands.queue("lab")).waiting == 2
        rows = (await here.commands.job_rows(JobRowsQuery(waiting=True), "ada")).rows
        assert {row.name: (row.status, row.reason) for row in rows} == {
            "held": ("Pending", "Held"),
            "limited": ("Assigned", "ArrayLimit"),
            "sweep": ("Assigned", "WaitingCapacity"),
        }


async def test_a_task_in_backoff_does_not_speak_for_those_that_wait_for_room():
    job = JobState(a_job(array="1-3"), 1, [0] * 6)
    job.delayed = {0: 200.0}
    assert first_waiting(job) == 1
    job.delayed = dict.fromkeys(range(3), 200.0)
    assert first_waiting(job) == 0


async def test_a_reason_that_names_another_job_has_its_number():
    async with a_coordinator() as here:
        await placed(here, await submit(here, gpus=8, targets=["n0"]))
        await submit(here, tasks=4, min=4, gpus=8, name="head")
        behind = await submit(here, gpus=1, name="behind")
        (found,) = await here.commands.reasons([behind.partition(".")[0]])
        assert found.reason.code == "ReservedForOther"
        assert " 2, " in found.reason.text
        told = [each.text for each in (await here.commands.overview()).waiting]
        assert found.reason.text in told


async def test_jobs_that_failed_before_anybody_looked_are_told_once_each():
    async with a_coordinator() as here:
        ended = await submit(here, name="ended", max_retries=0)
        await placed(here, ended)
        await ends(here, ended, 0, 3)
        array = await an_array(here, "1-3", 3, name="goes-on", max_retries=0)
        for position in (0, 2):
            await ends(here, array, position, 4)
        recent = (await here.commands.overview()).recent
        assert [(each.subject, each.name, each.user) for each in recent] == [
            ("2.3", "goes-on", "ada"),
            ("1", "ended", "ada"),
        ]
        assert "2 of 3 tasks failed" in recent[0].text


async def test_a_node_that_was_lost_before_anybody_looked_is_told():
    async with a_coordinator() as here:
        state = here.leadership.state
        state.rules = structs.replace(state.rules, lost_after_s=0.0)
        await here.leadership.ask([DeclareLost("n2", "the rack burnt")])
        recent = (await here.commands.overview()).recent
        assert [(each.about, each.subject, each.severity) for each in recent] == [("node", "n2", "critical")]


async def test_nodes_that_take_no_work_count_and_what_is_free_there_does_not():
    async with a_coordinator() as here:
        id = await submit(here, gpus=2, cores=1, targets=["n3"])
        await placed(here, id)
        await here.leadership.ask([Drain("n3", "a fan")])
        found = await here.commands.overview()
        assert found.nodes == NodeCounts(all=4, taking_work=3, away=0, drained=1, other=0)
        assert found.gpus == HeldCounts(all=32, held=2, free=24)
        assert found.cores == HeldCounts(all=32, held=1, free=24)
