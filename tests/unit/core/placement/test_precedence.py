"""A queue with a fair order: of jobs with one priority, those of the user who holds least go first."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.events import TaskPlaced
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import SetQuota, Submit
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Policy
from phalanx.core.model.queues import DEFAULT, Quota
from phalanx.core.model.waiting import Unit
from phalanx.core.placement.precedence import WHOLE_S, Place, Precedence
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

FAIR = Quota(order="fair")


def fair(quota: Quota = FAIR, **node: int) -> Cluster:
    cluster = a_cluster(n1=node)
    cluster.give(SetQuota(DEFAULT, quota))
    return cluster


def started(cluster: Cluster, job: Job) -> int:
    return sum(status != Status.PENDING for status in cluster.state.jobs[job.id].status)


def end_one(cluster: Cluster, job: Job) -> None:
    """A second later, one of its tasks has run and ends."""
    cluster.now += 1.0
    key = next(key for key in cluster.state.nodes["n1"].attempts if key[0] == job.id)
    cluster.started("n1", key)
    cluster.ended("n1", key)


def end_oldest(cluster: Cluster, but: Job | None = None) -> None:
    """A second later, what has run the longest on the node has ended."""
    cluster.now += 1.0
    key = next(key for key in cluster.state.nodes["n1"].attempts if but is None or key[0] != but.id)
    cluster.started("n1", key)
    cluster.ended("n1", key)


def placed(cluster: Cluster) -> list[str]:
    """The users whose tasks were placed in the last turn, in order."""
    events = cluster.turns[-1].events
    return [cluster.state.jobs[each.key[0]].job.user for each in events if isinstance(each, TaskPlaced)]


@pytest.mark.parametrize("quota", [FAIR, Quota()])
def test_who_comes_last_and_holds_nothing_has_the_next_place(quota: Quota):
    cluster = fair(quota, cores=4)
    flood, late = a_job(array="1-200", user="ann"), a_job(user="olga")
    cluster.submit(flood)
    cluster.submit(late)
    end_one(cluster, flood)
    assert (cluster.status(late) == Status.PENDING) == (quota.order == "arrival")


def test_users_have_turns_within_one_plan():
    cluster = fair(cores=1)
    cluster.submit(a_job(user="first"))
    for user, tasks in (("ann", 100), ("bob", 100), ("cleo", 2)):
        cluster.submit(a_job(array=f"1-{tasks}", user=user, evictable=False))
    cluster.add_node("n2", cores=12)
    assert placed(cluster)[:6] == ["ann", "bob", "cleo"] * 2
    assert Counter(placed(cluster)) == {"ann": 5, "bob": 5, "cleo": 2}, (
        "who waits no more leaves it to the others"
    )


def test_tasks_that_are_spread_have_turns_as_well():
    cluster = a_cluster(n1={"cores": 8}, n2={"cores": 4})
    cluster.give(SetQuota(DEFAULT, FAIR))
    jobs = [a_job(array="1-4", user=user, spread=True) for user in ("ann", "bob")]
    cluster.give(*(Submit(job) for job in jobs))
    assert placed(cluster) == ["ann", "bob"] * 4
    for job in jobs:
        for node in ("n1", "n2"):
            assert sum(key[0] == job.id for key in cluster.state.nodes[node].attempts) == 2


def test_a_turn_is_one_task():
    cluster = fair(cores=4)
    flood = a_job(array="1-200", user="ann")
    cluster.submit(flood)
    large = a_job(array="1-2", user="olga", cores=4)
    cluster.submit(large)
    for _ in range(3):
        end_one(cluster, flood)
    cluster.add_node("n2", cores=8)
    assert started(cluster, large) == 1, "ann holds less then"
    assert placed(cluster)[:4] == ["olga", "ann", "ann", "ann"]


def test_the_largest_part_counts():
    """Half of the GPUs are more than a quarter of the cores."""
    cluster = fair(cores=16, gpus=8)
    cluster.submit(a_job(user="ann", gpus=4, cores=1))
    cluster.submit(a_job(user="bob", cores=4))
    filler = a_job(user="first", cores=11)
    cluster.submit(filler)
    ann, bob = a_job(user="ann", cores=11), a_job(user="bob", cores=11)
    cluster.submit(ann)
    cluster.submit(bob)
    end_one(cluster, filler)
    assert [cluster.status(job) for job in (ann, bob)] == [Status.PENDING, Status.ASSIGNED]


def test_priority_goes_first():
    cluster = fair(cores=2)
    flood = a_job(array="1-50", user="ann", priority=1)
    cluster.submit(flood)
    cluster.submit(a_job(user="olga"))
    end_one(cluster, flood)
    assert started(cluster, flood) == 3


def test_who_waits_alone_may_use_everything():
    cluster = fair(cores=8)
    job = a_job(array="1-50", user="ann")
    cluster.submit(job)
    assert started(cluster, job) == 8


def test_jobs_of_other_queues_keep_their_place():
    """What she holds does not put her job behind one that came later to another queue."""
    cluster = fair(cores=4)
    cluster.give(SetQuota("lab", Quota()))
    running = a_job(array="1-4", user="ann")
    cluster.submit(running)
    ann, other = a_job(user="ann"), a_job(user="zoe", queue="lab")
    cluster.submit(ann)
    cluster.submit(other)
    end_one(cluster, running)
    assert (cluster.status(ann), cluster.status(other)) == (Status.ASSIGNED, Status.PENDING)


def test_jobs_of_other_queues_that_came_before_go_first():
    cluster = fair(cores=4)
    cluster.give(SetQuota("lab", Quota()))
    running = a_job(array="1-4", user="ann")
    cluster.submit(running)
    other, olga = a_job(user="zoe", queue="lab"), a_job(user="olga")
    cluster.submit(other)
    cluster.submit(olga)
    end_one(cluster, running)
    assert (cluster.status(other), cluster.status(olga)) == (Status.ASSIGNED, Status.PENDING)


def test_on_one_place_the_next_task_is_that_of_another_user():
    """Though for an instant its user holds nothing, and was given the place before the other one came."""
    cluster = fair(cores=1)
    flood = a_job(array="1-200", user="ann")
    cluster.submit(flood)
    cluster.now += 60.0
    late = structs.replace(a_job(user="olga"), submitted_at=cluster.now)
    cluster.submit(late)
    end_one(cluster, flood)
    assert cluster.status(late) == Status.ASSIGNED


@pytest.mark.parametrize(("places", "users"), [(1, 2), (4, 5), (3, 3), (8, 10)])
def test_every_user_has_as_many_turns(places: int, users: int):
    """Each holds no more than one place, so that who has just left one holds as little as who waits."""
    cluster = Cluster(policy=Policy(prefetch_max=0))
    cluster.add_node("n1", cores=places)
    cluster.give(SetQuota(DEFAULT, FAIR))
    jobs = [a_job(array="1-500", user=f"u{number}") for number in range(users)]
    for job in jobs:
        cluster.submit(job)
    ends = 20 * users
    for _ in range(ends):
        end_oldest(cluster)
    turns = [started(cluster, job) for job in jobs]
    assert max(turns) - min(turns) <= places + 1, turns


def test_an_array_at_its_limit_has_not_waited():
    """Between two of its tasks nobody of it is in the queue, and what its user held is known nevertheless."""
    cluster = fair(cores=1)
    flood = a_job(array="1-200%1", user="bob")
    cluster.submit(flood)
    cluster.now += 60.0
    late = a_job(user="olga")
    cluster.submit(late)
    end_one(cluster, flood)
    assert cluster.status(late) == Status.ASSIGNED


def test_a_job_that_never_starts_does_not_bring_its_queue_before_others():
    cluster = fair(cores=4)
    cluster.give(SetQuota("lab", Quota()))
    cluster.submit(a_job(user="eve", cores=64), allow_infeasible=True)
    for _ in range(6):
        cluster.submit(a_job(user="ann"))
    other = a_job(user="lea", queue="lab")
    cluster.submit(other)
    for _ in range(10):
        end_oldest(cluster)
        cluster.submit(a_job(user="ann"))
    assert cluster.status(other) != Status.PENDING


def test_small_tasks_of_its_user_do_not_take_the_turn_of_a_gang():
    cluster = a_cluster(n1={"cores": 16, "gpus": 8}, n2={"cores": 8})
    cluster.give(SetQuota(DEFAULT, FAIR))
    cluster.submit(a_job("n2", user="olga"))
    small = a_job(array="1-5000%4", user="olga", exclude=("n1",))
    cluster.submit(small)
    for number in range(4):
        cluster.submit(a_job(user=f"u{number}", gpus=2))
    gang = a_gang(a_group(4, gpus=2), user="olga")
    cluster.submit(gang)
    for number in range(600):
        key = next(key for key in cluster.state.nodes["n2"].attempts if key[0] == small.id)
        cluster.started("n2", key)
        cluster.ended("n2", key)
        cluster.submit(a_job(user=f"v{number}", gpus=2))
        cluster.now += 20.0
        end_oldest(cluster)
        if started(cluster, gang):
            break
    assert started(cluster, gang) == 4


def test_many_jobs_that_have_waited_for_long_have_one_turn_for_it():
    """They ask for different amounts, so that each of them is the first of its class."""
    cluster = fair(cores=4)
    for number in range(100):
        cluster.submit(a_job(user="ann", memory_bytes=(number + 1) << 20))
    cluster.now += 10 * 3600.0
    late = a_job(array="1-20", user="olga")
    cluster.submit(late)
    for _ in range(12):
        end_oldest(cluster)
    assert started(cluster, late) >= 5, "ann holds all places first, and two of four from then on"


def test_a_plan_looks_at_each_user_a_few_times(monkeypatch: pytest.MonkeyPatch):
    looks = 0
    real = Precedence.place

    def place(precedence: Precedence, unit: Unit) -> Place:
        nonlocal looks
        looks += 1
        return real(precedence, unit)

    cluster = fair(cores=4)
    cluster.submit(a_job(array="1-4", user="ann"))
    for number in range(200):
        cluster.submit(a_job(user=f"u{number}"))
    monkeypatch.setattr(Precedence, "place", place)
    end_oldest(cluster)
    assert looks < 20 * 200


@pytest.mark.parametrize("beside", [False, True])
def test_a_gang_of_a_user_who_holds_a_little_for_ever_has_its_turn(beside: bool):
    """Before others who hold nothing when they come, one after another, once it has waited for some time."""
    cluster = fair(cores=9)
    notebook = a_job(user="olga")
    cluster.submit(notebook)
    flood = [a_job(user=f"u{number}") for number in range(8)]
    for job in flood:
        cluster.submit(job)
    if beside:  # one that can never start has waited longer
        cluster.submit(a_job(user="olga", cores=64), allow_infeasible=True)
    gang = a_gang(a_group(8), user="olga")
    cluster.submit(gang)
    for number in range(200):
        cluster.submit(structs.replace(a_job(user=f"v{number}"), submitted_at=cluster.now))
        cluster.now += 59.0
        end_oldest(cluster, but=notebook)
        if started(cluster, gang):
            break
    assert started(cluster, gang) == 8
    assert cluster.now > WHOLE_S / 9, "until then those go first who hold nothing"


def test_who_is_held_back_goes_when_the_one_it_would_delay_falls_behind():
    """Nothing has ended: the user of the head was given a place elsewhere."""
    cluster = a_cluster(n1={"cores": 4, "gpus": 1}, n2={"cores": 2})
    cluster.give(SetQuota(DEFAULT, FAIR), SetQuota("other", Quota()))
    cluster.submit(a_job("n1", cores=3, gpus=1, user="uwe", queue="other"))
    head, small, elsewhere = (
        a_job(user="olga", cores=4, gpus=1),
        a_job("n1", user="bob"),
        a_job("n2", user="olga"),
    )
    for job in (head, small, elsewhere):
        cluster.submit(job)
    cluster.give()
    assert [cluster.status(job) for job in (small, elsewhere)] == [Status.ASSIGNED] * 2


def test_a_queue_has_no_fair_order_while_jobs_age():
    cluster = Cluster(Timers(aging_s=3600.0))
    (said,) = cluster.give(SetQuota("lab", FAIR))
    assert isinstance(said, Refused)
    assert said.reason.code == "FairOrderWithAging"
    assert "coordinator.aging_s is 3600" in said.reason.text
    assert "lab" not in cluster.state.queues.quotas


@pytest.mark.parametrize("limit_s", [None, 60.0])
def test_room_that_is_gathered_for_a_gang_is_not_taken_by_who_holds_nothing_for_an_instant(
    limit_s: float | None,
):
    cluster = fair(cores=4)
    flood = a_job(array="1-200", user="ann", time_limit_s=limit_s)
    cluster.submit(flood)
    gang = a_gang(a_group(4), user="olga")
    cluster.submit(gang)
    end_one(cluster, flood)
    newcomer = a_job(user="zoe", time_limit_s=limit_s and limit_s + 1)
    cluster.submit(newcomer)
    for _ in range(3):
        end_one(cluster, flood)
    assert started(cluster, gang) == 4
    assert started(cluster, flood) == 4
    assert cluster.status(newcomer) == Status.PENDING


def test_the_order_is_kept_in_an_image_and_may_change_while_jobs_wait():
    cluster = fair(Quota(), cores=4)
    flood, late = a_job(array="1-200", user="ann"), a_job(user="olga")
    cluster.submit(flood)
    cluster.submit(late)
    cluster.give(SetQuota(DEFAULT, FAIR))
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.queues.quotas[DEFAULT].order == "fair"
    assert again.waiting.by_user == {DEFAULT}
    end_one(cluster, flood)
    assert cluster.status(late) == Status.ASSIGNED


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(1, 9)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), max_size=4),
    st.integers(1, 24),
)
def test_each_place_goes_to_the_user_who_holds_least(
    jobs: list[tuple[str, int, int]], before: list[tuple[str, int]], cores: int
):
    """All ask for one core, so that the order alone decides: priority, what is held, arrival."""
    cluster = fair(cores=20)
    held: Counter[str] = Counter()
    for user, tasks in before:
        cluster.submit(a_job(array=f"1-{tasks}", user=user, evictable=False))
        held[user] += tasks
    if rest := 20 - held.total():
        cluster.submit(a_job(array=f"1-{rest}", user="first", evictable=False))
    for user, priority, tasks in jobs:
        cluster.submit(
            structs.replace(a_job(array=f"1-{tasks}", user=user, priority=priority), submitted_at=100.0)
        )
    cluster.add_node("n2", cores=cores)
    expected, left = [], [tasks for _, _, tasks in jobs]
    for _ in range(min(cores, sum(left))):
        waiting = [number for number, tasks in enumerate(left) if tasks]
        best = min(waiting, key=lambda number: (-jobs[number][1], held[jobs[number][0]], number))
        left[best] -= 1
        held[jobs[best][0]] += 1
        expected.append(jobs[best][0])
    assert placed(cluster) == expected
