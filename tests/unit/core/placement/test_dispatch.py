"""The numbers of the score, as contract/workflows-and-dispatch.md computes them, and the nodes that follow."""

from __future__ import annotations

import hashlib
from random import Random

import pytest
from msgspec import structs

from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import RemoveNode, Tick
from phalanx.core.model.contexts import NAMES_MAX, Contexts
from phalanx.core.model.dispatch import Dispatch, DispatchPolicy, Selection, category_of
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.core.model.proxies import GIB, cost, throughput
from phalanx.core.model.resources import Capacity, Device
from phalanx.core.model.run_times import KINDS_MAX, SAMPLES_MIN, RunTimes, WorkKind, hardware_class, work_kind
from phalanx.core.placement.jitter import jitter, jitters
from tests.support.dispatch_cluster import BIG, MID, SMALL, DispatchCluster, a_flow, a_machine, a_task

EXACT = DispatchPolicy(jitter=0.0)
THREE = {"small": SMALL, "mid": MID, "big": BIG}
EQUAL = {name: a_machine(16) for name in ("w-a", "w-b", "w-c")}


def test_the_throughput_of_the_three_machines() -> None:
    assert [throughput(each) for each in (SMALL, MID, BIG)] == [164.0, 1008.0, 2016.0]
    assert cost(structs.replace(SMALL, cost_per_hour=None)) == 1.0


def test_memory_that_devices_share_with_their_machine_counts_once() -> None:
    shared = tuple(Device(at, "gb10", 60 * GIB, shares_memory=True) for at in range(2))
    assert throughput(Capacity(20, 120 * GIB, devices=shared)) == 200 + 120 + 10


@pytest.mark.parametrize(
    ("task_type", "node", "scores"),
    [
        ("inference", "small", {"small": 0.0, "mid": -0.050364, "big": -0.2}),
        ("sft", "big", {"small": 0.0, "mid": 0.287028, "big": 0.6}),
        ("rag", "mid", {"small": 0.0, "mid": 0.033984, "big": 0.0}),
    ],
)
def test_c1_the_type_of_a_task_weighs_throughput_against_cost(
    task_type: str, node: str, scores: dict[str, float]
) -> None:
    cluster = DispatchCluster(EXACT, THREE)
    job = cluster.stage(cluster.run(a_task(task_type)))
    assert cluster.where(job) == node
    note = cluster.note(job)
    found = {node: note.score, **dict(note.others)}
    assert found == pytest.approx(scores, abs=1e-6)
    assert (note.strategy, note.pool) == ("best_fit", 3)
    assert note.weight == {"inference": 0.4, "sft": 0.8, "rag": 0.5}[task_type]


@pytest.mark.parametrize("task_type", ["sft", "inference"])
def test_c2_a_cost_that_is_not_reported_counts_as_one(task_type: str) -> None:
    nodes = {**THREE, "big": structs.replace(BIG, cost_per_hour=None)}
    cluster = DispatchCluster(EXACT, nodes)
    assert cluster.where(cluster.stage(cluster.run(a_task(task_type)))) == "big"


def test_the_jitter_of_the_contract() -> None:
    found = [jitter("t1", node, 1e-3) for node in EQUAL]
    assert found == pytest.approx([0.000627233, 0.000451616, 0.000808644], abs=1e-9)
    found = [jitter("t4", node, 1e-3) for node in EQUAL]
    assert found == pytest.approx([0.000075586, -0.00070581, -0.000009155], abs=1e-9)
    assert jitter("t1", "w-a", 0.0) == 0.0


def test_the_jitter_of_many_nodes_at_once_is_that_of_each() -> None:
    names = [f"node-{number}" for number in range(300)]
    found = jitters("t1", [name.encode() for name in names], 1e-3).tolist()
    digests = [hashlib.md5(f"t1:{name}".encode(), usedforsecurity=False).digest() for name in names]
    assert found == [(int.from_bytes(each[:8], "big") / 2**64 - 0.5) * 2 * 1e-3 for each in digests]
    assert found == [jitter("t1", name, 1e-3) for name in names]


def test_stages_of_one_plan_are_compared_on_the_nodes_that_still_have_room() -> None:
    cluster = DispatchCluster(EXACT, {name: a_machine(1) for name in ("w-a", "w-b", "w-c")})
    types = ("sft", "inference", "sft")
    stages: list[dict[str, object]] = [
        {"name": f"s{number}", "spec": {"taskType": each}} for number, each in enumerate(types)
    ]
    flow = cluster.run(a_flow(*stages))
    jobs = [cluster.stage(flow, str(stage["name"])) for stage in stages]
    assert [cluster.where(job) for job in jobs] == ["w-a", "w-b", "w-c"]
    assert [[name for name, _ in cluster.note(job).others] for job in jobs] == [["w-b", "w-c"], ["w-c"], []]


