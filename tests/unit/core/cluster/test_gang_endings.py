"""How a gang ends: failures, evictions, restarts of all, and success."""

from __future__ import annotations

from time import process_time

from msgspec import structs

from phalanx.core.cluster.decision import Accepted
from phalanx.core.cluster.events import AttemptEnded
from phalanx.core.cluster.inputs import Cancel, Evict, Hello
from phalanx.core.cluster.state import Timers
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import Restart, Rule, Success
from phalanx.core.model.orders import Exit, Started, Status, Stop, Why
from tests.support.builders import a_capacity, a_gang, a_group
from tests.support.core_cluster import CoreCluster

PENDING, RUNNING = Status.PENDING, Status.RUNNING
COMPLETED, FAILED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED
TWO = {"n1": {"cores": 4}, "n2": {"cores": 4}}


def test_the_failure_of_one_restarts_all():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3), limit=1)
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)
    cluster.ends(gang, 1, 1)
    assert sorted(key[1] for key in cluster.told(Stop)) == [0, 2]
    assert not cluster.waits(job)  # not before the last attempt of its previous run has gone
    cluster.confirm_stops()
    assert (cluster.statuses(gang), job.restarts) == ([PENDING] * 3, 1)
    assert cluster.waits(job)


def test_a_member_that_finished_runs_again_when_the_gang_restarts():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), limit=1)
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0)
    assert cluster.statuses(gang) == [RUNNING, RUNNING]
    cluster.ends(gang, 1, 1)
    assert cluster.statuses(gang) == [PENDING, PENDING]
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 1)
    cluster.ends(gang, 0)
    assert cluster.statuses(gang) == [COMPLETED, COMPLETED]
    assert (job.outcome, job.is_over) == (COMPLETED, True)


def test_more_failures_than_the_limit_fail_the_job():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), limit=1)
    job = cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.ends(gang, 0, 1)
        cluster.confirm_stops()
    assert cluster.statuses(gang) == [FAILED, FAILED]
    assert job.outcome == FAILED
    assert Why(job.why[1]) == Why.JOB_FAILED


def test_the_story_of_a_failing_gang_says_what_its_job_does():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), limit=1)
    cluster.submit(gang)
    for _ in range(2):
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.ends(gang, 0, 9)
        cluster.confirm_stops()
    told = [sentence(each) for each in cluster.events]
    assert [each for each in told if each.startswith("attempt") and "ended: exited" in each] == [
        "attempt 1 ended: exited; all tasks start anew, 1 of 1",
        "attempt 2 ended: exited; no restart is left of 1",
    ]
    assert any(each.startswith("the job is Failed: no restart is left of 1;") for each in told)


def test_five_evictions_are_survived_and_the_sixth_is_not():
    """Seed 002: backoffLimit 5, evictions count the same."""
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), restart=Restart(whole=True, limit=5, counts_evictions=True))
    job = cluster.submit(gang)
    for turn in range(6):
        assert not job.is_over, turn
        cluster.now += 100
        cluster.beat("n1", [])
        cluster.beat("n2", [])
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.give(Evict(gang.id))
        cluster.confirm_stops()
    assert (job.outcome, job.restarts) == (FAILED, 5)


def test_evictions_that_do_not_count_restart_for_ever():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), limit=0)
    job = cluster.submit(gang)
    for _ in range(8):
        cluster.now += 100
        cluster.beat("n1", [])
        cluster.beat("n2", [])
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        cluster.give(Evict(gang.id))
        cluster.confirm_stops()
    assert cluster.statuses(gang) == [PENDING, PENDING]
    assert job.restarts == 0


def test_a_lost_node_is_one_setback_however_many_members_it_held():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(4))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n1", 3: "n2"})
    cluster.starts(gang, 0, 1, 2, 3)
    cluster.give(Hello("n1", "b", "origin-n1", a_capacity(cores=4), []))
    cluster.confirm_stops()
    assert (job.setbacks, job.restarts) == (1, 0)
    assert cluster.statuses(gang) == [PENDING] * 4
    thens = [event.then for event in cluster.events if isinstance(event, AttemptEnded)][:3]
    assert thens == ["all tasks start anew, not counted", "all tasks start anew", "all tasks start anew"]


