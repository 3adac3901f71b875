"""Cases C10 to C13 of contract/workflows-and-dispatch.md: which nodes come into question for a stage."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Disconnect, Drain, Hello, SetElastic, Tick
from phalanx.core.explain.explain import explain
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Capacity
from tests.support.dispatch_cluster import DispatchCluster, a_machine, a_task

CHEAP, DEAR = a_machine(16, cost=1.0), a_machine(16, cost=100.0)


def why(cluster: DispatchCluster, job: str) -> list[str]:
    found = explain(
        cluster.state, cluster.state.jobs[job], None, Policy(), cluster.state.snapshot(cluster.now)
    )
    return [reason.code for reason in found.reasons]


def hardware(**asked: object) -> dict[str, object]:
    return {"resources": {"hardware": asked}}


class TestHardware:
    @pytest.mark.parametrize(
        ("capacity", "fits"),
        [(a_machine(kinds="a40 a40", vram=24), False), (a_machine(kinds="a40", vram=48), True)],
    )
    def test_c10_memory_is_asked_of_each_device(self, capacity: Capacity, fits: bool) -> None:
        cluster = DispatchCluster(None, {"n1": a_machine(), "n2": capacity})
        flow = a_task("inference", **hardware(gpu={"count": 1, "memory": "40GB"}))
        answer = cluster.run(flow)
        assert (answer in cluster.state.workflows) == fits

    @pytest.mark.parametrize(("kind", "fits"), [("A100", False), ("any", True)])
    def test_c11_type_and_count_belong_together(self, kind: str, fits: bool) -> None:
        cluster = DispatchCluster(None, {"n1": a_machine(kinds="a100 t4", vram=16)})
        flow = cluster.run(a_task("inference", **hardware(gpu={"type": kind, "count": 2})))
        assert (flow in cluster.state.workflows) == fits

    def test_c12_a_node_that_reports_no_cores_is_given_only_what_asks_for_none(self) -> None:
        silent = structs.replace(a_machine(gpus=1, vram=24), cores=0)
        cluster = DispatchCluster(None, {"n1": silent})
        for cores in (2, 8):
            assert cluster.run(a_task("rag", **hardware(cpu=cores))) not in cluster.state.workflows
        assert cluster.at_once(a_task("rag")) == "n1"
        assert cluster.at_once(a_task("rag", **hardware(gpu={"count": 1}))) == "n1"
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.nodes["n1"].capacity.cores == 1

    @pytest.mark.parametrize("name", ["no cores", "one core", "gpus", "large"])
    def test_c12_a_task_without_resources_may_have_any_node(self, name: str) -> None:
        machines = {
            "no cores": structs.replace(a_machine(), cores=0),
            "one core": a_machine(1, ram=1),
            "gpus": a_machine(kinds="h100 t4", vram=16),
            "large": a_machine(128, ram=1024),
        }
        cluster = DispatchCluster(None, machines)
        for other in machines.keys() - {name}:
            cluster.give(Drain(other, "the only one left is to be chosen"))
        assert cluster.at_once(a_task("rag")) == name


class TestWhoTakesWork:
    """C13. A node that holds something and has room counts as idle, unless it takes one task at a time."""

    def a_pair(self) -> DispatchCluster:
        cluster = DispatchCluster(DispatchPolicy(jitter=0.0), {"a": CHEAP, "b": DEAR})
        assert cluster.at_once(a_task("inference")) == "a"
        return cluster

    def test_c13_a_disabled_node_is_never_chosen_and_an_enabled_one_is_at_the_next_dispatch(self) -> None:
        cluster = self.a_pair()
        cluster.give(SetElastic("a", enabled=False))
        assert cluster.at_once(a_task("inference")) == "b"
        cluster.give(SetElastic("b", enabled=False))
        waiting = cluster.stage(cluster.run(a_task("inference")))
        assert (cluster.where(waiting), why(cluster, waiting)[0]) == ("", "NodeDisabled")
        cluster.give(SetElastic("a", enabled=True))
        assert cluster.where(waiting) == "a"

    def test_c13_a_node_that_is_lost_is_never_chosen_and_is_again_when_it_is_back(self) -> None:
        cluster = self.a_pair()
        cluster.now += 1000
        cluster.give(Hello("b", "b", "origin-b", DEAR, []), Tick())
        assert cluster.state.nodes["a"].lost
        assert cluster.at_once(a_task("inference")) == "b"
        cluster.join("a", CHEAP)
        assert cluster.at_once(a_task("inference")) == "a"

    def test_c13_nor_one_whose_connection_is_closed_though_its_lease_goes_on(self) -> None:
        cluster = self.a_pair()
        cluster.give(Disconnect("a", "a"))
        assert not cluster.state.nodes["a"].lost
        assert cluster.at_once(a_task("inference")) == "b"

    @pytest.mark.parametrize(("slots", "node"), [(0, "a"), (1, "b")])
    def test_c13_a_node_at_work_is_chosen_while_it_has_room(self, slots: int, node: str) -> None:
        cluster = DispatchCluster(
            DispatchPolicy(jitter=0.0), {"a": structs.replace(CHEAP, slots=slots), "b": DEAR}
        )
        first = cluster.stage(cluster.run(a_task("inference")))
        assert cluster.where(first) == "a"
        assert cluster.at_once(a_task("inference")) == node
        cluster.finish(first)
        assert cluster.at_once(a_task("inference")) == "a"
