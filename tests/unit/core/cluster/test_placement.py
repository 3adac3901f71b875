"""Which tasks are placed where, and which wait: the plan, tested through whole turns."""

from __future__ import annotations

from phalanx.core.cluster.inputs import Cancel, Drain, Propose, Tell, Tick, Undrain
from phalanx.core.model.orders import Returned, Start, Status
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Cores, Grant
from phalanx.core.placement.engine import plan
from tests.support.builders import Cluster, a_cluster, a_job


def free(cluster: Cluster) -> list[tuple[Cores, set[int]]]:
    return [(ledger.cores_free, set(ledger.devices_free)) for ledger in cluster.state.table]


def live(cluster: Cluster, job_id: str) -> list[int]:
    return sorted(cluster.state.jobs[job_id].live)


def test_a_plan_changes_nothing() -> None:
    cluster = a_cluster(n1={"cores": 4, "gpus": 2})
    cluster.give(Drain("n1", "test"))
    cluster.submit(a_job(cores=2, gpus=1))
    cluster.state.table.set_open("n1", True)
    before = free(cluster)
    proposal = plan(cluster.state.snapshot(cluster.now), Policy())
    assert len(proposal.placements) == 1
    assert free(cluster) == before


def test_a_small_job_goes_where_a_large_one_before_it_has_no_room() -> None:
    cluster = a_cluster(n1={"cores": 4})
    first, large, small = a_job(cores=3), a_job(cores=2), a_job(cores=1)
    for job in (first, large, small):
        cluster.submit(job)
    assert cluster.status(large) == Status.PENDING
    assert cluster.status(small) == Status.ASSIGNED


def test_a_plan_that_was_cut_short_asks_for_another_turn() -> None:
    cluster = Cluster(policy=Policy(openings_max=3))
    cluster.add_node("n1", cores=8)
    job = a_job(array="1-8")
    cluster.submit(job)
    while cluster.turns[-1].more:
        cluster.give()
    assert len(live(cluster, job.id)) == 8


def test_a_retry_is_placed_as_soon_as_its_backoff_is_over_though_another_job_waits() -> None:
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    holder, stuck, flaky = a_job("n1", cores=4), a_job("n1", cores=4), a_job("n2")
    for job in (holder, stuck, flaky):
        cluster.submit(job)
    cluster.ended("n2", (flaky.id, 0, 1), code=1)
    cluster.ended("n2", (flaky.id, 0, 2), code=1)
    assert cluster.status(flaky) == Status.PENDING
    cluster.now += 1.0
    cluster.give(Tick())
    assert cluster.status(flaky) == Status.ASSIGNED
    assert cluster.status(stuck) == Status.PENDING


def test_a_proposal_is_checked_again_when_it_arrives() -> None:
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 2})
    cluster.give(Drain("n1", "a"), Drain("n2", "b"))
    one, two = a_job(cores=4), a_job(cores=4)
    cluster.submit(one)
    cluster.submit(two)
    cluster.state.table.set_open("n1", True)
    (placement,) = plan(cluster.state.snapshot(cluster.now), Policy()).placements
    cluster.state.table.set_open("n1", False)
    cluster.give(Propose(placement))
    assert cluster.status(one) == Status.PENDING, "the node is drained after all"
    cluster.give(Undrain("n1"))
    assert cluster.status(one) == Status.ASSIGNED
    cluster.give(Propose(placement))
    assert cluster.status(two) == Status.PENDING, "the room is gone by now"


def short_tasks(cluster: Cluster, tasks: str = "1-60") -> str:
    """An array that has proved to be quick, on the only node."""
    job = a_job(array=tasks)
    cluster.submit(job)
    for position in range(5):
        cluster.ended("n1", (job.id, position, 1))
    return job.id


def test_short_tasks_queue_in_a_lane_but_never_beyond_what_ends_soon() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster)
    queued = len(live(cluster, job)) - 1
    assert 0 < queued <= Policy().prefetch_max
    assert free(cluster) == [(0, set())]


def test_an_array_with_a_limit_never_queues() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster, "1-60%4")
    assert len(live(cluster, job)) == 1


def test_nothing_is_queued_on_a_drained_node_and_the_coordinator_rests() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster)
    cluster.give(Drain("n1", "new fans"))
    *ended, last = live(cluster, job)
    for position in ended:
        cluster.ended("n1", (job, position, 1))
        assert not cluster.turns[-1].more
    assert live(cluster, job) == [last]


def test_what_a_slow_lane_gave_back_is_not_queued_there_again() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster)
    head, *queued = live(cluster, job)
    cluster.started("n1", (job, head, 1))
    cluster.give(*(Tell("n1", "a", 1, Returned((job, position, 1)), 1) for position in queued))
    cluster.give(Tick())
    assert live(cluster, job) == [head]
    cluster.ended("n1", (job, head, 1))
    assert queued[0] in live(cluster, job), "once the slow one has ended they go on"


def test_nobody_queues_behind_a_task_that_was_told_to_stop() -> None:
    """Found by the simulator (seed 840000819): its place counted as one that is being left, for good."""
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster)
    head, *queued = live(cluster, job)
    cluster.started("n1", (job, head, 1))
    cluster.give(*(Tell("n1", "a", 1, Returned((job, position, 1)), 1) for position in queued))
    (lane,) = cluster.state.nodes["n1"].lanes.values()
    lane.is_slow = False  # as if none had been given back
    cluster.give(Cancel(job, head))
    cluster.give(Tick())
    assert live(cluster, job) == [head]


def test_what_was_given_back_goes_first_to_another_node() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = short_tasks(cluster)
    head, *queued = live(cluster, job)
    cluster.started("n1", (job, head, 1))
    cluster.give(Tell("n1", "a", 1, Returned((job, queued[0], 1)), 1))
    cluster.add_node("n2", cores=1)
    attempts = cluster.state.jobs[job].live
    assert attempts[queued[0]].node == "n2"
    assert attempts[queued[0]].key[2] == 2


def test_a_lane_of_one_job_is_not_used_by_another() -> None:
    cluster = a_cluster(n1={"cores": 1})
    short_tasks(cluster)
    other = a_job()
    cluster.submit(other)
    assert cluster.status(other) == Status.PENDING


def test_an_order_to_start_says_all_that_the_runner_needs() -> None:
    cluster = a_cluster(n1={"cores": 4, "gpus": 2})
    job = a_job(array="10-30:10", cores=2, gpus=1)
    cluster.submit(job)
    orders = [order for _, order in cluster.orders if isinstance(order, Start)]
    assert [(order.index, order.restarts, order.grant.devices) for order in orders] == [
        (10, 0, (0,)),
        (20, 0, (1,)),
    ]
    assert orders[0].grant == Grant(2, 0, (0,))
    cluster.ended("n1", orders[0].key, code=1)
    again = cluster.orders[-1][1]
    assert isinstance(again, Start)
    assert (again.index, again.restarts) == (10, 1)


def test_a_turn_opens_only_so_many_lanes_and_whoever_comes_then_is_heard_in_the_next() -> None:
    cluster = Cluster()
    cluster.add_node("n1", cores=4)
    array = a_job(array="1-100000", cores=0)
    cluster.submit(array)
    most = cluster.engine.policy.openings_max
    assert len(live(cluster, array.id)) == most
    assert cluster.turns[-1].more
    other = a_job(user="bob")
    cluster.submit(other)
    assert other.id in cluster.state.jobs
    assert most < len(live(cluster, array.id)) <= 2 * most
    cluster.give(Cancel(array.id))
    assert not cluster.turns[-1].more
