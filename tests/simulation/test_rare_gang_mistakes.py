"""Mistakes about gangs and restarts that the simulator found in our own code, too rare for a few seeds: tested
directly.
"""

from __future__ import annotations

from phalanx.coordinator.restore import restore
from phalanx.core.cluster.events import AttemptEnded, encode
from phalanx.core.cluster.inputs import Cancel, Evict, Tell, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.model.job import Job, Restart, Rule
from phalanx.core.model.orders import AttemptKey, Ended, Exit, Status, Why
from phalanx.store.protocol import Batch, Loaded
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def live(cluster: Cluster, job: Job) -> list[AttemptKey]:
    return [attempt.key for attempt in cluster.state.jobs[job.id].live.values()]


def begin(cluster: Cluster, job: Job) -> list[AttemptKey]:
    """Submit a gang, and let all its members be ready and start, on n1."""
    cluster.submit(job)
    keys = live(cluster, job)
    for key in keys:
        cluster.ready("n1", key)
    for key in keys:
        cluster.started("n1", key)
    return keys


def test_a_good_end_that_comes_after_the_restart_says_nothing_about_the_next_life():
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang(a_group(3))
    first, second, third = begin(cluster, job)
    cluster.ended("n1", first, code=1)
    cluster.ended("n1", second)
    assert cluster.state.jobs[job.id].done == set()
    cluster.ended("n1", third, why=Why.RESTARTED)
    assert len(live(cluster, job)) == 3


def test_nor_does_the_good_end_of_one_that_was_evicted_before_the_restart():
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang(a_group(2))
    first, second = begin(cluster, job)
    cluster.give(Evict(job.id))
    cluster.ended("n1", first, why=Why.EVICTED)
    cluster.ended("n1", second)
    assert cluster.state.jobs[job.id].done == set()
    assert len(live(cluster, job)) == 2


def test_when_the_last_that_is_not_done_is_cancelled_the_job_has_done_its_work():
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang(a_group(2, min=1))
    first, second = begin(cluster, job)
    cluster.ended("n1", first)
    cluster.give(Cancel(job.id, 1))
    cluster.ended("n1", second, why=Why.CANCELLED)
    assert cluster.status(job, 0) == Status.COMPLETED
    assert cluster.state.jobs[job.id].outcome == Status.COMPLETED


def test_when_all_but_a_cancelled_task_are_done_a_job_that_restarts_whole_is_over():
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-2", restart=Restart(whole=True, limit=1))
    cluster.submit(job)
    cluster.give(Cancel(job.id, 1))
    cluster.started("n1", (job.id, 0, 1))
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.state.jobs[job.id].is_over


def test_a_job_in_backoff_is_in_the_queue_after_a_replay():
    """The first placement ends the backoff; a replay has not seen the time pass."""
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-3", max_retries=0, restart=Restart(whole=True, limit=9))
    cluster.submit(job)
    for number in (1, 2):
        cluster.started("n1", (job.id, 0, number))
        cluster.ended("n1", (job.id, 0, number), code=1)
    cluster.now += 2.0
    cluster.give(Tick())
    assert live(cluster, job) == [(job.id, 0, 3)]
    log = [Batch(turn.revision, encode(turn.events)) for turn in cluster.turns if turn.events]
    state = restore(Loaded(None, 0, log), cluster.state.rules)
    assert state.jobs[job.id].groups[0] in state.waiting
    assert check(state) == []


def test_members_of_another_replica_stay_at_the_barrier_when_one_replica_restarts():
    cluster = a_cluster(n1={"cores": 8})
    restart = Restart(limit=9, rules=(Rule("restart-replica"),))
    job = a_gang(a_group(2), restart=restart)
    first, second = begin(cluster, job)
    cluster.ended("n1", first, code=1)
    again = (job.id, 0, 2)
    assert again in live(cluster, job)
    cluster.ended("n1", second, code=1)
    cluster.ready("n1", again)
    assert cluster.state.jobs[job.id].live[0].released


def test_the_members_that_are_left_may_try_again_when_the_others_have_completed():
    """With only-waiting four have to come together, and only one is left."""
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang(a_group(4), match="only-waiting", restart=Restart(), max_retries=1)
    *well, last = begin(cluster, job)
    for key in well:
        cluster.ended("n1", key)
    cluster.ended("n1", last, code=1)
    assert live(cluster, job) == [(job.id, last[1], 2)]


def test_a_group_does_not_wait_for_a_cancelled_task_of_the_one_before():
    cluster = a_cluster(n1={"cores": 8})
    before, after = a_group(2, name="a", min=1), a_group(1, name="b", after=(("a", "completed"),))
    job = a_gang(before, after)
    begin(cluster, job)
    cluster.give(Cancel(job.id, 1))
    cluster.ended("n1", (job.id, 1, 1), why=Why.CANCELLED)
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.state.jobs[job.id].groups[1].may_begin


def test_a_group_that_waits_for_one_that_failed_fails_with_it():
    cluster = a_cluster(n1={"cores": 8})
    before, after = a_group(2, name="a"), a_group(1, name="b", after=(("a", "completed"),))
    job = a_gang(before, after)
    nobody = Job(job.id, job.groups, job.id, 0.0, max_retries=0)
    cluster.submit(nobody)
    cluster.started("n1", (job.id, 0, 1))
    cluster.ended("n1", (job.id, 0, 1), code=1)
    assert cluster.status(nobody, 2) == Status.FAILED


def test_one_decision_that_ends_several_members_gives_them_the_end_of_their_job():
    """A node comes back without any of them: the first has no restart left, and the others end with the job."""
    cluster = a_cluster(n1={"cores": 8})
    job = a_gang(a_group(3), limit=0, restart=Restart(whole=True, limit=0, counts_evictions=True))
    begin(cluster, job)
    cluster.add_node("n1", life="b", cores=8)
    ends = [event for event in cluster.turns[-1].events if isinstance(event, AttemptEnded)]
    assert [event.status for event in ends] == [Status.PENDING, Status.FAILED, Status.FAILED]


def test_one_that_was_cancelled_behind_another_in_a_lane_does_not_make_the_lane_leave():
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-9")
    cluster.submit(job)
    for number in range(4):
        cluster.started("n1", (job.id, number, 1))
        cluster.give(
            Tell("n1", "a", 1, Ended((job.id, number, 1), Exit(Why.NONE, 0, cluster.now, cluster.now)), 1)
        )
    (node,) = cluster.state.nodes.values()
    ((lane_id, lane),) = node.lanes.items()
    assert len(lane.attempts) > 1
    cluster.give(Cancel(job.id, next(reversed(lane.attempts))[1]))
    tenant = cluster.state.tenants.get(("n1", lane_id))
    assert tenant is not None and not tenant.is_leaving


def test_nobody_waits_for_members_that_the_gang_can_do_without_and_that_have_no_place():
    cluster = a_cluster(n1={"cores": 8, "gpus": 1})
    cluster.submit(a_job(gpus=1))
    spare = a_group(1, name="a", gpus=1, optional=True)
    job = a_gang(spare, a_group(1, name="b", after=(("a", "completed"),)))
    begin(cluster, job)
    assert cluster.state.jobs[job.id].groups[1].may_begin


def test_a_member_that_cannot_start_recalls_its_formation_though_its_gang_could_do_without_it():
    cluster = a_cluster(n1={"cores": 3})
    job = a_gang(a_group(2, name="a", min=1, cores=2), a_group(1, name="b"), restart=Restart())
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1), why=Why.REFUSED)
    assert cluster.state.jobs[job.id].forming is None
