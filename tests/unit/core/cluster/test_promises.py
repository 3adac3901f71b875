"""Eviction and promises: places are set aside in the step that asks for them, and nobody else gets them."""

from __future__ import annotations

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Drain, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.model.orders import Ready, Started, Stop
from phalanx.core.model.reason import Reason
from phalanx.core.model.status import Status, Why
from tests.support.builders import a_cluster, a_gang, a_group, a_job
from tests.unit.core.stage import Stage

GPUS = {"n1": {"cores": 8, "gpus": 2}, "n2": {"cores": 8, "gpus": 2}}


def a_full_stage() -> tuple[Stage, list[str]]:
    """Two nodes whose four devices are held by four small tasks."""
    stage = Stage(**GPUS)
    small = a_job(array="0-3", gpus=1)
    stage.submit(small)
    for position, node in enumerate(("n1", "n1", "n2", "n2")):
        stage.place(small, position, node)
        stage.report(small, position, Started)
    return stage, [small.id]


def test_victims_leave_and_the_preemptor_gets_exactly_their_places():
    stage, (small,) = a_full_stage()
    gang = a_gang(a_group(2, gpus=2), priority=10)
    job = stage.submit(gang)
    lanes = [(node.name, lane) for node in stage.state.nodes.values() for lane in node.lanes]
    assert isinstance(stage.evicting(gang, {0: "n1", 1: "n2"}, lanes), Accepted)
    assert len(stage.told(Stop)) == 4
    assert isinstance(stage.redeem(gang), Refused)  # they have not gone yet
    stage.confirm_stops()
    assert isinstance(stage.redeem(gang), Accepted)
    assert [len(job.live[position].grant.devices) for position in (0, 1)] == [2, 2]
    assert Status(stage.state.jobs[small].status[0]) == Status.PENDING


def test_nobody_else_gets_a_promised_place():
    stage, _ = a_full_stage()
    gang, thief = a_gang(a_group(1, gpus=2), priority=10), a_job(gpus=1)
    stage.submit(gang)
    stage.submit(thief)
    lanes = [("n1", lane) for lane in stage.state.nodes["n1"].lanes]
    stage.evicting(gang, {0: "n1"}, lanes)
    stage.confirm_stops()
    assert isinstance(stage.state.table.ledgers[0].fit(thief.groups[0].request), Reason)


def test_a_victim_is_told_for_whom_it_leaves():
    stage, (small,) = a_full_stage()
    gang = a_gang(a_group(1, gpus=1), priority=10, name="hello-job")
    stage.submit(gang)
    stage.evicting(gang, {0: "n1"}, [("n1", 1)])
    condition = stage.state.jobs[small].conditions[0]
    assert condition.message == "phalanx: preempted to make room for hello-job (priority 10)"
    assert stage.state.jobs[small].live[0].ending == Why.EVICTED


def test_an_equal_priority_is_no_victim():
    stage, _ = a_full_stage()
    gang = a_gang(a_group(1, gpus=1), priority=0)
    stage.submit(gang)
    assert isinstance(stage.evicting(gang, {0: "n1"}, [("n1", 1)]), Refused)
    assert stage.told(Stop) == []


def test_a_promise_expires_when_victims_do_not_leave():
    stage, _ = a_full_stage()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    job = stage.submit(gang)
    stage.evicting(gang, {0: "n1"}, [("n1", 1)])
    stage.now += Timers().promise_s + 10
    stage.beat("n1", [])
    stage.beat("n2", [])
    stage.give(Tick())
    assert job.promise is None
    assert stage.waits(job)


def test_a_promise_ends_with_its_job():
    stage, _ = a_full_stage()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    stage.submit(gang)
    stage.evicting(gang, {0: "n1"}, [("n1", 1)])
    stage.give(Cancel(gang.id))
    assert stage.state.promised == {}
    assert len(stage.state.tenants) == 4


def test_a_promise_on_a_drained_node_is_withdrawn_before_its_victims_have_left():
    stage, _ = a_full_stage()
    gang = a_gang(a_group(1, gpus=1), priority=10)
    job = stage.submit(gang)
    stage.evicting(gang, {0: "n1"}, [("n1", 1)])
    stage.give(Drain("n1", "broken fan"))
    stage.give(Tick())
    assert job.promise is None
    assert stage.waits(job)


def test_a_single_task_may_be_promised_a_place():
    stage, _ = a_full_stage()
    urgent = a_job(gpus=1, priority=10)
    job = stage.submit(urgent)
    stage.evicting(urgent, {0: "n1"}, [("n1", 1)])
    assert job.groups[0] not in stage.state.waiting
    stage.confirm_stops()
    stage.redeem(urgent)
    assert job.live[0].formation == 0


def test_promises_and_formations_survive_a_restart():
    stage, _ = a_full_stage()
    gang, other = a_gang(a_group(1, gpus=1), priority=10), a_gang(a_group(2))
    stage.submit(gang)
    stage.submit(other)
    stage.evicting(gang, {0: "n1"}, [("n1", 1)])
    stage.gang_placement(other, {0: "n1", 1: "n2"})
    stage.report(other, 0, Ready)
    restored = decode_state(encode_state(stage.state), Timers())
    assert check(restored) == []
    assert encode_state(restored) == encode_state(stage.state)
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
