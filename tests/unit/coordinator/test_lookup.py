"""What may be given as an id: the job's own for its only task, and `ID.0` (M6); the names of Kubernetes (M10)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from msgspec import structs

from phalanx.api.schema.apply import ApplyRequest
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec, to_job
from phalanx.api.schema.queries import JobsQuery
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Identity, Tokens
from phalanx.client.async_client import AsyncClient
from phalanx.client.in_process import InProcessTransport
from phalanx.coordinator.main import Coordinator
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest, Conflict, NotFound
from tests.support.waiting import until
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


async def test_a_job_that_has_left_the_memory_before_its_record_is_in_the_store_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"], begin="+1h"), "ada")).task_ids
        state, loop = here.leadership.state, here.leadership.loop
        assert loop is not None
        state.rules = structs.replace(state.rules, ended_jobs_max=0)
        append, may_write = loop._store.append, asyncio.Event()

        async def slow(*args: Any) -> None:
            if not state.jobs:
                await may_write.wait()
            await append(*args)

        monkeypatch.setattr(loop._store, "append", slow)
        cancelling = asyncio.create_task(here.commands.cancel(id))
        await until(lambda: not state.jobs)
        asked = asyncio.create_task(here.commands.job(id))
        answered, _ = await asyncio.wait({asked}, timeout=0.2)
        assert not answered  # it waits for the store
        may_write.set()
        assert (await asked).status == "Cancelled"
        await cancelling


async def test_the_beginning_of_several_ids_is_refused():
    async with a_coordinator() as here:
        for _ in range(2):
            await here.commands.submit(SubmitRequest(["true"]), "ada")
        first, second = sorted(here.leadership.state.jobs)
        common = next(at for at in range(26) if first[at] != second[at])
        with pytest.raises(BadRequest) as refused:
            await here.commands.job(first[:common])
        assert refused.value.reason == "AmbiguousId"


PODS = ["team/pod-1", "team/pod-2"]


def a_named_gang() -> JobSpec:
    group = GroupSpec(command=["true"], tasks=2, objects=PODS)
    return JobSpec([group], gang=GangSpec(id="team/hello-job"), name="hello-job")


async def test_names_of_kubernetes_are_accepted_wherever_an_id_is():
    """M10, through the REST app, where names become ids once."""
    async with a_coordinator() as here:
        app = build_app(here.commands, Tokens([("ada", "secret")]))
        async with AsyncClient(token="secret", exchange=InProcessTransport(app)) as client:
            (job,) = (await client.apply(a_named_gang())).jobs
            assert (await client.job("team/hello-job")).object == "team/hello-job"
            assert (await client.job("team/pod-2")).id == job.id
            task = await client.task("team/pod-2")
            assert (task.id, task.object) == (f"{job.id}.1", "team/pod-2")
            assert (await client.why("team/hello-job")).object == "team/hello-job"
            assert (await client.why("team/pod-1")).object == "team/pod-1"
            assert len((await client.tasks("team/hello-job")).items) == 2
            assert (await client.story("team/hello-job")).items[0].event == "JobSubmitted"
            waited = (
                await client.wait("team/pod-2", timeout=0, must_end=False),
                await client.wait("team/hello-job", timeout=0, must_end=False),
            )
            assert [view.id for view in waited] == [f"{job.id}.1", job.id]
            with pytest.raises(NotFound, match="called 'team/pod-3'"):
                await client.job("team/pod-3")
            with pytest.raises(Conflict, match="needed by its gang"):
                await client.cancel("team/pod-2")
            assert (await client.cancel("team/hello-job")).cancelled == 2


class People:
    """Accepts a token like `alice:user`: a name and a role."""

    def accepts_user(self, token: str) -> Identity | None:
        name, _, role = token.partition(":")
        return Identity(name, cast(Bearer, role), "f" * 16)


def client_of(here: Coordinator, name: str, role: Bearer = "user") -> AsyncClient:
    exchange = InProcessTransport(build_app(here.commands, People()))
    return AsyncClient(token=f"{name}:{role}", exchange=exchange)


async def test_a_name_means_ones_own_job_though_others_have_newer_ones_so_called():
    async with a_coordinator() as here, client_of(here, "alice") as alice, client_of(here, "bob") as bob:
        (alices,) = (await alice.apply(a_named_gang())).jobs
        (bobs,) = (await bob.apply(a_named_gang())).jobs
        assert (await alice.named("team/hello-job")).id == alices.id
        assert (await alice.wait("team/pod-2", timeout=0, must_end=False)).id == f"{alices.id}.1"
        assert (await alice.job("team/hello-job")).user == "alice"
        assert (await bob.named("team/pod-1")).id == f"{bobs.id}.0"
        assert (await alice.cancel("team/hello-job")).id == alices.id
        assert here.leadership.state.jobs[bobs.id].counts[Status.CANCELLED] == 0


async def test_who_may_look_into_all_jobs_is_not_given_one_of_several_users_by_chance():
    async with (
        a_coordinator() as here,
        client_of(here, "alice") as alice,
        client_of(here, "bob") as bob,
        client_of(here, "root", "admin") as root,
    ):
        (alices,) = (await alice.apply(a_named_gang())).jobs
        assert (await root.named("team/hello-job")).id == alices.id
        with pytest.raises(NotFound):
            await root.named("team/hello-job", own=True)
        (bobs,) = (await bob.apply(a_named_gang())).jobs
        told = f"several users .* 'team/hello-job': {alices.number} of alice, {bobs.number} of bob"
        for ask in (root.cancel, root.named, root.why):
            with pytest.raises(Conflict, match=told) as refused:
                await ask("team/hello-job")
            assert refused.value.reason == "AmbiguousName"
        (roots,) = (await root.apply(a_named_gang())).jobs
        assert (await root.cancel("team/hello-job")).id == roots.id


@pytest.mark.parametrize("role", ["user", "viewer"])
async def test_a_name_tells_a_plain_user_nothing_of_others(role: Bearer):
    async with a_coordinator() as here, client_of(here, "carol", role) as carol:
        for user in ("alice", "bob"):
            await here.commands.apply(ApplyRequest([a_named_gang()]), user)
            for ask in (carol.named, carol.job, carol.why, carol.draft):
                with pytest.raises(NotFound, match="no job or task of yours is called 'team/hello-job'"):
                    await ask("team/hello-job")
        with pytest.raises(NotFound, match="of yours"):
            await anext(carol.watch(job="team/hello-job"))


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (["team/a"], "1 are given for 2 tasks"),
        (["team/a", "team/a"], "'team/a' is given twice"),
        (["team/a", "b"], "'b' is not namespace/name"),
    ],
)
def test_names_that_cannot_be_are_refused(objects, told):
    spec = JobSpec([GroupSpec(command=["true"], tasks=2, objects=objects)])
    with pytest.raises(BadRequest, match=rf"groups\[0\]\.objects: .*{told}"):
        to_job(spec, id="0", now=0.0, user="", default_retries=3)


async def test_jobs_and_tasks_are_selected_by_their_tags():
    head = GroupSpec(name="head", command=["true"], tags={"role": "head"})
    work = GroupSpec(name="work", command=["true"], tasks=3, tags={"role": "work"})
    spec = JobSpec([head, work], gang=True, tags={"app": "train"})
    async with a_coordinator() as here:
        commands = here.commands
        every: Any = {"cursor": None, "limit": 100, "status": None}
        (job,) = (await commands.apply(ApplyRequest([spec]), "ada")).jobs
        (plain,) = (await commands.submit(SubmitRequest(["true"], tags={"app": "eval"}), "ada")).task_ids

        async def listed(selector: str) -> list[str]:
            page = await commands.jobs(JobsQuery(selector=selector), "ada")
            return [view.id for view in page.items]

        assert await listed("app=train") == [job.id]
        assert await listed("role=work,app") == [job.id]
        assert await listed("app!=train") == [plain]
        assert set(await listed("app")) == {plain, job.id}  # the ids of one millisecond have no order
        assert (await commands.job(plain)).tags == {"app": "eval"}
        first = await commands.tasks(job.id, selector="role=work", status=None, cursor=None, limit=2)
        rest = await commands.tasks(
            job.id, selector="role=work", status=None, cursor=first.next_cursor, limit=2
        )
        assert [each.id for page in (first, rest) for each in page.items] == [
            f"{job.id}.{n}" for n in (1, 2, 3)
        ]
        assert (await commands.tasks(job.id, selector="role=none", **every)).items == []
        with pytest.raises(BadRequest, match="selector: 'a=b=c' is not a condition"):
            await listed("a=b=c")
        with pytest.raises(BadRequest, match="tags: 'a b': 'c' is not a tag"):
            await commands.submit(SubmitRequest(["true"], tags={"a b": "c"}), "ada")
