"""Why a gang waits: what it lacks, which jobs it waits for, and a fix that helps."""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import Cancel, Drain, Evict, SetQuota, Tick, Undrain
from phalanx.core.model.job import Gather, Job, Restart
from phalanx.core.model.orders import Ready, Started, Status
from phalanx.core.model.queues import Quota
from tests.support.builders import Cluster, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

RACK = (Gather("rack", must=True),)


def racks(*sizes: int, gpus: int = 8) -> Cluster:
    """A cluster with so many nodes in each rack."""
    cluster = Cluster()
    for rack, nodes in enumerate(sizes):
        for node in range(nodes):
            cluster.add_node(f"r{rack}n{node}", labels={"rack": f"r{rack}"}, cores=16, gpus=gpus)
    return cluster


def why(cluster: CoreCluster | Cluster, job: Job, position: int | None = None) -> WhyReply:
    memory = cluster.engine.memory if isinstance(cluster, Cluster) else None
    return why_reply(cluster.state, cluster.state.jobs[job.id], position, cluster.now, memory=memory)


def held(cluster: Cluster, *nodes: str) -> list[Job]:
    """Nodes that small jobs fill."""
    jobs = [a_job(target=node, gpus=8) for node in nodes]
    for job in jobs:
        cluster.submit(job)
    return jobs


def test_slots_of_each_domain_stand_against_what_is_needed():
    cluster = racks(3, 2)
    held(cluster, "r0n0")
    gang = a_gang(a_group(3, gpus=8), gather=RACK)
    cluster.submit(gang)
    reply = why(cluster, gang)
    assert (reply.id, reply.status, reply.needed) == (gang.id, "Pending", 3)
    assert [(each.layer, each.domain, each.slots, each.nodes) for each in reply.domains] == [
        ("rack", ["r0"], 2, 3),
        ("rack", ["r1"], 2, 2),
    ]
    assert [(each.count, each.nodes) for each in reply.nodes] == [(1, ["r0n0"])]


def test_enough_room_but_in_no_single_rack_is_fragmentation_and_the_fix_starts_it():
    cluster = racks(3, 3)
    held(cluster, "r0n0", "r1n0")
    gang = a_gang(a_group(3, gpus=8), gather=RACK)
    cluster.submit(gang)
    reply = why(cluster, gang)
    assert reply.dominant.code == "TopologyFragmented"
    assert reply.fix is not None
    assert reply.fix.change == {"gather": []}
    cluster.give(Cancel(gang.id))
    free = a_gang(a_group(3, gpus=8))
    cluster.submit(free)
    assert cluster.status(free) == Status.ASSIGNED


def test_too_little_room_for_all_is_an_incomplete_gang_and_nobody_can_be_evicted():
    cluster = racks(3)
    (other,) = held(cluster, "r0n0")
    gang = a_gang(a_group(3, gpus=8))
    cluster.submit(gang)
    reply = why(cluster, gang)
    assert reply.dominant.code == "GangIncomplete"
    assert [no.code for no in reply.others] == ["NoVictims", "RoomKept"]
    assert reply.fix is not None
    assert "minimum of 2" in reply.fix.text or other.id in reply.fix.text


def test_a_gang_with_every_node_drained_is_told_so_and_how_to_resume_them():
    cluster = racks(2)
    gang = a_gang(a_group(2, gpus=8))
    cluster.give(Drain("r0n0", "new disks"), Drain("r0n1", "new disks"))
    cluster.submit(gang)
    reply = why(cluster, gang)
    assert (reply.dominant.code, reply.dominant.text) == ("Maintenance", "r0n0 is drained: new disks")
    assert "GangIncomplete" in [no.code for no in reply.others]
    assert reply.fix is not None
    assert reply.fix.command == "phalanx node resume r0n0 && phalanx node resume r0n1"
    cluster.give(Undrain("r0n0"))
    assert why(cluster, gang).dominant.code == "GangIncomplete"
    cluster.give(Undrain("r0n1"))
    assert cluster.status(gang) == Status.ASSIGNED


