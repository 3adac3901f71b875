"""A finding counts those who are really ahead, and its sentences do not contradict each other."""

from __future__ import annotations

from phalanx.api.schema.apply import PlanReason, PlanReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.model.job import Job
from phalanx.core.model.queues import Quota
from phalanx.preview.plan import preview
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def plan(cluster: Cluster, *jobs: Job) -> PlanReply:
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    return preview(cluster.state, jobs, cluster.engine.policy, seen)


def ahead(reasons: list[PlanReason]) -> list[tuple[int, str]]:
    return [(no.numbers["ahead"], no.text.split(",")[0]) for no in reasons if no.code == "PriorityBehind"]


def full() -> Cluster:
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=8))
    return cluster


def test_all_that_go_first_are_counted_whatever_they_ask_for():
    cluster = full()
    for job in (a_job(cores=1), a_gang(a_group(2, cores=1)), a_job(cores=2), a_job(cores=8)):
        cluster.submit(job)
    late = a_job(cores=8)
    assert ahead(plan(cluster, late).reasons) == [(5, "5 tasks are ahead of it in the queue")]
    cluster.submit(late)
    state, memory = cluster.state, cluster.engine.memory
    reply = why_reply(state, state.jobs[late.id], None, cluster.now, memory=memory)
    assert [no.numbers["ahead"] for no in reply.others if no.code == "PriorityBehind"] == [5]
    assert reply.position == 6


def test_one_task_is_ahead():
    cluster = full()
    cluster.submit(a_job(cores=4))
    assert ahead(plan(cluster, a_job(cores=2)).reasons) == [(1, "1 task is ahead of it in the queue")]


def test_a_plan_does_not_count_its_own_tasks_nor_those_that_start():
    cluster = a_cluster(n1={"cores": 2})
    reply = plan(cluster, a_job(array="1-3"))
    assert len(reply.placements) == 2
    assert ahead(reply.reasons) == []
    first, second = a_job(array="1-4"), a_job()
    assert ahead(plan(cluster, first, second).reasons) == [(2, "2 tasks are ahead of it in the queue")]


def room_kept(reply: PlanReply) -> list[str]:
    return [no.text for no in reply.reasons if no.code == "RoomKept"]


def test_what_is_still_in_use_is_told_against_what_it_needs_and_not_as_if_the_node_had_no_more():
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=6))
    (said,) = room_kept(plan(cluster, a_job(cores=4)))
    assert said == (
        "First in line: n1 is reserved for it; 2 of the 4 cores that it needs there are still in use;"
        " 1 task there has no time limit, so the start time is unknown"
    )


def test_all_that_is_needed_is_in_use():
    cluster = a_cluster(n1={"cores": 8, "gpus": 2})
    cluster.submit(a_job(gpus=2))
    (one,) = room_kept(plan(cluster, a_job(gpus=1)))
    assert "the 1 GPU that it needs there is still in use" in one
    (two,) = room_kept(plan(cluster, a_job(gpus=2)))
    assert "the 2 GPUs that it needs there are still in use" in two


def test_who_is_next_to_get_room_need_not_be_first_in_the_queue():
    cluster = full()
    cluster.give(SetQuota("q", Quota(cores=8)))
    cluster.submit(a_job(queue="q", cores=1, priority=1, may_evict=False))
    cluster.give(SetQuota("q", Quota(cores=0)))
    reply = plan(cluster, a_job(cores=8))
    assert ahead(reply.reasons) == [(1, "1 task is ahead of it in the queue")]
    assert room_kept(reply)[0].startswith("First in line: ")


def test_one_of_something_is_told_as_one():
    cluster = a_cluster(n1={"cores": 8, "gpus": 1})
    refused = plan(cluster, a_job(gpus=2)).reasons[0]
    assert refused.text.endswith("n1 has 1 GPU, 2 requested")
    assert refused.fix is not None
    assert refused.fix.text == "it would fit with 1 GPU instead of 2"
    cluster.submit(a_job(cores=8, min_run_s=600.0))
    texts = [no.text for no in plan(cluster, a_job(cores=8, priority=1)).reasons]
    assert "The 1 task of lower priority is protected from preemption for now" in texts
