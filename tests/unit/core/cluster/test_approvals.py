"""Jobs of a queue that asks for it wait for an approval, and whoever may give it decides about them once."""

from __future__ import annotations

from msgspec import msgpack, structs

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.change_events import NO_LIMIT
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.events import JobAmended, JobSubmitted, decode, encode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import (
    Approve,
    ApproveWorkflow,
    Cancel,
    SetQuota,
    Submit,
    SubmitWorkflow,
    Tick,
    Update,
)
from phalanx.core.model.job import IncompleteGang, Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import Approval, Quota
from phalanx.core.model.workflow import Stage, Workflow
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

LAB = Quota(approval=Approval(by=("carol",)))


def lab(quota: Quota = LAB, gpus: int = 1) -> Cluster:
    cluster = a_cluster(n1={"cores": 8, "gpus": gpus})
    cluster.give(SetQuota("lab", quota))
    return cluster


def bobs(**fields: object) -> Job:
    return a_job(None, array=None, queue="lab", user="bob", **fields)


def submitted(cluster: Cluster, job: Job, role: str = "user") -> Answer | None:
    return cluster.give(Submit(job, role=role))[0]


def approve(cluster: Cluster, job: Job, user: str, role: str = "user", *, yes: bool = True) -> str:
    [answer] = cluster.give(Approve(job.id, yes, user, role, "" if yes else "too long"))
    return "" if isinstance(answer, Accepted) else code(answer)


def code(answer: object) -> str:
    assert isinstance(answer, Refused)
    return f"{answer.kind} {answer.reason.code}"


def dominant(cluster: Cluster, job: Job) -> str:
    return why_reply(cluster.state, cluster.state.jobs[job.id], None, cluster.now).dominant.code


def test_a_job_waits_until_one_who_may_approves_it():
    cluster, job = lab(), bobs()
    assert submitted(cluster, job) == Accepted(1)
    assert cluster.status(job) == Status.PENDING
    assert dominant(cluster, job) == "WaitingApproval"
    assert approve(cluster, job, "bob") == "forbidden NotApprover"
    assert approve(cluster, job, "eve") == "forbidden NotApprover"
    assert cluster.status(job) == Status.PENDING
    assert approve(cluster, job, "carol") == ""
    assert cluster.status(job) == Status.ASSIGNED
    assert approve(cluster, job, "carol") == "conflict NotWaitingApproval"


def test_nobody_approves_their_own_and_operators_need_no_approval():
    cluster = lab()
    carols = structs.replace(bobs(), user="carol")
    submitted(cluster, carols)
    assert approve(cluster, carols, "carol") == "forbidden NotApprover"
    assert approve(cluster, carols, "oscar", "operator") == ""
    operators = structs.replace(bobs(), user="oscar")
    submitted(cluster, operators, "operator")
    assert cluster.status(operators) == Status.ASSIGNED


def test_an_approval_gives_out_nothing_twice():
    """The device was given to another while the job waited: it is asked for again when the job is placed."""
    cluster = lab(gpus=1)
    first, second = bobs(gpus=1), a_job(gpus=1)
    submitted(cluster, first)
    cluster.submit(second)
    assert approve(cluster, first, "carol") == ""
    assert (cluster.status(first), cluster.status(second)) == (Status.PENDING, Status.ASSIGNED)
    assert dominant(cluster, first) == "WaitingCapacity"


def test_a_denied_job_is_cancelled_and_says_by_whom_and_why():
    cluster, job = lab(), bobs()
    submitted(cluster, job)
    assert approve(cluster, job, "carol", yes=False) == ""
    assert cluster.status(job) == Status.CANCELLED
    reply = why_reply(cluster.state, cluster.state.jobs[job.id], None, cluster.now)
    assert "denied by carol: too long" in reply.dominant.text
    assert approve(cluster, job, "carol") == "conflict NotWaitingApproval"


def test_its_user_may_cancel_it_meanwhile():
    cluster, job = lab(), bobs()
    submitted(cluster, job)
    cluster.give(Cancel(job.id))
    assert cluster.status(job) == Status.CANCELLED
    assert cluster.state.unapproved == {}


def test_it_is_cancelled_if_nobody_approves_it_in_time():
    cluster, job = lab(Quota(approval=Approval(within_s=60.0))), bobs()
    job = structs.replace(job, submitted_at=cluster.now)
    submitted(cluster, job)
    cluster.now += 59.0
    cluster.give(Tick())
    assert cluster.status(job) == Status.PENDING
    cluster.now += 2.0
    cluster.give(Tick())
    assert cluster.status(job) == Status.CANCELLED
    assert cluster.state.jobs[job.id].details[0][0] == "nobody approved it within 1m"


def test_a_gang_is_approved_whole_and_cannot_start_at_once():
    cluster, gang = lab(), a_gang(a_group(2, cores=1), queue="lab", user="bob")
    submitted(cluster, gang)
    assert cluster.state.jobs[gang.id].live == {}
    assert approve(cluster, gang, "carol") == ""
    assert len(cluster.state.jobs[gang.id].live) == 2
    [answer] = cluster.give(Submit(bobs(), no_queue=True, role="user"))
    assert code(answer) == "bad WaitingApproval"


