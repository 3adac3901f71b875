"""Users' requests: accepted, refused, replayed, cancelled, paused."""

from __future__ import annotations

import pytest
from msgspec import msgpack, structs

from phalanx.core.cluster.apply.grants import hold_back
from phalanx.core.cluster.decide import declared
from phalanx.core.cluster.decision import Accepted, Answer, Refused, Replayed
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Drain, ReleaseJob, SetPaused, SetQuota, Submit
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Pause, Resume, Status, Stop, Why
from phalanx.core.model.queues import Quota
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def code(answer: Answer | None) -> str:
    assert isinstance(answer, Refused), answer
    return f"{answer.kind} {answer.reason.code}"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("n9", "target TargetNotFound"),
        ("n1:2", "target NumaNotFound"),
        ("n1::7", "target GpuIndexInvalid"),
        ("n1::0", "busy TargetBusy"),
    ],
)
def test_a_task_that_will_not_wait_is_told_why_it_cannot_start(target: str, expected: str) -> None:
    cluster = a_cluster(n1={"cores": 4, "gpus": 2, "numa": 2})
    cluster.submit(a_job("n1::0"))
    assert code(cluster.submit(a_job(target), no_queue=True)) == expected
    assert cluster.state.counts[Status.PENDING] == 0


def test_a_task_that_will_not_wait_starts_in_the_same_turn() -> None:
    cluster = a_cluster(n1={"cores": 2})
    first, second = a_job(cores=2), a_job(cores=2)
    answers = cluster.give(Submit(first, no_queue=True), Submit(second, no_queue=True))
    assert answers[0] == Accepted()
    assert code(answers[1]) == "no_room WaitingCapacity"
    assert second.id not in cluster.state.jobs


@pytest.mark.parametrize("target", [None, "n1"])
def test_a_task_that_will_not_wait_is_told_of_the_quota(target: str | None) -> None:
    """Most of the cluster is free."""
    cluster = a_cluster(n1={"cores": 64, "gpus": 16})
    cluster.give(SetQuota("lab", Quota(gpus=2)))
    cluster.submit(a_job(queue="lab", gpus=2))
    answer = cluster.submit(a_job(target, queue="lab", gpus=1), no_queue=True)
    assert code(answer).endswith(" QuotaExhausted")
    assert cluster.submit(a_job(gpus=1), no_queue=True) == Accepted()


def test_a_task_that_will_not_wait_is_told_that_all_nodes_are_closed() -> None:
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4}, n3={"cores": 1})
    cluster.give(Drain("n1", "new disks"), Drain("n2", "new disks"))
    answer = cluster.submit(a_job(cores=2), no_queue=True)
    assert code(answer) == "no_room Maintenance"
    assert isinstance(answer, Refused)
    assert answer.reason.numbers == {"host": "n1", "reason": "new disks"}
    cluster.submit(a_job("n3", cores=1))
    assert code(cluster.submit(a_job(cores=1), no_queue=True)) == "no_room WaitingCapacity"


def test_of_twenty_that_want_one_gpu_at_once_exactly_one_gets_it() -> None:
    cluster = a_cluster(n1={"cores": 64, "gpus": 1})
    answers = cluster.give(*(Submit(a_job("n1::0"), no_queue=True) for _ in range(20)))
    assert sum(isinstance(answer, Accepted) for answer in answers) == 1


def test_who_waits_for_a_node_never_seen_may_not_insist_on_starting_now() -> None:
    cluster = a_cluster(n1={})
    answer = cluster.submit(a_job("n9"), no_queue=True, allow_infeasible=True)
    assert code(answer) == "busy TargetNotFound"


def test_an_array_cannot_insist_on_starting_now() -> None:
    cluster = a_cluster(n1={})
    assert code(cluster.submit(a_job(array="1-3"), no_queue=True)) == "bad ArrayNeedsQueue"


def test_what_no_node_of_today_could_hold_may_wait_for_a_larger_one() -> None:
    cluster = a_cluster(n1={"cores": 4})
    job = a_job(cores=8)
    assert code(cluster.submit(job)) == "never ExceedsLargestNode"
    cluster.submit(job, allow_infeasible=True)
    assert cluster.status(job) == Status.PENDING
    cluster.add_node("n2", cores=8)
    assert cluster.status(job) == Status.ASSIGNED


