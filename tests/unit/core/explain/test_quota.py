"""A quota in the way: a higher one is offered only if it starts the task, and what would fit below it is named."""

from __future__ import annotations

import pytest

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.refusals import submit_refusal
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import Quota
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from tests.support.builders import GIB, Cluster, a_cluster, a_gang, a_group, a_job
from tests.support.quota_command import quota_set

ADA = Asker("ada")


def why(cluster: Cluster, job: Job, asker: Asker = ADMIN) -> WhyReply:
    state, memory = cluster.state, cluster.engine.memory
    return why_reply(state, state.jobs[job.id], None, cluster.now, memory=memory, asker=asker)


def plan(cluster: Cluster, job: Job, asker: Asker = ADMIN) -> PlanReply:
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    return preview(cluster.state, [job], cluster.engine.policy, seen, by=Submitter(asker))


def waiting_in_q(quota: Quota, *jobs: Job, gpus: int = 4) -> Cluster:
    cluster = a_cluster(n1={"cores": 8, "gpus": gpus})
    cluster.give(SetQuota("q", quota))
    for job in jobs:
        cluster.submit(job)
    return cluster


def test_no_quota_is_offered_where_the_cluster_is_full_anyway():
    first, second = a_job(queue="q", gpus=1), a_job(queue="q", gpus=1)
    cluster = waiting_in_q(Quota(gpus=1), first, a_job(gpus=3, priority=9), second)
    assert cluster.status(second) == Status.PENDING
    reply = why(cluster, second)
    assert reply.dominant.code == "QuotaExhausted"
    assert reply.fix is not None, "the end of the first gives back the quota and the GPU"
    assert (reply.fix.text, reply.fix.command) == (
        f"it starts when job {first.id}, which runs on n1, ends",
        f"phalanx cancel {first.id}",
    )


def test_an_admin_is_offered_the_quota_with_which_it_starts():
    first, second = a_job(queue="q", gpus=1), a_job(queue="q", gpus=2)
    had = Quota(tasks=9, cores=7.5, memory_bytes=3 * GIB, gpus=1, priority_max=8)
    cluster = waiting_in_q(had, first)
    cluster.give(SetQuota("q", Quota(gpus=2)))
    cluster.submit(second)
    cluster.give(SetQuota("q", had))
    fix = why(cluster, second).fix
    assert fix is not None
    assert fix.command == "phalanx queue set q --gpus 3", "what is left out stays as it is"
    cluster.give(quota_set(fix.command, had))
    assert cluster.status(second) == Status.ASSIGNED


def test_a_quota_is_raised_for_those_ahead_in_the_same_queue_too():
    jobs = [a_job(queue="q", gpus=1) for _ in range(3)]
    cluster = waiting_in_q(Quota(gpus=1), *jobs)
    fix = why(cluster, jobs[2]).fix
    assert fix is not None
    assert fix.command == "phalanx queue set q --gpus 3"
    cluster.give(quota_set(fix.command))
    assert cluster.status(jobs[2]) == Status.ASSIGNED


def test_others_are_told_that_an_admin_could_raise_it_only_if_that_helps():
    jobs = [a_job(queue="q", gpus=1, user="bo"), a_job(queue="q", gpus=1, user="ada")]
    helps = waiting_in_q(Quota(gpus=1), *jobs)
    fix = why(helps, jobs[1], ADA).fix
    assert fix is not None
    assert fix.command == ""
    assert jobs[0].id in fix.text
    jobs = [a_job(array="1-5", queue="q", gpus=1, user="bo"), a_job(queue="q", gpus=1, user="ada")]
    helps = waiting_in_q(Quota(gpus=1), *jobs, gpus=16)
    fix = why(helps, jobs[1], ADA).fix
    assert fix is not None
    assert (fix.text, fix.command) == ("it would start now if an admin raised the quota of q to 6 GPUs", "")


def test_a_gang_is_told_the_quota_with_which_it_starts():
    held, gang = a_job(queue="q", gpus=1), a_gang(a_group(2, gpus=1), queue="q")
    cluster = waiting_in_q(Quota(gpus=2), held, gang)
    fix = why(cluster, gang).fix
    assert fix is not None
    assert fix.command == "phalanx queue set q --gpus 3"
    cluster.give(quota_set(fix.command))
    assert cluster.status(gang) == Status.ASSIGNED


def test_less_than_asked_is_offered_to_a_user_if_the_quota_leaves_so_much():
    held, mine = a_job(queue="q", gpus=1, priority=9, user="bo"), a_job(queue="q", gpus=2, user="ada")
    cluster = waiting_in_q(Quota(gpus=2), held, mine)
    fix = why(cluster, mine, ADA).fix
    assert fix is not None
    assert fix.text.startswith("it would start now with 1 GPU instead of 2")
    assert fix.change == {"gpus": 1}


def refusal_hint(cluster: Cluster, job: Job) -> str:
    refused = cluster.submit(job)
    assert isinstance(refused, Refused)
    return submit_refusal(cluster.state, [(None, job)], [refused], []).hint


@pytest.mark.parametrize(("gpus", "limit"), [(2, 1), (3, 2)])
def test_more_than_a_quota_ever_admits_is_told_what_it_admits_and_not_to_wait_for_a_larger_node(
    gpus: int, limit: int
):
    cluster = waiting_in_q(Quota(gpus=limit))
    some = "1 GPU" if limit == 1 else f"{limit} GPUs"
    told = f"it would fit with {some} instead of {gpus}, in queue default, or with a higher quota"
    assert refusal_hint(cluster, a_job(queue="q", gpus=gpus)) == f"{told}, which an admin can set"
    fix = plan(cluster, a_job(queue="q", gpus=gpus), ADA).reasons[0].fix
    assert fix is not None
    assert (fix.text, fix.change, fix.command) == (f"{told}, which an admin can set", {"gpus": limit}, "")
    fix = plan(cluster, a_job(queue="q", gpus=gpus)).reasons[0].fix
    assert fix is not None
    assert (fix.text, fix.command) == (told, f"phalanx queue set q --gpus {gpus}")


def test_a_quota_of_nothing_leaves_other_queues():
    cluster = waiting_in_q(Quota(gpus=0))
    assert refusal_hint(cluster, a_job(queue="q", gpus=1)) == (
        "it would fit in queue default, or with a higher quota, which an admin can set"
    )
    cluster.give(SetQuota("default", Quota(gpus=0)))
    assert refusal_hint(cluster, a_job(queue="q", gpus=1)) == (
        "it would fit with a higher quota, which an admin can set"
    )
    assert "quota" not in refusal_hint(cluster, a_job(queue="q", gpus=9)), (
        "no quota helps: the node is too small"
    )
