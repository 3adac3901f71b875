"""What is shown of a task is its last attempt's: code, message and times, whatever earlier attempts did."""

from __future__ import annotations

from phalanx.api.schema.jobs import TaskView
from phalanx.coordinator.views import job_view, task_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Started
from phalanx.core.model.status import Why
from tests.support.builders import a_gang, a_group, a_job
from tests.unit.core.stage import Stage


def a_stage() -> Stage:
    return Stage(n1={"cores": 8}, n2={"cores": 8})


def task(stage: Stage, job: Job, position: int) -> TaskView:
    return task_view(stage.state.jobs[job.id], position, stage.state.known_names)


def why(stage: Stage, job: Job, position: int | None = None) -> str:
    return why_reply(stage.state, stage.state.jobs[job.id], position, stage.now).dominant.text


def exits(stage: Stage, job: Job, position: int, code: int, ran_s: float = 2.0) -> None:
    why = Why.EXITED if code else Why.NONE
    said = f"exited with code {code}" if code else ""
    stage.now += ran_s
    stage.report(job, position, Exit(why, code, stage.now - ran_s, stage.now, said))


def is_stopped(stage: Stage, job: Job, position: int, code: int | None = -15) -> None:
    """A runner that was told to stop it did."""
    attempt = stage.state.jobs[job.id].live[position]
    assert attempt.ending is not None and attempt.started_at is not None
    stage.now += 1.0
    stage.report(
        job, position, Exit(attempt.ending, code, attempt.started_at, stage.now, "stopped on request")
    )


def a_gang_at_its_second_try(stage: Stage, limit: int = 1) -> Job:
    """Both members of a gang exited with 7, and run again."""
    gang = a_gang(a_group(2), limit=limit)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    exits(stage, gang, 0, 7)
    exits(stage, gang, 1, 7)
    stage.now += 10.0
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    return gang


def test_a_member_that_was_stopped_when_its_gang_failed_shows_how_it_was_stopped():
    stage = a_stage()
    gang = a_gang_at_its_second_try(stage)
    exits(stage, gang, 0, 5)
    while_it_stops = task(stage, gang, 1)
    assert (while_it_stops.status, while_it_stops.exit_code, while_it_stops.ended_at) == (
        "Failed",
        None,
        None,
    )
    is_stopped(stage, gang, 1)
    shown = task(stage, gang, 1)
    assert (shown.status, shown.attempt, shown.exit_code) == ("Failed", 2, -15)
    assert (shown.message, shown.reason) == ("stopped on request", "job_failed")
    assert shown.started_at is not None and shown.ended_at is not None
    assert shown.started_at <= shown.ended_at == stage.now


def test_a_member_that_exits_by_itself_while_it_is_being_stopped_shows_its_own_code():
    stage = a_stage()
    gang = a_gang_at_its_second_try(stage)
    exits(stage, gang, 0, 5)
    is_stopped(stage, gang, 1, code=9)
    assert task(stage, gang, 1).exit_code == 9


def test_the_one_that_brought_its_gang_down_speaks_for_it_though_others_were_stopped_with_a_code():
    stage = a_stage()
    gang = a_gang_at_its_second_try(stage)
    exits(stage, gang, 1, 5)
    is_stopped(stage, gang, 0)
    assert (task(stage, gang, 1).reason, task(stage, gang, 0).reason) == ("exited", "job_failed")
    assert why(stage, gang).startswith(f"{gang.id}.1: ") and "exited with code 5" in why(stage, gang)
    whole = job_view(stage.state, stage.state.jobs[gang.id])
    assert (whole.exit_code, whole.reason) == (5, "exited")


def test_a_member_that_was_waiting_when_its_gang_failed_shows_its_last_attempt():
    stage = a_stage()
    gang = a_gang_at_its_second_try(stage)
    exits(stage, gang, 0, 5)
    is_stopped(stage, gang, 1)
    first = task(stage, gang, 0)
    assert (first.exit_code, first.message) == (5, "exited with code 5")


def test_a_task_that_completed_at_its_second_attempt_says_nothing_of_the_first():
    stage = a_stage()
    job = a_job(max_retries=1)
    stage.submit(job)
    stage.place(job, 0, "n1")
    exits(stage, job, 0, 1)
    stage.place(job, 0, "n1")
    exits(stage, job, 0, 0)
    assert why(stage, job, 0).endswith("it ended with code 0")
    shown = task(stage, job, 0)
    assert (shown.status, shown.exit_code, shown.message) == ("Completed", 0, "")


def test_a_gang_that_completed_after_a_restart_was_not_stopped_on_request():
    stage = a_stage()
    gang = a_gang(a_group(2), limit=1)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    exits(stage, gang, 1, 7)
    is_stopped(stage, gang, 0)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    for position in (0, 1):
        exits(stage, gang, position, 0)
    assert why(stage, gang).endswith("it ended with code 0")


def test_an_attempt_that_never_started_does_not_show_the_times_of_the_one_before():
    stage = a_stage()
    job = a_job(max_retries=1)
    stage.submit(job)
    stage.place(job, 0, "n1")
    exits(stage, job, 0, 1)
    stage.place(job, 0, "n1")
    refused = Exit(Why.REFUSED, 127, ended_at=stage.now + 1, message="no such program")
    stage.report(job, 0, refused)
    shown = task(stage, job, 0)
    assert (shown.started_at, shown.ended_at, shown.exit_code) == (None, stage.now + 1, 127)


def test_a_cancelled_task_shows_how_its_attempt_ended():
    stage = a_stage()
    job = a_job(max_retries=1)
    stage.submit(job)
    stage.place(job, 0, "n1")
    exits(stage, job, 0, 3)
    stage.place(job, 0, "n1")
    stage.report(job, 0, Started)
    stage.give(Cancel(job.id, None))
    assert task(stage, job, 0).exit_code is None
    is_stopped(stage, job, 0)
    shown = task(stage, job, 0)
    assert (shown.status, shown.exit_code, shown.ended_at) == ("Cancelled", -15, stage.now)


def test_a_clock_that_ran_backwards_gives_no_end_before_the_start():
    stage = a_stage()
    job = a_job()
    stage.submit(job)
    stage.place(job, 0, "n1")
    stage.report(job, 0, Exit(Why.NONE, 0, 500.0, 400.0))
    shown = task(stage, job, 0)
    assert (shown.started_at, shown.ended_at) == (500.0, 500.0)
    whole = job_view(stage.state, stage.state.jobs[job.id])
    assert whole.ended_at is not None and whole.started_at is not None and whole.ended_at >= whole.started_at


def test_a_condition_that_turns_false_says_when_it_did():
    stage = a_stage()
    job = a_job()
    stage.submit(job)
    stage.place(job, 0, "n1")
    stage.give(Evict(job.id, None, "user"))
    (true,) = task(stage, job, 0).conditions
    assert (true.status, true.last_transition_at) == ("True", stage.now)
    stage.confirm_stops()
    stage.now += 30.0
    placed_at = stage.now
    stage.place(job, 0, "n2")
    stage.now += 5.0
    exits(stage, job, 0, 0)
    kept = decode_state(encode_state(stage.state), stage.state.rules)
    for state in (stage.state, kept):
        (false,) = task_view(state.jobs[job.id], 0, state.known_names).conditions
        assert (false.status, false.last_transition_at) == ("False", placed_at)
