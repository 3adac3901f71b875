"""Eviction and promises: places are set aside in the step that evicts, and no other job gets them."""

from __future__ import annotations

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Drain, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.model.orders import Ready, Started, Status, Stop, Why
from phalanx.core.model.reason import Reason
from tests.support.builders import a_cluster, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

GPUS = {"n1": {"cores": 8, "gpus": 2}, "n2": {"cores": 8, "gpus": 2}}


def a_full_cluster() -> tuple[CoreCluster, list[str]]:
    """Two nodes whose four devices are held by four small tasks."""
    cluster = CoreCluster(**GPUS)
    small = a_job(array="0-3", gpus=1)
    cluster.submit(small)
    for position, node in enumerate(("n1", "n1", "n2", "n2")):
        cluster.place(small, position, node)
        cluster.report(small, position, Started)
    return cluster, [small.id]


def test_victims_leave_and_the_preemptor_gets_exactly_their_places():
    cluster, (small,) = a_full_cluster()
    gang = a_gang(a_group(2, gpus=2), priority=10)
    job = cluster.submit(gang)
    lanes = [(node.name, lane) for node in cluster.state.nodes.values() for lane in node.lanes]
    assert isinstance(cluster.evicting(gang, {0: "n1", 1: "n2"}, lanes), Accepted)
    assert len(cluster.told(Stop)) == 4
    assert isinstance(cluster.redeem(gang), Refused)  # they have not gone yet
    cluster.confirm_stops()
    assert isinstance(cluster.redeem(gang), Accepted)
    assert [len(job.live[position].grant.devices) for position in (0, 1)] == [2, 2]
    assert Status(cluster.state.jobs[small].status[0]) == Status.PENDING


def test_nobody_else_gets_a_promised_place():
    cluster, _ = a_full_cluster()
    gang, thief = a_gang(a_group(1, gpus=2), priority=10), a_job(gpus=1)
    cluster.submit(gang)
    cluster.submit(thief)
    lanes = [("n1", lane) for lane in cluster.state.nodes["n1"].lanes]
    cluster.evicting(gang, {0: "n1"}, lanes)
    cluster.confirm_stops()
    assert isinstance(cluster.state.table.ledgers[0].fit(thief.groups[0].request), Reason)


def test_a_victim_is_told_for_whom_it_leaves():
    cluster, (small,) = a_full_cluster()
    gang = a_gang(a_group(1, gpus=1), priority=10, name="hello-job", user="alice")
    cluster.submit(gang)
    cluster.evicting(gang, {0: "n1"}, [("n1", 1)])
    condition = cluster.state.jobs[small].conditions[0]
    assert condition.message == "phalanx: preempted to make room for hello-job (job 2 of alice, priority 10)"
    assert cluster.state.jobs[small].live[0].ending == Why.EVICTED


def test_an_equal_priority_is_no_victim():
    cluster, _ = a_full_cluster()
    gang = a_gang(a_group(1, gpus=1), priority=0)
    cluster.submit(gang)
    assert isinstance(cluster.evicting(gang, {0: "n1"}, [("n1", 1)]), Refused)
    assert cluster.told(Stop) == []


def test_a_promise_expires_when_victims_do_not_leave():
    cluster, _ = a_full_cluster()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    job = cluster.submit(gang)
    cluster.evicting(gang, {0: "n1"}, [("n1", 1)])
    cluster.now += Timers().promise_s + 10
    cluster.beat("n1", [])
    cluster.beat("n2", [])
    cluster.give(Tick())
    assert job.promise is None
    assert cluster.waits(job)


def test_a_promise_ends_with_its_job():
    cluster, _ = a_full_cluster()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    cluster.submit(gang)
    cluster.evicting(gang, {0: "n1"}, [("n1", 1)])
    cluster.give(Cancel(gang.id))
    assert cluster.state.promised == {}
    assert len(cluster.state.tenants) == 4


def test_a_promise_on_a_drained_node_is_withdrawn_before_its_victims_have_left():
    cluster, _ = a_full_cluster()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    job = cluster.submit(gang)
    cluster.evicting(gang, {0: "n1"}, [("n1", 1)])
    cluster.give(Drain("n1", "broken fan"))
    cluster.give(Tick())
    assert job.promise is None
    assert cluster.waits(job)


def test_a_single_task_may_be_promised_a_place():
    cluster, _ = a_full_cluster()
    urgent = a_job(gpus=1, priority=10)
    job = cluster.submit(urgent)
    cluster.evicting(urgent, {0: "n1"}, [("n1", 1)])
    assert job.groups[0] not in cluster.state.waiting
    cluster.confirm_stops()
    cluster.redeem(urgent)
    assert job.live[0].formation == 0


def test_promises_and_formations_survive_a_restart():
    cluster, _ = a_full_cluster()
    gang, other = a_gang(a_group(1, gpus=1), priority=10), a_gang(a_group(2))
    cluster.submit(gang)
    cluster.submit(other)
    cluster.evicting(gang, {0: "n1"}, [("n1", 1)])
    cluster.gang_placement(other, {0: "n1", 1: "n2"})
    cluster.report(other, 0, Ready)
    restored = decode_state(encode_state(cluster.state), Timers())
    assert check(restored) == []
    assert encode_state(restored) == encode_state(cluster.state)
    assert set(restored.promised) == {gang.id}
    assert restored.jobs[other.id].forming is not None


def test_an_urgent_array_is_promised_many_places_at_once():
    cluster = a_cluster(n1={"cores": 8, "gpus": 2}, n2={"cores": 8, "gpus": 2})
    cluster.submit(a_job(array="0-3", gpus=1))
    urgent = a_job(array="0-3", gpus=1, priority=10)
    cluster.submit(urgent)
    promise = cluster.state.jobs[urgent.id].promise
    assert promise is not None
    assert (sorted(promise.members), len(promise.victims)) == ([0, 1, 2, 3], 4)
