"""Queues are declared, never invented by a typo, and no job is more urgent than its role or queue allows (P6)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import json

from phalanx.api.schema.apply import ApplyRequest, PlanRequest
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.queues import QuotaSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Identity
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.inputs import Submit
from phalanx.errors import BadRequest, NotFound, Unprocessable
from tests.support.builders import a_job
from tests.support.rest_app import JSON, ask
from tests.unit.coordinator.test_declarations import a_coordinator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Roles:
    """Accepts a token named like a role."""

    def accepts_user(self, token: str) -> Identity | None:
        return Identity("ada", cast(Bearer, token), "f" * 16)


async def posted(here: Coordinator, role: str, path: str, **document: Any) -> tuple[int, str, str]:
    """The status, the reason and the detail of an answer."""
    app = build_app(here.commands, Roles())
    headers = {"authorization": f"Bearer {role}"} | JSON
    answer = await ask(app, "POST", path, json.encode(document), headers=headers)
    told = answer.json()
    return answer.status, told.get("reason", ""), told.get("detail", "")


def options_of(**fields: Any) -> SubmitRequest:
    return SubmitRequest(["true"], **fields)


async def test_a_queue_that_nobody_declared_is_refused_with_the_nearest_name():
    async with a_coordinator() as here:
        await here.commands.set_quota("lab", QuotaSpec(gpus=2), "root")
        for path, document in (
            ("/v1/jobs", {"command": ["true"], "queue": "labx"}),
            ("/v1/apply", {"specs": [{"groups": [{"command": ["true"]}], "queue": "labx"}]}),
            ("/v1/plan", {"submit": {"command": ["true"], "queue": "labx"}}),
            ("/v1/plan", {"specs": [{"groups": [{"command": ["true"]}], "queue": "labx"}]}),
        ):
            status, reason, detail = await posted(here, "admin", path, **document)
            assert (status, reason) == (400, "QueueNotFound")
            assert "'labx'; did you mean lab? (queues: default, lab)" in detail
        assert not here.leadership.state.jobs
        assert (await posted(here, "user", "/v1/jobs", command=["true"], queue="lab"))[0] == 202
        assert (await posted(here, "user", "/v1/jobs", command=["true"]))[0] == 202


async def test_a_queue_may_be_declared_without_limits_and_forgotten():
    async with a_coordinator() as here:
        view = await here.commands.set_quota("lab", QuotaSpec(), "root")
        assert view.quota is not None
        (id,) = (await here.commands.submit(options_of(queue="lab", gpus=8), "ada")).task_ids
        await here.commands.set_quota("lab", None, "root")
        assert here.leadership.state.jobs[id].job.queue == "lab"
        for name in ("lab", "never-declared", "default"):
            with pytest.raises(NotFound, match=f"{name}: no.* queue"):
                await here.commands.set_quota(name, None, "root")
        with pytest.raises(BadRequest, match="no queue 'lab'"):
            await here.commands.submit(options_of(queue="lab"), "ada")


async def test_one_application_may_declare_the_queue_it_uses():
    async with a_coordinator() as here:
        spec = JobSpec([GroupSpec(command=["true"])], queue="lab")
        reply = await here.commands.apply(ApplyRequest([spec], quotas={"lab": QuotaSpec(tasks=9)}), "root")
        assert len(reply.jobs) == 1


async def test_a_plan_says_of_which_job_the_queue_is_unknown():
    async with a_coordinator() as here:
        group = GroupSpec(command=["true"])
        with pytest.raises(BadRequest) as caught:
            await here.commands.plan(PlanRequest([JobSpec([group]), JobSpec([group], queue="lab")]), "root")
        assert caught.value.detail.startswith("specs[1]: queue: there is no queue 'lab'")


async def test_jobs_of_older_stores_in_undeclared_queues_go_on():
    async with a_coordinator() as here:
        job = a_job(queue="old")
        await here.leadership.ask([Submit(job)])  # as its event was written when this was not checked
        assert here.leadership.state.jobs[job.id].live  # it is placed
        assert [queue.name for queue in await here.commands.queues()] == ["default", "old"]
        with pytest.raises(BadRequest, match="no queue 'old'"):
            await here.commands.submit(options_of(queue="old"), "ada")


@pytest.mark.parametrize(("role", "most"), [("user", 1_000), ("operator", 1_000_000), ("admin", 1_000_000)])
async def test_a_role_has_a_highest_priority(role: str, most: int):
    async with a_coordinator() as here:
        for path, wrap in (
            ("/v1/jobs", lambda n: {"command": ["true"], "priority": n}),
            ("/v1/apply", lambda n: {"specs": [{"groups": [{"command": ["true"]}], "priority": n}]}),
            ("/v1/plan", lambda n: {"submit": {"command": ["true"], "priority": n}}),
        ):
            assert (await posted(here, role, path, **wrap(most)))[0] < 300
            assert (await posted(here, role, path, **wrap(-1_000_000)))[0] < 300
            for priority in (most + 1, 1_000_000_000):
                status, reason, detail = await posted(here, role, path, **wrap(priority))
                assert (status, reason) == (422, "PriorityTooHigh")
                assert f"priority: {priority} is too high" in detail
                assert str(most) in detail


@pytest.mark.parametrize("most", [50, 5_000, 5_000_000])
@pytest.mark.parametrize("role", ["user", "admin"])
async def test_a_queue_may_say_otherwise(role: str, most: int):
    async with a_coordinator() as here:
        view = await here.commands.set_quota("urgent", QuotaSpec(priority_max=most), "root")
        assert view.quota is not None
        assert view.quota.priority_max == most
        options = {"command": ["true"], "queue": "urgent"}
        assert (await posted(here, role, "/v1/jobs", **options, priority=most))[0] == 202
        status, reason, _ = await posted(here, role, "/v1/jobs", **options, priority=most + 1)
        assert (status, reason) == (422, "PriorityTooHigh")


async def test_who_does_not_say_has_the_priority_of_a_user():
    async with a_coordinator() as here:
        with pytest.raises(Unprocessable, match=r"is too high.* 1000"):
            await here.commands.submit(options_of(priority=1001), "ada")
        with pytest.raises(Unprocessable, match=r"is too high.* 1000"):
            await here.commands.plan(PlanRequest(submit=options_of(priority=1001)), "ada")