def test_that_it_evicts_nobody_is_told_after_what_is_in_its_way():
    cluster = racks(2)
    held(cluster, "r0n0")
    gang = a_gang(a_group(2, gpus=8), may_evict=False, priority=10)
    cluster.submit(gang)
    reply = why(cluster, gang)
    codes = [reply.dominant.code, *(no.code for no in reply.others)]
    assert codes == ["GangIncomplete", "EvictionForbidden", "RoomKept"]


def test_a_quota_comes_before_full_nodes_and_both_are_told():
    cluster = racks(3)
    held(cluster, "r0n0")
    cluster.give(SetQuota("default", Quota(gpus=24)))
    gang = a_gang(a_group(3, gpus=8))
    cluster.submit(gang)
    reply = why(cluster, gang)
    assert reply.dominant.code == "QuotaExhausted"
    assert "GangIncomplete" in [no.code for no in reply.others]


def test_one_who_waits_behind_its_like_is_told_how_many_go_first():
    cluster = racks(2)
    held(cluster, "r0n0")
    first, second = (a_gang(a_group(2, gpus=8)) for _ in range(2))
    cluster.submit(first)
    cluster.submit(second)
    (behind,) = [no for no in why(cluster, second).others if no.code == "PriorityBehind"]
    assert behind.numbers["ahead"] == behind.numbers["of_job"] == 2


def test_room_that_is_kept_for_another_is_told_as_such():
    cluster = racks(2)
    running = structs.replace(a_job(target="r0n0", gpus=8), time_limit_s=50.0)
    cluster.submit(running)
    head = a_gang(a_group(2, gpus=8))
    cluster.submit(head)
    late = a_gang(a_group(2, gpus=4))
    cluster.submit(late)
    reply = why(cluster, late)
    assert reply.dominant.code == "ReservedForOther"
    assert reply.dominant.numbers["job"] == head.id
    assert reply.fix is not None
    assert reply.fix.change == {"time_limit": 20}


def test_what_can_never_be_says_so_first():
    cluster = racks(2, 1)
    gang = a_gang(a_group(3, gpus=8), gather=RACK)
    cluster.submit(gang, allow_infeasible=True)
    reply = why(cluster, gang)
    assert (reply.dominant.code, reply.dominant.tier) == ("MustGatherImpossible", "never")
    assert reply.fix is not None
    assert reply.fix.text.startswith("it would fit")


# What the job itself requires


def a_core_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 8, "gpus": 2}, n2={"cores": 8, "gpus": 2})


def test_at_the_barrier_the_missing_are_named_with_the_time_that_is_left():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3), wait_s=60.0)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.now += 20
    reply = why(cluster, gang)
    assert (reply.status, reply.dominant.code) == ("Assigned", "BarrierWait")
    assert reply.dominant.numbers == {
        "ready": 1,
        "placed": 3,
        "short": 0,
        "missing": [f"{gang.id}.1 on n1", f"{gang.id}.2 on n2"],
        "seconds": 40.0,
    }
    assert why(cluster, gang, 0).dominant.code == "BarrierWait"


def test_a_member_without_a_place_waits_for_the_barrier_of_the_others():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3, min=2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    assert why(cluster, gang, 2).dominant.code == "BarrierWait"


def test_a_preemptor_names_who_has_to_leave_and_where_it_will_stand():
    cluster = a_core_cluster()
    small, gang = a_job(gpus=2), a_gang(a_group(2, gpus=1), priority=10)
    cluster.submit(small)
    cluster.place(small, 0, "n1")
    cluster.report(small, 0, Started)
    cluster.submit(gang)
    cluster.evicting(gang, {0: "n1", 1: "n1"}, [("n1", 1)])
    reply = why(cluster, gang)
    assert reply.dominant.code == "WaitingVictims"
    assert reply.dominant.numbers["victims"] == [small.id]
    assert reply.dominant.numbers["nominated"] == {"n1": 2}
    victim = why(cluster, small)
    assert victim.dominant.code == "Leaving"
    assert f"preempted to make room for {gang.id} (" in victim.dominant.text