def test_the_story_of_the_loss_that_was_one_too_many_says_so():
    cluster = CoreCluster(**TWO, n3={"cores": 4})
    cluster.state.rules = Timers(loss_limit=1)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    for dies, stays in (("n1", "n2"), ("n2", "n3")):
        cluster.gang_placement(gang, {0: dies, 1: stays})
        cluster.starts(gang, 0, 1)
        cluster.give(Hello(dies, "b", f"origin-{dies}", a_capacity(cores=4), []))
        cluster.confirm_stops()
    thens = [event.then for event in cluster.events if isinstance(event, AttemptEnded) and event.loss]
    assert thens == ["all tasks start anew, not counted", "lost its nodes once"]
    assert job.outcome == FAILED


def test_surplus_members_can_be_evicted_alone():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3, min=2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)
    cluster.give(Evict(gang.id, 2))
    cluster.confirm_stops()
    assert cluster.statuses(gang) == [RUNNING, RUNNING, PENDING]
    assert cluster.waits(job)
    assert job.gang is not None
    assert job.gang.wanted()[0].need == 1  # it comes back by itself


def test_a_gang_is_done_when_its_last_running_member_is():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3, min=2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0)
    cluster.ends(gang, 1)
    assert cluster.statuses(gang) == [COMPLETED, COMPLETED, CANCELLED]
    assert job.outcome == COMPLETED


def test_any_success_ends_the_job_well():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), success=Success(any=True), restart=Restart())
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 1)
    cluster.confirm_stops()
    assert (cluster.statuses(gang), job.outcome) == ([CANCELLED, COMPLETED], COMPLETED)


def test_the_groups_that_count_end_the_gang_whatever_the_others_do():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(1, name="head"), a_group(2, name="worker"), success=Success(groups=("head",)))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)
    cluster.ends(gang, 0)
    assert job.outcome == COMPLETED


def test_a_rule_may_restart_only_the_replica():
    rule = Rule("restart-replica", groups=("w",))
    cluster = CoreCluster(**TWO)
    job = a_gang(a_group(4, name="w", replicas=2), restart=Restart(whole=True, limit=2, rules=(rule,)))
    plain = structs.replace(job, gang=None)
    state = cluster.submit(plain)
    for position in range(4):
        cluster.place(plain, position, "n1")
        cluster.report(plain, position, Started)
    cluster.ends(plain, 0, 1)
    assert [key[1] for key in cluster.told(Stop)] == [1]
    cluster.confirm_stops()
    assert cluster.statuses(plain) == [PENDING, PENDING, RUNNING, RUNNING]
    assert state.restarts == 1


def test_a_rule_that_fails_the_job_does_so_at_once():
    rule = Rule("fail", patterns=("out of memory",))
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), restart=Restart(whole=True, limit=9, rules=(rule,)))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    cluster.report(gang, 0, Exit(Why.OOM, -9, message="out of memory: the kernel ended it"))
    assert job.outcome == FAILED


def test_a_rule_whose_pattern_would_take_for_ever_is_decided_at_once():
    slow = tuple(f"a+a+(?:a|a)(?:a|a)x{number}" for number in range(20))  # seconds each in Python's matcher
    rules = (Rule("fail", patterns=("b++", *slow)), Rule("fail", patterns=("no program",)))
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2), restart=Restart(whole=True, limit=9, rules=rules))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    began = process_time()
    cluster.report(gang, 0, Exit(Why.EXITED, 1, message=f"no program '{'a' * 480}'"))
    assert process_time() - began < 0.5
    assert job.outcome == FAILED


def test_cancelling_a_gang_counts_only_those_who_have_not_done_their_part():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(3))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)
    cluster.ends(gang, 0)
    assert cluster.give(Cancel(gang.id)) == Accepted(2, 2)
    assert cluster.statuses(gang) == [COMPLETED, CANCELLED, CANCELLED]
