"""Jobs that start after others: when they may, and what becomes of them if they never can."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.events import JobSettled, TasksAbandoned
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Abandon, Cancel, Submit, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.model.job import After, Group, IncompleteGang, Job, Success, When
from phalanx.core.model.orders import Started, Status, Why
from tests.support.builders import a_cluster, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

PENDING, RUNNING = Status.PENDING, Status.RUNNING
COMPLETED, FAILED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED


def following(*others: Job, when: When = "ok") -> Job:
    return a_job(after=tuple(After(each.id, when) for each in others))


def a_pair(when: When = "ok") -> tuple[CoreCluster, Job, Job]:
    """A job on a node of its own, and one that starts after it."""
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job(max_retries=0)
    second = following(first, when=when)
    cluster.submit(first)
    cluster.submit(second)
    return cluster, first, second


def waits(cluster: CoreCluster, job: Job) -> bool:
    return cluster.waits(cluster.state.jobs[job.id])


@pytest.mark.parametrize(
    ("when", "code", "may_start"),
    [("ok", 0, True), ("any", 0, True), ("any", 1, True), ("failed", 1, True), ("started", 1, True)],
)
def test_it_waits_until_the_other_has_come(when: When, code: int, may_start: bool):
    cluster, first, second = a_pair(when)
    assert not waits(cluster, second)
    cluster.place(first, 0, "n1")
    cluster.report(first, 0, Started)
    assert waits(cluster, second) == (when == "started")
    cluster.ends(first, 0, code)
    assert waits(cluster, second) == may_start
    assert cluster.state.abandoned == {}


def test_a_plan_that_would_place_it_too_early_is_refused():
    cluster, _, second = a_pair()
    assert isinstance(cluster.place(second, 0, "n1"), Refused)


def test_it_waits_for_all_that_come_first():
    cluster = CoreCluster(n1={"cores": 8})
    first, other = a_job(), a_job()
    third = following(first, other)
    for job in (first, other, third):
        cluster.submit(job)
    for job in (first, other):
        assert not waits(cluster, third)
        cluster.place(job, 0, "n1")
        cluster.ends(job, 0)
    assert waits(cluster, third)


def test_of_an_array_every_task_has_to_come():
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job(array="1-2")
    second, started = following(first), following(first, when="started")
    for job in (first, second, started):
        cluster.submit(job)
    cluster.place(first, 0, "n1")
    cluster.report(first, 0, Started)
    cluster.place(first, 1, "n1")
    assert not waits(cluster, started)
    cluster.ends(first, 1)  # before its start was told
    assert waits(cluster, started)
    assert not waits(cluster, second)
    cluster.ends(first, 0)
    assert waits(cluster, second)


def test_a_retry_is_no_end():
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job(max_retries=1)
    second = following(first, when="failed")
    cluster.submit(first)
    cluster.submit(second)
    for is_last in (False, True):
        cluster.place(first, 0, "n1")
        cluster.ends(first, 0, code=1)
        assert waits(cluster, second) == is_last


@pytest.mark.parametrize(
    ("when", "code", "becomes"), [("ok", 1, FAILED), ("ok", None, CANCELLED), ("failed", 0, CANCELLED)]
)
def test_what_can_never_start_ends_and_names_the_other(when: When, code: int | None, becomes: Status):
    cluster, first, second = a_pair(when)
    if code is None:
        cluster.give(Cancel(first.id))
    else:
        cluster.place(first, 0, "n1")
        cluster.ends(first, 0, code)
    assert cluster.state.abandoned == {second.id: first.id}
    assert isinstance(cluster.give(Abandon(second.id)), Accepted)
    job = cluster.state.jobs[second.id]
    assert (job.overall_status, Why(job.why[0])) == (becomes, Why.DEPENDENCY)
    settled = cluster.events[-1]
    assert isinstance(settled, JobSettled)
    assert first.id in settled.text
    assert cluster.state.abandoned == {}


def test_an_outcome_that_follows_the_last_end_counts():
    """The last task of a job fails it by its sum, and the job is complete all the same: its chief has done its work."""
    cluster = CoreCluster(n1={"cores": 8})
    groups: tuple[Group, ...] = (a_group(name="chief"), a_group(name="helper"))
    first = Job("0" * 26, groups, "0" * 26, 0.0, max_retries=0, success=Success(groups=("chief",)))
    second = following(first)
    cluster.submit(first)
    cluster.submit(second)
    for position in (0, 1):
        cluster.place(first, position, "n1")
    cluster.ends(first, 1, code=1)
    cluster.ends(first, 0)
    assert cluster.state.jobs[first.id].overall_status == COMPLETED
    assert waits(cluster, second)
    assert cluster.state.abandoned == {}


def test_a_gang_waits_and_is_waited_for():
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job()
    gang = a_gang(a_group(2), after=(After(first.id),))
    last = following(gang)
    for job in (first, gang, last):
        cluster.submit(job)
    assert not waits(cluster, gang)
    cluster.place(first, 0, "n1")
    cluster.ends(first, 0)
    assert waits(cluster, gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    cluster.starts(gang, 0, 1)
    for position in (0, 1):
        assert not waits(cluster, last)
        cluster.ends(gang, position)
    assert waits(cluster, last)


def test_nobody_starts_after_what_nobody_knows_or_what_never_comes():
    cluster, first, _ = a_pair()
    unknown = cluster.give(Submit(a_job(after=(After("f" * 26),))))
    assert isinstance(unknown, Refused)
    assert (unknown.reason.code, unknown.kind) == ("NotFound", "not_found")
    cluster.give(Cancel(first.id))
    never = cluster.give(Submit(following(first)))
    assert isinstance(never, Refused)
    assert never.reason.code == "DependencyNever"
    assert isinstance(cluster.give(Submit(following(first, when="any"))), Accepted)


def test_a_cancelled_dependent_leaves_no_trace():
    cluster, first, second = a_pair()
    cluster.give(Cancel(second.id))
    assert not (cluster.state.dependents or cluster.state.task_dependents or cluster.state.start_dependents)
    cluster.place(first, 0, "n1")
    cluster.ends(first, 0, code=1)
    assert cluster.state.abandoned == {}


def test_a_gang_that_gets_more_members_is_still_waited_for():
    cluster = CoreCluster(n1={"cores": 8})
    part = a_gang(a_group(1, name="a"), draft=IncompleteGang("needs 2 members"))
    cluster.submit(part)
    last = following(part)
    cluster.submit(last)
    whole = structs.replace(part, groups=(a_group(2, name="a"),), draft=None)
    assert isinstance(cluster.give(Submit(whole, amends=0)), Accepted)
    cluster.gang_placement(whole, {0: "n1", 1: "n1"})
    cluster.starts(whole, 0, 1)
    for position in (0, 1):
        assert not waits(cluster, last)
        cluster.ends(whole, position)
    assert waits(cluster, last)


def test_the_cause_stays_in_memory_until_all_that_can_never_start_have_ended():
    cluster, first, second = a_pair()
    cluster.state.rules = structs.replace(cluster.state.rules, ended_jobs_max=0)
    cluster.give(Cancel(first.id))
    cluster.give(Tick())
    assert first.id in cluster.state.jobs
    cluster.give(Abandon(second.id))
    cluster.give(Tick())
    assert cluster.state.jobs == {}
    assert cluster.state.dependents == {}


def test_an_image_keeps_who_waits_for_whom():
    cluster, first, second = a_pair()
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.dependents == {first.id: {second.id: None}}
    assert again.jobs[second.id].awaits == {first.id}
    assert check(again) == []


def test_the_end_of_one_goes_through_the_whole_chain_in_one_turn():
    cluster = a_cluster(n1={"cores": 8})
    chain = [a_job(max_retries=0)]
    for _ in range(4):
        chain.append(following(chain[-1]))
    for job in chain:
        cluster.submit(job)
    assert [cluster.status(job) for job in chain] == [Status.ASSIGNED, *[PENDING] * 4]
    cluster.ended("n1", (chain[0].id, 0, 1), code=1)
    assert [cluster.status(job) for job in chain] == [FAILED] * 5
    for before, job in pairwise(chain):
        assert before.id in cluster.state.jobs[job.id].details[0][0]


# Task by task between arrays.


def arrays(when: When = "ok", size: str = "1-3") -> tuple[CoreCluster, Job, Job]:
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job(array=size, max_retries=0)
    second = a_job(array=size, after=(After(first.id, when, each=True),))
    cluster.submit(first)
    cluster.submit(second)
    return cluster, first, second


def let_go(cluster: CoreCluster, job: Job) -> list[int]:
    return list(cluster.state.jobs[job.id].groups[0].ready(99))


def test_each_task_waits_for_its_own():
    cluster, first, second = arrays()
    assert not waits(cluster, second)
    for position in (2, 0):
        cluster.place(first, position, "n1")
        cluster.ends(first, position)
    assert let_go(cluster, second) == [0, 2]
    assert waits(cluster, second)
    assert isinstance(cluster.place(second, 1, "n1"), Refused)
    assert isinstance(cluster.place(second, 2, "n1"), Accepted)
    cluster.ends(second, 2, code=1)  # a retry is not waited for again
    assert let_go(cluster, second) == [0, 2]


@pytest.mark.parametrize(("when", "expected"), [("started", [0]), ("any", []), ("ok", [])])
def test_a_task_that_runs_has_started(when: When, expected: list[int]):
    cluster, first, second = arrays(when)
    cluster.place(first, 0, "n1")
    assert let_go(cluster, second) == []
    cluster.report(first, 0, Started)
    assert let_go(cluster, second) == expected


def test_a_task_that_can_never_start_ends_alone():
    cluster, first, second = arrays()
    cluster.place(first, 1, "n1")
    cluster.ends(first, 1, code=1)
    assert cluster.state.abandoned_tasks == {second.id: {1: first.id}}
    cluster.give(Abandon(second.id))
    job = cluster.state.jobs[second.id]
    assert cluster.statuses(second) == [PENDING, FAILED, PENDING]
    assert Why(job.why[1]) == Why.DEPENDENCY
    assert f"{first.id}.2 has completed" in job.details[1][0]
    assert cluster.state.abandoned_tasks == {}


def test_the_cancel_of_a_whole_array_reaches_all_its_dependents():
    cluster, first, second = arrays()
    cluster.place(first, 0, "n1")
    cluster.ends(first, 0)
    cluster.give(Cancel(first.id))
    cluster.give(Abandon(second.id))
    assert cluster.statuses(second) == [PENDING, CANCELLED, CANCELLED]
    settled = cluster.events[-1]
    assert isinstance(settled, TasksAbandoned)
    assert settled.ranges == ((1, 2),)


def test_an_array_after_one_that_has_begun_is_told_what_has_come():
    cluster, first, _ = arrays()
    for position in (0, 1):
        cluster.place(first, position, "n1")
        cluster.ends(first, position, code=position)
    late = a_job(array="1-3", after=(After(first.id, "ok", each=True),))
    cluster.submit(late)
    assert let_go(cluster, late) == [0]
    assert 1 in cluster.state.abandoned_tasks[late.id]
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert list(again.jobs[late.id].groups[0].ready(9)) == [0]
    assert check(again) == []


@pytest.mark.parametrize(
    ("mine", "others"), [("1-3", None), (None, "1-3"), ("1-3", "1-4"), ("1-3", "2-4"), ("1-20001", "1-20001")]
)
def test_only_arrays_of_the_same_indexes_follow_each_other_task_by_task(mine: str | None, others: str | None):
    cluster = CoreCluster(n1={"cores": 8})
    first = a_job(array=others)
    cluster.submit(first)
    answer = cluster.give(Submit(a_job(array=mine, after=(After(first.id, each=True),))))
    assert isinstance(answer, Refused)
    assert (answer.reason.code, answer.kind) == ("ArraysDiffer", "bad")
