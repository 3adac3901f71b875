"""How a gang starts: whole or not at all, from the muster through the barrier."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.inputs import Cancel, Hello, ProposeGang, Tick
from phalanx.core.model.gang import Restart
from phalanx.core.model.orders import Go, Phase, Ready, Started, Stop
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.status import Status, Why
from phalanx.core.model.waiting import Wanted
from tests.support.builders import a_capacity, a_gang, a_group, a_job
from tests.unit.core.stage import Stage

PENDING, RUNNING, FAILED = Status.PENDING, Status.RUNNING, Status.FAILED
TWO = {"n1": {"cores": 4}, "n2": {"cores": 4}}


def test_a_gang_waits_as_one():
    stage = Stage(**TWO)
    job = stage.submit(a_gang(a_group(4)))
    assert [unit.is_gang for unit in stage.state.waiting.classes.popitem()[1].units.values()] == [True]
    assert job.gang is not None
    assert job.gang.wanted() == (Wanted(job.groups[0].request, 4, 4),)


def test_nobody_goes_before_all_are_ready():
    stage = Stage(**TWO)
    gang = a_gang(a_group(3))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    stage.report(gang, 0, Ready)
    stage.report(gang, 1, Ready)
    assert stage.told(Go) == []
    stage.report(gang, 2, Ready)
    assert sorted(key[1] for key in stage.told(Go)) == [0, 1, 2]


def test_ready_told_twice_releases_once():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 0, Ready)
    stage.report(gang, 0, Ready)
    assert stage.told(Go) == []


def test_a_muster_that_no_longer_fits_places_nobody():
    stage = Stage(**TWO)
    gang, other = a_gang(a_group(2, cores=4)), a_job(cores=2)
    stage.submit(gang)
    stage.submit(other)
    stage.place(other, 0, "n2")
    stage.state.table.give_back(1, stage.state.jobs[other.id].live[0].grant)  # the plan believes it is free
    members = stage.placements(gang, {0: "n1", 1: "n2"})
    stage.state.table.take(1, stage.state.jobs[other.id].live[0].grant)
    assert isinstance(stage.give(ProposeGang(GangPlacement(gang.id, members))), Refused)
    assert stage.statuses(gang) == [PENDING, PENDING]


def test_a_member_that_ends_at_the_barrier_recalls_all():
    stage = Stage(**TWO)
    gang = a_gang(a_group(3))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    stage.report(gang, 0, Ready)
    stage.ends(gang, 2, why=Why.LOST)
    assert sorted(key[1] for key in stage.told(Stop)) == [0, 1]
    stage.confirm_stops()
    assert stage.told(Go) == []
    assert stage.statuses(gang) == [PENDING] * 3
    assert stage.waits(job)
    assert job.restarts == job.setbacks == 0


def test_a_recalled_gang_tries_again_with_new_attempts():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.ends(gang, 1, why=Why.UNCONFIRMED)
    stage.confirm_stops()
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    stage.starts(gang, 0, 1)
    assert [job.live[position].key[2] for position in (0, 1)] == [2, 2]
    assert stage.statuses(gang) == [RUNNING, RUNNING]


def test_a_gang_that_is_not_ready_in_time_lets_go_of_everything():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2), wait_s=30.0)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 0, Ready)
    stage.now += 29
    stage.give(Tick())
    assert stage.told(Stop) == []
    stage.now += 2
    stage.beat("n1", [])  # both nodes are alive
    stage.beat("n2", [])
    stage.give(Tick())
    assert {key[1] for key in stage.told(Stop)} >= {0, 1}


def test_recalls_back_off():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    for _ in range(2):
        stage.gang_placement(gang, {0: "n1", 1: "n2"})
        stage.ends(gang, 0, why=Why.FENCED)
        stage.confirm_stops()
    assert not stage.waits(job)
    stage.now += 1.1
    stage.beat("n1", [])
    assert stage.waits(job)


def test_a_program_that_is_not_there_fails_the_gang_before_anybody_ran():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.ends(gang, 1, 127, Why.REFUSED)
    stage.confirm_stops()
    assert stage.statuses(gang) == [FAILED, FAILED]
    assert stage.told(Go) == []


def test_a_gang_starts_with_its_minimum_and_the_rest_comes_later():
    stage = Stage(**TWO)
    gang = a_gang(a_group(4, min=2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    stage.starts(gang, 0, 1)
    assert stage.waits(job)
    stage.gang_placement(gang, {2: "n2"})
    stage.report(gang, 2, Ready)
    assert (gang.id, 2, 1) in stage.told(Go)


def test_waiting_and_running_counts_those_that_run():
    """Contract 1.2: 5 in all, 3 needed, 3 ran and 2 of them finished; a 4th does not come alone.

    Nobody is waited for who cannot come any more, or the last two would wait for ever.
    """
    for match, need in (("once-satisfied", 1), ("waiting-and-running", 2), ("only-waiting", 2)):
        stage = Stage(**TWO)
        gang = a_gang(a_group(5, min=3), match=match, restart=Restart())
        job = stage.submit(gang)
        stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n1"})
        stage.starts(gang, 0, 1, 2)
        stage.ends(gang, 0)
        stage.ends(gang, 1)
        assert job.gang is not None
        assert job.gang.wanted()[0].need == need, match


def test_a_member_that_may_not_begin_does_not_take_the_place_of_the_one_it_waits_for():
    """The chief failed and comes again; a worker that begins after it must not sit on its place by then."""
    stage = Stage(**TWO)
    chief, worker = (
        a_group(1, name="chief"),
        a_group(1, name="worker", optional=True, after=(("chief", "completed"),)),
    )
    gang = a_gang(chief, worker, strict=False, restart=Restart(), max_retries=3)
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1"})
    stage.starts(gang, 0)
    stage.ends(gang, 0, code=1)
    assert job.gang is not None
    assert [each.most for each in job.gang.wanted()] == [1, 0]


def test_members_that_hold_a_part_wait_for_the_rest():
    stage = Stage(**TWO)
    gang = a_gang(a_group(3), strict=False)
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    stage.report(gang, 0, Ready)
    stage.report(gang, 1, Ready)
    assert stage.told(Go) == []
    assert stage.state.incomplete == {gang.id}
    assert stage.waits(job)
    stage.gang_placement(gang, {2: "n2"})
    stage.report(gang, 2, Ready)
    assert len(stage.told(Go)) == 3
    assert stage.state.incomplete == set()


def test_only_one_gang_may_hold_a_part():
    stage = Stage(**TWO)
    first, second = a_gang(a_group(3), strict=False), a_gang(a_group(3), strict=False)
    jobs = [stage.submit(first), stage.submit(second)]
    stage.gang_placement(first, {0: "n1"})
    assert [job.gang is not None and job.gang.may_hold_part for job in jobs] == [True, False]


def test_a_released_member_whose_runner_was_away_is_told_again_to_go():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 0, Ready)
    stage.report(gang, 1, Ready)
    stage.orders.clear()
    key = job.live[1].key
    stage.give(Hello("n2", "b", "origin-n2", a_capacity(cores=4), [(key, Phase.READY)]))
    assert stage.told(Go) == [key]


def test_a_heartbeat_tells_that_a_member_is_ready():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    for node, position in (("n1", 0), ("n2", 1)):
        stage.beat(node, [(job.live[position].key, Phase.READY)])
    assert len(stage.told(Go)) == 2


def test_one_heartbeat_may_tell_of_all_that_were_missing():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    stage.beat("n1", [(job.live[position].key, Phase.READY) for position in (0, 1)])
    assert len(stage.told(Go)) == 2


def test_groups_begin_in_their_order():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2, name="workers"), a_group(1, name="launcher", after=(("workers", "started"),)))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    for position in range(3):
        stage.report(gang, position, Ready)
    assert sorted(key[1] for key in stage.told(Go)) == [0, 1]
    stage.report(gang, 0, Started)
    stage.report(gang, 1, Started)
    assert (gang.id, 2, 1) in stage.told(Go)


def test_without_a_gang_a_later_group_waits_in_the_queue():
    stage = Stage(**TWO)
    job = a_gang(
        a_group(1, name="ps"), a_group(1, name="worker", after=(("ps", "completed"),)), restart=Restart()
    )
    plain = structs.replace(job, gang=None)
    state = stage.submit(plain)
    assert [group in stage.state.waiting for group in state.groups] == [True, False]
    stage.place(plain, 0, "n1")
    stage.ends(plain, 0)
    assert [group in stage.state.waiting for group in state.groups] == [False, True]


def test_a_needed_member_cannot_be_cancelled_alone():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    stage.submit(gang)
    answer = stage.give(Cancel(gang.id, 1))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NeededByGang"
    assert isinstance(stage.give(Cancel(gang.id)), Accepted)


def test_cancelling_a_gang_at_the_barrier_frees_everything():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 0, Ready)
    stage.give(Cancel(gang.id))
    stage.confirm_stops()
    assert stage.told(Go) == []
    assert all(ledger.is_empty for ledger in stage.state.table)
    assert stage.state.forming == {}


def test_a_batch_drains_by_its_parallelism():
    """Seed 002: completions 10, parallelisms 2."""
    stage = Stage(**TWO)
    job = a_job(array="0-9%2")
    state = stage.submit(job)
    for _ in range(5):
        first, second = list(state.groups[0].ready(10))
        stage.place(job, first, "n1")
        stage.place(job, second, "n2")
        assert list(state.groups[0].ready(10)) == []
        stage.ends(job, first)
        stage.ends(job, second)
    assert state.is_over
