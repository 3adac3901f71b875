"""What is offered at a closed gate opens it, and only to those who may: the cluster is given what is offered."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import Fix
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decision import Accepted
from phalanx.core.cluster.inputs import (
    Approve,
    ApproveWorkflow,
    Hold,
    ReleaseJob,
    SetQuota,
    Submit,
    SubmitWorkflow,
    Update,
)
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import Approval, Quota
from phalanx.core.model.workflow import Stage, Workflow
from tests.support.builders import Cluster, a_cluster, a_job

ADA, BO, CAROL = Asker("ada"), Asker("bo"), Asker("carol")
OP = Asker("op", controls_all=True, operates=True)


def fix_of(cluster: Cluster, job: Job, asker: Asker) -> Fix | None:
    state, memory = cluster.state, cluster.engine.memory
    return why_reply(state, state.jobs[job.id], None, cluster.now, memory=memory, asker=asker).fix


def command(cluster: Cluster, job: Job, asker: Asker) -> str:
    fix = fix_of(cluster, job, asker)
    return "" if fix is None else fix.command


@pytest.mark.parametrize(
    ("holder", "asker", "is_offered"),
    [("ada", ADA, True), ("ada", OP, True), ("ada", BO, False), ("op", ADA, False), ("op", OP, True)],
)
def test_a_release_is_offered_to_those_whose_release_ends_the_hold(
    holder: str, asker: Asker, is_offered: bool
):
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(user="ada")
    cluster.give(Submit(job, hold=True))
    if holder != "ada":
        cluster.give(Hold(job.id, holder, "look at it", is_operator=True))
    assert command(cluster, job, asker) == (f"phalanx release {job.id}" if is_offered else "")
    fix = fix_of(cluster, job, asker)
    assert fix is not None
    assert is_offered == (holder not in fix.text), "who may not is told whom to ask"
    if asker is not BO:  # whom the route refuses
        released = cluster.give(ReleaseJob(job.id, asker.user, asker.controls_all))[0]
        assert isinstance(released, Accepted) == is_offered
        assert (cluster.status(job) == Status.ASSIGNED) == is_offered


def test_what_waits_of_a_job_that_runs_in_part_is_released_so():
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-2", user="ada")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    cluster.give(Hold(job.id, "ada"))
    assert command(cluster, job, ADA) == f"phalanx release {job.id}"
    cluster.give(ReleaseJob(job.id, "ada"))
    cluster.give(Update(job.id, "ada", begin_at=1000.0))
    assert command(cluster, job, ADA) == f"phalanx update {job.id} --begin now"


@pytest.mark.parametrize(("asker", "is_offered"), [(ADA, True), (ADMIN, True), (BO, False)])
def test_a_job_with_a_time_is_let_begin_by_those_who_may_change_it(asker: Asker, is_offered: bool):
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(user="ada", begin_at=1000.0)
    cluster.submit(job)
    offered = f"phalanx update {job.id} --begin now"
    assert command(cluster, job, asker) == (offered if is_offered else "")
    cluster.give(Update(job.id, "ada", begin_at=0.0))
    assert cluster.status(job) == Status.ASSIGNED


@pytest.mark.parametrize(
    ("asker", "role"), [(ADA, "user"), (BO, "user"), (CAROL, "user"), (OP, "operator"), (Asker(), "viewer")]
)
def test_an_approval_is_offered_to_approvers(asker: Asker, role: str):
    cluster = a_cluster(n1={"cores": 1})
    cluster.give(SetQuota("lab", Quota(approval=Approval(by=("ada", "carol")))))
    job = a_job(user="ada", queue="lab")
    cluster.give(Submit(job, role="user"))
    offered = command(cluster, job, asker)
    approved = cluster.give(Approve(job.id, True, asker.user, role))[0]
    assert offered == (f"phalanx approve {job.id}" if isinstance(approved, Accepted) else "")


@pytest.mark.parametrize(("other", "whole"), [("lab", True), ("default", True), ("hall", False)])
def test_a_workflow_is_approved_as_a_whole_by_those_who_may(other: str, whole: bool):
    cluster = a_cluster(n1={"cores": 1})
    cluster.give(SetQuota("lab", Quota(approval=Approval(by=("carol",)))))
    cluster.give(SetQuota("hall", Quota(approval=Approval(by=("dan",)))))
    stages = (
        Stage("a", a_job(user="ada", queue="lab")),
        Stage("b", a_job(user="ada", queue=other), after=(0,)),
    )
    cluster.give(SubmitWorkflow(Workflow("w1", stages, 0.0, user="ada"), role="user"))
    job = cluster.state.jobs[cluster.state.workflows["w1"].job_id(0)].job
    assert command(cluster, job, CAROL) == f"phalanx approve {'w1' if whole else job.id}"
    approved = cluster.give(ApproveWorkflow("w1", True, "carol", "user"))[0]
    assert isinstance(approved, Accepted) == whole


def test_who_may_not_approve_is_told_whom_to_ask_for_what():
    cluster = a_cluster(n1={"cores": 2})
    cluster.give(SetQuota("lab", Quota(approval=Approval(by=("carol", "ada")))))
    job = a_job(user="ada", queue="lab")
    cluster.give(Submit(job, role="user"))
    fix = fix_of(cluster, job, ADA)
    assert fix is not None
    told = f"ask carol, an operator or an admin to approve it: `phalanx approve {job.id}`"
    assert (fix.text, fix.command) == (told, "")


def test_a_higher_limit_is_offered_only_where_there_is_room_for_more():
    for cores, is_offered in ((2, True), (1, False)):
        cluster = a_cluster(n1={"cores": cores})
        job = a_job(array="1-3%1", user="ada")
        cluster.submit(job)
        state, memory = cluster.state, cluster.engine.memory
        reply = why_reply(state, state.jobs[job.id], 2, cluster.now, memory=memory, asker=ADA)
        assert reply.dominant.code == "ArrayLimit"
        assert (reply.fix is not None) == is_offered
        if reply.fix is not None:
            assert reply.fix.command == f"phalanx update {job.id} --limit 2"
            assert cluster.give(Update(job.id, "ada", at_once=2)) == [Accepted(3)]
            assert cluster.status(job, 1) == Status.ASSIGNED


def test_a_begin_that_has_passed_keeps_no_fix_back():
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=4))
    cluster.give(SetQuota("lab", Quota(cores=1)))
    cluster.submit(a_job(queue="lab", priority=1, may_evict=False))
    cluster.submit(a_job(queue="lab", priority=1, may_evict=False))  # waits ahead of it
    job = a_job(cores=8, begin_at=50.0, user="ada")
    cluster.submit(job)
    fix = fix_of(cluster, job, ADA)
    assert fix is not None
    assert fix.change == {"cores": 3}
