"""Elastic nodes: disabled by people and by the cluster itself (C13, C26, C27 and the seed's testing idea 3).

Time passes in seconds, with heartbeats and ticks as in a running coordinator.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.coordinator.restore import restore
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.closed_nodes import why_closed
from phalanx.core.cluster.decide.jobs import why_not_now
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Disconnect, Drain, Hello, SetElastic, SetQuota, Submit, Tick, Undrain
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Start, Status
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Reason
from phalanx.store.protocol import Loaded
from tests.support.builders import Cluster, a_capacity, a_gang, a_group, a_job

AUTO = ElasticRules(mode="auto")
GIB = 1024**3


class Pool(Cluster):
    """A cluster whose runners beat every five seconds while time passes; those in `silent` do not."""

    def __init__(self, rules: ElasticRules = AUTO) -> None:
        super().__init__(Timers(elastic=rules))
        self.silent: set[str] = set()

    def nodes(self, *names: str, **has: int) -> Pool:
        for name in names:
            self.add_node(name, **has)  # type: ignore[arg-type]  # what a node has is all numbers
        return self

    def wait(self, seconds: float) -> list[e.Event]:
        """Let time pass; the events about elastic nodes since then."""
        mark, until = len(self.turns), self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 1.0)
            if self.now % 5 == 0:
                for name, node in self.state.nodes.items():
                    if name not in self.silent and node.connected:
                        self.beat(name, *node.attempts)
            self.give(Tick())
            while self.turns[-1].more:
                self.give()
        found = [event for turn in self.turns[mark:] for event in turn.events]
        return [each for each in found if isinstance(each, e.NodeDisabled | e.NodeEnabled | e.NodeNeeded)]

    def toggle(self, name: str, enabled: bool) -> object:
        return self.give(SetElastic(name, enabled, user="ann"))[0]

    @property
    def disabled(self) -> list[str]:
        return [name for name, node in self.state.nodes.items() if node.disabled_reason is not None]

    def node_of(self, job: Job) -> str | None:
        live = self.state.jobs[job.id].live
        return next((attempt.node for attempt in live.values()), None)

    def finish(self, job: Job) -> None:
        for attempt in list(self.state.jobs[job.id].live.values()):
            if attempt.started_at is None:
                self.started(attempt.node, attempt.key)
            self.ended(attempt.node, attempt.key)

    def waiting_for(self, name: str, **fields: object) -> Job:
        """A job that waits for a node where another one runs."""
        first, second = (a_job(name, **fields) for _ in range(2))  # type: ignore[arg-type]
        self.submit(first)
        self.submit(second)
        assert self.status(second) == Status.PENDING
        return second


def names(events: list[e.Event], kind: type[e.Event]) -> list[str | None]:
    return [event.on_node for event in events if isinstance(event, kind)]


def idle_since(pool: Pool, name: str) -> float | None:
    return pool.state.nodes[name].idle_since


# By hand.


def test_c13_a_disabled_node_is_never_chosen_and_an_enabled_one_at_the_next_turn():
    pool = Pool(ElasticRules()).nodes("n1")
    assert pool.toggle("n1", False) == Accepted()
    job, gang = a_job(), a_gang(a_group(2))
    pool.submit(job)
    pool.submit(gang)
    pool.wait(90)
    assert (pool.status(job), pool.status(gang)) == (Status.PENDING, Status.PENDING)
    assert pool.orders == []
    pool.toggle("n1", True)
    assert (pool.status(job), pool.status(gang)) == (Status.ASSIGNED, Status.ASSIGNED)
    started = {order.key[0] for _, order in pool.orders if isinstance(order, Start)}
    assert started == {job.id, gang.id}


def test_what_runs_on_a_disabled_node_goes_on_and_nothing_queues_behind_it():
    pool = Pool(ElasticRules()).nodes("n1", cores=1)
    array = a_job(array="0-9", cores=1)
    pool.submit(array)
    pool.toggle("n1", False)
    held = list(pool.state.nodes["n1"].attempts)
    pool.finish(array)
    assert {pool.status(array, key[1]) for key in held} == {Status.COMPLETED}
    assert not pool.state.nodes["n1"].attempts
    assert pool.status(array, 9) == Status.PENDING


def test_a_job_that_fits_a_disabled_node_only_is_not_refused_and_says_why_it_waits():
    pool = Pool(ElasticRules()).nodes("n1", cores=2).nodes("n2", cores=16)
    pool.give(SetElastic("n2", False, "the fan is loud", "ann"))
    job = a_job(cores=8)
    assert pool.submit(job) == Accepted()
    no = why_not_now(pool.state, job)
    assert (no.code, no.numbers) == ("NodeDisabled", {"host": "n2", "automatic": False})
    assert "by ann: the fan is loud" in no.text


def test_a_toggle_to_what_it_is_already_changes_nothing():
    pool = Pool(ElasticRules()).nodes("n1")
    revision = pool.state.revision
    assert pool.toggle("n1", True) == Accepted(0)
    assert pool.state.revision == revision
    pool.toggle("n1", False)
    at = pool.state.nodes["n1"].toggled_at
    pool.now += 10
    assert pool.toggle("n1", False) == Accepted(0)
    assert pool.state.nodes["n1"].toggled_at == at


def test_c28_an_unknown_node_and_a_feature_that_is_off():
    unknown = Pool(ElasticRules()).toggle("n9", False)
    assert isinstance(unknown, Refused)
    assert unknown.kind == "not_found"
    pool = Pool(ElasticRules()).nodes("n1", "n2")
    pool.toggle("n1", False)
    pool.state.rules = Timers(elastic=ElasticRules(mode="off"))
    refused = pool.toggle("n2", False)
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.reason.code) == ("bad", "ElasticOff")
    assert pool.toggle("n1", True) == Accepted()  # what was disabled before need not stay so
    assert isinstance(pool.toggle("n1", True), Refused)


def test_a_drained_node_is_not_opened_by_enabling_it():
    pool = Pool(ElasticRules()).nodes("n1")
    pool.give(Drain("n1", "a fan"), SetElastic("n1", False))
    pool.toggle("n1", True)
    assert not pool.state.nodes["n1"].takes_work
    pool.give(SetElastic("n1", False), Undrain("n1"))
    assert not pool.state.nodes["n1"].takes_work
    said = why_closed(pool.state.nodes["n1"])
    assert isinstance(said, Reason)
    assert said.code == "NodeDisabled"


def test_a_node_that_is_disabled_and_away_does_not_set_the_brake_and_is_remembered():
    pool = Pool(ElasticRules()).nodes("n1", "n2", "n3", "n4", "n5", "n6")
    for name in ("n1", "n2", "n3", "n4"):
        pool.toggle(name, False)
        pool.silent.add(name)
        pool.give(Disconnect(name, "a"))
    pool.wait(40)
    assert pool.state.brake is None
    assert pool.state.nodes["n1"].lost
    pool.now += 2 * 86_400
    pool.give(Tick())
    assert "n1" in pool.state.nodes
    said = why_closed(pool.state.nodes["n1"])
    assert said is not None
    assert (said.code, "not connected" in said.text) == ("NodeDisabled", True)


def test_a_promise_on_a_node_that_is_disabled_is_withdrawn():
    pool = Pool(ElasticRules()).nodes("n1", cores=1)
    victim, urgent = a_job(cores=1, evictable=True), a_job(cores=1, priority=10)
    pool.submit(victim)
    pool.submit(urgent)
    assert pool.state.jobs[urgent.id].promise is not None
    pool.toggle("n1", False)
    pool.wait(1)
    assert pool.state.jobs[urgent.id].promise is None


# C26: who is disabled.


def test_c26_three_idle_nodes_are_disabled_down_to_one_in_one_poll():
    pool = Pool().nodes("n1", "n2", "n3")
    assert pool.wait(59) == []
    events = pool.wait(1)
    assert names(events, e.NodeDisabled) == ["n1", "n2"]
    assert [
        names(turn.events, e.NodeDisabled) for turn in pool.turns if names(turn.events, e.NodeDisabled)
    ] == [["n1", "n2"]]
    assert pool.wait(600) == []


def test_c26_one_stays_even_if_none_need():
    pool = Pool(structs.replace(AUTO, active_min=0)).nodes("n1", "n2", "n3")
    pool.wait(300)
    assert pool.disabled == ["n1", "n2"]


def test_c26_more_stay_if_so_asked():
    pool = Pool(structs.replace(AUTO, active_min=2)).nodes("n1", "n2", "n3")
    pool.wait(300)
    assert pool.disabled == ["n1"]


def test_c26_none_is_disabled_while_a_task_waits():
    pool = Pool().nodes("n1", "n2", "n3").nodes("busy", cores=1)
    waiting = pool.waiting_for("busy", cores=1)
    assert pool.wait(300) == []
    pool.give()
    pool.finish(next(job.job for job in pool.state.jobs.values() if job.live))
    assert pool.status(waiting) == Status.ASSIGNED
    assert names(pool.wait(31), e.NodeDisabled) == ["n1", "n2", "n3"]


def test_a_queue_as_long_as_allowed_does_not_keep_nodes():
    pool = (
        Pool(structs.replace(AUTO, queue_max=1, queue_threshold=5)).nodes("n1", "n2").nodes("busy", cores=1)
    )
    pool.waiting_for("busy", cores=1)
    assert names(pool.wait(60), e.NodeDisabled) == ["n1", "n2"]


def test_who_does_not_wait_for_a_place_is_not_in_the_queue():
    """Under a quota or an array's limit another node would not help, nor where no node could ever hold the task."""
    pool = Pool().nodes("n1", "n2", "n3")
    pool.give(SetQuota("default", Quota(tasks=1)))
    first = a_job(cores=1)
    pool.submit(first)
    pool.submit(a_job(cores=1))  # no quota
    pool.wait(60)
    assert len(pool.disabled) == 2
    assert pool.node_of(first) not in pool.disabled
    pool = Pool().nodes("n1", "n2", "n3")
    pool.submit(a_job(cores=1000), allow_infeasible=True)
    assert names(pool.wait(60), e.NodeDisabled) == ["n1", "n2"]
    pool = Pool().nodes("n1", "n2", "n3")
    pool.submit(a_job("n1", array="0-9%1", cores=1))
    assert names(pool.wait(60), e.NodeDisabled) == ["n2", "n3"]


