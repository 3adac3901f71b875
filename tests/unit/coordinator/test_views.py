"""What users see of gangs: phases, barrier, promises, conditions, ranks, restarts."""

from __future__ import annotations

from phalanx.api.schema.jobs import GangView, JobView, TaskView
from phalanx.coordinator.views import job_view, task_view, task_viewer
from phalanx.core.cluster.inputs import Disconnect, Evict
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Ready, Started, Why
from tests.support.builders import a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster


def a_core_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 8, "gpus": 2}, n2={"cores": 8, "gpus": 2})


def seen(cluster: CoreCluster, job: Job) -> JobView:
    return job_view(cluster.state, cluster.state.jobs[job.id])


def gang_of(cluster: CoreCluster, job: Job) -> GangView:
    gang = seen(cluster, job).gang
    assert gang is not None
    return gang


def task(cluster: CoreCluster, job: Job, position: int) -> TaskView:
    return task_view(cluster.state, cluster.state.jobs[job.id], position)


def test_a_gang_goes_through_the_phases_of_a_podgroup():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    phases = [gang_of(cluster, gang).phase]
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    phases.append(gang_of(cluster, gang).phase)
    cluster.starts(gang, 0, 1)
    phases.append(gang_of(cluster, gang).phase)
    cluster.ends(gang, 0)
    cluster.ends(gang, 1)
    phases.append(gang_of(cluster, gang).phase)
    assert phases == ["PreScheduling", "Scheduled", "Running", "Finished"]


def test_a_part_of_a_gang_is_being_scheduled():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3), strict=False)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1"})
    assert (gang_of(cluster, gang).phase, gang_of(cluster, gang).placed) == ("Scheduling", 1)


def test_a_gang_that_may_not_be_placed_yet_is_pending_and_one_that_failed_has_failed():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), limit=1)
    cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.ends(gang, 0, code=3)
        if gang_of(cluster, gang).phase != "Failed":
            assert gang_of(cluster, gang).phase == "Pending"  # the other one is still being stopped
            cluster.confirm_stops()
    assert (seen(cluster, gang).status, gang_of(cluster, gang).phase) == ("Failed", "Failed")


def test_restarts_are_counted_against_their_limit():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), limit=3)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 1, code=1)
    assert (seen(cluster, gang).restarts, seen(cluster, gang).restart_limit) == (1, 3)
    assert seen(cluster, a_plain(cluster)).restart_limit is None


def a_plain(cluster: CoreCluster) -> Job:
    job = a_job()
    cluster.submit(job)
    return job


def test_a_job_that_failed_with_its_last_restart_has_the_code_of_its_task():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), limit=0)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 1, code=7)
    assert (seen(cluster, gang).status, seen(cluster, gang).exit_code) == ("Failed", 7)


def test_members_at_the_barrier_are_ready_one_by_one():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), wait_s=40.0)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 1, Ready)
    forming = gang_of(cluster, gang).formation
    assert forming is not None
    assert (forming.number, forming.placed, forming.ready, forming.until) == (1, 2, 1, 140.0)
    assert [task(cluster, gang, position).ready for position in (0, 1)] == [False, True]


def test_a_preemptor_shows_its_nominated_nodes_and_a_victim_its_condition():
    cluster = a_core_cluster()
    pods = ("default/preemptor-pod-1", "default/preemptor-pod-2")
    small = a_job(gpus=2)
    gang = a_gang(a_group(2, gpus=1, objects=pods), priority=10, object="default/hello-job")
    cluster.submit(small)
    cluster.place(small, 0, "n1")
    cluster.report(small, 0, Started)
    cluster.submit(gang)
    cluster.evicting(gang, {0: "n1", 1: "n1"}, [("n1", 1)])
    promise = gang_of(cluster, gang).promise
    assert promise is not None
    assert (promise.victims, promise.nominated) == ([small.id], {"n1": 2})
    assert gang_of(cluster, gang).phase == "Scheduling"
    assert task(cluster, gang, 0).nominated_node == "n1"
    (condition,) = task(cluster, small, 0).conditions
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
    cluster = a_core_cluster()
    job = a_job()
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.give(Evict(job.id, cause="user ada"))
    (condition,) = task(cluster, job, 0).conditions
    assert (condition.reason, condition.message) == (
        "EvictionByEvictionAPI",
        "phalanx: evicted by user ada",
    )