def test_members_that_cannot_queue_have_a_reason_too():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), match="waiting-and-running", restart=Restart(), max_retries=5)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0, code=1)
    cluster.gang_placement(gang, {0: "n1"})
    cluster.starts(gang, 0)
    cluster.ends(gang, 0, code=1)
    cluster.ends(gang, 1, code=1)
    assert why(cluster, gang, 0).dominant.code == "RetryBackoff"
    incomplete = why(cluster, gang, 1).dominant
    assert (incomplete.code, incomplete.numbers["needed"], incomplete.numbers["able"]) == (
        "GangIncomplete",
        2,
        1,
    )
    assert "1 in backoff" in incomplete.text


def test_a_restart_waits_for_the_life_before_and_then_for_its_backoff():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), limit=5)
    cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.ends(gang, 0, code=1)
        assert why(cluster, gang, 0).dominant.code == "Restarting"
        cluster.confirm_stops()
    reply = why(cluster, gang)
    assert reply.dominant.code == "RestartBackoff"
    assert (reply.dominant.numbers["used"], reply.dominant.numbers["limit"]) == (2, 5)


def test_a_gang_that_was_recalled_twice_waits_before_it_tries_again():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), wait_s=10.0)
    cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.now += 11
        cluster.give(Tick())
        cluster.confirm_stops()
    reply = why(cluster, gang)
    assert (reply.dominant.code, reply.dominant.numbers["recalls"]) == ("RestartBackoff", 2)


def test_a_group_that_begins_after_another_says_how_far_that_one_is():
    cluster = a_core_cluster()
    first, then = a_group(2, name="data"), a_group(1, name="train", after=(("data", "completed"),))
    job = structs.replace(a_job(), groups=(first, then))
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    cluster.ends(job, 0)
    reply = why(cluster, job, 2)
    assert reply.dominant.code == "WaitingDependency"
    assert "1 of 2" in reply.dominant.text


def test_a_member_that_is_done_and_the_rest_that_waits():
    cluster = a_core_cluster()
    gang = a_gang(a_group(3, min=2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0)
    assert why(cluster, gang, 0).dominant.code == "Finished"
    whole = why(cluster, gang)
    assert whole.dominant.code == "Running"
    assert [no.code for no in whole.others] == ["TasksWaiting"]


def test_a_member_on_its_node_that_begins_after_others_waits_for_them():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1, name="data"), a_group(1, name="train", after=(("data", "completed"),)))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0)
    assert why(cluster, gang, 1).dominant.code == "WaitingDependency"


def test_a_job_that_failed_says_who_used_up_the_retries_that_all_share():
    cluster = a_core_cluster()
    restart = Restart(fails_job=True, shared=True, counts_evictions=True)
    job = structs.replace(a_job(), groups=(a_group(2),), max_retries=0, restart=restart)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.place(job, 1, "n1")
    cluster.give(Evict(job.id, 1, "user ada"))
    cluster.confirm_stops()
    reply = why(cluster, job)
    assert (reply.id, reply.status) == (f"{job.id}.1", "Failed")
    assert "evicted by user ada" in reply.dominant.text
    assert "may be retried 0 times in all, and failed" in reply.dominant.text
    assert reply.dominant.text.endswith(f"{job.id}.1 × 1")


def test_a_gang_that_failed_names_the_task_that_did():
    cluster = a_core_cluster()
    gang = a_gang(a_group(1, name="a"), a_group(1, name="b"), limit=1)
    cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n1"})
        cluster.starts(gang, 0, 1)
        cluster.ends(gang, 1, code=3)
        cluster.confirm_stops()
    reply = why(cluster, gang)
    assert (reply.id, reply.status) == (gang.id, "Failed")
    assert reply.dominant.code == "EndedFailed"
    assert reply.dominant.text.startswith(f"{gang.id}.1: ")
    assert reply.dominant.text.endswith("1 of 1 times")