def test_a_workflow_is_approved_as_a_whole_once():
    cluster = lab()
    stages = (Stage("a", bobs()), Stage("b", bobs(), after=(0,)))
    flow = Workflow("w1", stages, 0.0, user="bob")
    cluster.give(SubmitWorkflow(flow, role="user"))
    first = cluster.state.workflows["w1"].job_id(0)
    assert cluster.state.jobs[first].status[0] == Status.PENDING
    [answer] = cluster.give(ApproveWorkflow("w1", True, "eve", "user"))
    assert code(answer) == "forbidden NotApprover"
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.workflows["w1"].unapproved
    assert list(again.unapproved) == [first]
    cluster.give(ApproveWorkflow("w1", True, "carol", "user"))
    assert cluster.state.jobs[first].status[0] == Status.ASSIGNED
    cluster.started("n1", (first, 0, 1))
    cluster.ended("n1", (first, 0, 1))
    second = cluster.state.workflows["w1"].job_id(1)
    assert cluster.state.jobs[second].status[0] == Status.ASSIGNED, "it does not wait again"


def test_a_denied_workflow_is_cancelled():
    cluster = lab()
    flow = Workflow("w1", (Stage("a", bobs()), Stage("b", bobs(), after=(0,))), 0.0, user="bob")
    cluster.give(SubmitWorkflow(flow, role="user"))
    cluster.give(ApproveWorkflow("w1", False, "carol", "user", "no"))
    assert cluster.state.workflows["w1"].is_over


def test_a_submission_of_an_older_version_needs_no_approval():
    [event] = decode(encode([JobSubmitted(at=1.0, job=bobs())]))
    assert isinstance(event, JobSubmitted)
    assert event.approve_by is None


def test_members_that_came_in_an_older_version_keep_what_the_gang_waited_for():
    old = JobAmended(at=1.0, job=bobs(), request_id="r")
    written = msgpack.decode(encode([old]))[0][:-1]
    [event] = decode(msgpack.encode([written]))
    assert event == old


def test_a_job_that_is_moved_into_the_queue_waits_too_and_counts_there():
    cluster, job = lab(), a_job(user="bob", cores=99)
    cluster.submit(job, allow_infeasible=True)
    [answer] = cluster.give(Update(job.id, "bob", queue="lab", role="user"))
    assert answer == Accepted(1)
    assert dominant(cluster, job) == "WaitingApproval"
    assert cluster.state.queues.submitted_by == {("lab", "bob"): 1}
    cluster.give(SetQuota("full", Quota(submitted=0)), SetQuota("hers", Quota(users=("ada",))))
    assert (
        code(cluster.give(Update(job.id, "bob", queue="full", role="user"))[0]) == "too_many QueueSubmitLimit"
    )
    assert (
        code(cluster.give(Update(job.id, "bob", queue="hers", role="user"))[0]) == "forbidden QueueNotAllowed"
    )
    cluster.give(Update(job.id, "bob", queue="default", role="user"))
    assert cluster.state.unapproved == {}


def a_draft(members: int = 1, queue: str = "default") -> Job:
    return a_gang(a_group(members), draft=IncompleteGang("a member"), user="bob", queue=queue)


def with_members(draft: Job, members: int, queue: str) -> Submit:
    more = structs.replace(a_draft(members, queue), id=draft.id, draft=None)
    return Submit(more, role="user", amends=0)


def test_an_approved_gang_to_which_members_come_waits_for_another_approval():
    cluster, draft = lab(), a_draft(queue="lab")
    submitted(cluster, draft)
    assert approve(cluster, draft, "carol") == ""
    cluster.give(with_members(draft, 4, queue="lab"))
    assert dominant(cluster, draft) == "WaitingApproval"
    assert approve(cluster, draft, "carol") == ""


def test_a_gang_that_its_members_bring_into_the_queue_waits_there_and_is_counted_whole():
    cluster, draft = lab(), a_draft(2)
    submitted(cluster, draft)
    cluster.give(SetQuota("few", Quota(submitted=2)))
    assert code(cluster.give(with_members(draft, 3, queue="few"))[0]) == "too_many QueueSubmitLimit"
    cluster.give(with_members(draft, 3, queue="lab"))
    assert dominant(cluster, draft) == "WaitingApproval"
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.jobs[draft.id].approve_by == cluster.state.jobs[draft.id].approve_by


def test_members_that_come_to_a_gang_that_waits_change_nothing_about_until_when():
    cluster = lab(Quota(approval=Approval(within_s=60.0)))
    draft = a_draft(queue="lab")
    submitted(cluster, draft)
    until = cluster.state.jobs[draft.id].approve_by
    cluster.now += 30.0
    cluster.give(with_members(draft, 4, queue="lab"))
    assert cluster.state.jobs[draft.id].approve_by == until is not None


def test_an_approved_job_is_made_longer_by_operators_alone():
    cluster, job = lab(), bobs(time_limit_s=60.0)
    submitted(cluster, job)

    def update(limit_s: float, role: str = "user") -> object:
        return cluster.give(Update(job.id, "bob", time_limit_s=limit_s, role=role))[0]

    assert update(120.0) == Accepted(1), "those who approve it see that"
    approve(cluster, job, "carol")
    for longer in (121.0, NO_LIMIT):
        assert code(update(longer)) == "forbidden ApprovedShorter"
    assert update(90.0) == Accepted(1)
    assert update(600.0, "operator") == Accepted(1)
