"""Which nodes are alive, whose lease is over, and whether both sides agree on what runs."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.inputs import Disconnect, Drain, Heartbeat, Hello, Tick, Undrain
from phalanx.core.cluster.state import Timers
from phalanx.core.model.containers import CONTAINERS
from phalanx.core.model.orders import AttemptKey, Phase, Returned, Start, Started, Status, Stop, Why
from tests.support.builders import Cluster, a_capacity, a_cluster, a_job


def hello(
    node: str, life: str = "a", origin: str = "", held: tuple[AttemptKey, ...] = (), **has: int
) -> Hello:
    listing = [(key, Phase.RUNNING) for key in held]
    return Hello(node, life, origin or f"origin-{node}", a_capacity(**has), listing)  # type: ignore[arg-type]


def silence(cluster: Cluster, seconds: float, *others: str) -> None:
    for _ in range(int(seconds)):
        cluster.now += 1.0
        for node in others:
            cluster.beat(node)
        cluster.give(Tick())


def orders(cluster: Cluster, kind: type[Start | Stop]) -> list[AttemptKey]:
    return [order.key for _, order in cluster.orders if isinstance(order, kind)]


def test_a_node_is_lost_after_its_lease_and_not_before() -> None:
    cluster = a_cluster(n1={})
    silence(cluster, 30)
    assert not cluster.state.nodes["n1"].lost
    silence(cluster, 1)
    assert cluster.state.nodes["n1"].lost


def test_the_runners_own_lease_is_over_before_ours() -> None:
    assert Timers().self_fence_s < Timers().lost_after_s


def test_a_heartbeat_after_the_lease_is_refused() -> None:
    cluster = a_cluster(n1={})
    silence(cluster, 31)
    answer = cluster.beat("n1")
    assert isinstance(answer, Refused)
    assert "say hello again" in answer.reason.text


def test_a_broken_connection_keeps_the_tasks_and_takes_no_new_ones() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job, later = a_job(), a_job()
    cluster.submit(job)
    cluster.give(Disconnect("n1", "a"))
    cluster.submit(later)
    assert (cluster.status(job), cluster.status(later)) == (Status.ASSIGNED, Status.PENDING)
    cluster.give(hello("n1", held=((job.id, 0, 1),), cores=2))
    assert cluster.status(later) == Status.ASSIGNED


def test_the_end_of_an_older_connection_says_nothing_about_the_newer_life() -> None:
    cluster = a_cluster(n1={})
    cluster.give(hello("n1", life="b"))
    cluster.give(Disconnect("n1", "a"))
    assert cluster.state.nodes["n1"].connected


def test_a_second_runner_may_not_take_the_name_of_a_living_one() -> None:
    cluster = a_cluster(n1={})
    (answer,) = cluster.give(hello("n1", life="b", origin="elsewhere"))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NameTaken"
    silence(cluster, 31)
    cluster.give(hello("n1", life="b", origin="elsewhere"))
    assert cluster.state.nodes["n1"].incarnation == "b"


def test_a_new_life_keeps_what_it_still_runs_and_the_rest_is_lost() -> None:
    cluster = a_cluster(n1={"cores": 4})
    job = a_job(array="1-2")
    cluster.submit(job)
    cluster.give(hello("n1", life="b", held=((job.id, 0, 1),), cores=4))
    attempts = {position: each.key[2] for position, each in cluster.state.jobs[job.id].live.items()}
    assert attempts == {0: 1, 1: 2}
    assert cluster.state.jobs[job.id].losses == {1: 1}


def test_a_leftover_that_is_given_back_unstarted_ends_the_quarantine_too() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job()
    cluster.submit(job)
    silence(cluster, 31)
    old = (job.id, 0, 1)
    cluster.give(Hello("n1", "a", "origin-n1", a_capacity(cores=1), [(old, Phase.ENDED)]))
    assert cluster.state.nodes["n1"].leftovers == {old}
    cluster.tell("n1", Started(old, cluster.now))
    assert cluster.state.nodes["n1"].leftovers == {old}, "a start ends nothing"
    cluster.tell("n1", Returned(old))
    assert cluster.state.nodes["n1"].takes_work
    assert cluster.status(job) == Status.ASSIGNED


def test_what_a_runner_lists_and_nobody_knows_is_stopped_unless_it_has_ended() -> None:
    cluster = a_cluster(n1={})
    ghost, ended = ("0" * 26, 0, 1), ("1" * 26, 0, 1)
    cluster.give(Heartbeat("n1", "a", [(ghost, Phase.RUNNING), (ended, Phase.ENDED)], 1))
    assert orders(cluster, Stop) == [ghost]


def test_an_order_to_start_is_told_again_but_not_at_once() -> None:
    cluster = a_cluster(n1={})
    cluster.submit(a_job())
    cluster.now += 1.0
    cluster.beat("n1")
    assert len(orders(cluster, Start)) == 1
    cluster.now += 5.0
    cluster.beat("n1")
    assert len(orders(cluster, Start)) == 2


def test_a_start_that_is_never_confirmed_is_given_up_between_15_and_35_seconds() -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=0)
    cluster.submit(job)
    began = cluster.now
    while cluster.state.jobs[job.id].losses == {}:
        cluster.now += 5.0
        cluster.beat("n1")
    assert 15.0 <= cluster.now - began <= 35.0
    assert "did not confirm start" in cluster.state.jobs[job.id].details[0][0]
    assert cluster.status(job) == Status.ASSIGNED, "it is tried again, and not charged"
    assert cluster.state.jobs[job.id].charged == {}


def test_a_running_task_that_its_runner_no_longer_lists_is_given_up() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    for _ in range(3):
        cluster.now += 5.0
        cluster.beat("n1")
    assert cluster.state.jobs[job.id].losses == {0: 1}
    assert Why(cluster.state.jobs[job.id].why[0]) == Why.LOST


def test_one_missing_line_in_a_heartbeat_is_forgiven_when_the_next_has_it() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    key = (job.id, 0, 1)
    cluster.started("n1", key)
    for listed in (False, True, True, True):
        cluster.now += 5.0
        cluster.beat("n1", *([key] if listed else []))
    assert cluster.state.jobs[job.id].live[0].key == key


def test_a_drained_node_finishes_what_it_has() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job, later = a_job(), a_job()
    cluster.submit(job)
    cluster.give(Drain("n1", "new fans"))
    cluster.submit(later)
    cluster.ended("n1", (job.id, 0, 1))
    assert (cluster.status(job), cluster.status(later)) == (Status.COMPLETED, Status.PENDING)
    cluster.give(Undrain("n1"))
    assert cluster.status(later) == Status.ASSIGNED


def test_draining_what_is_not_there_is_refused() -> None:
    cluster = Cluster()
    answers = cluster.give(Drain("n9", "why not"), Undrain("n9"))
    assert [isinstance(answer, Refused) and answer.kind for answer in answers] == ["not_found", "not_found"]


def test_ended_jobs_leave_memory_oldest_first_with_a_record_for_the_history() -> None:
    cluster = Cluster(Timers(ended_jobs_max=2))
    cluster.add_node("n1")
    jobs = [a_job() for _ in range(4)]
    for job in jobs:
        cluster.submit(job)
        cluster.ended("n1", (job.id, 0, 1))
    cluster.give(Tick())
    assert list(cluster.state.jobs) == [job.id for job in jobs[2:]]
    assert [record.job for record in cluster.turns[-1].history] == [job.id for job in jobs[:2]]


def test_a_node_that_comes_back_with_other_hardware_has_it_from_then_on() -> None:
    cluster = a_cluster(n1={"cores": 8, "gpus": 4})
    cluster.submit(a_job("n1", cores=2, gpus=4))
    (key,) = cluster.state.nodes["n1"].attempts
    cluster.add_node("n1", life="b", held=(key,), cores=4, gpus=2, labels={"rack": "r7"})
    ledger = cluster.state.table.ledger("n1")
    assert (ledger.cores_free, ledger.devices_free, ledger.capacity.labels) == (2, set(), {"rack": "r7"})
    cluster.ended("n1", key, life="b")
    assert (ledger.cores_free, ledger.devices_free, ledger.is_empty) == (4, {0, 1}, True)


def test_leftovers_are_told_to_stop_in_their_order() -> None:
    cluster = a_cluster(n1={"cores": 1})
    keys = [(f"job-{number}", 0, 1) for number in range(12)]
    cluster.give(hello("n1", life="b", held=tuple(reversed(keys)), cores=1))
    before = len(cluster.orders)
    cluster.beat("n1", life="b")
    stopped = [order.key for _, order in cluster.orders[before:] if isinstance(order, Stop)]
    assert stopped == sorted(keys)


def test_a_runner_that_lives_on_with_another_container_runtime_keeps_its_tasks_and_takes_new_ones() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job, contained = a_job(), a_job(labels=(CONTAINERS,))
    cluster.submit(job)
    cluster.submit(contained)
    assert contained.id not in cluster.state.jobs, "no node could ever take it"
    before, again = cluster.state.nodes["n1"].generation, hello("n1", held=((job.id, 0, 1),), cores=2)
    has = structs.replace(again.capacity, containers="podman 4", labels=dict([CONTAINERS]))
    cluster.give(structs.replace(again, capacity=has))
    cluster.submit(contained)
    assert (cluster.status(job), cluster.status(contained)) == (Status.ASSIGNED, Status.ASSIGNED)
    assert cluster.state.nodes["n1"].generation == before + 1
    cluster.give(structs.replace(again, capacity=has))
    assert cluster.state.nodes["n1"].generation == before + 1, "nothing is new"
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.status(job) == Status.COMPLETED
