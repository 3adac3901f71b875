"""Stages of one owner that ask for the same queue in each other's lanes, and nobody else does."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, SetQuota, SubmitWorkflow, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.lanes import POOLS_MAX, LanePools, lane_kind
from phalanx.core.model.orders import AttemptKey, Ended, Exit, Returned, Start, Status, Stop, Why
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Request
from phalanx.core.model.workflow import Stage, Workflow, workflow_id
from tests.support.builders import Cluster, a_cluster, a_job

LEARNED = 5  # so many stages have to end before the others queue


def a_stage_job(program: str = "/bin/true", cores: int = 1, **fields: object) -> Job:
    group = Group(Command((program,)), Request(cores=cores))
    return Job("", (group,), "", 0.0, **({"user": "ada", "max_retries": 2} | fields))  # type: ignore[arg-type]


def submit(cluster: Cluster, *jobs: Job, number: int = 1) -> list[str]:
    """A workflow of these stages, none of which builds on another; returns the ids of their jobs."""
    stages = tuple(Stage(f"s{at}", job) for at, job in enumerate(jobs))
    flow = Workflow(workflow_id(1, number << 40), stages, 0.0, user=jobs[0].user)
    cluster.give(SubmitWorkflow(flow))
    return [cluster.state.workflows[flow.id].job_id(stage) for stage in range(len(stages))]


def running(cluster: Cluster, node: str = "n1") -> list[list[AttemptKey]]:
    """The attempts in each lane of a node, in order."""
    return [list(lane.attempts) for lane in cluster.state.nodes[node].lanes.values()]


def learned(cluster: Cluster, jobs: list[str], count: int = LEARNED) -> None:
    """The first stages end at once, so that the others are known to be short."""
    for id in jobs[:count]:
        cluster.ended(cluster.state.jobs[id].live[0].node, (id, 0, 1))


def test_short_stages_queue_in_each_others_lanes() -> None:
    cluster = a_cluster(n1={"cores": 2})
    jobs = submit(cluster, *[a_stage_job()] * 40)
    assert [len(lane) for lane in running(cluster)] == [1, 1], "nothing is known about how long they take"
    learned(cluster, jobs)
    lanes = running(cluster)
    assert len(lanes) == 2 and sum(map(len, lanes)) == 40 - LEARNED
    assert cluster.state.table.ledgers[0].cores_free == 0
    starts = [order for _, order in cluster.orders if isinstance(order, Start)]
    assert {start.lane for start in starts[-10:]} == set(cluster.state.nodes["n1"].lanes)
    for lane in lanes:
        for key in lane:
            cluster.ended("n1", key)
    assert cluster.state.counts[Status.COMPLETED] == 40
    assert not cluster.state.nodes["n1"].lanes and cluster.state.table.ledgers[0].cores_free == 2
    assert not cluster.state.tenants.slots and not cluster.state.tenants.of_job


def test_a_lane_is_held_by_the_stage_that_runs_in_it() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 12)
    learned(cluster, jobs)
    [lane] = running(cluster)
    for key in lane[:-1]:
        [tenant] = [each for each in cluster.state.tenants.tenants if each is not None]
        assert tenant.job == key[0] and list(cluster.state.tenants.of_job) == [key[0]]
        cluster.ended("n1", key)


def test_a_lane_is_made_room_of_though_one_in_it_is_leaving_already() -> None:
    """Its node has not confirmed the end of a cancelled stage, and the others in the lane may be evicted."""
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 8)
    learned(cluster, jobs)
    [lane] = running(cluster)
    cluster.give(Cancel(lane[0][0]))
    urgent = a_job(cores=1, priority=5)
    cluster.submit(urgent)
    promise = cluster.state.jobs[urgent.id].promise
    assert promise is not None and promise.victims == set(lane)
    assert [turn.failures for turn in cluster.turns if turn.failures] == []
    cluster.ended("n1", lane[0], code=1, why=Why.CANCELLED)
    assert cluster.status(urgent) == Status.PENDING
    for key in lane[1:]:
        cluster.tell("n1", Returned(key))
    assert cluster.status(urgent) == Status.ASSIGNED


def test_stages_of_others_queues_requests_priorities_or_programs_do_not_share() -> None:
    ours = structs.replace(a_stage_job(), workflow=("w", 0))
    others = [
        a_stage_job(user="bob"),
        a_stage_job(queue="night"),
        a_stage_job(cores=2),
        a_stage_job(priority=1),
        a_stage_job("/bin/false"),
        a_stage_job(time_limit_s=9.0),
        a_stage_job(evictable=False),
        structs.replace(a_stage_job(), groups=(Group(Command(("/bin/true",)), Request(), tasks=2),)),
    ]
    kinds = {lane_kind(structs.replace(each, workflow=("w", 1))) for each in others}
    assert lane_kind(ours) is not None and lane_kind(ours) not in kinds and len(kinds) == len(others)
    assert lane_kind(structs.replace(others[-1], workflow=("w", 1))) is None, "it has two tasks"
    assert lane_kind(a_stage_job()) is None, "it is no stage"
    assert lane_kind(structs.replace(ours, workflow=("v", 7), id="x")) == lane_kind(ours)


def test_whoever_comes_between_is_not_passed() -> None:
    """Bob's stage waits between Ada's: hers before it queue, hers behind it do not, and so it gets its place."""
    cluster = a_cluster(n1={"cores": 1})
    first = submit(cluster, *[a_stage_job()] * 8, number=1)
    [bob] = submit(cluster, a_stage_job(user="bob"), number=2)
    last = submit(cluster, *[a_stage_job()] * 4, number=3)
    learned(cluster, first)
    [lane] = running(cluster)
    assert [key[0] for key in lane] == first[LEARNED:]
    for key in lane:
        cluster.ended("n1", key)
    assert running(cluster) == [[(bob, 0, 1)]]
    cluster.ended("n1", (bob, 0, 1))
    assert [key[0] for key in running(cluster)[0]] == last


def test_a_unit_of_another_class_between_them_is_not_passed_either() -> None:
    cluster = a_cluster(n1={"cores": 2})
    first = submit(cluster, *[a_stage_job(cores=2)] * 8, number=1)
    other = a_job(cores=1)
    cluster.submit(other)
    submit(cluster, *[a_stage_job(cores=2)] * 4, number=3)
    learned(cluster, first)
    assert [key[0] for key in running(cluster)[0]] == first[LEARNED:]
    for key in running(cluster)[0]:
        cluster.ended("n1", key)
    assert cluster.status(other) == Status.ASSIGNED


def test_other_owners_have_lanes_of_their_own_when_a_quota_is_used_up() -> None:
    cluster = a_cluster(n1={"cores": 8})
    cluster.give(SetQuota("default", Quota(tasks=2)))
    ada = submit(cluster, *[a_stage_job()] * 8, number=1)
    bob = submit(cluster, *[a_stage_job(user="bob")] * 8, number=2)
    for _ in range(16):
        for lane in running(cluster):
            assert len({key[0] in ada for key in lane}) == 1
        cluster.ended("n1", running(cluster)[0][0])
    assert cluster.state.counts[Status.COMPLETED] == 16 and bob


def test_cancelling_one_stage_leaves_the_others_in_its_lane_alone() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 12)
    learned(cluster, jobs)
    [lane] = running(cluster)
    before = len(cluster.orders)
    head, middle = lane[0], lane[3]
    for key in (middle, head):
        cluster.give(Cancel(key[0]))
    told = [order for _, order in cluster.orders[before:]]
    assert [order.key for order in told if isinstance(order, Stop)] == [middle, head]
    assert len(told) == 2
    for key in (middle, head):
        cluster.ended("n1", key, why=Why.CANCELLED)
    for key in lane:
        if key not in (head, middle):
            assert cluster.state.jobs[key[0]].overall_status == Status.ASSIGNED
            cluster.ended("n1", key)
    assert cluster.state.counts[Status.COMPLETED] == 10 and cluster.state.counts[Status.CANCELLED] == 2


def test_a_lane_of_which_only_cancelled_stages_are_left_is_being_left() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 7)
    learned(cluster, jobs)
    [[first, second]] = running(cluster)
    cluster.give(Cancel(second[0]))
    cluster.ended("n1", first)
    [tenant] = [each for each in cluster.state.tenants.tenants if each is not None]
    assert tenant.job == second[0] and tenant.is_leaving
    assert all(lane.is_slow for lane in cluster.state.nodes["n1"].lanes.values())


def test_a_slow_stage_gives_the_others_back_uncharged_and_nobody_queues_behind_it() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 12)
    learned(cluster, jobs)
    [lane] = running(cluster)
    for key in lane[1:]:
        cluster.tell("n1", Returned(key))
    assert running(cluster) == [lane[:1]], "they wait, though their lane has room"
    cluster.add_node("n2", cores=1)
    [moved] = running(cluster, "n2")
    assert moved[0][:2] == (lane[1][0], 0)
    assert not any(job.charged for job in cluster.state.jobs.values())


def test_stages_that_run_long_do_not_queue() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 12)
    for id in jobs[:LEARNED]:
        cluster.tell("n1", Ended((id, 0, 1), Exit(Why.NONE, 0, cluster.now, cluster.now + 5.0)))
    assert running(cluster) == [[(jobs[LEARNED], 0, 1)]]


def test_stages_of_a_lost_node_run_elsewhere_once() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 12)
    learned(cluster, jobs)
    [lane] = running(cluster)
    cluster.add_node("n2", cores=1)
    for _ in range(7):
        cluster.now += 5.0
        cluster.beat("n2")
        cluster.give(Tick())
    assert cluster.state.nodes["n1"].lost and not cluster.state.nodes["n1"].lanes
    again = [key for keys in running(cluster, "n2") for key in keys]
    assert again and all(key[2] == 2 for key in again)
    while keys := running(cluster, "n2"):
        cluster.ended("n2", keys[0][0])
    assert cluster.state.counts[Status.COMPLETED] == 12
    assert all(cluster.state.jobs[key[0]].attempts[0] == 2 for key in lane)


def test_an_image_keeps_shared_lanes_and_what_was_learned() -> None:
    cluster = a_cluster(n1={"cores": 1})
    jobs = submit(cluster, *[a_stage_job()] * 40)
    learned(cluster, jobs)
    again = decode_state(encode_state(cluster.state), Timers())
    assert check(again) == []
    [lane] = again.nodes["n1"].lanes.values()
    assert list(lane.attempts) == running(cluster)[0]
    group = again.jobs[jobs[-1]].groups[0]
    assert group.typical_run_s == 0.0 and list(group.lanes) == [("n1", lane.id)]


def test_the_number_of_pools_is_bounded_and_those_with_lanes_stay() -> None:
    pools = LanePools()
    first = structs.replace(a_stage_job("/bin/0"), workflow=("w", 0))
    kept = pools.of(first)
    assert kept is not None
    kept.lanes["n1", 1] = None  # type: ignore[assignment]
    for number in range(1, POOLS_MAX + 10):
        pools.of(structs.replace(a_stage_job(f"/bin/{number}"), workflow=("w", 0)))
    assert len(pools) == POOLS_MAX
    assert pools.of(first) is kept