def test_the_closest_node_is_one_that_takes_work() -> None:
    cluster = a_cluster(n1={"cores": 8}, n2={"cores": 4}, n3={"cores": 2})
    cluster.give(Drain("n1", "new disks"))
    for job in (a_job(cores=16), a_gang(a_group(tasks=2, cores=16))):
        answer = cluster.submit(job)
        assert isinstance(answer, Refused)
        assert "n2" in answer.reason.text
    cluster.give(Drain("n2", "new disks"), Drain("n3", "new disks"))
    answer = cluster.submit(a_job(cores=16))
    assert isinstance(answer, Refused)
    assert "n1" in answer.reason.text, "if none takes work, the largest"


def test_before_the_first_node_everything_may_wait() -> None:
    cluster = Cluster()
    job = a_job(cores=999)
    assert isinstance(cluster.submit(job), Accepted)
    assert cluster.status(job) == Status.PENDING


def test_the_queue_is_bounded() -> None:
    cluster = Cluster(Timers(pending_max=10))
    assert isinstance(cluster.submit(a_job(array="1-8")), Accepted)
    assert code(cluster.submit(a_job(array="1-3"))) == "too_many QueueFull"
    assert isinstance(cluster.submit(a_job(array="1-2")), Accepted)


def test_the_same_request_id_gives_the_same_jobs_even_in_one_turn() -> None:
    cluster = a_cluster(n1={})
    first, second, third = a_job(), a_job(), a_job()
    answers = cluster.give(Submit(first, "r1"), Submit(second, "r1"))
    assert answers == [Accepted(), Replayed((first.id,))]
    assert cluster.give(Submit(third, "r1")) == [Replayed((first.id,))]
    assert list(cluster.state.jobs) == [first.id]


def a_batch(*targets: str) -> list[Submit]:
    jobs: list[Job] = [a_job(target) for target in targets]
    return [Submit(structs.replace(job, batch=jobs[0].id), "r1") for job in jobs]


def test_a_batch_is_named_after_the_first_that_was_accepted_and_replayed_whole() -> None:
    cluster = a_cluster(n1={}, n2={})
    requests = a_batch("bogus", "n1", "n2")
    answers = cluster.give(*requests)
    assert [type(answer) for answer in answers] == [Refused, Accepted, Accepted]
    first, second = (options.job.id for options in requests[1:])
    assert {job.job.batch for job in cluster.state.jobs.values()} == {first}
    assert cluster.give(Submit(a_job(), "r1")) == [Replayed((first, second))]


def test_request_ids_are_forgotten_at_last() -> None:
    cluster = Cluster(Timers(request_ids_max=2))
    for number in range(3):
        cluster.give(Submit(a_job(), f"r{number}"))
    assert [id for _, id, _ in cluster.state.requests] == ["r1", "r2"]


def test_a_request_id_counts_for_its_user_alone() -> None:
    cluster = a_cluster(n1={})
    of_alice, of_bob = a_job(user="alice"), a_job(user="bob")
    answers = cluster.give(Submit(of_bob, "build-2"), Submit(of_alice, "build-2"))
    assert answers == [Accepted(), Accepted()]
    assert cluster.give(Submit(a_job(user="alice"), "build-2")) == [Replayed((of_alice.id,))]
    assert cluster.give(Submit(a_job(user="bob"), "build-2")) == [Replayed((of_bob.id,))]


def test_a_user_with_many_request_ids_makes_nobody_else_forget_his() -> None:
    cluster = Cluster(Timers(request_ids_max=4))
    first = a_job(user="alice")
    cluster.give(Submit(first, "r1"))
    for number in range(9):
        cluster.give(Submit(a_job(user="bob"), f"b{number}"))
    assert cluster.give(Submit(a_job(user="alice"), "r1")) == [Replayed((first.id,))]
    cluster.give(Submit(a_job(user="alice"), "r2"))
    known = [(user, id) for user, id, _ in cluster.state.requests]
    assert known == [("alice", "r1"), ("alice", "r2"), ("bob", "b7"), ("bob", "b8")]


def test_request_ids_of_an_old_image_count_for_the_user_of_their_job() -> None:
    cluster = a_cluster(n1={})
    job = a_job(user="alice")
    cluster.give(Submit(job, "r1"))
    fields = msgpack.decode(encode_state(cluster.state))
    old = [*fields[:6], [["r1", [job.id]], ["r0", ["gone"]]], *fields[7:-1]]
    state = decode_state(msgpack.encode(old), cluster.state.rules)
    assert list(state.requests) == [("alice", "r1", [job.id])]
    again = decode_state(encode_state(state), cluster.state.rules)
    assert again.requests.get("alice", "r1") == [job.id]
    assert len(again.requests) == 1
    assert not again.requests.get("bob", "r1")


