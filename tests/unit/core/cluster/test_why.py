"""`why` is true: what it suggests really helps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phalanx.api.schema.jobs import Fix, WhyReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import Cancel, Drain, Hello, Submit, Tell
from phalanx.core.model.amounts import parse_bytes
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Returned, Status
from phalanx.core.model.resources import Capacity, Request
from tests.property.strategies import HOSTS, capacities, requests
from tests.support.builders import Cluster, a_cluster, a_job

nodes = st.lists(capacities(), min_size=1, max_size=3)


def why(cluster: Cluster, job: Job, position: int | None = 0) -> WhyReply:
    return why_reply(
        cluster.state, cluster.state.jobs[job.id], position, cluster.now, memory=cluster.engine.memory
    )


def asking(request: Request) -> Job:
    job = a_job()
    return structs.replace(job, groups=(structs.replace(job.groups[0], request=request),))


def fix_of(reply: WhyReply) -> Fix:
    assert reply.fix is not None
    return reply.fix


def a_busy_cluster(nodes: list[Capacity], asked: list[Request], drained: bool) -> tuple[Cluster, list[Job]]:
    cluster = Cluster()
    for name, capacity in zip(HOSTS, nodes, strict=False):
        cluster.give(Hello(name, "a", f"origin-{name}", capacity, []))
    jobs = [asking(request) for request in asked]
    for job in jobs:
        cluster.submit(job, allow_infeasible=True)
    if drained:
        cluster.give(Drain("n1", "new fans"))
    return cluster, jobs


@given(nodes, st.lists(requests(), min_size=1, max_size=8), st.booleans())
def test_every_answer_has_a_reason_and_every_change_it_offers_starts_at_once(
    nodes: list[Capacity], asked: list[Request], drained: bool
) -> None:
    cluster, jobs = a_busy_cluster(nodes, asked, drained)
    for job in jobs:
        reply = why(cluster, job)
        assert reply.dominant.text
        assert reply.status == cluster.status(job).word
        if reply.fix is not None and reply.fix.text.startswith("it would start now"):
            again = structs.replace(
                asking(changed(job.groups[0].request, reply.fix)), may_evict=False,
                time_limit_s=reply.fix.change.get("time_limit", job.time_limit_s),
            )  # fmt: skip
            cluster.give(Cancel(job.id), Submit(again, allow_infeasible=True))
            assert cluster.status(again) == Status.ASSIGNED
            cluster.give(Cancel(again.id))
            live = cluster.state.jobs[again.id].live[0]
            cluster.ended(live.node, live.key)


def changed(asked: Request, fix: Fix) -> Request:
    fields = dict(fix.change)
    if "memory" in fields:
        fields["memory_bytes"] = parse_bytes(str(fields.pop("memory")))
    if "gpu_memory" in fields:
        fields["gpu_memory_bytes"] = fields.pop("gpu_memory")
    if fields.pop("targets", None) == []:
        fields["target"] = None
    fields.pop("time_limit", None)  # of the job
    return structs.replace(asked, **fields)


def test_no_change_is_offered_that_would_take_what_is_kept_for_another() -> None:
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=4, time_limit_s=100.0))
    head, late = a_job(cores=8), a_job(cores=6)
    cluster.submit(head)
    assert fix_of(why(cluster, head)).change == {"cores": 4}
    cluster.submit(late)  # with 4 cores it would fit, and delay the head
    fix = why(cluster, late).fix
    assert fix is None or not fix.change


def test_only_tasks_that_still_wait_stand_before_one() -> None:
    cluster = a_cluster(n1={"cores": 2})
    array, behind = a_job(array="1-5"), a_job()
    cluster.submit(array)
    cluster.submit(behind)
    (said,) = [no for no in why(cluster, behind).others if no.code == "PriorityBehind"]
    assert said.numbers["ahead"] == said.numbers["of_job"] == 3


def test_a_task_that_others_queue_behind_is_not_named_as_the_one_to_end() -> None:
    cluster = a_cluster(n1={"cores": 1})
    quick, other = a_job(array="1-30"), a_job(priority=1, may_evict=False)
    cluster.submit(quick)
    for position in range(5):
        cluster.ended("n1", (quick.id, position, 1))
    cluster.submit(other)
    assert len(next(iter(cluster.state.nodes["n1"].lanes.values()))) > 1
    assert why(cluster, other).fix is None
    head, *queued = sorted(cluster.state.jobs[quick.id].live)
    cluster.started("n1", (quick.id, head, 1))
    cluster.give(*(Tell("n1", "a", 1, Returned((quick.id, position, 1)), 1) for position in queued))
    assert "ends" in fix_of(why(cluster, other)).text


def test_an_array_at_its_limit_says_so_and_not_that_it_would_fit() -> None:
    cluster = a_cluster(n1={"cores": 8})
    job = a_job(array="1-9%2")
    cluster.submit(job)
    reply = why(cluster, job, 5)
    assert reply.dominant.code == "ArrayLimit"
    assert reply.others == []


def test_an_array_as_a_whole_is_spoken_for_by_its_furthest_task() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-3")
    cluster.submit(job)
    assert why(cluster, job, None).id == job.task_id(0)
    cluster.ended("n1", (job.id, 0, 1))
    assert why(cluster, job, None).id == job.task_id(1)