def test_a_node_that_works_is_not_idle_and_is_idle_from_the_end_of_its_last_task():
    pool = Pool().nodes("n1", "n2")
    job = a_job("n1")
    pool.submit(job)
    assert idle_since(pool, "n1") is None
    pool.wait(45)
    pool.finish(job)
    assert idle_since(pool, "n1") == pool.now == 145.0
    assert names(pool.wait(15), e.NodeDisabled) == ["n2"]  # at 160, when n1 has been idle for 15 s
    pool.toggle("n2", True)
    assert idle_since(pool, "n2") == 160.0
    assert pool.wait(59) == []
    assert names(pool.wait(31), e.NodeDisabled) == ["n1"]


def test_with_no_idle_time_nothing_is_disabled():
    assert Pool(structs.replace(AUTO, idle_s=0.0)).nodes("n1", "n2").wait(600) == []


def test_a_node_for_which_a_place_is_kept_is_not_idle():
    pool = Pool(structs.replace(AUTO, idle_s=5.0, poll_s=1.0)).nodes("n1", "n2", cores=1)
    victim = a_job("n1", cores=1, evictable=True)
    pool.submit(victim)
    urgent = a_gang(a_group(2, cores=1), priority=10)
    pool.submit(urgent)
    assert pool.state.jobs[urgent.id].promise is not None
    assert pool.wait(20) == []