def test_cancel_counts_what_it_stops() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="1-5")
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.give(Cancel(job.id)) == [Accepted(4, 2)]
    stops = [order.key for _, order in cluster.orders if isinstance(order, Stop)]
    assert stops == [(job.id, 1, 1), (job.id, 2, 1)]
    assert code(cluster.give(Cancel(job.id))[0]) == "conflict AlreadyEnded"


def test_cancel_of_one_task_leaves_the_others() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-3")
    cluster.submit(job)
    assert cluster.give(Cancel(job.id, 1)) == [Accepted(1, 0)]
    assert code(cluster.give(Cancel(job.id, 1))[0]) == "conflict AlreadyEnded"
    cluster.ended("n1", (job.id, 0, 1))
    assert [cluster.status(job, position) for position in range(3)] == [
        Status.COMPLETED,
        Status.CANCELLED,
        Status.ASSIGNED,
    ]


def test_cancel_of_nothing() -> None:
    assert code(Cluster().give(Cancel("0" * 26))[0]) == "not_found NotFound"


def test_pause_and_resume_tell_the_runner_and_hold_the_grant() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job()
    cluster.submit(job)
    assert code(cluster.give(SetPaused(job.id, 0, True))[0]) == "conflict NotRunning"
    cluster.started("n1", (job.id, 0, 1))
    assert code(cluster.give(SetPaused(job.id, 0, False))[0]) == "bad NotPaused"
    cluster.give(SetPaused(job.id, 0, True))
    assert code(cluster.give(SetPaused(job.id, 0, True))[0]) == "bad AlreadyPaused"
    cluster.give(SetPaused(job.id, 0, False))
    assert [type(order) for _, order in cluster.orders[-2:]] == [Pause, Resume]
    assert cluster.state.table.ledgers[0].cores_free == 0


def test_a_paused_task_of_a_held_job_is_resumed_before_its_job_is_released() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="0-1")
    cluster.submit(job)
    for position in (0, 1):
        cluster.started("n1", (job.id, position, 1))
    cluster.give(SetPaused(job.id, 1, True))
    state = cluster.state.jobs[job.id]
    hold_back(cluster.state, state, "it may have ended")
    assert cluster.give(SetPaused(job.id, 1, False)) == [Accepted()]
    assert (bool(state.live[1].paused), state.held_because) == (False, "it may have ended")
    cluster.give(SetPaused(job.id, 0, True))
    assert cluster.give(ReleaseJob(job.id, "ada")) == [Accepted(0)]
    assert (bool(state.live[0].paused), state.held_because) == (True, "")
    assert code(cluster.give(ReleaseJob(job.id, "ada"))[0]) == "conflict NotHeld"


def test_a_cancelled_task_says_so() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    cluster.give(Cancel(job.id))
    assert cluster.state.jobs[job.id].why[0] == Why.CANCELLED


def test_there_is_an_end_to_how_many_queues_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "QUEUES_MAX", 1)
    cluster = Cluster()
    assert cluster.give(SetQuota("lab", Quota(gpus=2))) == [Accepted()]
    assert code(cluster.give(SetQuota("more", Quota(gpus=2)))[0]).endswith(" TooManyQueues")


def test_one_user_leaves_room_for_others_in_the_queue():
    cluster = Cluster(Timers(pending_max=4000))
    first = a_job(array="1-1500", user="mallory")
    assert isinstance(cluster.submit(first), Accepted)
    refused = cluster.submit(a_job(array="1-501", user="mallory"))
    assert isinstance(refused, Refused) and refused.reason.code == "QueueFull"
    assert refused.reason.numbers == {"limit": 2000}
    assert isinstance(cluster.submit(a_job(array="1-2000", user="ada")), Accepted)
    cluster.give(Cancel(first.id))
    assert isinstance(cluster.submit(a_job(array="1-501", user="mallory")), Accepted)


def test_jobs_that_have_ended_count_against_nobody_also_after_a_restart():
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(user="ada")
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1))
    cluster.submit(a_job(array="1-3", user="ada"))
    for state in (cluster.state, decode_state(encode_state(cluster.state), Timers())):
        assert state.tasks_of == {"ada": 3}
        assert check(state) == []
