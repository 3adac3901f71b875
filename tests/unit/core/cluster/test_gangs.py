"""How a gang starts: whole or not at all, from the gang placement through the barrier."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.inputs import Cancel, Hello, ProposeGang, Tick
from phalanx.core.model.job import Restart
from phalanx.core.model.orders import Go, Phase, Ready, Started, Status, Stop, Why
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.waiting import Part
from tests.support.builders import a_capacity, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

PENDING, RUNNING, FAILED = Status.PENDING, Status.RUNNING, Status.FAILED
TWO = {"n1": {"cores": 4}, "n2": {"cores": 4}}


def test_a_gang_waits_as_one():
    cluster = CoreCluster(**TWO)
    job = cluster.submit(a_gang(a_group(4)))
    assert [unit.is_gang for unit in cluster.state.waiting.classes.popitem()[1].units.values()] == [True]
    assert job.gang is not None
    assert job.gang.wanted() == (Part(job.groups[0].request, 4, 4),)


def test_nobody_goes_before_all_are_ready():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.report(gang, 1, Ready)
    assert cluster.told(Go) == []
    cluster.report(gang, 2, Ready)
    assert sorted(key[1] for key in cluster.told(Go)) == [0, 1, 2]


def test_ready_told_twice_releases_once():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.report(gang, 0, Ready)
    assert cluster.told(Go) == []


def test_a_muster_that_no_longer_fits_places_nobody():
    cluster = CoreCluster(**TWO)
    gang, other = a_gang(a_group(2, cores=4)), a_job(cores=2)
    cluster.submit(gang)
    cluster.submit(other)
    cluster.place(other, 0, "n2")
    cluster.state.table.give_back(
        1, cluster.state.jobs[other.id].live[0].grant
    )  # the plan believes it is free
    members = cluster.placements(gang, {0: "n1", 1: "n2"})
    cluster.state.table.take(1, cluster.state.jobs[other.id].live[0].grant)
    assert isinstance(cluster.give(ProposeGang(GangPlacement(gang.id, members))), Refused)
    assert cluster.statuses(gang) == [PENDING, PENDING]


def test_a_member_that_ends_at_the_barrier_recalls_all():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.ends(gang, 2, why=Why.LOST)
    assert sorted(key[1] for key in cluster.told(Stop)) == [0, 1]
    cluster.confirm_stops()
    assert cluster.told(Go) == []
    assert cluster.statuses(gang) == [PENDING] * 3
    assert cluster.waits(job)
    assert job.restarts == job.setbacks == 0


def test_a_recalled_gang_tries_again_with_new_attempts():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.ends(gang, 1, why=Why.UNCONFIRMED)
    cluster.confirm_stops()
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    assert [job.live[position].key[2] for position in (0, 1)] == [2, 2]
    assert cluster.statuses(gang) == [RUNNING, RUNNING]


def test_a_gang_that_is_not_ready_in_time_lets_go_of_everything():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), wait_s=30.0)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.now += 29
    cluster.give(Tick())
    assert cluster.told(Stop) == []
    cluster.now += 2
    cluster.beat("n1", [])  # both nodes are alive
    cluster.beat("n2", [])
    cluster.give(Tick())
    assert {key[1] for key in cluster.told(Stop)} >= {0, 1}


def test_recalls_back_off():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.ends(gang, 0, why=Why.FENCED)
        cluster.confirm_stops()
    assert not cluster.waits(job)
    cluster.now += 1.1
    cluster.beat("n1", [])
    assert cluster.waits(job)


def test_a_program_that_is_not_there_fails_the_gang_before_anybody_ran():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.ends(gang, 1, 127, Why.REFUSED)
    cluster.confirm_stops()
    assert cluster.statuses(gang) == [FAILED, FAILED]
    assert cluster.told(Go) == []


def test_a_gang_starts_with_its_minimum_and_the_rest_comes_later():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(4, min=2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    assert cluster.waits(job)
    cluster.gang_placement(gang, {2: "n2"})
    cluster.report(gang, 2, Ready)
    assert (gang.id, 2, 1) in cluster.told(Go)


def test_waiting_and_running_counts_those_that_run():
    """Contract 1.2: 5 in all, 3 needed, 3 ran and 2 of them finished; a 4th does not come alone.

    Members that cannot come any more are not waited for, or the last two would wait for ever.
    """
    for match, need in (("once-satisfied", 1), ("waiting-and-running", 2), ("only-waiting", 2)):
        cluster = CoreCluster(**TWO)
        gang = a_gang(a_group(5, min=3), match=match, restart=Restart())
        job = cluster.submit(gang)
        cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n1"})
        cluster.starts(gang, 0, 1, 2)
        cluster.ends(gang, 0)
        cluster.ends(gang, 1)
        assert job.gang is not None
        assert job.gang.wanted()[0].need == need, match


def test_a_member_that_may_not_begin_does_not_take_the_place_of_the_one_it_waits_for():
    """The chief failed and comes again; a worker that starts after it must not hold its place by then."""
    cluster = CoreCluster(**TWO)
    chief, worker = (
        a_group(1, name="chief"),
        a_group(1, name="worker", optional=True, after=(("chief", "completed"),)),
    )
    gang = a_gang(chief, worker, strict=False, restart=Restart(), max_retries=3)
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1"})
    cluster.starts(gang, 0)
    cluster.ends(gang, 0, code=1)
    assert job.gang is not None
    assert [each.most for each in job.gang.wanted()] == [1, 0]


def test_members_that_hold_a_part_wait_for_the_rest():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3), strict=False)
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.report(gang, 0, Ready)
    cluster.report(gang, 1, Ready)
    assert cluster.told(Go) == []
    assert cluster.state.incomplete == {gang.id}
    assert cluster.waits(job)
    cluster.gang_placement(gang, {2: "n2"})
    cluster.report(gang, 2, Ready)
    assert len(cluster.told(Go)) == 3
    assert cluster.state.incomplete == set()


def test_only_one_gang_may_hold_a_part():
    cluster = CoreCluster(**TWO)
    first, second = a_gang(a_group(3), strict=False), a_gang(a_group(3), strict=False)
    jobs = [cluster.submit(first), cluster.submit(second)]
    cluster.gang_placement(first, {0: "n1"})
    assert [job.gang is not None and job.gang.may_hold_part for job in jobs] == [True, False]


def test_a_released_member_whose_runner_was_away_is_told_again_to_go():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.report(gang, 1, Ready)
    cluster.orders.clear()
    key = job.live[1].key
    cluster.give(Hello("n2", "b", "origin-n2", a_capacity(cores=4), [(key, Phase.READY)]))
    assert cluster.told(Go) == [key]


def test_a_heartbeat_tells_that_a_member_is_ready():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    for node, position in (("n1", 0), ("n2", 1)):
        cluster.beat(node, [(job.live[position].key, Phase.READY)])
    assert len(cluster.told(Go)) == 2


def test_one_heartbeat_may_tell_of_all_that_were_missing():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.beat("n1", [(job.live[position].key, Phase.READY) for position in (0, 1)])
    assert len(cluster.told(Go)) == 2


def test_groups_begin_in_their_order():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2, name="workers"), a_group(1, name="launcher", after=(("workers", "started"),)))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    for position in range(3):
        cluster.report(gang, position, Ready)
    assert sorted(key[1] for key in cluster.told(Go)) == [0, 1]
    cluster.report(gang, 0, Started)
    cluster.report(gang, 1, Started)
    assert (gang.id, 2, 1) in cluster.told(Go)


def test_without_a_gang_a_later_group_waits_in_the_queue():
    cluster = CoreCluster(**TWO)
    job = a_gang(
        a_group(1, name="ps"), a_group(1, name="worker", after=(("ps", "completed"),)), restart=Restart()
    )
    plain = structs.replace(job, gang=None)
    state = cluster.submit(plain)
    assert [group in cluster.state.waiting for group in state.groups] == [True, False]
    cluster.place(plain, 0, "n1")
    cluster.ends(plain, 0)
    assert [group in cluster.state.waiting for group in state.groups] == [False, True]


def test_a_needed_member_cannot_be_cancelled_alone():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    answer = cluster.give(Cancel(gang.id, 1))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NeededByGang"
    assert isinstance(cluster.give(Cancel(gang.id)), Accepted)


def test_cancelling_a_gang_at_the_barrier_frees_everything():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 0, Ready)
    cluster.give(Cancel(gang.id))
    cluster.confirm_stops()
    assert cluster.told(Go) == []
    assert all(ledger.is_empty for ledger in cluster.state.table)
    assert cluster.state.forming == {}


def test_a_batch_drains_by_its_parallelism():
    """Seed 002: completions 10, parallelisms 2."""
    cluster = CoreCluster(**TWO)
    job = a_job(array="0-9%2")
    state = cluster.submit(job)
    for _ in range(5):
        first, second = list(state.groups[0].ready(10))
        cluster.place(job, first, "n1")
        cluster.place(job, second, "n2")
        assert list(state.groups[0].ready(10)) == []
        cluster.ends(job, first)
        cluster.ends(job, second)
    assert state.is_over
