"""Who may use a queue, and what one user may hold and submit there: others are never held up by it."""

from __future__ import annotations

import pytest

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import (
    Cancel,
    CancelWorkflow,
    Drain,
    Propose,
    ProposeGang,
    RetryWorkflow,
    SetQuota,
    Submit,
    SubmitWorkflow,
    Undrain,
)
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.plan import GangPlacement, Placement
from phalanx.core.model.queues import Quota, UserLimits
from phalanx.core.model.resources import Grant
from phalanx.core.model.workflow import Stage, Workflow
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job
from tests.support.quota_command import quota_set

LAB = Quota(each_user=UserLimits(running=2, gpus=2))


def lab(quota: Quota = LAB, *, cores: int = 64, gpus: int = 8) -> Cluster:
    cluster = a_cluster(n1={"cores": cores, "gpus": gpus})
    cluster.give(SetQuota("lab", quota))
    return cluster


def of(user: str, *, array: str | None = None, **fields: object) -> Job:
    return a_job(None, array=array, queue="lab", user=user, cores=1, **fields)


def code(answer: object) -> str:
    assert isinstance(answer, Refused)
    return f"{answer.kind} {answer.reason.code}"


def dominant(cluster: Cluster, job: Job) -> str:
    state = cluster.state
    return why_reply(state, state.jobs[job.id], None, cluster.now).dominant.code


def test_a_user_at_his_limit_waits_and_nobody_behind_him_does():
    cluster = lab()
    bobs = [of("bob") for _ in range(4)]
    adas = [of("ada") for _ in range(3)]
    for job in (*bobs, *adas):
        cluster.submit(job)
    assert [cluster.status(job) for job in bobs[:3]] == [Status.ASSIGNED, Status.ASSIGNED, Status.PENDING]
    assert [cluster.status(job) for job in adas] == [Status.ASSIGNED, Status.ASSIGNED, Status.PENDING]
    assert dominant(cluster, bobs[3]) == "UserLimitReached"
    assert cluster.state.queues.used_by["lab", "bob"][0] == 2
    elsewhere = a_job(user="bob", cores=1)
    cluster.submit(elsewhere)
    assert cluster.status(elsewhere) == Status.ASSIGNED, "the limit is that of one queue"
    cluster.give(Cancel(bobs[0].id))
    cluster.ended("n1", (bobs[0].id, 0, 1))
    assert cluster.status(bobs[2]) == Status.ASSIGNED
    assert check(cluster.state) == []


def test_the_class_of_a_limited_user_does_not_stop_another_user_of_the_same_kind():
    """All of them ask for the same, so without classes by user the first of bob's would stop all."""
    cluster = lab(Quota(each_user=UserLimits(running=1)))
    cluster.submit(of("bob", array="1-50"))
    others = [of(f"user{number}") for number in range(5)]
    for job in others:
        cluster.submit(job)
    assert {cluster.status(job) for job in others} == {Status.ASSIGNED}


def test_limits_may_come_and_go_while_jobs_wait():
    cluster = lab(Quota(), cores=4)
    cluster.submit(of("bob", array="1-9"))
    assert cluster.state.queues.used_by["lab", "bob"][0] == 4
    cluster.give(SetQuota("lab", LAB))
    assert check(cluster.state) == []
    ada = of("ada")
    cluster.submit(ada)
    cluster.give(SetQuota("lab", None))
    assert check(cluster.state) == []
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.queues.used_by == cluster.state.queues.used_by
    assert again.queues.submitted_by == {("lab", "bob"): 9, ("lab", "ada"): 1}


def test_a_limit_of_one_user_goes_before_that_of_each():
    cluster = lab(Quota(each_user=UserLimits(running=1, gpus=0), by_user={"bob": UserLimits(running=3)}))
    jobs = {user: [of(user) for _ in range(4)] for user in ("bob", "ada")}
    for job in (*jobs["bob"], *jobs["ada"]):
        cluster.submit(job)
    placed = {
        user: sum(cluster.status(job) == Status.ASSIGNED for job in mine) for user, mine in jobs.items()
    }
    assert placed == {"bob": 3, "ada": 1}
    assert code(cluster.submit(of("bob", gpus=1))) == "never ExceedsUserLimit", (
        "what it leaves out holds for each"
    )