def test_ranks_follow_the_index_in_the_network():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3, name="w", indexes=(20, 10, 30), replicas=1))
    cluster.submit(gang)
    view = task_viewer(cluster.state, cluster.state.jobs[gang.id])
    views = [view(position) for position in range(3)]
    assert [(view.group, view.rank) for view in views] == [("w", 1), ("w", 0), ("w", 2)]


def test_ranks_of_a_gang_that_may_start_with_fewer_are_those_of_the_members_that_are_there():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3, min=2))
    cluster.submit(gang)
    assert task(cluster, gang, 2).rank is None
    cluster.gang_placement(gang, {0: "n1", 2: "n2"})
    assert [task(cluster, gang, position).rank for position in range(3)] == [0, None, 1]


def test_a_member_that_is_done_says_what_it_waits_for():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0)
    done = task(cluster, gang, 0)
    assert (done.status, done.exit_code) == ("Running", 0)
    assert "Completed once its whole job is" in done.message


def test_groups_are_counted_by_themselves():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1, name="master"), a_group(3, name="worker", min=2, gpus=1))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    master, worker = seen(cluster, gang).groups
    assert (master.name, master.needed, master.counts.assigned) == ("master", 1, 1)
    assert (worker.needed, worker.counts.assigned, worker.counts.pending) == (2, 2, 1)
    assert worker.request.gpus == 1


def test_a_gang_with_members_that_still_run_is_not_finished():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3, min=1))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0)
    assert gang_of(cluster, gang).phase == "Running"
    cluster.ends(gang, 1)
    assert (seen(cluster, gang).status, gang_of(cluster, gang).phase) == ("Completed", "Finished")


def test_members_that_are_done_are_counted_by_group_until_the_job_is_over():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1, name="master"), a_group(2, name="worker"))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)
    cluster.ends(gang, 1)
    job = seen(cluster, gang)
    assert (job.finished, [group.finished for group in job.groups]) == (1, [0, 1])
    cluster.ends(gang, 0)
    cluster.ends(gang, 2)
    assert (seen(cluster, gang).finished, seen(cluster, gang).counts.completed) == (0, 3)


def test_a_member_that_begins_after_others_says_for_whom_it_waits():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1, name="data"), a_group(1, name="train", after=(("data", "completed"),)))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0)
    assert "0 of 1" in task(cluster, gang, 1).message
    assert task(cluster, gang, 0).message == ""


def test_what_an_earlier_attempt_said_is_told_as_such():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1), limit=2)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1"})
    cluster.starts(gang, 0)
    cluster.report(gang, 0, Exit(Why.EXITED, 3, 100.0, 100.0, message="exited with code 3"))
    assert task(cluster, gang, 0).message == "exited with code 3"
    cluster.gang_placement(gang, {0: "n1"})
    assert task(cluster, gang, 0).message == "an earlier attempt: exited with code 3"


def test_a_task_that_has_a_place_again_is_no_longer_called_a_victim():
    cluster = a_core_cluster()
    job = a_job()
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.give(Evict(job.id, cause="user ada"))
    cluster.confirm_stops()
    assert len(task(cluster, job, 0).conditions) == 1
    cluster.place(job, 0, "n1")
    assert [each.status for each in task(cluster, job, 0).conditions] == ["False"]


def test_what_runs_on_a_node_that_is_not_connected_is_unreachable():
    cluster = a_core_cluster()
    job = a_job(array="1-3")
    cluster.submit(job)
    for position, node in enumerate(("n1", "n2")):
        cluster.place(job, position, node)
        cluster.report(job, position, Started)
    cluster.give(Disconnect("n1", cluster.state.nodes["n1"].incarnation))
    assert seen(cluster, job).unreachable == 1
    assert [task(cluster, job, position).unreachable for position in range(3)] == [True, False, False]