# C27: who is enabled.


def small_mid_big(threshold: int) -> Pool:
    """Three disabled nodes of different size, and a busy one on which tasks can wait."""
    pool = Pool(structs.replace(AUTO, queue_threshold=threshold, idle_s=0.0))
    pool.nodes("plain", cores=64, memory=512 * GIB).nodes("small", gpus=1).nodes("big", gpus=4).nodes(
        "mid", gpus=2
    )
    for name in ("plain", "small", "big", "mid"):
        pool.toggle(name, False)
    pool.wait(90)
    return pool


def test_c27_one_node_per_poll_the_largest_first_from_the_threshold_on():
    pool = small_mid_big(threshold=2)
    pool.submit(a_job(cores=8))
    assert pool.wait(60) == []  # one task waits
    pool.submit(a_job(array="0-9", cores=8))
    assert names(pool.wait(30), e.NodeEnabled) == ["big"]
    assert names(pool.wait(30), e.NodeEnabled) == ["mid"]
    assert names(pool.wait(30), e.NodeEnabled) == ["small"]
    assert names(pool.wait(30), e.NodeEnabled) == ["plain"]


def test_c27_a_threshold_of_zero_means_any_waiting_task():
    pool = small_mid_big(threshold=0)
    pool.submit(a_job(cores=8))
    events = pool.wait(30)
    assert names(events, e.NodeEnabled) == ["big"]
    assert isinstance(events[0], e.NodeEnabled)
    assert events[0].automatic
    assert pool.wait(300) == []


