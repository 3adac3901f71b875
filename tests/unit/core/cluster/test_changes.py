"""Jobs that are changed after they were submitted: held, released, with other settings, and begun at a time."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.apply.nodes import begin_term
from phalanx.core.cluster.decision import Accepted, Answer, Rebrief, Refused
from phalanx.core.cluster.events import decode as decode_events
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Hold, ReleaseJob, SetQuota, Submit, Update
from phalanx.core.cluster.state import STALE_MAX, ClusterState, Timers
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.cluster.units import Gate
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import Quota
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job
from tests.support.workflow_cluster import WorkflowCluster, a_graph

PENDING, ASSIGNED = Status.PENDING, Status.ASSIGNED
FULL = {"n1": {"cores": 1}}


def code(answer: Answer | None) -> str:
    return answer.reason.code if isinstance(answer, Refused) else "yes"


def update(cluster: Cluster, job: Job, **fields: object) -> Answer | None:
    return cluster.give(Update(job.id, "ada", **fields))[0]  # type: ignore[arg-type]


def replayed(cluster: Cluster) -> ClusterState:
    """The state that the log of all turns gives."""
    state = ClusterState(Timers())
    state.epoch = 1
    for turn in cluster.turns:
        if (batch := turn.batch()) is not None:
            for event in decode_events(batch.body):
                apply(state, event)
    return state


def test_a_held_job_is_placed_only_when_it_is_released() -> None:
    cluster = a_cluster()
    job = a_job()
    cluster.submit(job)
    assert cluster.give(Hold(job.id, "ada", "no data yet")) == [Accepted(1)]
    held = cluster.state.jobs[job.id]
    assert (held.held_because, held.held_by) == ("no data yet (by ada)", "ada")
    cluster.add_node("n1")
    assert (cluster.status(job), held.closed_gates()) == (PENDING, [Gate.HELD])
    assert cluster.give(Hold(job.id, "bob", "other")) == [Accepted(0)]
    assert held.held_because == "no data yet (by ada)"
    assert cluster.give(ReleaseJob(job.id, "ada")) == [Accepted(1)]
    assert cluster.status(job) == ASSIGNED
    assert code(cluster.give(ReleaseJob(job.id, "ada"))[0]) == "NotHeld"


def test_a_job_that_is_submitted_held_never_starts_before_its_release() -> None:
    cluster = a_cluster()
    cluster.add_node("n1")
    job = a_job()
    assert cluster.give(Submit(job, hold=True)) == [Accepted(1)]
    assert (cluster.status(job), cluster.state.jobs[job.id].closed_gates()) == (PENDING, [Gate.HELD])
    assert cluster.give(ReleaseJob(job.id, job.user)) == [Accepted(1)]
    assert cluster.status(job) == ASSIGNED


def test_of_an_array_only_what_waits_is_held_and_what_comes_back_is_too() -> None:
    cluster = a_cluster(**FULL)
    job = a_job(array="0-2")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    assert cluster.give(Hold(job.id, "ada")) == [Accepted(2)]
    cluster.ended("n1", (job.id, 0, 1), code=1)
    cluster.now += 10
    cluster.beat("n1")
    assert [cluster.status(job, each) for each in range(3)] == [PENDING] * 3
    cluster.give(ReleaseJob(job.id, "ada"))
    assert cluster.status(job) == ASSIGNED


def test_nothing_is_held_of_a_job_that_runs_or_has_ended() -> None:
    cluster = a_cluster(**FULL)
    job = a_job()
    cluster.submit(job)
    assert code(cluster.give(Hold(job.id, "ada"))[0]) == "NothingWaiting"
    cluster.ended("n1", (job.id, 0, 1))
    assert code(cluster.give(Hold(job.id, "ada"))[0]) == "AlreadyEnded"
    assert code(cluster.give(Hold("nobody", "ada"))[0]) == "NotFound"


def test_what_an_operator_holds_its_user_cannot_release() -> None:
    cluster = a_cluster()
    job = a_job()
    cluster.submit(job)
    cluster.give(Hold(job.id, "op"))
    refused = cluster.give(ReleaseJob(job.id, "ada"))[0]
    assert isinstance(refused, Refused)
    assert (refused.reason.code, refused.kind) == ("HeldByAnother", "forbidden")
    assert cluster.give(ReleaseJob(job.id, "root", is_operator=True)) == [Accepted(1)]


def test_a_hold_gives_up_the_places_that_are_kept_for_a_job() -> None:
    cluster = a_cluster(**FULL)
    low, high = a_job(), a_job(priority=5)
    cluster.submit(low)
    cluster.started("n1", (low.id, 0, 1))
    cluster.submit(high)
    assert cluster.state.jobs[high.id].promise is not None
    cluster.give(Hold(high.id, "ada"))
    assert cluster.state.jobs[high.id].promise is None
    cluster.ended("n1", (low.id, 0, 1), code=-15)
    assert cluster.status(high) == PENDING
    cluster.give(ReleaseJob(high.id, "ada"))
    assert cluster.state.jobs[high.id].promise is not None  # of the place that the other had again meanwhile


def test_a_job_begins_at_its_instant_and_not_before() -> None:
    cluster = a_cluster(n1={})
    job, array = a_job(begin_at=200.0), a_job(array="0-1", begin_at=150.0)
    gang = a_gang(a_group(2), begin_at=200.0)
    for each in (job, array, gang):
        cluster.submit(each)
    assert cluster.state.next_due == 150.0
    assert cluster.state.jobs[job.id].closed_gates() == [Gate.BEGIN]
    cluster.now = 199.9
    cluster.give()
    assert [cluster.status(each) for each in (job, array, gang)] == [PENDING, ASSIGNED, PENDING]
    cluster.now = 200.0
    cluster.give()
    assert [cluster.status(each) for each in (job, array, gang)] == [ASSIGNED] * 3
    assert cluster.state.jobs[job.id].job.begin_at == 200.0


def test_an_instant_that_has_passed_keeps_nobody_waiting() -> None:
    cluster = a_cluster(n1={})
    job = a_job(begin_at=50.0)
    cluster.submit(job)
    assert cluster.status(job) == ASSIGNED


def test_a_restart_and_a_failover_leave_the_instant_as_it_is() -> None:
    cluster = a_cluster(n1={})
    job = a_job(begin_at=100_000.0)
    cluster.submit(job)
    for state in (replayed(cluster), decode_state(encode_state(cluster.state), Timers())):
        begin_term(state, 120.0)
        begin_term(state, 20.0)  # of a coordinator whose clock is behind
        assert state.jobs[job.id].closed_gates() == [Gate.BEGIN]
        assert (state.jobs[job.id].begins_at, state.next_due) == (100_000.0, 100_000.0)
    cluster.now = 100_000.0
    cluster.give()
    assert cluster.status(job) == ASSIGNED
    again = decode_state(encode_state(cluster.state), Timers())
    assert again.jobs[job.id].closed_gates() == []
    assert replayed(cluster).jobs[job.id].closed_gates() == []


def test_another_begin_takes_the_place_of_the_first() -> None:
    cluster = a_cluster(n1={})
    job = a_job(begin_at=200.0)
    cluster.submit(job)
    update(cluster, job, begin_at=300.0)
    cluster.now = 250.0
    cluster.give()
    assert cluster.status(job) == PENDING
    update(cluster, job, begin_at=0.0)
    assert cluster.status(job) == ASSIGNED
    assert code(update(cluster, job, begin_at=900.0)) == "NothingWaiting"
    assert code(update(cluster, job, begin_at=0.0)) == "NothingWaiting", "also where it would change nothing"


def test_another_priority_is_another_place_in_the_queue() -> None:
    cluster = a_cluster(**FULL)
    first, second, third = a_job(), a_job(), a_job()
    for each in (first, second, third):
        cluster.submit(each)
    cluster.started("n1", (first.id, 0, 1))
    assert update(cluster, third, priority=-1) == Accepted(1)
    assert update(cluster, second, priority=-2) == Accepted(1)
    cluster.ended("n1", (first.id, 0, 1))
    assert [cluster.status(second), cluster.status(third)] == [PENDING, ASSIGNED]
    assert cluster.state.jobs[second.id].job.revision == 1


def test_a_running_job_of_less_priority_is_evicted_by_whoever_waits() -> None:
    cluster = a_cluster(**FULL)
    job, other = a_job(priority=5), a_job(priority=3)
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    cluster.submit(other)
    assert cluster.state.jobs[other.id].promise is None
    update(cluster, job, priority=1)
    cluster.now += 60
    cluster.give()
    assert cluster.state.jobs[other.id].promise is not None


def test_a_new_time_limit_is_told_to_those_who_have_the_brief() -> None:
    cluster = a_cluster(**FULL)
    job = a_job(time_limit_s=10.0)
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    assert update(cluster, job, time_limit_s=60.0) == Accepted(1)
    assert cluster.turns[-1].effects == [Rebrief(job.id)]
    (tenant,) = cluster.state.tenants.of_job[job.id].values()
    assert (tenant.since, tenant.ends_at) == (100.0, 160.0)
    update(cluster, job, time_limit_s=0.0)
    assert cluster.state.jobs[job.id].job.time_limit_s is None
    assert update(cluster, job, time_limit_s=0.0) == Accepted(0)


def test_another_limit_lets_more_tasks_of_an_array_run_or_fewer() -> None:
    cluster = a_cluster(n1={"cores": 8})
    job = a_job(array="1-6%1")
    cluster.submit(job)

    def placed() -> int:
        return sum(cluster.status(job, each) == ASSIGNED for each in range(6))

    assert placed() == 1
    assert update(cluster, job, at_once=3) == Accepted(6)
    assert (placed(), str(cluster.state.jobs[job.id].job.array)) == (3, "1-6%3")
    assert update(cluster, job, at_once=2) == Accepted(6)
    assert placed() == 3, "what has a place keeps it"
    for position in range(2):
        cluster.started("n1", (job.id, position, 1))
        cluster.ended("n1", (job.id, position, 1))
    assert [cluster.status(job, each) for each in (2, 3, 4)] == [ASSIGNED, ASSIGNED, PENDING]
    assert cluster.state.jobs[job.id].groups[0].closed_gates_of_task(4) == [Gate.LIMIT]
    assert update(cluster, job, at_once=100) == Accepted(4)
    assert [cluster.status(job, each) for each in (4, 5)] == [ASSIGNED, ASSIGNED]
    assert cluster.state.jobs[job.id].job.groups[0].at_once == 0
    assert update(cluster, job, at_once=0) == Accepted(0)


def test_only_an_array_has_a_limit() -> None:
    cluster = a_cluster(n1={})
    one, gang = a_job(), a_gang(a_group(2))
    for job in (one, gang):
        cluster.submit(job)
    assert code(update(cluster, one, at_once=2)) == "NotAnArray"
    assert code(update(cluster, gang, at_once=2)) == "IsGang"


def test_settings_are_checked_as_at_submit() -> None:
    cluster = a_cluster(**FULL)
    cluster.give(SetQuota("small", Quota(cores=1, priority_max=3)))
    blocker, job = a_job(), a_job(array="0-1", cores=1)
    gang = a_gang(a_group(2, cores=1))
    for each in (blocker, job):
        cluster.submit(each)
    cluster.submit(gang, allow_infeasible=True)
    assert code(update(cluster, job, queue="nowhere", role="user")) == "QueueNotFound"
    assert code(update(cluster, job, priority=1001, role="user")) == "PriorityTooHigh"
    assert code(update(cluster, job, queue="small", priority=4, role="user")) == "PriorityTooHigh"
    assert code(update(cluster, gang, queue="small", role="user")) == "ExceedsQuotaMax"
    assert code(update(cluster, blocker, queue="small", role="user")) == "Running"
    assert update(cluster, job, queue="small", priority=3, role="user") == Accepted(2)
    cluster.ended("n1", (blocker.id, 0, 1))
    assert cluster.state.queues.usage["small"][0] == 1


def test_a_change_of_what_was_changed_meanwhile_is_refused() -> None:
    cluster = a_cluster()
    job = a_job()
    cluster.submit(job)
    assert update(cluster, job, priority=2, if_revision=0) == Accepted(1)
    assert code(update(cluster, job, priority=3, if_revision=0)) == "Changed"
    assert update(cluster, job, priority=2) == Accepted(0)
    assert update(cluster, job, priority=3, if_revision=1) == Accepted(1)


@pytest.mark.parametrize("kind", ["log", "image"])
def test_what_was_changed_is_kept(kind: str) -> None:
    cluster = a_cluster(n1={"cores": 2})
    cluster.give(SetQuota("b", Quota(cores=8)))
    running, waiting = a_job(cores=2), a_job(cores=2)
    cluster.submit(running)
    cluster.submit(waiting)
    update(cluster, running, priority=9, time_limit_s=60.0)
    update(cluster, waiting, queue="b", begin_at=500.0)
    array = a_job(array="0-3%1")
    cluster.submit(array)
    update(cluster, array, at_once=3)
    cluster.give(Hold(waiting.id, "ada", "later"))
    state = decode_state(encode_state(cluster.state), Timers()) if kind == "image" else replayed(cluster)
    for job in (running, waiting, array):
        old, new = cluster.state.jobs[job.id], state.jobs[job.id]
        assert new.job == old.job
        assert new.groups[0].group == old.groups[0].group
        assert new.groups[0].rank == old.groups[0].rank
        assert (new.held_because, new.held_by) == (old.held_because, old.held_by)
        assert new.closed_gates() == old.closed_gates()


def test_a_stage_keeps_its_queue_and_its_settings_while_others_queue_behind_it() -> None:
    cluster = WorkflowCluster(a_graph(first="", last="first"))
    cluster.give(SetQuota("b", Quota(cores=8)))
    stage = cluster.state.jobs[cluster.job_of("first")]
    assert code(update(cluster, stage.job, queue="b")) == "OfWorkflow"
    assert update(cluster, stage.job, priority=-1, time_limit_s=60.0) == Accepted(1)
    (attempt,) = stage.live.values()
    lane = cluster.state.nodes[attempt.node].lanes[attempt.lane]
    assert lane.is_slow
    lane.attempts["another", 0, 1] = None
    answer = decide(cluster.state, Update(stage.job.id, "ada", priority=0), cluster.now).answer
    assert code(answer) == "SharesLane"


def test_a_begin_that_is_changed_again_and_again_leaves_one_instant() -> None:
    cluster = a_cluster(n1={"cores": 4})
    job, other = a_job(begin_at=90_000.0), a_job(begin_at=200.0)
    for each in (job, other):
        cluster.submit(each)
    for number in range(3 * STALE_MAX):
        update(cluster, job, begin_at=80_000.0 - number)
    assert len(cluster.state.retries) <= STALE_MAX
    cluster.now = 201.0
    cluster.give()
    assert cluster.status(other) == Status.ASSIGNED