def test_a_gang_counts_whole():
    cluster = lab(Quota(each_user=UserLimits(gpus=4)))
    assert (
        code(cluster.submit(a_gang(a_group(3, gpus=2), queue="lab", user="bob"))) == "never ExceedsUserLimit"
    )
    first, second = (a_gang(a_group(3, gpus=1), queue="lab", user="bob") for _ in range(2))
    cluster.submit(first)
    cluster.submit(second)
    assert (cluster.status(first), cluster.status(second)) == (Status.ASSIGNED, Status.PENDING)
    assert dominant(cluster, second) == "UserLimitReached"
    small = of("ada", gpus=1)
    cluster.submit(small)
    assert cluster.status(small) == Status.ASSIGNED, "a gang over its user's limit keeps no room"


def test_nobody_of_another_user_is_evicted_for_a_limit_and_ones_own_may_be():
    cluster = lab(Quota(each_user=UserLimits(running=1)), cores=2)
    low, other = of("bob", priority=-5), of("ada", priority=-9)
    for job in (low, other):
        cluster.submit(job)
        cluster.started("n1", (job.id, 0, 1))
    urgent = of("bob", priority=5)
    cluster.submit(urgent)
    live = {job.id: cluster.state.jobs[job.id].live[0].ending is not None for job in (low, other)}
    assert live == {low.id: True, other.id: False}
    cluster.ended("n1", (low.id, 0, 1), why=Why.EVICTED)
    assert cluster.status(urgent) == Status.ASSIGNED
    assert cluster.state.queues.used_by["lab", "bob"][0] == 1


@pytest.mark.parametrize("gang", [False, True])
def test_a_proposal_that_comes_too_late_is_refused(gang: bool):
    cluster = lab(Quota())
    job = a_gang(a_group(2, cores=1), queue="lab", user="bob") if gang else of("bob", array="1-2")
    places = tuple(Placement(job.id, at, "n1", Grant(1, 0)) for at in range(2))
    cluster.give(Drain("n1", "later"))
    cluster.submit(job)
    state = cluster.state
    for event in decide(state, Undrain("n1"), cluster.now).events:
        apply(state, event)
    limited = Quota(each_user=UserLimits(running=1))
    proposals = [ProposeGang(GangPlacement(job.id, places))] if gang else [Propose(each) for each in places]
    assert isinstance(decide(state, proposals[0], cluster.now).answer, Accepted), "nothing else is in its way"
    for event in decide(state, SetQuota("lab", limited), cluster.now).events:
        apply(state, event)
    if not gang:
        for event in decide(state, proposals[0], cluster.now).events:
            apply(state, event)
    assert code(decide(state, proposals[-1], cluster.now).answer).startswith("stale")


def test_what_is_submitted_beyond_a_limit_is_refused_with_the_numbers():
    cluster = lab(Quota(submitted=20, each_user=UserLimits(submitted=10)))
    assert cluster.submit(of("bob", array="1-8")) == Accepted(8)
    refused = cluster.submit(of("bob", array="1-3"))
    assert code(refused) == "too_many UserSubmitLimit"
    assert isinstance(refused, Refused)
    assert refused.reason.numbers == {"user": "bob", "added": 3, "used": 8, "limit": 10}
    assert cluster.submit(of("ada", array="1-10")) == Accepted(10)
    assert code(cluster.submit(of("eve", array="1-3"))) == "too_many QueueSubmitLimit"
    stages = tuple(Stage(f"s{number}", of("bob"), after=(0,) if number else ()) for number in range(3))
    flow = Workflow("w1", stages, 0.0, user="bob")
    assert code(cluster.give(SubmitWorkflow(flow))[0]) == "too_many QueueSubmitLimit"
    flow = Workflow("w2", stages[:2], 0.0, user="bob")
    assert cluster.give(SubmitWorkflow(flow)) == [Accepted(2)]
    assert cluster.state.queues.submitted_by["lab", "bob"] == 10, "a stage counts before it is a job"
    assert code(cluster.submit(of("bob"))) == "too_many QueueSubmitLimit"
    assert check(cluster.state) == []


@pytest.mark.parametrize(
    ("quota", "user", "role", "may"),
    [
        (Quota(users=("ada",)), "ada", "user", True),
        (Quota(users=("ada",)), "bob", "user", False),
        (Quota(users=("ada",)), "bob", "operator", True),
        (Quota(users=("ada",)), "bob", "admin", True),
        (Quota(roles=("operator",)), "ada", "user", False),
        (Quota(roles=("user",)), "ada", "user", True),
        (Quota(users=("ada",), roles=("operator",)), "ada", "user", True),
        (Quota(), "bob", "user", True),
    ],
)
def test_who_may_use_a_queue(quota: Quota, user: str, role: str, may: bool):
    cluster = lab(quota)
    job = of(user)
    [answer] = cluster.give(Submit(job, role=role))
    assert isinstance(answer, Accepted) == may
    if not may:
        assert code(answer) == "forbidden QueueNotAllowed"
    flow = Workflow("w1", (Stage("s", of(user)),), 0.0, user=user)
    [answer] = cluster.give(SubmitWorkflow(flow, role=role))
    assert isinstance(answer, Accepted) == may