def test_c3_equals_are_chosen_by_the_hash_of_task_and_node() -> None:
    cluster = DispatchCluster(None, EQUAL)
    cluster.queue("flows", "adaptive")
    found = [cluster.finish(cluster.run_job(f"t{number}", "flows").id) for number in range(1, 7)]
    assert found == ["w-c", "w-c", "w-b", "w-a", "w-b", "w-c"]


def test_c4_without_jitter_equals_go_by_name() -> None:
    cluster = DispatchCluster(EXACT, EQUAL)
    cluster.queue("flows", "adaptive")
    assert {cluster.finish(cluster.run_job(f"t{number}", "flows").id) for number in range(1, 7)} == {"w-a"}


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_c5_a_single_candidate_is_chosen_whatever_the_weight(weight: float) -> None:
    cluster = DispatchCluster(DispatchPolicy(weight_other=weight), {"only": BIG})
    job = cluster.stage(cluster.run(a_task("rag")))
    assert cluster.where(job) == "only"
    assert cluster.note(job).score == pytest.approx(0.0, abs=1e-3)


def test_c14_selections() -> None:
    nodes = {"w2": a_machine(8, cost=2.0), "w1": a_machine(64, cost=1.0)}
    first = DispatchCluster(DispatchPolicy(selection="first_fit"), nodes)
    assert first.at_once(a_task("rag")) == "w2"
    cheap = DispatchCluster(
        DispatchPolicy(selection="min_satisfying", jitter=0.0),
        {"w1": a_machine(16, cost=2.0), "w2": a_machine(16, cost=1.0)},
    )
    assert cheap.at_once(a_task("rag")) == "w2"
    alike = DispatchCluster(DispatchPolicy(selection="min_satisfying", jitter=0.0), EQUAL)
    assert alike.at_once(a_task("rag")) == "w-a"
    smallest = DispatchCluster(DispatchPolicy(selection="min_satisfying"), THREE)
    assert smallest.at_once(a_task("sft")) == "small"


def test_first_fit_is_the_order_of_joining_even_after_a_row_has_moved() -> None:
    nodes = {name: a_machine(16) for name in ("w3", "w2", "w1")}
    cluster = DispatchCluster(DispatchPolicy(selection="first_fit"), nodes)
    cluster.now += 31.0
    for name in ("w1", "w2"):
        cluster.beat(name)
    cluster.give(Tick())
    cluster.give(RemoveNode("w3"))
    assert cluster.state.table.names == ["w1", "w2"]
    assert cluster.at_once(a_task("rag")) == "w2"


@pytest.mark.parametrize(("selection", "node"), [("best_fit", "mid"), ("first_fit", "small")])
def test_a_queue_may_name_its_own_selection(selection: Selection, node: str) -> None:
    cluster = DispatchCluster(EXACT, THREE)
    cluster.queue("flows", "adaptive", selection=selection)
    assert cluster.finish(cluster.run_job("t1", "flows").id) == node


def test_jobs_of_no_workflow_follow_the_score_unless_their_queue_names_a_mode() -> None:
    cluster = DispatchCluster(EXACT, THREE)
    job = cluster.run_job("plain", "default")
    attempt = cluster.attempt(job.id)
    assert attempt is not None and attempt.note is None
    assert attempt.node == "small"  # which packs


def test_categories() -> None:
    assert [category_of(each) for each in ("inference", "lora_sft", "ppo", "dpo", "embedding", "")] == [
        "inference", "training", "training", "training", "other", "other",
    ]  # fmt: skip


def test_each_name_has_the_time_of_its_own_last_use() -> None:
    contexts = Contexts()
    contexts.use("n1", ["a", "b"], 0.0)
    contexts.use("n1", ["a"], 50.0)
    assert contexts.hits(["a", "b"], 100.0, 60.0) == {"n1": 1}
    assert contexts.hits(["a", "b"], 100.0, 0.0) == {"n1": 2}
    contexts.drop("n1", ["a"])
    assert contexts.hits(["a"], 100.0, 0.0) == {}
    contexts.use("n1", [f"m{number}" for number in range(NAMES_MAX)], 60.0)
    assert contexts.hits(["b"], 100.0, 0.0) == {}, "the name used longest ago has made way"
    other = Contexts()
    other.restore(contexts.image())
    assert other.image() == contexts.image()
    contexts.forget_node("n1")
    assert contexts.image() == {}


