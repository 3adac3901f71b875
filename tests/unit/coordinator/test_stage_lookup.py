"""A stage that ended without a job: what is said when its job is asked for."""

from __future__ import annotations

import pytest

from phalanx.api.schema.workflows import WorkflowRequest
from phalanx.coordinator.main import Coordinator
from phalanx.errors import Forbidden, NotFound
from phalanx.manifests.read import read
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_lookup import client_of

pytestmark = pytest.mark.anyio

CHAIN = """
apiVersion: flowmesh/v1
spec:
  stages:
    - {name: a, spec: {command: [make]}}
    - {name: b, spec: {command: [make]}}
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def submitted(here: Coordinator) -> str:
    [found] = read([("flow.yaml", CHAIN)]).workflows
    return (await here.commands.submit_workflow(WorkflowRequest(found.spec), "ada")).id


async def asked(here: Coordinator, id: str) -> list[NotFound]:
    """The error of each command that needs the job."""
    errors = []
    for ask in (here.commands.job, here.commands.task):
        with pytest.raises(NotFound) as refused:
            await ask(id)
        errors.append(refused.value)
    with pytest.raises(NotFound) as refused:
        await here.commands.story(id, cursor=None, limit=10)
    return [*errors, refused.value]


async def test_a_stage_that_waits_says_so_also_in_its_story():
    async with a_coordinator() as here:
        id = await submitted(here)
        assert {error.reason for error in await asked(here, f"{id}:b")} == {"StageWaits"}


async def test_a_stage_that_ended_without_a_job_says_how():
    async with a_coordinator() as here:
        id = await submitted(here)
        await here.commands.cancel_workflow(id)
        for error in await asked(here, f"{id}:b"):
            assert (error.reason, error.hint) == ("StageWithoutJob", f"phalanx why {id}:b")
        assert (await here.commands.job(f"{id}:a")).status == "Cancelled"
        assert (await here.commands.why(f"{id}:b")).status == "Cancelled"


async def test_a_workflow_given_as_a_job_is_called_one():
    async with a_coordinator() as here:
        id = await submitted(here)
        with pytest.raises(NotFound) as refused:
            await here.commands.cancel(id)
        assert refused.value.reason == "IsWorkflow"
        assert f"phalanx workflow cancel {id}" in refused.value.hint


async def test_the_beginning_of_an_id_that_fits_ones_own_job_opens_nobody_elses_workflow():
    async with a_coordinator() as here, client_of(here, "bob") as bob:
        id = await submitted(here)
        bobs = (await bob.submit(command=["true"])).batch_id
        state = here.leadership.state
        for job in [each for each in state.jobs if each != bobs]:  # the stages' jobs are not kept any more
            state.names.remove(state.jobs.pop(job))
            state.job_ids.remove(job)
        both = bobs[: next(at for at in range(26) if id[at] != bobs[at])]
        for ask in (bob.cancel_workflow, bob.retry_workflow):
            with pytest.raises(Forbidden):
                await ask(both)
        assert not state.workflows[id].is_over


async def test_what_is_unknown_is_called_what_was_asked_for():
    async with a_coordinator() as here:
        for ask in (here.commands.owner("nosuch"), here.commands.story("nosuch", cursor=None, limit=10)):
            with pytest.raises(NotFound, match="no job 'nosuch'"):
                await ask
        with pytest.raises(NotFound, match="no workflow 'nosuch'"):
            await here.commands.owner("nosuch", kind="workflow")