def test_c27_a_node_that_was_toggled_lately_is_left_alone():
    pool = Pool(structs.replace(AUTO, idle_s=0.0, poll_s=5.0)).nodes("n1")
    pool.toggle("n1", False)
    toggled_at = pool.now
    job = a_job()
    pool.submit(job)
    assert pool.wait(59) == []
    assert names(pool.wait(5), e.NodeEnabled) == ["n1"]
    assert pool.state.nodes["n1"].toggled_at is not None
    assert pool.state.nodes["n1"].toggled_at - toggled_at >= 60
    assert pool.node_of(job) == "n1"


def test_the_node_that_can_hold_what_waits_comes_before_a_larger_one_that_cannot():
    pool = small_mid_big(threshold=0)
    pool.submit(a_job(cores=32))
    assert names(pool.wait(30), e.NodeEnabled) == ["plain"]
    pool.submit(a_job("small", gpus=1))
    assert names(pool.wait(30), e.NodeEnabled) == ["small"]


def test_no_node_is_enabled_that_could_hold_nothing_that_waits():
    pool = Pool(structs.replace(AUTO, idle_s=0.0)).nodes("busy", gpus=1).nodes("plain", cores=64)
    pool.toggle("plain", False)
    pool.waiting_for("busy", gpus=1)
    assert pool.wait(300) == []


def test_a_gang_wakes_as_many_nodes_as_it_needs_one_after_another():
    pool = Pool(structs.replace(AUTO, idle_s=0.0)).nodes("n1", "n2", "n3", cores=4)
    for name in ("n1", "n2", "n3"):
        pool.toggle(name, False)
    pool.wait(90)
    gang = a_gang(a_group(3, cores=4))
    pool.submit(gang)
    pool.wait(90)
    assert {attempt.node for attempt in pool.state.jobs[gang.id].live.values()} == {"n1", "n2", "n3"}


def test_a_node_that_could_not_take_work_anyway_is_not_enabled():
    pool = small_mid_big(threshold=0)
    pool.give(Drain("big", "a fan"), Disconnect("mid", "a"))
    pool.silent.add("mid")
    pool.submit(a_job(cores=8))
    assert names(pool.wait(30), e.NodeEnabled) == ["small"]


def test_idea_3_a_disabled_node_is_brought_back_when_the_queue_crosses_the_threshold():
    pool = Pool().nodes("n1", "n2", cores=1)
    pool.toggle("n2", False)
    first, second = a_job(cores=1), a_job(cores=1)
    pool.submit(first)
    pool.wait(60)
    pool.submit(second)
    assert pool.status(second) == Status.PENDING
    assert names(pool.wait(30), e.NodeEnabled) == ["n2"]
    assert pool.node_of(second) == "n2"


