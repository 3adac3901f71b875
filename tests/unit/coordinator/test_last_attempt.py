"""What is shown of a task is its last attempt's: code, message and times, whatever earlier attempts did."""

from __future__ import annotations

from phalanx.api.schema.jobs import TaskView
from phalanx.coordinator.views import job_view, task_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Started, Why
from tests.support.builders import a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster


def a_core_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 8}, n2={"cores": 8})


def task(cluster: CoreCluster, job: Job, position: int) -> TaskView:
    return task_view(cluster.state, cluster.state.jobs[job.id], position)


def why(cluster: CoreCluster, job: Job, position: int | None = None) -> str:
    return why_reply(cluster.state, cluster.state.jobs[job.id], position, cluster.now).dominant.text


def exits(cluster: CoreCluster, job: Job, position: int, code: int, ran_s: float = 2.0) -> None:
    why = Why.EXITED if code else Why.NONE
    said = f"exited with code {code}" if code else ""
    cluster.now += ran_s
    cluster.report(job, position, Exit(why, code, cluster.now - ran_s, cluster.now, said))


def is_stopped(cluster: CoreCluster, job: Job, position: int, code: int | None = -15) -> None:
    """A runner that was ordered to stop it did."""
    attempt = cluster.state.jobs[job.id].live[position]
    assert attempt.ending is not None and attempt.started_at is not None
    cluster.now += 1.0
    cluster.report(
        job, position, Exit(attempt.ending, code, attempt.started_at, cluster.now, "stopped on request")
    )


def a_gang_at_its_second_try(cluster: CoreCluster, limit: int = 1) -> Job:
    """Both members of a gang exited with 7, and run again."""
    gang = a_gang(a_group(2), limit=limit)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    exits(cluster, gang, 0, 7)
    exits(cluster, gang, 1, 7)
    cluster.now += 10.0
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    return gang


def test_a_member_that_was_stopped_when_its_gang_failed_shows_how_it_was_stopped():
    cluster = a_core_cluster()
    gang = a_gang_at_its_second_try(cluster)
    exits(cluster, gang, 0, 5)
    while_it_stops = task(cluster, gang, 1)
    assert (while_it_stops.status, while_it_stops.exit_code, while_it_stops.ended_at) == (
        "Failed",
        None,
        None,
    )
    is_stopped(cluster, gang, 1)
    shown = task(cluster, gang, 1)
    assert (shown.status, shown.attempt, shown.exit_code) == ("Failed", 2, -15)
    assert (shown.message, shown.reason) == ("stopped on request", "job_failed")
    assert shown.started_at is not None and shown.ended_at is not None
    assert shown.started_at <= shown.ended_at == cluster.now


def test_a_member_that_exits_by_itself_while_it_is_being_stopped_shows_its_own_code():
    cluster = a_core_cluster()
    gang = a_gang_at_its_second_try(cluster)
    exits(cluster, gang, 0, 5)
    is_stopped(cluster, gang, 1, code=9)
    assert task(cluster, gang, 1).exit_code == 9


def test_the_one_that_brought_its_gang_down_speaks_for_it_though_others_were_stopped_with_a_code():
    cluster = a_core_cluster()
    gang = a_gang_at_its_second_try(cluster)
    exits(cluster, gang, 1, 5)
    is_stopped(cluster, gang, 0)
    assert (task(cluster, gang, 1).reason, task(cluster, gang, 0).reason) == ("exited", "job_failed")
    assert why(cluster, gang).startswith(f"{gang.id}.1: ") and "exited with code 5" in why(cluster, gang)
    whole = job_view(cluster.state, cluster.state.jobs[gang.id])
    assert (whole.exit_code, whole.reason) == (5, "exited")


def test_a_member_that_was_waiting_when_its_gang_failed_shows_its_last_attempt():
    cluster = a_core_cluster()
    gang = a_gang_at_its_second_try(cluster)
    exits(cluster, gang, 0, 5)
    is_stopped(cluster, gang, 1)
    first = task(cluster, gang, 0)
    assert (first.exit_code, first.message) == (5, "exited with code 5")


def test_a_task_that_completed_at_its_second_attempt_says_nothing_of_the_first():
    cluster = a_core_cluster()
    job = a_job(max_retries=1)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    exits(cluster, job, 0, 1)
    cluster.place(job, 0, "n1")
    exits(cluster, job, 0, 0)
    assert why(cluster, job, 0).endswith("code 0")
    shown = task(cluster, job, 0)
    assert (shown.status, shown.exit_code, shown.message) == ("Completed", 0, "")


def test_a_gang_that_completed_after_a_restart_was_not_stopped_on_request():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), limit=1)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    exits(cluster, gang, 1, 7)
    is_stopped(cluster, gang, 0)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    for position in (0, 1):
        exits(cluster, gang, position, 0)
    assert why(cluster, gang).endswith("code 0")


def test_an_attempt_that_never_started_does_not_show_the_times_of_the_one_before():
    cluster = a_core_cluster()
    job = a_job(max_retries=1)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    exits(cluster, job, 0, 1)
    cluster.place(job, 0, "n1")
    refused = Exit(Why.REFUSED, 127, ended_at=cluster.now + 1, message="no such program")
    cluster.report(job, 0, refused)
    shown = task(cluster, job, 0)
    assert (shown.started_at, shown.ended_at, shown.exit_code) == (None, cluster.now + 1, 127)


def test_a_cancelled_task_shows_how_its_attempt_ended():
    cluster = a_core_cluster()
    job = a_job(max_retries=1)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    exits(cluster, job, 0, 3)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    cluster.give(Cancel(job.id, None))
    assert task(cluster, job, 0).exit_code is None
    is_stopped(cluster, job, 0)
    shown = task(cluster, job, 0)
    assert (shown.status, shown.exit_code, shown.ended_at) == ("Cancelled", -15, cluster.now)


def test_a_clock_that_ran_backwards_gives_no_end_before_the_start():
    cluster = a_core_cluster()
    job = a_job()
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Exit(Why.NONE, 0, 500.0, 400.0))
    shown = task(cluster, job, 0)
    assert (shown.started_at, shown.ended_at) == (500.0, 500.0)
    whole = job_view(cluster.state, cluster.state.jobs[job.id])
    assert whole.ended_at is not None and whole.started_at is not None and whole.ended_at >= whole.started_at


def test_a_condition_that_turns_false_says_when_it_did():
    cluster = a_core_cluster()
    job = a_job()
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.give(Evict(job.id, None, "user"))
    (true,) = task(cluster, job, 0).conditions
    assert (true.status, true.last_transition_at) == ("True", cluster.now)
    cluster.confirm_stops()
    cluster.now += 30.0
    placed_at = cluster.now
    cluster.place(job, 0, "n2")
    cluster.now += 5.0
    exits(cluster, job, 0, 0)
    kept = decode_state(encode_state(cluster.state), cluster.state.rules)
    for state in (cluster.state, kept):
        (false,) = task_view(state, state.jobs[job.id], 0).conditions
        assert (false.status, false.last_transition_at) == ("False", placed_at)
