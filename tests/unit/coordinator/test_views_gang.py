"""What users see of gangs: phases, barrier, promises, conditions, ranks, restarts."""

from __future__ import annotations

from phalanx.api.schema.gang import GangView
from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.coordinator.views import job_view, task_view, task_viewer
from phalanx.core.cluster.inputs import Evict
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Ready, Started
from phalanx.core.model.status import Why
from tests.support.builders import a_gang, a_group, a_job
from tests.unit.core.stage import Stage


def a_stage() -> Stage:
    return Stage(n1={"cores": 8, "gpus": 2}, n2={"cores": 8, "gpus": 2})


def seen(stage: Stage, job: Job) -> JobView:
    return job_view(stage.state, stage.state.jobs[job.id])


def gang_of(stage: Stage, job: Job) -> GangView:
    gang = seen(stage, job).gang
    assert gang is not None
    return gang


def task(stage: Stage, job: Job, position: int) -> TaskView:
    return task_view(stage.state.jobs[job.id], position, stage.state.table.names)


def test_a_gang_goes_through_the_phases_of_a_podgroup():
    stage = a_stage()
    gang = a_gang(a_group(2))
    stage.submit(gang)
    phases = [gang_of(stage, gang).phase]
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    phases.append(gang_of(stage, gang).phase)
    stage.starts(gang, 0, 1)
    phases.append(gang_of(stage, gang).phase)
    stage.ends(gang, 0)
    stage.ends(gang, 1)
    phases.append(gang_of(stage, gang).phase)
    assert phases == ["PreScheduling", "Scheduled", "Running", "Finished"]


def test_a_part_of_a_gang_is_being_scheduled():
    stage = a_stage()
    gang = a_gang(a_group(3), strict=False)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1"})
    assert (gang_of(stage, gang).phase, gang_of(stage, gang).placed) == ("Scheduling", 1)


def test_a_gang_that_may_not_be_placed_yet_is_pending_and_one_that_failed_has_failed():
    stage = a_stage()
    gang = a_gang(a_group(2), limit=1)
    stage.submit(gang)
    for _ in range(2):
        stage.gang_placement(gang, {0: "n1", 1: "n2"})
        stage.starts(gang, 0, 1)
        stage.ends(gang, 0, code=3)
        if gang_of(stage, gang).phase != "Failed":
            assert gang_of(stage, gang).phase == "Pending"  # the other one is still being stopped
            stage.confirm_stops()
    assert (seen(stage, gang).status, gang_of(stage, gang).phase) == ("Failed", "Failed")


def test_restarts_are_counted_against_their_limit():
    stage = a_stage()
    gang = a_gang(a_group(2), limit=3)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    stage.ends(gang, 1, code=1)
    assert (seen(stage, gang).restarts, seen(stage, gang).restart_limit) == (1, 3)
    assert seen(stage, a_plain(stage)).restart_limit is None


def a_plain(stage: Stage) -> Job:
    job = a_job()
    stage.submit(job)
    return job


def test_a_job_that_failed_with_its_last_restart_has_the_code_of_its_task():
    stage = a_stage()
    gang = a_gang(a_group(2), limit=0)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    stage.ends(gang, 1, code=7)
    assert (seen(stage, gang).status, seen(stage, gang).exit_code) == ("Failed", 7)


def test_members_at_the_barrier_are_ready_one_by_one():
    stage = a_stage()
    gang = a_gang(a_group(2), wait_s=40.0)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 1, Ready)
    forming = gang_of(stage, gang).formation
    assert forming is not None
    assert (forming.number, forming.placed, forming.ready, forming.until) == (1, 2, 1, 140.0)
    assert [task(stage, gang, position).ready for position in (0, 1)] == [False, True]


def test_a_preemptor_shows_its_nominated_nodes_and_a_victim_its_condition():
    stage = a_stage()
    pods = ("default/preemptor-pod-1", "default/preemptor-pod-2")
    small = a_job(gpus=2)
    gang = a_gang(a_group(2, gpus=1, objects=pods), priority=10, object="default/hello-job")
    stage.submit(small)
    stage.place(small, 0, "n1")
    stage.report(small, 0, Started)
    stage.submit(gang)
    stage.evicting(gang, {0: "n1", 1: "n1"}, [("n1", 1)])
    promise = gang_of(stage, gang).promise
    assert promise is not None
    assert (promise.victims, promise.nominated) == ([small.id], {"n1": 2})
    assert gang_of(stage, gang).phase == "Scheduling"
    assert task(stage, gang, 0).nominated_node == "n1"
    (condition,) = task(stage, small, 0).conditions
    assert (condition.type, condition.status, condition.reason) == (
        "DisruptionTarget",
        "True",
        "PreemptionByScheduler",
    )
    assert condition.message == (
        "phalanx: preempting to accommodate higher priority pods, preemptor: default/hello-job, "
        "triggerpod: default/preemptor-pod-1"
    )