def test_with_pure_defaults_a_pool_of_five_shrinks_and_grows_again():
    pool = Pool().nodes("n1", "n2", "n3", "n4", "n5", cores=1)
    jobs = [a_job(cores=1) for _ in range(5)]
    for job in jobs:
        pool.submit(job)
    assert pool.wait(300) == []
    for job in jobs:
        pool.finish(job)
    assert names(pool.wait(90), e.NodeDisabled) == ["n1", "n2", "n3", "n4"]
    array = a_job(array="0-4", cores=1)
    pool.submit(array)
    grown = pool.wait(60 + 5 * 30)
    assert sorted(map(str, names(grown, e.NodeEnabled))) == ["n1", "n2", "n3", "n4"]
    assert {attempt.node for attempt in pool.state.jobs[array.id].live.values()} == {
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    }
    assert names(grown, e.NodeDisabled) == []


def test_manual_mode_disables_and_enables_nothing_by_itself():
    pool = Pool(ElasticRules(notifies=True)).nodes("n1", "n2")
    assert pool.wait(300) == []
    pool.toggle("n1", False)
    pool.toggle("n2", False)
    pool.submit(a_job())
    assert {type(event) for event in pool.wait(300)} == {e.NodeNeeded}


def test_nodes_that_were_disabled_automatically_are_enabled_when_that_is_switched_off():
    pool = Pool().nodes("n1", "n2", "n3")
    pool.toggle("n3", False)
    assert names(pool.wait(120), e.NodeDisabled) == ["n1"]
    pool.state.rules = Timers(elastic=ElasticRules(mode="manual"))
    assert names(pool.wait(2), e.NodeEnabled) == ["n1"]
    assert pool.state.nodes["n3"].disabled_reason is not None, "a person has said so"
    assert pool.wait(300) == []


# What is needed.


def test_a_need_is_told_once_per_cooldown_and_names_a_node_that_could_help():
    pool = Pool(structs.replace(AUTO, notifies=True, idle_s=0.0)).nodes("n1", cores=64).nodes("n2")
    pool.toggle("n1", False)
    pool.silent.add("n1")
    pool.give(Disconnect("n1", "a"))
    job = a_job(cores=32)
    pool.submit(job)
    needs = [event for event in pool.wait(180) if isinstance(event, e.NodeNeeded)]
    assert [need.at for need in needs] == [130.0, 190.0, 250.0]
    assert {(need.node, need.first_job, need.tasks) for need in needs} == {("n1", job.id, 1)}


def test_a_machine_that_is_switched_on_for_a_need_is_enabled_once_it_is_there():
    pool = Pool(structs.replace(AUTO, notifies=True)).nodes("n1", cores=64).nodes("n2")
    pool.toggle("n1", False)
    pool.silent.add("n1")
    pool.give(Disconnect("n1", "a"))
    job = a_job(cores=32)
    pool.submit(job)
    pool.wait(120)
    assert pool.state.nodes["n1"].lost
    pool.silent.clear()
    pool.give(Hello("n1", "b", "origin-n1", a_capacity(64), []))
    assert pool.status(job) == Status.PENDING
    assert names(pool.wait(30), e.NodeEnabled) == ["n1"]
    assert pool.node_of(job) == "n1"


def test_a_need_of_what_no_node_has_names_none():
    pool = Pool(ElasticRules(notifies=True)).nodes("n1")
    pool.submit(a_job(cores=1000), allow_infeasible=True)
    (need,) = pool.wait(30)
    assert isinstance(need, e.NodeNeeded)
    assert (need.node, need.on_node, need.tasks) == ("", "", 1)


def test_a_node_that_will_be_enabled_soon_is_not_needed():
    pool = Pool(structs.replace(AUTO, notifies=True, idle_s=0.0)).nodes("n1")
    pool.toggle("n1", False)
    pool.submit(a_job())
    assert [type(event) for event in pool.wait(90)] == [e.NodeEnabled]


