"""A member that failed comes back to its gang, also where the gang's rule asks for multiples (X6)."""

from __future__ import annotations

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import Drain, Evict
from phalanx.core.model.job import Gather, Job, Restart
from phalanx.core.model.orders import Status, Why
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

PAIRS = (Gather("node", multiple=2),)


def a_pipeline() -> Job:
    """X6's file: `first` ends at once, `prepare` fails its first attempt, `train` starts when it has completed."""
    return a_gang(
        a_group(1, name="first"),
        a_group(1, name="prepare"),
        a_group(2, name="train", after=(("prepare", "completed"),)),
        gather=PAIRS,
        restart=Restart(whole=True, limit=1),
        max_retries=2,
    )


def runs_until_prepare_fails(cluster: Cluster, job: Job) -> None:
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    for position in range(4):
        cluster.ready(live[position].node, live[position].key)
    for position in range(2):
        cluster.started(live[position].node, live[position].key)
    cluster.ended(live[0].node, live[0].key, 0)
    cluster.ended(live[1].node, live[1].key, 1)


def node_of(cluster: Cluster, job: Job, position: int) -> str | None:
    attempt = cluster.state.jobs[job.id].live.get(position)
    return None if attempt is None else attempt.node


def test_a_failed_member_comes_back_though_finished_ones_leave_no_multiple():
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    job = a_pipeline()
    runs_until_prepare_fails(cluster, job)
    assert node_of(cluster, job, 1) == node_of(cluster, job, 2)  # with its gang
    attempt = cluster.state.jobs[job.id].live[1]
    cluster.ready(attempt.node, attempt.key)
    cluster.started(attempt.node, attempt.key)
    cluster.ended(attempt.node, attempt.key, 0)
    for position in (2, 3):
        train = cluster.state.jobs[job.id].live[position]
        cluster.started(train.node, train.key)
        cluster.ended(train.node, train.key, 0)
    assert {cluster.status(job, position) for position in range(4)} == {Status.COMPLETED}


def test_it_goes_elsewhere_when_its_gang_s_node_takes_no_work():
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    job = a_pipeline()
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    stood = live[1].node
    for position in range(4):
        cluster.ready(stood, live[position].key)
    cluster.started(stood, live[1].key)
    cluster.give(Drain(stood, "maintenance"))
    cluster.ended(stood, live[1].key, 1)
    assert node_of(cluster, job, 1) not in (None, stood)


def test_when_there_is_no_room_for_it_why_says_so_and_not_that_it_never_fits():
    cluster = a_cluster(n1={"cores": 4})
    job = a_pipeline()
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    for position in range(4):
        cluster.ready("n1", live[position].key)
    for position in range(2):
        cluster.started("n1", live[position].key)
    cluster.ended("n1", live[0].key, 0)
    waiting = [a_job(cores=1, priority=5) for _ in range(2)]  # two more urgent ones take what is given back
    for each in waiting:
        cluster.submit(each)
    cluster.ended("n1", live[1].key, 1)
    assert cluster.status(job, 1) == Status.PENDING
    said = why_reply(cluster.state, cluster.state.jobs[job.id], 1, cluster.now).dominant
    assert said.code == "GangIncomplete"
    taker = cluster.state.jobs[waiting[0].id].live[0]
    cluster.ended("n1", taker.key, 0)
    assert cluster.status(job, 1) == Status.ASSIGNED


def test_members_beyond_the_minimum_still_come_in_multiples():
    cluster = a_cluster(n1={"cores": 3}, n2={"cores": 1})
    job = a_gang(a_group(4, min=2), gather=PAIRS)
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    for attempt in list(live.values()):
        cluster.ready(attempt.node, attempt.key)
    assert sorted(attempt.node for attempt in live.values()) == ["n1", "n1"]
    assert cluster.status(job, 2) == Status.PENDING


def test_nobody_is_evicted_for_a_surplus_while_another_group_has_finished():
    cluster = a_cluster(n1={"cores": 4})
    job = a_gang(a_group(1, name="first"), a_group(3, name="train", min=2), priority=5)
    other = a_job(cores=1)
    cluster.submit(other)
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    for attempt in list(live.values()):
        cluster.ready("n1", attempt.key)
        cluster.started("n1", attempt.key)
    cluster.submit(a_job(cores=1, priority=9, may_evict=False))  # waits for the core that `first` gives back
    cluster.ended("n1", live[0].key, 0)
    assert cluster.status(other) == Status.ASSIGNED
    assert cluster.state.jobs[other.id].live[0].ending is None


def a_gang_with_a_surplus() -> Job:
    """One more chief than it needs, without a place: with it there would be five, and five are no pairs."""
    return a_gang(
        a_group(2, name="chief", min=1),
        a_group(3, name="worker"),
        gather=PAIRS,
        restart=Restart(),
        max_retries=3,
    )


def runs(cluster: Cluster, job: Job) -> None:
    cluster.submit(job)
    for attempt in list(cluster.state.jobs[job.id].live.values()):
        cluster.ready(attempt.node, attempt.key)
        cluster.started(attempt.node, attempt.key)


def test_the_member_that_is_needed_comes_back_before_one_more_does():
    cluster = a_cluster(n1={"cores": 4})
    job = a_gang_with_a_surplus()
    runs(cluster, job)
    assert sorted(cluster.state.jobs[job.id].live) == [0, 2, 3, 4]
    cluster.give(Evict(job.id, 3, "user"))
    attempt = cluster.state.jobs[job.id].live[3]
    cluster.ended("n1", attempt.key, -15, Why.EVICTED)
    assert sorted(cluster.state.jobs[job.id].live) == [0, 2, 3, 4]


def test_one_more_does_not_come_alone_while_another_leaves():
    """Seed 830025: it was blocked under a rule that no longer held."""
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang_with_a_surplus()
    runs(cluster, job)
    cluster.give(Evict(job.id, 3, "user"))
    assert sorted(cluster.state.jobs[job.id].live) == [0, 2, 3, 4]
