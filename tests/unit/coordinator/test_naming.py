"""What people call a job: its number, `last`, its name, and tasks and stages of it, through the REST app."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import StageSpec, WorkflowSpec
from phalanx.api.server.auth import Bearer
from phalanx.client.async_client import AsyncClient
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.naming import in_numbers
from phalanx.core.cluster.image import encode_job
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, PhalanxError
from phalanx.store.protocol import Batch, History
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_lookup import client_of

pytestmark = pytest.mark.anyio


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


async def submitted(client: AsyncClient, name: str, array: str | None = None) -> tuple[str, int]:
    reply = await client.submit(command=["true"], name=name, array=array)
    return reply.batch_id, reply.accepted[0].number


async def test_jobs_are_numbered_by_arrival_and_found_by_their_numbers(ada: AsyncClient):
    first, second = await submitted(ada, "one"), await submitted(ada, "two", array="1-5")
    assert (first[1], second[1]) == (1, 2)
    assert (await ada.job("1")).id == first[0]
    assert (await ada.job("1")).number == 1
    task = await ada.task("2.3")
    assert (task.id, task.number) == (f"{second[0]}.3", "2.3")
    assert (await ada.cancel("2.3")).number == "2.3"
    assert (await ada.cancel("2")).number == "2"
    assert (await ada.why("1")).number == "1"
    assert (await ada.wait("1", timeout=0, must_end=False)).id == first[0]


async def test_a_number_that_was_never_given_says_which_is_the_newest(ada: AsyncClient):
    await submitted(ada, "one")
    with pytest.raises(NotFound, match="no job 17: the newest is 1"):
        await ada.job("17")


async def test_a_number_of_a_job_that_left_memory_is_found_in_the_history(
    here: Coordinator, ada: AsyncClient
):
    id, number = await submitted(ada, "one")
    state = here.leadership.state
    record = History(id, encode_job(state.jobs[id]), number)
    await here.store.append(state.epoch, Batch(state.revision + 1, b"\x90"), [record])
    state.names.remove(state.jobs.pop(id))
    state.job_ids.remove(id)
    assert (await ada.job("1")).id == id
    assert (await ada.job("last")).id == id
    assert (await ada.job("one")).id == id


async def test_last_is_the_askers_newest(here: Coordinator, ada: AsyncClient):
    with pytest.raises(NotFound, match="you have no job yet"):
        await ada.job("last")
    mine = await submitted(ada, "one", array="1-2")
    async with client_of(here, "bob") as bob:
        await submitted(bob, "two")
        assert (await bob.job("last")).number == 2
    assert (await ada.job("last")).id == mine[0]
    assert (await ada.task("last.2")).id == f"{mine[0]}.2"


async def test_a_name_is_the_job_that_has_not_ended_else_the_newest(ada: AsyncClient):
    first, second = await submitted(ada, "train.v1"), await submitted(ada, "train.v1")
    with pytest.raises(Conflict, match=r"2 of your jobs .* are called 'train.v1': 2, 1") as refused:
        await ada.job("train.v1")
    assert refused.value.reason == "AmbiguousName"
    await ada.cancel("2")
    assert (await ada.job("train.v1")).id == first[0]
    await ada.cancel("1")
    assert (await ada.job("train.v1")).id == second[0]


async def test_a_name_of_several_jobs_comes_with_the_numbers_of_all(here: Coordinator, ada: AsyncClient):
    await submitted(ada, "sweep", array="1-2")
    await ada.cancel("1")
    async with client_of(here, "bob") as bob:
        await submitted(bob, "sweep")
    id, _ = await submitted(ada, "sweep", array="1-2")
    found = await ada.named("sweep")
    assert (found.id, found.number, found.namesakes) == (id, 3, [1, 3])
    task = await ada.named("sweep.2")
    assert (task.id, task.number, task.namesakes) == (f"{id}.2", 3, [1, 3])
    for text in ("3", "last", id):
        assert (await ada.named(text)).namesakes == []


async def test_one_task_that_is_resubmitted_leaves_the_name_to_the_array(ada: AsyncClient):
    id, _ = await submitted(ada, "sweep", array="1-2")
    again = await ada.resubmit("sweep.2")
    assert (await ada.job("sweep")).id == id
    assert (await ada.job("sweep-2")).id == again.batch_id
    assert (await ada.job((await ada.resubmit("sweep-2.2", {"memory": "1GiB"})).batch_id)).name == "sweep-2"
    assert (await ada.job((await ada.resubmit("sweep.1", {"name": "mine"})).batch_id)).name == "mine"


async def test_a_task_is_named_by_the_name_of_its_job(ada: AsyncClient):
    id, _ = await submitted(ada, "sweep", array="1-3")
    assert (await ada.task("sweep.2")).id == f"{id}.2"
    assert (await ada.wait("sweep.2", timeout=0, must_end=False)).id == f"{id}.2"
    with pytest.raises(NotFound, match=r"no task '1\.2\.3': .* such as 1\.2"):
        await ada.why("1.2.3")
    with pytest.raises(NotFound, match=r"no task '5\.\.8': .* such as 5\.1"):
        await ada.cancel("5..8")
    for words in ("sweep.2-3", "sweep.", "sweep.x"):
        with pytest.raises(NotFound, match="name one task") as refused:
            await ada.task(words)
        assert (refused.value.reason, refused.value.hint) == ("TaskNotFound", "such as sweep.1")
    with pytest.raises(NotFound) as refused:
        await ada.cancel("4-7")
    assert refused.value.hint == "jobs are named one by one, such as 4 5"
    with pytest.raises(NotFound, match="no job '0': jobs are numbered from 1"):
        await ada.job("0")
    await submitted(ada, "plain")
    with pytest.raises(NotFound) as refused:
        await ada.cancel("plain.9")
    assert refused.value.hint == "it has one task: 2"


@pytest.mark.parametrize("role", ["viewer", "user", "admin"])
async def test_a_name_finds_another_users_job_if_one_has_none(
    here: Coordinator, ada: AsyncClient, role: Bearer
):
    id, _ = await submitted(ada, "one")
    async with client_of(here, "bob") as bob, client_of(here, "eve", role) as eve:
        assert (await eve.job("one")).id == (await eve.why("one")).id == id
        with pytest.raises(NotFound):
            await eve.named("one", own=True)
        await submitted(bob, "one")
        assert (await bob.job("one")).number == 2, "one's own comes first"
        with pytest.raises(Conflict, match=r"several users .* 'one': 1 of ada, 2 of bob"):
            await eve.job("one")


async def test_several_jobs_of_another_user_are_said_to_be_theirs(here: Coordinator, ada: AsyncClient):
    await submitted(ada, "one")
    await submitted(ada, "one")
    async with client_of(here, "bob") as bob:
        with pytest.raises(Conflict, match=r"2 jobs of ada that have not ended are called 'one': 2, 1"):
            await bob.job("one")
        with pytest.raises(Forbidden, match="of ada"):
            await bob.cancel("2")


async def test_a_job_comes_after_ones_own_and_the_number_of_anothers_is_told(
    here: Coordinator, ada: AsyncClient
):
    await submitted(ada, "one")
    async with client_of(here, "bob") as bob:
        with pytest.raises(NotFound, match="you have no job 'one', but ada has") as refused:
            await bob.submit(command=["true"], after=["one"])
        assert refused.value.hint.endswith("number: 1")


async def test_a_workflow_of_another_user_is_found_by_its_name(here: Coordinator, ada: AsyncClient):
    stage = StageSpec(name="a", job=JobSpec([GroupSpec(command=["true"])]))
    made = await ada.submit_workflow(WorkflowSpec(name="flow", stages=[stage]))
    async with client_of(here, "bob") as bob:
        assert (await bob.workflow_view("flow")).id == made.id


async def test_a_job_comes_after_one_that_is_named_by_its_number(ada: AsyncClient):
    id, _ = await submitted(ada, "one")
    later = await ada.submit(command=["true"], after=["1:any"])
    assert (await ada.job(later.batch_id)).after == [f"{id}:any"]
    again = await ada.submit(command=["true"], after=["one"])
    assert (await ada.job(again.batch_id)).after == [f"{id}:ok"]


async def test_a_job_comes_after_a_stage_and_a_workflow_by_their_names(here: Coordinator, ada: AsyncClient):
    job = JobSpec([GroupSpec(command=["true"])])
    stages = [StageSpec(name="a", job=job), StageSpec(name="any", job=job, after=["a"])]
    made = await ada.submit_workflow(WorkflowSpec(name="flow", stages=stages))
    for text, expected, told in (
        ("1:a", f"{made.jobs['a']}:ok", "2:ok"),
        ("flow:any:any", f"{made.jobs['any']}:any", "1:any:any"),
        (made.jobs["any"], f"{made.jobs['any']}:ok", "1:any:ok"),
        ("flow", f"{made.id}:ok", "1:ok"),
        ("1:any", f"{made.id}:any", "1:any"),
        ("2.0:any", f"{made.jobs['a']}:any", "2:any"),
    ):
        later = await ada.submit(command=["true"], after=[text])
        view = await ada.job(later.batch_id)
        assert (view.after, view.after_numbers) == ([expected], [told]), text
    planned = await ada.plan(SubmitRequest(command=["true"], after=["1:any:any", "1"]))
    assert [each.code for each in planned.reasons] == ["WaitingDependency", "WaitingDependency"]
    array = await ada.submit(command=["true"], array="1-3")
    with pytest.raises(BadRequest) as refused:
        await ada.submit(command=["true"], after=[f"{array.accepted[0].number}.2"])
    assert refused.value.reason == "WholeJob"
    for wrong, reason in (
        ("1:started", "BadRequest"),
        ("2:soon", "BadRequest"),
        ("1:b", "StageNotFound"),
    ):
        with pytest.raises(PhalanxError) as refused_too:
            await ada.submit(command=["true"], after=[wrong])
        assert refused_too.value.reason == reason


async def test_last_may_be_a_workflow_and_a_stage_is_named_as_lists_show_it(ada: AsyncClient):
    await submitted(ada, "before")
    job = JobSpec([GroupSpec(command=["true"])])
    stages = [
        StageSpec(name="data", job=job),
        StageSpec(name="train.big", job=job, after=["data"]),
    ]
    made = await ada.submit_workflow(WorkflowSpec(name="ft.v1", stages=stages))
    data = (await ada.job(f"{made.id}:data")).id
    assert (await ada.named("last")).id == made.id
    for text in ("ft.v1.data", "last.data", "2.data", "last:data"):
        assert (await ada.job(text)).id == data, text
    assert (await ada.named("ft.v1.train.big")).id == f"{made.id}:train.big"
    with pytest.raises(NotFound, match="is a workflow, not a job"):
        await ada.job("last")
    with pytest.raises(NotFound):
        await ada.job("ft.v1.test")
    await ada.cancel("ft.v1.data")
    await submitted(ada, "after")
    assert (await ada.job("last")).name == "after"


async def test_workflows_share_the_numbers_of_jobs(ada: AsyncClient):
    await submitted(ada, "one")
    job = JobSpec([GroupSpec(command=["true"])])
    stages = [StageSpec(name="a", job=job), StageSpec(name="b", job=job, after=["a"])]
    made = await ada.submit_workflow(WorkflowSpec(name="flow", stages=stages))
    assert made.number == 2
    view = await ada.workflow_view("2")
    assert (view.id, view.number, view.stages[0].number) == (made.id, 2, 3)
    assert (await ada.workflow_view("flow")).id == (await ada.workflow_view("last")).id == made.id
    assert (await ada.job("2:a")).id == (await ada.job("flow:a")).id == (await ada.job("3")).id
    with pytest.raises(NotFound, match="2 is a workflow, not a job"):
        await ada.job("2")
    assert (await ada.named("last")).id == made.id, "the job of a stage is nobody's last, the workflow is"
    assert (await ada.cancel_workflow("2")).number == "2"


async def test_sentences_have_numbers_where_ids_were(here: Coordinator, ada: AsyncClient):
    id, _ = await submitted(ada, "one")
    state = here.leadership.state
    assert in_numbers(state, f"it starts when {id}.3 on n1 ends: phalanx cancel {id}") == (
        "it starts when 1.3 on n1 ends: phalanx cancel 1"
    )
    assert in_numbers(state, "0" * 26) == "0" * 26, "of what is not in memory the id stays"
    await ada.cancel("1")
    with pytest.raises(Conflict) as refused:
        await ada.cancel("1")
    assert id not in refused.value.detail
    assert not [line for line in (await ada.story("1")).items if id in line.text]


async def test_why_a_stage_ended_is_told_in_the_story_of_those_who_may_inspect_it(
    here: Coordinator, ada: AsyncClient
):
    job = JobSpec([GroupSpec(command=["true"])])
    stages = [StageSpec(name="a", job=job), StageSpec(name="b", job=job, after=["a"])]
    await ada.submit_workflow(WorkflowSpec(name="flow", stages=stages))
    await ada.cancel("1:a")
    async with client_of(here, "bob") as bob:
        hers, his = [[line.text for line in (await who.story("1")).items] for who in (ada, bob)]
    assert any(text.startswith("stage a") and "stage b" in text and ": " in text for text in hers) or any(
        text.startswith("stage b") and ": " in text for text in hers
    ), hers
    assert not any(text.startswith("stage ") and ": " in text for text in his), his