class TestLearnedTimes:
    """Numbers that were measured replace the proxies, once they are known of every class of node in question."""

    NODES = {"slow": a_machine(8, cost=1.0), "fast": a_machine(64, cost=4.0)}  # noqa: RUF012

    def run_on(self, cluster: DispatchCluster, node: str, seconds: float, times: int) -> None:
        cluster.queue("flows", "adaptive")
        for _ in range(times):
            job = cluster.run_job(
                f"j{len(cluster.state.jobs)}", "flows", target=node, tags=(("task-type", "rag"),), user="ada"
            )
            attempt = cluster.attempt(job.id)
            assert attempt is not None
            began, cluster.now = cluster.now, cluster.now + seconds
            cluster.tell(node, Started(attempt.key, began))
            cluster.tell(node, Ended(attempt.key, Exit(Why.NONE, 0, began, cluster.now)))

    def ask(self, cluster: DispatchCluster) -> tuple[str, float]:
        job = cluster.stage(cluster.run(a_task("rag")))
        note = cluster.note(job)
        return cluster.finish(job), note.learned_s

    def test_a_slow_cheap_node_does_not_win_where_it_costs_more(self) -> None:
        cluster = DispatchCluster(DispatchPolicy(jitter=0.0, weight_other=0.0), self.NODES)
        assert self.ask(cluster) == ("slow", 0.0), "by the price of an hour"
        self.run_on(cluster, "slow", 100.0, SAMPLES_MIN)
        self.run_on(cluster, "fast", 10.0, SAMPLES_MIN - 1)
        assert self.ask(cluster) == ("slow", 0.0), "one class is not known well enough"
        self.run_on(cluster, "fast", 10.0, 1)
        assert self.ask(cluster) == ("fast", 10.0), "40 against 100 for a task"
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.bindings.run_times.image() == cluster.state.bindings.run_times.image()

    def test_it_can_be_switched_off(self) -> None:
        cluster = DispatchCluster(DispatchPolicy(jitter=0.0, weight_other=0.0, learn=False), self.NODES)
        for node, seconds in (("slow", 100.0), ("fast", 10.0)):
            self.run_on(cluster, node, seconds, SAMPLES_MIN)
        assert self.ask(cluster) == ("slow", 0.0)

    def test_what_is_known_is_bounded_and_forgets(self) -> None:
        times, kind = RunTimes(), work_kind("ada", Dispatch(task_type="rag", context=("m",)))
        for seconds in [100.0] * 5 + [10.0] * 30:
            times.learn(kind, SMALL, seconds)
        found = times.of(kind, {hardware_class(SMALL)})
        assert found is not None and found[hardware_class(SMALL)] == pytest.approx(10.0, abs=0.2)
        for number in range(KINDS_MAX):
            times.learn(WorkKind("bob", f"t{number}"), SMALL, 1.0)
        assert times.samples(kind), "who has most forgets first"
        assert not times.samples(WorkKind("bob", "t0"))
        assert len(times.image()) == KINDS_MAX
        again = RunTimes()
        again.restore(times.image())
        assert again.samples(kind) == times.samples(kind)
        for number in range(KINDS_MAX):
            times.learn(WorkKind("ada", f"t{number}"), SMALL, 1.0)
        assert not times.samples(kind)
        assert hardware_class(BIG) == "128c " + " ".join(["a100"] * 8)


def test_the_jitters_of_many_nodes_are_those_of_the_plain_rule():
    dice = Random(7)
    for _ in range(200):
        task = "".join(dice.choices("0123456789abcdefghjkmnpqrstvwxyz.", k=dice.randint(0, 90)))
        nodes = [f"node-{dice.randrange(10**9)}-é"[: dice.randint(1, 16)] for _ in range(dice.randint(1, 20))]
        most = dice.choice((1e-3, 0.25))
        plain = [
            (int.from_bytes(hashlib.md5(f"{task}:{node}".encode()).digest()[:8], "big") / 2**64 - 0.5)
            * 2
            * most
            for node in nodes
        ]
        assert jitters(task, [node.encode() for node in nodes], most).tolist() == pytest.approx(
            plain, rel=1e-12
        )