# After a failover.


def test_who_is_disabled_idle_and_cooling_survives_a_failover():
    pool = Pool().nodes("n1", "n2", "n3")
    pool.wait(45)
    pool.toggle("n3", False)
    pool.wait(5)
    again = decode_state(encode_state(pool.state), pool.state.rules)
    n1, n3 = again.nodes["n1"], again.nodes["n3"]
    assert (n1.idle_since, n1.disabled_reason) == (100.0, None)
    assert (n3.disabled_reason, n3.toggled_at, n3.disabled_automatically) == ("by ann", 145.0, False)
    batches = [batch for turn in pool.turns if (batch := turn.batch()) is not None]
    replayed = restore(Loaded(None, 0, batches), pool.state.rules)
    replayed.epoch = again.epoch
    assert encode_state(replayed) == encode_state(again)


def test_a_new_term_looks_at_the_pool_one_interval_later_and_then_goes_on():
    pool = Pool().nodes("n1", "n2", "n3")
    pool.wait(55)
    pool.engine = type(pool.engine)(decode_state(encode_state(pool.state), pool.state.rules))
    for name in ("n1", "n2", "n3"):
        pool.add_node(name)
    assert names(pool.wait(29), e.NodeDisabled) == []
    assert names(pool.wait(2), e.NodeDisabled) == ["n1", "n2"]


def test_many_kinds_of_tasks_are_all_counted():
    """Only the first kinds ask every node, so that a turn stays short; the others count all the same."""
    pool = Pool(structs.replace(AUTO, queue_threshold=300, idle_s=0.0)).nodes("n1")
    pool.toggle("n1", False)
    pool.give(*(Submit(a_job(memory_bytes=1000 + number)) for number in range(299)))
    pool.wait(90)
    assert pool.disabled == ["n1"]
    pool.submit(a_job(memory_bytes=2000))
    assert names(pool.wait(30), e.NodeEnabled) == ["n1"]


def test_no_node_is_enabled_for_a_task_that_waits_for_its_quota():
    pool = Pool(structs.replace(AUTO, idle_s=0.0)).nodes("busy", cores=1).nodes("gpu", gpus=1)
    pool.toggle("gpu", False)
    pool.give(SetQuota("lab", Quota(gpus=0)))
    pool.submit(a_job(gpus=1, queue="lab"), allow_infeasible=True)
    pool.waiting_for("busy", cores=1)
    assert pool.wait(300) == []


def test_a_task_that_is_placed_in_the_turn_of_the_poll_did_not_wait():
    pool = Pool(structs.replace(AUTO, idle_s=0.0)).nodes("n1", "n2")
    pool.toggle("n1", False)
    pool.wait(89)
    pool.now += 1.0
    job = a_job()
    pool.give(Submit(job), Tick())
    assert pool.node_of(job) == "n2"
    assert pool.disabled == ["n1"]


def test_a_failover_does_not_enable_a_node_before_the_others_are_back():
    pool = Pool(structs.replace(AUTO, idle_s=0.0)).nodes("n1", "n2")
    pool.toggle("n1", False)
    pool.wait(90)
    pool.engine = type(pool.engine)(decode_state(encode_state(pool.state), pool.state.rules))
    job = a_job()
    pool.give(Hello("n1", "a", "origin-n1", a_capacity(), []), Submit(job), Tick())
    assert pool.wait(3) == []
    pool.add_node("n2")
    assert pool.node_of(job) == "n2"
    assert pool.wait(60) == []


def test_a_clock_that_was_ahead_does_not_make_cooldowns_longer():
    pool = Pool().nodes("n1")
    pool.now = 10_000.0
    pool.add_node("n2")
    pool.toggle("n2", False)
    apply(pool.state, e.TermOpened(at=500.0, epoch=2))
    n1, n2 = pool.state.nodes["n1"], pool.state.nodes["n2"]
    assert (n1.idle_since, n2.idle_since, n2.toggled_at) == (100.0, 500.0, 500.0)
