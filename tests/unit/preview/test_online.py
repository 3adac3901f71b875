"""What a coordinator answers about jobs that were not submitted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.apply import Called, PlanReply, PlanRequest
from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import StageSpec, TaskProgram, WorkflowSpec
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.declarations import Declarations
from phalanx.coordinator.environment_keys import EnvironmentKeys
from phalanx.coordinator.environments import SealedJobs
from phalanx.coordinator.workflows import WorkflowCommands
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.model.queues import Quota
from phalanx.errors import BadRequest, PhalanxError, TooMany
from tests.support.builders import Cluster, a_cluster, a_job


def asking(cluster: Cluster) -> Declarations:
    loop: Any = SimpleNamespace(engine=cluster.engine, state=cluster.state)
    clock: Any = SimpleNamespace(now=lambda: cluster.now, monotonic=lambda: cluster.now)
    store: Any = None  # nothing is looked up
    feed: Any = None
    slices = TimeSlices(clock)
    sealing = SealedJobs(EnvironmentKeys(("secret",)))
    flows = WorkflowCommands(loop, store, feed, clock, slices, {"echo": TaskProgram(["/bin/echo"])}, sealing)
    return Declarations(loop, store, clock, 3, slices, flows, sealing)


def answered(cluster: Cluster, request: PlanRequest) -> PlanReply:
    return asyncio.run(asking(cluster).plan(request, "ada"))


def a_spec(tasks: int = 1, name: str = "", **fields: Any) -> JobSpec:
    group = GroupSpec(tasks=tasks, command=["/bin/true"], **fields)
    return JobSpec([group], name=name, gang=tasks > 1)


def test_specs_are_planned_and_called_by_their_names():
    cluster = a_cluster(n1={"cores": 4})
    reply = answered(cluster, PlanRequest([a_spec(2, "train"), a_spec()]))
    assert [(each.task, each.node) for each in reply.placements] == [
        ("train.0", "n1"),
        ("train.1", "n1"),
        ("specs[1]", "n1"),
    ]
    assert (reply.exit, len(cluster.state.jobs)) == (0, 0)


def test_names_may_be_given():
    names = [Called("default/g", ["default/p-a", "default/p-b"])]
    reply = answered(a_cluster(n1={"cores": 4}), PlanRequest([a_spec(2)], names=names))
    assert [each.task for each in reply.placements] == ["default/p-a", "default/p-b"]


def test_a_submission_is_planned_for_each_of_its_targets():
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    request = SubmitRequest(command=["/bin/train"], targets=["n1", "n2"], cores=4)
    reply = answered(cluster, PlanRequest(submit=request))
    assert [(each.task, each.node) for each in reply.placements] == [("train@n1", "n1"), ("train@n2", "n2")]


def test_a_plan_changes_nothing():
    cluster = a_cluster(n1={"cores": 4})
    before = encode_state(cluster.state)
    answered(cluster, PlanRequest([a_spec(9, "too-many"), a_spec(cores=99)]))
    assert encode_state(cluster.state) == before


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (PlanRequest(), "nothing to plan"),
        (PlanRequest([a_spec()] * 101), "specs"),
        (PlanRequest([a_spec()], names=[Called("a"), Called("b")]), "names: 2 are given for 1"),
        (PlanRequest([a_spec(2)], names=[Called("a", ["x"])]), "names[0].tasks: 1 names for 2 tasks"),
        (PlanRequest([a_spec(), a_spec(cores=-1, name="bad")]), "specs[1] (bad): "),
        (PlanRequest(submit=SubmitRequest(command=["x"], targets=["N!"])), "N!"),
    ],
)
def test_what_cannot_be_planned_is_refused(request_: PlanRequest, word: str):
    with pytest.raises(PhalanxError) as caught:
        answered(a_cluster(n1={"cores": 4}), request_)
    assert word in caught.value.detail


def test_the_map_is_that_of_the_state():
    cluster = Cluster()
    cluster.add_node("n1", labels={"rack": "r1"}, cores=4)
    view = asyncio.run(asking(cluster).topology())
    assert [(each.name, each.domain, each.open) for each in view.nodes] == [("n1", ["r1"], True)]


def test_a_layer_in_other_letters_is_understood_and_told():
    cluster = Cluster()
    cluster.add_node("n1", labels={"rack": "r1"}, cores=4)
    group = GroupSpec(tasks=2, command=["x"])
    reply = answered(
        cluster, PlanRequest([JobSpec([group], gang=True, gather=[GatherSpec("Rack", must=True)])])
    )
    assert (reply.exit, len(reply.warnings)) == (0, 1)
    assert "it is read as rack" in reply.warnings[0]


def test_a_submission_that_prefers_an_unknown_layer_is_told():
    options = SubmitRequest(command=["true"], tasks=2, gather=[GatherSpec("racks")])
    reply = answered(a_cluster(n1={"cores": 4}), PlanRequest(submit=options))
    assert (reply.exit, len(reply.warnings)) == (0, 1)
    assert "did you mean rack?" in reply.warnings[0]


def test_what_a_queue_would_not_take_is_refused_as_at_submit():
    cluster = a_cluster(n1={"cores": 4})
    cluster.give(SetQuota("lab", Quota(submitted=3)))
    few = SubmitRequest(command=["true"], array="1-3", queue="lab")
    assert answered(cluster, PlanRequest(submit=few)).exit == 0
    with pytest.raises(TooMany) as caught:
        answered(cluster, PlanRequest([structs.replace(a_spec(each), queue="lab") for each in (1, 3)]))
    assert caught.value.reason == "QueueSubmitLimit"
    assert caught.value.detail.startswith("specs[1]: ")


def test_what_would_have_to_wait_is_told_to_be_refused_without_a_queue():
    cluster = a_cluster(n1={"cores": 4})
    now = SubmitRequest(command=["true"], cores=3, no_queue=True)
    assert answered(cluster, PlanRequest(submit=now)).warnings == []
    cluster.submit(a_job(cores=3))
    for priority in (0, 9):
        later = SubmitRequest(command=["true"], cores=3, no_queue=True, priority=priority)
        reply = answered(cluster, PlanRequest(submit=later))
        assert (reply.exit, len(reply.warnings)) == (3, 1)
    with pytest.raises(BadRequest):
        answered(cluster, PlanRequest(submit=SubmitRequest(command=["true"], array="1-2", no_queue=True)))


def test_jobs_of_files_that_are_held_are_planned_so():
    held = structs.replace(a_spec(name="later"), hold=True)
    reply = answered(a_cluster(n1={"cores": 4}), PlanRequest([held, a_spec(name="now")]))
    assert ([each.task for each in reply.placements], reply.exit) == (["now"], 3)
    assert [(no.job, no.code) for no in reply.reasons] == [("later", "Held")]


def a_flow(*stages: StageSpec, **fields: Any) -> PlanRequest:
    return PlanRequest(workflows=[WorkflowSpec(list(stages), "nightly", **fields)])


class TestWorkflows:
    """A plan says of a workflow what its submission would be told, and where its first stages would go."""

    def test_the_first_stages_are_planned_and_the_rest_is_counted(self) -> None:
        cluster = a_cluster(n1={"cores": 4})
        stages = StageSpec("a", a_spec()), StageSpec("b", a_spec()), StageSpec("c", a_spec(), after=["a"])
        before = encode_state(cluster.state)
        reply = answered(cluster, a_flow(*stages))
        assert [(each.task, each.node) for each in reply.placements] == [
            ("nightly:a", "n1"),
            ("nightly:b", "n1"),
        ]
        [found] = reply.workflows
        assert (found.name, found.stages, found.begins, found.unknown) == ("nightly", 3, 2, ["a", "b", "c"])
        assert reply.exit == 0
        assert encode_state(cluster.state) == before

    def test_a_later_stage_that_fits_nowhere_is_told(self) -> None:
        stages = StageSpec("a", a_spec()), StageSpec("b", a_spec(cores=64), after=["a"])
        reply = answered(a_cluster(n1={"cores": 4}), a_flow(*stages))
        [no] = reply.reasons
        assert (no.job, no.code, reply.exit) == ("nightly:b", "ExceedsLargestNode", 4)
        assert reply.placements == []

    def test_a_task_type_without_an_executor_is_refused(self) -> None:
        stage = StageSpec("a", JobSpec([GroupSpec()]), task_type="diffusion")
        with pytest.raises(PhalanxError, match="no executor is declared for 'diffusion'") as caught:
            answered(a_cluster(n1={"cores": 4}), a_flow(stage))
        assert caught.value.hint.startswith("executors are declared for: echo")

    def test_a_limit_that_may_not_be_kept_is_warned_of(self) -> None:
        reply = answered(
            a_cluster(n1={"cores": 4}), a_flow(StageSpec("a", a_spec()), deadline="1h", budget=2.5)
        )
        [warning] = reply.workflows[0].warnings
        assert "no earlier run and no time limit is known of a" in warning

    @pytest.mark.parametrize(
        ("limits", "told"),
        [
            ({"deadline": "2001-01-01T00:00:00"}, "is not a time with its zone"),
            ({"deadline": "1960-01-01T00:00:00Z"}, "has passed"),
            ({"deadline": "soon"}, "deadline: "),
            ({"deadline": -1.0}, "deadline: "),
            ({"budget": -1.0}, "budget: "),
            ({"budget": float("inf")}, "budget: "),
        ],
    )
    def test_limits_that_mean_nothing_are_refused(self, limits: dict[str, Any], told: str) -> None:
        with pytest.raises(PhalanxError, match=told):
            answered(a_cluster(n1={"cores": 4}), a_flow(StageSpec("a", a_spec()), **limits))

    def test_so_many_at_once_are_too_many(self) -> None:
        flow = WorkflowSpec([StageSpec("a", a_spec())])
        with pytest.raises(PhalanxError, match="workflows: "):
            answered(a_cluster(n1={"cores": 4}), PlanRequest(workflows=[flow] * 11))
        wide = WorkflowSpec([StageSpec(f"s{number}", a_spec()) for number in range(5001)])
        with pytest.raises(PhalanxError, match="stages of workflows: "):
            answered(a_cluster(n1={"cores": 4}), PlanRequest(workflows=[wide, wide]))


def a_stage(
    name: str, *after: str, task_type: str = "", command: str = "/bin/true", **fields: Any
) -> StageSpec:
    group = GroupSpec(command=[] if task_type else [command], **fields)
    return StageSpec(name, JobSpec([group]), list(after), task_type=task_type)


def test_the_first_stages_of_a_workflow_are_planned_and_the_others_are_checked():
    flow = WorkflowSpec(
        [
            a_stage("a", task_type="echo"),
            a_stage("b", "a", cores=99),
            a_stage("c", "b"),
            a_stage("d", env={"X": "${c.result.x}"}),  # it waits for c by its reference
            a_stage("e", "b", gpus=1),
        ],
        "ft",
    )
    reply = answered(a_cluster(n1={"cores": 4}), PlanRequest([a_spec(name="plain")], workflows=[flow]))
    assert [(each.task, each.node) for each in reply.placements] == [("plain", "n1")]
    assert [(each.job, each.tier, each.dominant) for each in reply.reasons] == [
        ("ft:b", "never", True),
        ("ft:e", "never", True),
    ]
    assert reply.exit == 4


def test_a_first_stage_that_never_fits_is_told_once():
    flow = WorkflowSpec([a_stage("a", cores=99)])
    reply = answered(a_cluster(n1={"cores": 4}), PlanRequest(workflows=[flow]))
    assert [each.job for each in reply.reasons if each.dominant] == ["workflow:a"]


def test_what_a_submission_refuses_a_plan_refuses_too():
    flow = WorkflowSpec([a_stage("a"), a_stage("b", "a", task_type="unknown")])
    with pytest.raises(PhalanxError) as refused:
        answered(a_cluster(n1={"cores": 4}), PlanRequest(workflows=[WorkflowSpec([a_stage("x")]), flow]))
    assert refused.value.reason == "UnknownTaskType"
    assert refused.value.detail.startswith("workflows[1]: stages[1] (b): task_type: no executor is declared")
    assert "executors are declared for: echo" in refused.value.hint
