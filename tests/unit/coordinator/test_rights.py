"""What an asker may do to a job, where what waits of it would go, and which attempts a task had, as REST answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.resubmission import changed
from phalanx.api.schema.workflows import StageSpec, WorkflowRequest, WorkflowSpec
from phalanx.client.async_client import AsyncClient
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.inputs import SetQuota, Tell
from phalanx.core.model.orders import Ended, Exit, Why
from phalanx.core.model.queues import Approval, Quota
from phalanx.errors import BadRequest, Conflict, PhalanxError
from tests.support.waiting import until
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_lookup import client_of

pytestmark = pytest.mark.anyio
REPEATS = {"retry", "resubmit"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def here() -> AsyncIterator[Coordinator]:
    async with a_coordinator() as found:
        yield found


@pytest.fixture
async def ada(here: Coordinator) -> AsyncIterator[AsyncClient]:
    async with client_of(here, "ada") as client:
        yield client


async def may(here: Coordinator, id: str, name: str, role: str = "user") -> set[str]:
    async with client_of(here, name, role) as client:  # type: ignore[arg-type]
        return set((await client.job(id)).may)


async def test_a_job_is_changed_by_its_user_and_operators_and_repeated_by_its_user(
    here: Coordinator, ada: AsyncClient
):
    id = (await ada.submit(command=["t"], hold=True)).batch_id
    assert await may(here, id, "ada") == {"cancel", "release", "resubmit"}
    assert await may(here, id, "root", "admin") == {"cancel", "release"}
    assert await may(here, id, "eve") == await may(here, id, "ada", "viewer") == set()
    await ada.release(id)
    async with client_of(here, "op", "operator") as operator:
        waits = (await ada.submit(command=["t"], gpus=8, tasks=5, min=5, allow_infeasible=True)).batch_id
        assert await may(here, waits, "ada") == {"cancel", "hold", "resubmit"}
        await operator.hold(waits)
    assert await may(here, waits, "ada") == {"cancel", "resubmit"}, (
        "what an operator holds the user cannot release"
    )
    await ada.cancel(waits)
    assert await may(here, waits, "ada") == REPEATS
    assert await may(here, waits, "root", "admin") == set()


async def test_those_approve_whom_the_queue_names(here: Coordinator, ada: AsyncClient):
    await here.leadership.ask([SetQuota("lab", Quota(approval=Approval(by=("carol",))))])
    id = (await ada.submit(command=["t"], queue="lab")).batch_id
    assert await may(here, id, "ada") == {"cancel", "hold", "resubmit"}
    assert await may(here, id, "carol") == {"approve"}
    assert await may(here, id, "eve") == await may(here, id, "carol", "viewer") == set()
    assert await may(here, id, "op", "operator") == {"approve", "cancel", "hold"}


async def test_what_cannot_run_again_is_not_offered(here: Coordinator, ada: AsyncClient):
    run = (await ada.submit(command=["t"], attached=True, stdin=True)).batch_id
    await ada.cancel(run)
    assert await may(here, run, "ada") == set()
    await here.commands.submit_workflow(
        WorkflowRequest(WorkflowSpec([StageSpec("one", JobSpec([GroupSpec(command=["t"])]))])), "ada"
    )
    await until(lambda: len(here.leadership.state.jobs) == 2)
    stage = next(job.job.id for job in here.leadership.state.jobs.values() if job.job.workflow is not None)
    await until(lambda: here.leadership.state.jobs[stage].live)
    assert await may(here, stage, "ada") == {"cancel"}


async def test_a_gang_is_submitted_again_with_other_rules(here: Coordinator, ada: AsyncClient):
    rules = [GatherSpec("rack", must=True)]
    first = (await ada.submit(command=["t"], tasks=4, min=4, gather=rules, hold=True)).batch_id

    async def again(**changes: object) -> tuple[int, list[str]]:
        made = (await ada.resubmit(first, changes)).batch_id
        job = here.leadership.state.jobs[made].job
        assert job.gang is not None
        return job.groups[0].needed, [f"{rule.layer}:{rule.must}" for rule in job.gang.gather]

    assert await again(min=2) == (2, ["rack:True"])
    assert await again(min="0") == (4, ["rack:True"])
    assert await again(gather=[]) == (4, [])
    assert await again(gather=[{"layer": "block", "must": True, "multiple": 1}]) == (4, ["block:True"])
    assert await again(gather="rack") == (4, ["rack:False"])
    one = (await ada.submit(command=["t"], hold=True)).batch_id
    for id, key, value in ((first, "min", 5), (one, "min", 1), (one, "gather", "rack")):
        with pytest.raises(PhalanxError, match=key):
            await ada.resubmit(id, {key: value})
    for wrong in (7, "rack:maybe", [{"layer": 1}], [["rack"]]):
        with pytest.raises(BadRequest):
            changed(here.leadership.state.jobs[first].job, {"gather": wrong})


async def test_a_target_is_taken_away(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["t"], targets=["n1::0,1"], hold=True)).batch_id
    made = (await ada.resubmit(first, {"targets": [], "gpus": 2})).batch_id
    request = here.leadership.state.jobs[made].job.groups[0].request
    assert (request.target, request.gpus) == (None, 2)
    with pytest.raises(BadRequest, match="targets"):
        await ada.resubmit(first, {"targets": ["n2"]})


async def test_a_waiting_job_is_planned_as_it_is(here: Coordinator, ada: AsyncClient):
    """With its target, which no other request would name, and only what of its array still waits."""
    plan = here.commands.plan_job
    full = (await ada.submit(command=["t"], targets=["n1"], cores=8)).batch_id
    await until(lambda: here.leadership.state.jobs[full].live)
    aimed = (await ada.submit(command=["t"], targets=["n1"])).batch_id
    number = (await ada.job(aimed)).number
    found = await plan(aimed)
    assert (found.placements, found.exit) == ([], 3)
    assert {reason.job for reason in found.reasons} == {str(number)}
    array = (await ada.submit(command=["t"], array="1-5", gpus=8)).batch_id
    await until(lambda: len(here.leadership.state.jobs[array].live) == 3)
    found = await plan(array)
    assert {reason.tasks for reason in found.reasons} == {2}
    with pytest.raises(Conflict) as refused:
        await plan(full)
    assert refused.value.reason == "NothingWaiting"
    assert len(here.leadership.state.jobs) == 3, "nothing was submitted"


async def test_the_attempts_of_a_task_are_told_with_their_ends(here: Coordinator, ada: AsyncClient):
    id = (await ada.submit(command=["t"], array="1-2", gpus=1, max_retries=1)).batch_id
    job = here.leadership.state.jobs[id]
    await until(lambda: len(job.live) == 2)
    attempt = job.live[1]
    exit = Exit(Why.EXITED, 3, started_at=5.0, ended_at=7.0, message="exited with code 3")
    state = here.leadership.state
    lease = state.nodes[attempt.node].generation
    await here.leadership.ask([Tell(attempt.node, "a", state.epoch, Ended(attempt.key, exit), lease)])
    first, *_ = await here.commands.attempts(f"{id}.2")
    assert (first.attempt, first.node, first.devices) == (1, attempt.node, list(attempt.grant.devices))
    assert (first.status, first.exit_code, first.reason) == ("Failed", 3, "exited")
    assert (first.started_at, first.ended_at, first.charged) == (5.0, 7.0, True)
    (other,) = await here.commands.attempts(f"{id}.1")
    assert (other.status, other.ended_at, other.reason) == ("Assigned", None, "")
    with pytest.raises(BadRequest):
        await here.commands.attempts(id)
