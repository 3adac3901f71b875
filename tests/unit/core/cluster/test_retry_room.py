"""Room for urgent work that is to be tried again soon: less urgent work does not start there only to be evicted."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.events import RoomPromised
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Drain, Hold
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Policy
from tests.support.builders import Cluster, a_gang, a_group, a_job


class Sweep(Cluster):
    """Two nodes of two GPUs that a sweep of low priority fills, and a gang of higher priority that took both."""

    def __init__(self, policy: Policy | None = None, **fields: object) -> None:
        super().__init__(policy=policy)
        for name in ("n1", "n2"):
            self.add_node(name, cores=4, gpus=2)
        self.sweep = a_job(array="0-7", gpus=1)
        self.submit(self.sweep)
        self.gang = a_gang(a_group(2, gpus=2), **{"priority": 10, **fields})  # type: ignore[arg-type]
        self.submit(self.gang)
        self.stop(self.sweep)
        self.begin()

    @property
    def evictions(self) -> int:
        return sum(
            len(event.victims)
            for turn in self.turns
            for event in turn.events
            if isinstance(event, RoomPromised)
        )

    def stop(self, job: Job) -> None:
        """Every attempt that was told to leave has left."""
        for attempt in list(self.state.jobs[job.id].live.values()):
            if attempt.ending is not None:
                self.ended(attempt.node, attempt.key, 143, attempt.ending)

    def begin(self) -> None:
        """The gang has its places, and all its members run."""
        live = self.state.jobs[self.gang.id].live
        assert len(live) == 2
        for attempt in list(live.values()):
            self.ready(attempt.node, attempt.key)
        for attempt in list(live.values()):
            self.started(attempt.node, attempt.key)

    def crash(self) -> None:
        """A member of the gang fails, and the others are told to leave."""
        attempt = self.state.jobs[self.gang.id].live[0]
        self.ended(attempt.node, attempt.key, 1)

    def why(self, job: Job) -> WhyReply:
        engine = self.engine
        return why_reply(self.state, self.state.jobs[job.id], None, self.now, engine.policy, engine.memory)

    def running(self) -> int:
        """How many GPUs the sweep holds."""
        return len(self.state.tenants.of_job.get(self.sweep.id, ()))


def test_a_gang_that_crashes_at_each_try_evicts_its_victims_once() -> None:
    cluster = Sweep()
    assert cluster.evictions == 4
    for _ in range(3):
        cluster.crash()
        assert cluster.running() == 0  # also while the other member is still leaving
        cluster.stop(cluster.gang)
        assert cluster.running() == 0
        cluster.now += 5.0
        cluster.give()
        cluster.begin()
    cluster.crash()
    assert cluster.status(cluster.gang) == Status.FAILED
    cluster.stop(cluster.gang)
    assert (cluster.running(), cluster.evictions) == (4, 4)


@pytest.mark.parametrize("policy", [Policy(retry_room_s=0.0), Policy(retry_room_s=0.5), Policy(evicts=False)])
def test_a_pause_that_is_longer_than_the_bound_keeps_nothing(policy: Policy) -> None:
    cluster = Sweep()
    cluster.crash()
    cluster.stop(cluster.gang)
    cluster.begin()
    cluster.engine.policy = policy
    cluster.crash()  # the second pause is one second
    cluster.stop(cluster.gang)
    assert cluster.running() == 4


def paused(**fields: object) -> Sweep:
    """A gang that has failed twice and pauses for a second."""
    cluster = Sweep(None, **fields)
    cluster.crash()
    cluster.stop(cluster.gang)
    cluster.begin()
    cluster.crash()
    cluster.stop(cluster.gang)
    assert cluster.running() == 0
    assert cluster.state.jobs[cluster.gang.id].hold_until > cluster.now
    return cluster


def test_a_gang_that_is_held_or_cancelled_keeps_nothing() -> None:
    for is_held in (True, False):
        cluster = paused()
        cluster.give(Hold(cluster.gang.id, "ada") if is_held else Cancel(cluster.gang.id))
        assert cluster.running() == 4


def test_work_of_the_same_or_a_higher_priority_may_take_the_room() -> None:
    for priority in (10, 11):
        cluster = paused()
        other = a_job(gpus=2, priority=priority)
        cluster.submit(other)
        assert cluster.status(other) == Status.ASSIGNED
        assert cluster.running() == 2  # the gang fits nowhere now, so the rest is free for all


def test_the_gang_goes_where_there_is_room_and_leaves_its_former_places_to_others() -> None:
    cluster = paused()
    cluster.add_node("n3", cores=4, gpus=2)
    cluster.give()
    assert cluster.running() == 2
    cluster.now += 5.0
    cluster.give()
    cluster.begin()
    assert (cluster.running(), cluster.evictions) == (2, 4)


def test_a_drained_node_is_not_kept() -> None:
    cluster = paused()
    cluster.give(Drain("n1", "new disks"))
    cluster.give()
    assert cluster.running() == 2  # on n2: the gang cannot be tried again on one node


def test_a_job_that_evicts_nobody_keeps_nothing() -> None:
    cluster = Cluster()
    cluster.add_node("n1", cores=1)
    calm, low = a_job(cores=1, priority=5, max_retries=5, may_evict=False), a_job(cores=1)
    cluster.submit(calm)
    for _ in range(2):
        cluster.ended("n1", cluster.state.jobs[calm.id].live[0].key, 1)
    cluster.submit(low)
    assert cluster.status(low) == Status.ASSIGNED


def test_the_room_of_one_task_is_kept_while_its_backoff_lasts() -> None:
    cluster = Cluster()
    cluster.add_node("n1", cores=2)
    urgent, low = a_job(array="0-1", cores=1, priority=5, max_retries=5), a_job(array="0-3", cores=1)
    cluster.submit(urgent)
    cluster.submit(low)
    for _ in range(2):
        cluster.ended("n1", cluster.state.jobs[urgent.id].live[0].key, 1)
    assert cluster.state.jobs[urgent.id].delayed and not cluster.state.jobs[low.id].live
    cluster.now += 5.0
    cluster.give()
    assert sorted(cluster.state.jobs[urgent.id].live) == [0, 1]
    cluster.ended("n1", cluster.state.jobs[urgent.id].live[0].key, 0)
    assert len(cluster.state.jobs[low.id].live) == 1


def test_another_coordinator_keeps_the_same_room() -> None:
    cluster = paused()
    restored = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert restored.returning == cluster.state.returning == {cluster.gang.id: 10}
    ours, theirs = (state.snapshot(cluster.now).retries(15.0) for state in (cluster.state, restored))
    assert [(each.at, each.until, each.rank) for each in ours] == [
        (each.at, each.until, each.rank) for each in theirs
    ]
    assert len(ours) == 1


def test_attempts_that_do_not_leave_keep_the_room_no_longer_than_the_bound() -> None:
    cluster = Sweep()
    cluster.crash()
    cluster.now += cluster.gang.grace_s + 14.0
    cluster.beat("n1"), cluster.beat("n2")
    assert cluster.running() == 0
    cluster.now += 3.0
    cluster.beat("n1"), cluster.beat("n2")
    assert cluster.running() == 2


def test_why_names_the_job_for_which_room_is_kept_and_the_nodes() -> None:
    cluster = paused()
    sweep, gang = cluster.why(cluster.sweep), cluster.why(cluster.gang)
    assert (sweep.dominant.code, sweep.dominant.numbers["job"]) == ("ReservedForOther", cluster.gang.id)
    assert sweep.dominant.numbers["nodes"] == ["n1", "n2"]
    assert [no.code for no in (gang.dominant, *gang.others)] == ["RestartBackoff", "RoomKept"]
    assert gang.others[0].numbers["nodes"] == ["n1", "n2"]


def test_a_unit_that_would_not_fit_anyway_is_told_what_it_lacks() -> None:
    cluster = paused()
    large = a_job(gpus=2, cores=4)
    cluster.submit(large)
    other = a_job(target="n1", cores=4, priority=10)
    cluster.submit(other)
    blocked = a_job(target="n1", cores=4)
    cluster.submit(blocked)
    assert cluster.why(blocked).dominant.code == "WaitingCapacity"