def test_who_was_evicted_by_hand_is_told_by_whom():
    stage = a_stage()
    job = a_job()
    stage.submit(job)
    stage.place(job, 0, "n1")
    stage.give(Evict(job.id, cause="user ada"))
    (condition,) = task(stage, job, 0).conditions
    assert (condition.reason, condition.message) == (
        "EvictionByEvictionAPI",
        "phalanx: evicted by user ada",
    )


def test_ranks_follow_the_index_in_the_network():
    stage = a_stage()
    gang = a_gang(a_group(3, name="w", indexes=(20, 10, 30), replicas=1))
    stage.submit(gang)
    view = task_viewer(stage.state.jobs[gang.id], stage.state.table.names)
    views = [view(position) for position in range(3)]
    assert [(view.group, view.rank) for view in views] == [("w", 1), ("w", 0), ("w", 2)]


def test_ranks_of_a_gang_that_may_start_with_fewer_are_those_of_the_members_that_are_there():
    stage = a_stage()
    gang = a_gang(a_group(3, min=2))
    stage.submit(gang)
    assert task(stage, gang, 2).rank is None
    stage.gang_placement(gang, {0: "n1", 2: "n2"})
    assert [task(stage, gang, position).rank for position in range(3)] == [0, None, 1]


def test_a_member_that_is_done_says_what_it_waits_for():
    stage = a_stage()
    gang = a_gang(a_group(2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    stage.ends(gang, 0)
    done = task(stage, gang, 0)
    assert (done.status, done.exit_code) == ("Running", 0)
    assert "Completed once its whole job is" in done.message


def test_groups_are_counted_by_themselves():
    stage = a_stage()
    gang = a_gang(a_group(1, name="master"), a_group(3, name="worker", min=2, gpus=1))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    master, worker = seen(stage, gang).groups
    assert (master.name, master.needed, master.counts.assigned) == ("master", 1, 1)
    assert (worker.needed, worker.counts.assigned, worker.counts.pending) == (2, 2, 1)
    assert worker.request.gpus == 1


def test_a_gang_with_members_that_still_run_is_not_finished():
    stage = a_stage()
    gang = a_gang(a_group(3, min=1))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    stage.ends(gang, 0)
    assert gang_of(stage, gang).phase == "Running"
    stage.ends(gang, 1)
    assert (seen(stage, gang).status, gang_of(stage, gang).phase) == ("Completed", "Finished")


def test_members_that_are_done_are_counted_by_group_until_the_job_is_over():
    stage = a_stage()
    gang = a_gang(a_group(1, name="master"), a_group(2, name="worker"))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    stage.starts(gang, 0, 1, 2)
    stage.ends(gang, 1)
    job = seen(stage, gang)
    assert (job.finished, [group.finished for group in job.groups]) == (1, [0, 1])
    stage.ends(gang, 0)
    stage.ends(gang, 2)
    assert (seen(stage, gang).finished, seen(stage, gang).counts.completed) == (0, 3)


def test_a_member_that_begins_after_others_says_for_whom_it_waits():
    stage = a_stage()
    gang = a_gang(a_group(1, name="data"), a_group(1, name="train", after=(("data", "completed"),)))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0)
    assert task(stage, gang, 1).message == "It begins when every task of data has completed; 0 of 1 have"
    assert task(stage, gang, 0).message == ""


def test_what_an_earlier_attempt_said_is_told_as_such():
    stage = a_stage()
    gang = a_gang(a_group(1), limit=2)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1"})
    stage.starts(gang, 0)
    stage.report(gang, 0, Exit(Why.EXITED, 3, 100.0, 100.0, message="exited with code 3"))
    assert task(stage, gang, 0).message == "exited with code 3"
    stage.gang_placement(gang, {0: "n1"})
    assert task(stage, gang, 0).message == "an earlier attempt: exited with code 3"


def test_a_task_that_has_a_place_again_is_no_longer_called_a_victim():
    stage = a_stage()
    job = a_job()
    stage.submit(job)
    stage.place(job, 0, "n1")
    stage.give(Evict(job.id, cause="user ada"))
    stage.confirm_stops()
    assert len(task(stage, job, 0).conditions) == 1
    stage.place(job, 0, "n1")
    assert [each.status for each in task(stage, job, 0).conditions] == ["False"]
