"""Job files applied whole, quotas and layers: through a coordinator's real loop, all of it or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from phalanx.api.schema.apply import AmendSpec, ApplyRequest
from phalanx.api.schema.cluster import LayerSpec, TopologySpec
from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import DraftSpec, GangSpec, JobSpec
from phalanx.api.schema.queues import QuotaSpec, UserLimitsSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import StageSpec, WorkflowRequest, WorkflowSpec
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.declarations import Declarations
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.leadership import LeadershipConfig
from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.inputs import Hello
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Gather
from phalanx.core.model.orders import Status
from phalanx.core.model.topology import DEFAULT
from phalanx.errors import BadRequest, Conflict, NeverFits, NotFound, PhalanxError, TooMany, Unprocessable
from phalanx.store.memory import MemoryStore
from tests.support.builders import a_capacity

pytestmark = pytest.mark.anyio

TRUE = GroupSpec(command=["true"])
ROWS = TopologySpec([LayerSpec("row", ["row"])])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def a_coordinator(rules: Timers | None = None) -> AsyncIterator[Coordinator]:
    """A coordinator with four nodes, two in each rack, on which nothing runs."""
    coordinator = Coordinator(
        MemoryStore(),
        LeadershipConfig(rules or Timers()),
        Credentials.local("user", "node"),
        SubmitDefaults(),
    )
    await coordinator.leadership.open()
    turning = asyncio.create_task(coordinator.leadership.run())
    try:
        for number in range(4):
            capacity = structs.replace(a_capacity(cores=8, gpus=8), labels={"row": f"r{number % 2}"})
            await coordinator.leadership.ask([Hello(f"n{number}", "a", f"o{number}", capacity, [])])
        yield coordinator
    finally:
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)


def a_spec(tasks: int = 1, *, gather: str = "", **fields: object) -> JobSpec:
    group = GroupSpec(command=["true"], tasks=tasks, **fields)  # type: ignore[arg-type]
    rules = [GatherSpec(gather, must=True)] if gather else []
    return JobSpec([group], gang=tasks > 1, gather=rules, name="train")


async def test_specs_become_jobs_of_one_batch_in_their_order():
    async with a_coordinator() as here:
        reply = await here.commands.apply(ApplyRequest([a_spec(4), a_spec(), a_spec(2)]), "ada")
        jobs = [here.leadership.state.jobs[job.id].job for job in reply.jobs]
        assert [(job.tasks, job.batch, job.user) for job in jobs] == [
            (tasks, reply.jobs[0].id, "ada") for tasks in (4, 1, 2)
        ]
        assert sorted(job.id for job in reply.jobs) == [job.id for job in reply.jobs]


async def test_one_that_is_held_waits_for_its_release():
    async with a_coordinator() as here:
        specs = [JobSpec([GroupSpec(command=["true"])], hold=hold) for hold in (True, False)]
        reply = await here.commands.apply(ApplyRequest(specs), "ada")
        assert [(await here.commands.job(job.id)).held for job in reply.jobs] == ["by ada", None]
        stage = StageSpec("a", specs[0])
        with pytest.raises(
            BadRequest, match=r"job\.hold: a stage begins when those before it have completed"
        ):
            await here.commands.submit_workflow(WorkflowRequest(WorkflowSpec([stage])), "ada")


async def test_one_that_is_wrong_refuses_all_and_is_named():
    async with a_coordinator() as here:
        with pytest.raises(PhalanxError, match=r"specs\[1\] \(train\): groups\[0\]\.cores"):
            await here.commands.apply(ApplyRequest([a_spec(), a_spec(cores=-1)]), "ada")
        assert here.leadership.state.jobs == {}


async def test_one_that_can_never_fit_refuses_all_and_is_named():
    async with a_coordinator() as here:
        with pytest.raises(NeverFits, match=r"specs\[1\] \(train\)"):
            await here.commands.apply(ApplyRequest([a_spec(), a_spec(gpus=9)], topology=ROWS), "ada")
        assert here.leadership.state.jobs == {}
        assert here.leadership.state.table.topology == DEFAULT


async def test_if_one_is_refused_after_all_the_others_are_taken_back(monkeypatch: pytest.MonkeyPatch):
    """Between the trial and the turn the cluster may have changed; here the trial is left out."""
    monkeypatch.setattr(Declarations, "_refuse_infeasible", lambda *_: None)
    async with a_coordinator() as here:
        with pytest.raises(NeverFits, match=r"specs\[1\] \(train\)"):
            await here.commands.apply(ApplyRequest([a_spec(), a_spec(gpus=9)]), "ada")
        assert [job.overall_status for job in here.leadership.state.jobs.values()] == [Status.CANCELLED]


async def test_what_can_never_fit_waits_if_that_is_allowed():
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([a_spec(gpus=9)], allow_infeasible=True), "ada")
        assert len(here.leadership.state.jobs) == 1


async def test_layers_that_come_with_a_job_hold_for_it():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(2, gpus=8, gather="row")], topology=ROWS)
        reply = await here.commands.apply(request, "ada")
        assert reply.topology_changed
        job = here.leadership.state.jobs[reply.jobs[0].id]
        rows = {
            here.leadership.state.nodes[attempt.node].capacity.labels["row"] for attempt in job.live.values()
        }
        assert len(job.live) == 2
        assert len(rows) == 1


async def test_a_gang_too_large_for_any_row_is_refused_before_the_layers_are_declared():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(3, gpus=8, gather="row")], topology=ROWS)
        with pytest.raises(NeverFits):
            await here.commands.apply(request, "ada")
        assert here.leadership.state.table.topology == DEFAULT


async def test_quotas_that_come_with_a_job_hold_for_it():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(2, gpus=8)], quotas={"default": QuotaSpec(gpus=8)})
        with pytest.raises(NeverFits) as refused:
            await here.commands.apply(request, "ada")
        assert refused.value.reason == "ExceedsQuotaMax"
        assert here.leadership.state.queues.quotas == {}
        reply = await here.commands.apply(ApplyRequest(quotas={"default": QuotaSpec(gpus=8)}), "ada")
        assert (reply.jobs, reply.quotas) == ([], ["default"])


async def test_a_preference_for_an_unknown_layer_is_a_warning_and_an_error_if_strict():
    spec = JobSpec([GroupSpec(command=["true"], tasks=2)], gang=True, gather=[GatherSpec("galaxy")])
    async with a_coordinator() as here:
        with pytest.raises(BadRequest, match="galaxy") as refused:
            await here.commands.apply(ApplyRequest([spec], strict=True), "ada")
        assert refused.value.reason == "StrictWarning"
        (warning,) = (await here.commands.apply(ApplyRequest([spec]), "ada")).warnings
        assert "galaxy" in warning


async def test_a_layer_in_the_wrong_letters_is_the_one_that_must_be_meant():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(2, gpus=8, gather="Row")], topology=ROWS)
        reply = await here.commands.apply(request, "ada")
        gang = here.leadership.state.jobs[reply.jobs[0].id].job.gang
        assert gang is not None
        assert gang.gather == (Gather("row", must=True),)
        assert "read as row" in reply.warnings[0]


async def test_asking_twice_under_one_id_submits_once():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(), a_spec(2)], request_id="once")
        first = await here.commands.apply(request, "ada")
        again = await here.commands.apply(request, "ada")
        assert again.replayed
        assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
        assert len(here.leadership.state.jobs) == 2


async def test_asking_twice_at_the_same_moment_submits_once():
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(), a_spec(2)], request_id="once")
        first, again = await asyncio.gather(*(here.commands.apply(request, "ada") for _ in range(2)))
        assert (first.replayed, again.replayed) == (False, True)
        assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
        assert [job.number for job in again.jobs] == [1, 2]


@pytest.mark.parametrize("specs", [[a_spec()], [a_spec(3), a_spec(2)]], ids=["fewer", "other"])
async def test_an_id_that_was_used_for_something_else_is_a_conflict(specs: list[JobSpec]):
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([a_spec(), a_spec(2)], request_id="once"), "ada")
        with pytest.raises(Conflict) as refused:
            await here.commands.apply(ApplyRequest(specs, request_id="once"), "ada")
        assert refused.value.reason == "RequestIdReused"


async def test_too_many_tasks_are_refused_together():
    async with a_coordinator(Timers(pending_max=5)) as here:
        with pytest.raises(TooMany):
            await here.commands.apply(ApplyRequest([a_spec(3), a_spec(3)]), "ada")
        assert here.leadership.state.jobs == {}


@pytest.mark.parametrize(
    ("quota", "code"),
    [
        (QuotaSpec(submitted=5), "QueueSubmitLimit"),
        (QuotaSpec(each_user=UserLimitsSpec(submitted=5)), "UserSubmitLimit"),
    ],
    ids=["of the queue", "of a user there"],
)
async def test_too_many_tasks_for_their_queue_are_refused_before_any_is_submitted(
    quota: QuotaSpec, code: str
):
    async with a_coordinator() as here:
        request = ApplyRequest([a_spec(3), a_spec(3)], quotas={"default": quota}, request_id="once")
        with pytest.raises(TooMany) as refused:
            await here.commands.apply(request, "ada")
        assert (refused.value.reason, here.leadership.state.jobs) == (code, {})
        more = ApplyRequest(request.specs, request_id="once")  # the same, when there is room
        assert len((await here.commands.apply(more, "ada")).jobs) == 2


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (ApplyRequest(), "nothing to apply"),
        (ApplyRequest([a_spec()] * 1001), "specs: 1001 are too many"),
        (ApplyRequest(quotas={"Bad Name": QuotaSpec(gpus=1)}), "quotas: 'Bad Name' is not a name"),
        (
            ApplyRequest(quotas={"a": QuotaSpec(priority_max=10**10)}),
            "quotas\\['a'\\].priority_max: 10000000000",
        ),
        (ApplyRequest([a_spec()], request_id=""), "request_id: '' cannot be used"),
        (
            ApplyRequest(topology=TopologySpec([LayerSpec("a", [])])),
            r"topology.layers\[0\].keys: there is none",
        ),
        (
            ApplyRequest(topology=TopologySpec([LayerSpec("a", ["x"]), LayerSpec("a", ["y"])])),
            r"topology.layers\[1\].name: 'a' is already",
        ),
        (ApplyRequest(topology=TopologySpec([LayerSpec("node", ["x"])])), "'node' is already the name of"),
        (
            ApplyRequest(topology=TopologySpec([LayerSpec(str(n), ["x"]) for n in range(17)])),
            "topology.layers: 17 are too many",
        ),
    ],
)
async def test_applications_that_make_no_sense(request_: ApplyRequest, says: str):
    async with a_coordinator() as here:
        with pytest.raises((BadRequest, Unprocessable), match=says):
            await here.commands.apply(request_, "ada")


async def test_a_quota_is_set_shown_and_lifted():
    async with a_coordinator() as here:
        view = await here.commands.set_quota("lab", QuotaSpec(gpus=8, memory="1TiB"), "ada")
        assert view.quota is not None
        assert (view.quota.gpus, view.quota.memory_bytes) == (8, 1 << 40)
        assert [queue.name for queue in await here.commands.queues()] == ["default", "lab"]
        assert (await here.commands.set_quota("lab", None, "ada")).quota is None
        with pytest.raises(NotFound, match="no queue 'lab'"):
            await here.commands.queue("lab")
        with pytest.raises(Unprocessable, match="gpus: -1"):
            await here.commands.set_quota("lab", QuotaSpec(gpus=-1), "ada")


async def test_a_queue_shows_what_it_holds_and_who_waits():
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([a_spec(4, gpus=8), a_spec(2, gpus=8)]), "ada")
        queue = await here.commands.queue("default")
        assert (queue.used.tasks, queue.used.gpus, queue.waiting) == (4, 32, 1)


async def test_layers_are_declared():
    async with a_coordinator() as here:
        assert (await here.commands.set_topology(ROWS, "ada")).changed
        again = await here.commands.set_topology(ROWS, "ada")
        assert (again.layers, again.changed) == (["cluster", "row", "node"], False)


async def test_a_gang_in_one_submission_is_placed_and_evicted():
    async with a_coordinator() as here:
        reply = await here.commands.submit(SubmitRequest(["true"], tasks=4, gpus=8), "ada")
        (id,) = reply.task_ids
        assert reply.accepted[0].tasks == 4
        done = await here.commands.evict(id, "ada")
        assert (done.id, done.evicted) == (id, 4)
        with pytest.raises(Conflict):
            await here.commands.evict(id, "ada")
        assert (await here.commands.task(f"{id}.2")).conditions[0].message == "phalanx: evicted by user ada"


async def test_one_member_is_evicted_by_its_own_id():
    async with a_coordinator() as here:
        reply = await here.commands.submit(SubmitRequest(["true"], tasks=4, gpus=8), "ada")
        id = f"{reply.task_ids[0]}.2"
        done = await here.commands.evict(id, "ada")
        assert (done.id, done.evicted) == (id, 1)
        assert (await here.commands.task(id)).conditions[0].reason == "EvictionByEvictionAPI"


async def test_a_gang_that_can_never_fit_is_refused_with_a_fix():
    async with a_coordinator() as here:
        with pytest.raises(NeverFits):
            await here.commands.submit(SubmitRequest(["true"], tasks=5, gpus=8), "ada")


def a_draft(members: int = 1, lacks: str = "default/g needs 2 members and has 1") -> JobSpec:
    group = GroupSpec(command=["true"], tasks=members, objects=[f"default/p{n}" for n in range(members)])
    return JobSpec([group], gang=GangSpec(id="default/g"), draft=DraftSpec(lacks, "kept") if lacks else None)


async def test_a_gang_that_lacks_members_waits_with_its_reason_until_it_is_amended():
    """M11."""
    async with a_coordinator() as here:
        (job,) = (await here.commands.apply(ApplyRequest([a_draft()]), "ada")).jobs
        why = await here.commands.why(job.id)
        assert (why.status, why.dominant.code, why.dominant.tier) == ("Pending", "GangIncomplete", "held")
        assert "needs 2 members and has 1" in why.dominant.text
        assert (await here.commands.job(job.id)).held == "default/g needs 2 members and has 1"
        draft = await here.commands.draft(job.id)
        assert (draft.version, draft.manifests) == (0, "kept")
        amends = AmendSpec(job.id, draft.version)
        request = ApplyRequest([a_draft(2, "")], amends=amends, request_id="once")
        assert (await here.commands.apply(request, "ada")).jobs[0].id == job.id
        assert (await here.commands.apply(request, "ada")).replayed  # its answer was lost, say
        assert here.leadership.state.jobs[job.id].job.tasks == 2
        assert len(here.leadership.state.jobs) == 1
        with pytest.raises(NotFound, match="waits for no members"):
            await here.commands.draft(job.id)
        with pytest.raises(Conflict, match="not waiting for members"):
            await here.commands.apply(ApplyRequest([a_draft(2, "")], amends=amends), "ada")


async def test_only_one_gang_is_amended_at_a_time_and_only_a_gang_waits_for_members():
    async with a_coordinator() as here:
        with pytest.raises(BadRequest, match="amends: given with 2 specs"):
            await here.commands.apply(ApplyRequest([a_spec(), a_spec()], amends=AmendSpec("x", 0)), "ada")
        with pytest.raises(BadRequest, match="draft: given without a gang"):
            await here.commands.apply(ApplyRequest([JobSpec([TRUE], draft=DraftSpec("more"))]), "ada")


def an_object(digest: str = "1", *, name: str = "default/a", command: str = "true") -> JobSpec:
    group = GroupSpec(command=[command], objects=[name])
    return JobSpec([group], name="a", object=name, applied={f"Pod {name}": digest})


async def test_objects_applied_at_the_same_moment_make_one_job():
    async with a_coordinator() as here:
        requests = (here.commands.apply(ApplyRequest([an_object()]), "ada") for _ in range(5))
        replies = await asyncio.gather(*requests)
        assert len(here.leadership.state.jobs) == 1
        assert {reply.jobs[0].id for reply in replies} == set(here.leadership.state.jobs)
        assert sorted(reply.jobs[0].unchanged for reply in replies) == [False, True, True, True, True]


async def test_objects_that_came_with_another_content_at_the_same_moment_are_refused():
    async with a_coordinator() as here:
        specs = [an_object("1"), an_object("2", command="other")]
        requests = (here.commands.apply(ApplyRequest([spec, a_spec()]), "ada") for spec in specs)
        _, refused = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(refused, Conflict)
        assert refused.reason == "AppliedOtherwise"
        assert "command" in refused.detail
        ends = [job.overall_status for job in here.leadership.state.jobs.values()]
        assert ends.count(Status.CANCELLED) == 1  # what else it asked for is taken back
        assert len(ends) == 3


async def test_a_gang_that_is_whole_takes_no_more_objects():
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([an_object("1")]), "ada")
        more = structs.replace(an_object("1"), applied={"Pod default/a": "1", "Pod default/b": "2"})
        with pytest.raises(Conflict) as refused:
            await here.commands.apply(ApplyRequest([more]), "ada")
        assert refused.value.reason == "GangWhole"


async def test_objects_that_ask_for_the_same_in_other_words_are_unchanged():
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([an_object("1")]), "ada")
        (again,) = (await here.commands.apply(ApplyRequest([an_object("2")]), "ada")).jobs
        assert (again.unchanged, len(here.leadership.state.jobs)) == (True, 1)


async def test_an_answer_is_replayed_with_what_was_unchanged():
    async with a_coordinator() as here:
        await here.commands.apply(ApplyRequest([an_object()]), "ada")
        request = ApplyRequest([an_object(), an_object(name="default/b"), a_spec()], request_id="r1")
        first = await here.commands.apply(request, "ada")
        again = await here.commands.apply(request, "ada")
        assert [job.unchanged for job in first.jobs] == [True, False, False]
        assert (again.replayed, again.jobs) == (True, first.jobs)
        with pytest.raises(Conflict, match="another request"):
            await here.commands.apply(structs.replace(request, specs=[an_object(), a_spec()]), "ada")


async def test_what_is_unchanged_needs_no_room_in_a_full_queue():
    async with a_coordinator(Timers(pending_max=1)) as here:
        spec = structs.replace(
            an_object(), groups=[GroupSpec(command=["true"], gpus=9, objects=["default/a"])]
        )
        for is_known in (False, True):
            reply = await here.commands.apply(ApplyRequest([spec], allow_infeasible=True), "ada")
            assert reply.jobs[0].unchanged is is_known


@pytest.mark.parametrize("applied", [{"": "1"}, {"a b": "1"}, {"Pod Default/a": "1"}, {"1 default/a": "1"}])
async def test_what_is_no_object_is_refused(applied: dict[str, str]):
    async with a_coordinator() as here:
        with pytest.raises(BadRequest, match="applied"):
            await here.commands.apply(ApplyRequest([structs.replace(a_spec(), applied=applied)]), "ada")


async def test_objects_for_a_gang_that_is_not_there_are_refused():
    async with a_coordinator() as here:
        request = ApplyRequest([an_object()], amends=AmendSpec("01hzx5k3m9qwertyasdfghzxcv", 0))
        with pytest.raises(Conflict, match="not waiting for members"):
            await here.commands.apply(request, "ada")