def test_the_fix_of_an_admin_raises_the_limit_of_this_user_alone():
    cluster = lab()
    jobs = [of("bob", gpus=2), of("bob", gpus=1)]
    for job in jobs:
        cluster.submit(job)
    state = cluster.state
    fix = why_reply(state, state.jobs[jobs[1].id], None, cluster.now, asker=ADMIN).fix
    assert fix is not None
    assert fix.command == "phalanx queue set lab --for-user bob:gpus=3"
    mine = why_reply(state, state.jobs[jobs[1].id], None, cluster.now, asker=Asker("bob")).fix
    assert mine is not None
    assert mine.command == f"phalanx cancel {jobs[0].id}"
    cluster.give(quota_set(fix.command, LAB))
    assert cluster.status(jobs[1]) == Status.ASSIGNED


FOUR_CORES = (Quota(each_user=UserLimits(cores=4)), Quota(cores=4))


def two_sizes(quota: Quota, large: int = 8, small: int = 2) -> tuple[Cluster, Job]:
    """A large node, and a small one that another job holds."""
    cluster, other = a_cluster(n1={"cores": large}, n2={"cores": small}), a_job("n2", user="ada", cores=small)
    cluster.give(SetQuota("lab", quota))
    cluster.submit(other)
    return cluster, other


@pytest.mark.parametrize("quota", FOUR_CORES)
def test_a_whole_node_that_is_more_than_the_limit_is_left_to_others(quota: Quota):
    cluster, other = two_sizes(quota)
    alone, large = of("bob", exclusive=True), a_job(user="ada", cores=8)
    cluster.submit(alone)
    assert cluster.status(alone) == Status.PENDING
    assert dominant(cluster, alone) == ("QuotaExhausted" if quota.cores else "UserLimitReached")
    cluster.submit(large)
    assert cluster.status(large) == Status.ASSIGNED
    cluster.ended("n2", (other.id, 0, 1))
    assert cluster.state.jobs[alone.id].live[0].node == "n2"


def test_of_two_nodes_a_task_gets_the_one_that_its_limit_admits():
    cluster, other = two_sizes(FOUR_CORES[0], large=3, small=5)
    cluster.ended("n2", (other.id, 0, 1))
    alone = of("bob", exclusive=True, spread=True)
    cluster.submit(alone)
    assert cluster.state.jobs[alone.id].live[0].node == "n1"


def test_a_gang_that_wants_whole_nodes_waits_for_the_limit_and_holds_up_nobody():
    cluster, other = two_sizes(FOUR_CORES[0])
    cluster.add_node("n3", cores=2)
    cluster.ended("n2", (other.id, 0, 1))
    held, large = a_job("n3", user="ada", cores=2), a_job(user="ada", cores=8)
    cluster.submit(held)
    gang = a_gang(a_group(2, exclusive=True), queue="lab", user="bob")
    assert isinstance(cluster.submit(gang), Accepted)
    cluster.submit(large)
    assert cluster.status(large) == Status.ASSIGNED
    cluster.ended("n3", (held.id, 0, 1))
    assert {each.node for each in cluster.state.jobs[gang.id].live.values()} == {"n2", "n3"}


def test_a_limit_that_admits_no_node_whole_refuses_who_wants_one():
    cluster = a_cluster(n1={"cores": 8, "gpus": 1}, n2={"cores": 2, "gpus": 8})
    cluster.give(SetQuota("lab", Quota(each_user=UserLimits(cores=4, gpus=2))))
    [answer] = cluster.give(Submit(of("bob", exclusive=True), role="user"))
    assert code(answer) == "never ExceedsUserLimit"


def test_who_may_no_longer_use_a_queue_does_not_retry_a_workflow_there():
    cluster = lab(Quota(users=("bob",)))
    flow = Workflow("w1", (Stage("a", of("bob")),), 0.0, user="bob")
    cluster.give(SubmitWorkflow(flow, role="user"))
    cluster.give(CancelWorkflow("w1"))
    cluster.give(SetQuota("lab", Quota(users=("ada",))))
    [answer] = cluster.give(RetryWorkflow("w1", role="user"))
    assert code(answer) == "forbidden QueueNotAllowed"
    assert cluster.give(RetryWorkflow("w1", role="operator")) == [Accepted(1)]
