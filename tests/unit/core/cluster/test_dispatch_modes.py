"""Cases C6 to C9 and C15 to C20 of contract/workflows-and-dispatch.md: reuse, modes, stickiness."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Disconnect, Drain, Hello, Tick
from phalanx.core.cluster.stage_dispatch import context_names
from phalanx.core.cluster.workflow_image import decode_workflow, encode_workflow
from phalanx.core.explain.explain import explain
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.orders import Ended, Exit, Status, Why
from phalanx.core.model.plan import Policy
from phalanx.core.model.task_results import LoadedNames
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine, a_task

CHEAP, DEAR = a_machine(16, cost=1.0), a_machine(16, cost=100.0)
M = {"model": {"source": {"type": "huggingface", "identifier": "org/M"}}}


def why(cluster: DispatchCluster, job: str) -> list[str]:
    found = explain(
        cluster.state, cluster.state.jobs[job], None, Policy(), cluster.state.snapshot(cluster.now)
    )
    return [reason.code for reason in found.reasons]


def hardware(**asked: object) -> dict[str, object]:
    return {"resources": {"hardware": asked}}


def full(cluster: DispatchCluster, node: str, id: str = "filler") -> str:
    """Something else takes all cores of a node."""
    cores = int(cluster.state.nodes[node].capacity.cores)
    cluster.run_job(id, "default", target=node, cores=cores)
    assert cluster.where(id) == node
    return id


class TestReuse:
    def a_pair(self, **policy: object) -> DispatchCluster:
        """`b` has finished the model M, and costs a hundred times as much as `a`."""
        cluster = DispatchCluster(structs.replace(DispatchPolicy(jitter=0.0), **policy), {"b": DEAR})
        assert cluster.at_once(a_task("inference", **M)) == "b"
        cluster.join("a", CHEAP)
        return cluster

    def test_c6_who_has_the_model_is_chosen_whatever_it_costs(self) -> None:
        cluster = self.a_pair()
        cluster.now += 10
        assert cluster.at_once(a_task("inference")) == "a"
        job = cluster.stage(cluster.run(a_task("inference", model={"source": {"identifier": "ORG/m"}})))
        assert cluster.where(job) == "b"
        assert cluster.note(job).reused == 1

    def test_what_was_loaded_already_is_kept_with_the_stage(self) -> None:
        cluster = self.a_pair()
        first, again = cluster.run(a_task("inference")), cluster.run(a_task("inference", **M))
        cluster.finish(cluster.stage(again))
        flows = [cluster.state.workflows[each] for each in (first, again)]
        assert [flow.reused for flow in flows] == [{}, {0: 1}]
        kept = decode_workflow(encode_workflow(flows[1]))
        assert kept.reused == {0: 1}
        kept.begin_again((0,))
        assert kept.reused == {}

    @pytest.mark.parametrize(
        ("later", "reuse_s", "node"),
        [(3600.0, 3600.0, "b"), (3601.0, 3600.0, "a"), (1e6, 0.0, "b")],
    )
    def test_c7_until_it_is_too_long_ago(self, later: float, reuse_s: float, node: str) -> None:
        cluster = self.a_pair(reuse_s=reuse_s)
        cluster.now += later
        assert cluster.at_once(a_task("inference", **M)) == node

    def test_c8_each_use_counts_anew(self) -> None:
        cluster = self.a_pair()
        cluster.now += 50 * 60
        assert cluster.at_once(a_task("inference", **M)) == "b"
        cluster.now += 20 * 60
        assert cluster.at_once(a_task("inference", **M)) == "b"

    def test_c9_two_of_two_beats_one_of_two(self) -> None:
        data = {"data": {"dataset_name": "squad"}}
        cluster = DispatchCluster(DispatchPolicy(jitter=0.0), {"b": DEAR})
        cluster.at_once(a_task("inference", **M, **data))
        cluster.join("a", CHEAP)
        cluster.give(Drain("b", "for now"))
        assert cluster.at_once(a_task("inference", **M)) == "a"
        cluster.state.nodes["b"].drain_reason = None
        cluster.join("b", DEAR)
        assert cluster.at_once(a_task("inference", **M, **data)) == "b"

    def test_it_can_be_switched_off(self) -> None:
        assert self.a_pair(reuse=False).at_once(a_task("inference", **M)) == "a"

    def test_a_result_corrects_what_is_loaded(self) -> None:
        cluster = self.a_pair()
        other = {"model": {"source": {"identifier": "org/other"}}}
        assert cluster.at_once(a_task("rag", **M), '{"evicted": ["org/m"], "cached": ["org/other"]}') == "b"
        assert cluster.at_once(a_task("inference", **M)) == "a"
        assert cluster.at_once(a_task("inference", **other)) == "b"

    def test_so_does_one_in_the_place_for_files(self) -> None:
        cluster = self.a_pair()
        job = cluster.stage(cluster.run(a_task("rag", **M)))
        attempt = cluster.attempt(job)
        assert attempt is not None and attempt.node == "b"
        exit = Exit(Why.NONE, 0, 1.0, 2.0, result_bytes=9000, result_sha256="a" * 64)
        loaded = LoadedNames(("org/other",), ("org/m",))
        cluster.tell("b", Ended(attempt.key, structs.replace(exit, loaded=loaded)))
        assert [*cluster.state.bindings.contexts.by_node["b"]] == ["org/other"]

    @pytest.mark.parametrize("result", ['{"cached"', '{"cached": 7}', '{"evicted": [[]]}'])
    def test_a_result_that_cannot_be_read_corrects_nothing(self, result: str) -> None:
        assert self.a_pair().at_once(a_task("rag", **M), result) == "b"

    def test_what_failed_there_is_not_loaded(self) -> None:
        cluster = DispatchCluster(DispatchPolicy(jitter=0.0), {"b": DEAR})
        cluster.finish(cluster.stage(cluster.run(a_task("inference", max_attempts=1, **M))), code=1)
        cluster.join("a", CHEAP)
        assert cluster.at_once(a_task("inference", **M)) == "a"

    def test_it_is_in_the_image(self) -> None:
        cluster = self.a_pair()
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.bindings.contexts.image() == {"b": {"org/m": 100.0}}


class TestStaticWorker:
    POLICY = DispatchPolicy(mode="static_worker")
    PAIR: tuple[dict[str, object], ...] = (
        {"name": "one", "spec": {"taskType": "rag"}},
        {"name": "two", "spec": {"taskType": "rag"}},
    )

    def two_workflows(self) -> tuple[DispatchCluster, str, str]:
        cluster = DispatchCluster(self.POLICY, {"w1": a_machine(1), "w2": a_machine(1)})
        return cluster, cluster.run(a_flow(*self.PAIR)), cluster.run(a_flow(*self.PAIR))

    def test_c15_a_workflow_has_its_node_to_itself(self) -> None:
        cluster, x, y = self.two_workflows()
        homes = {flow: cluster.where(cluster.stage(flow, "one")) for flow in (x, y)}
        assert sorted(homes.values()) == ["w1", "w2"]
        waiting = cluster.stage(x, "two")
        assert cluster.where(waiting) == ""
        assert why(cluster, waiting)[0] == "StaticWorkerUnavailable"
        cluster.finish(cluster.stage(y, "one"))
        cluster.finish(cluster.stage(y, "two"))
        assert cluster.where(waiting) == "", "another node is free, and not its own"
        assert cluster.state.jobs[waiting].attempts[0] == 0
        cluster.finish(cluster.stage(x, "one"))
        assert cluster.where(waiting) == homes[x]

    def test_no_other_work_is_given_a_node_that_is_bound(self) -> None:
        cluster = DispatchCluster(self.POLICY, {"w1": a_machine(8)})
        flow = cluster.run(a_flow(*self.PAIR))
        plain = cluster.run_job("plain", "default").id
        assert cluster.where(plain) == ""
        assert why(cluster, plain)[0] == "NodeBound"
        other = cluster.run(a_task("rag"))
        assert cluster.where(cluster.stage(other)) == ""
        cluster.finish(cluster.stage(flow, "one"))
        assert cluster.where(plain) == ""
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert (again.nodes["w1"].bound_to, again.table.is_open("w1")) == (flow, False)
        cluster.finish(cluster.stage(flow, "two"))
        assert cluster.where(plain) == "w1"

    def test_a_stage_starts_as_soon_as_its_bound_node_is_well_again(self) -> None:
        cluster = DispatchCluster(self.POLICY, {"w1": a_machine(1), "w2": a_machine(1)})
        flow = cluster.run(a_flow(*self.PAIR))
        first, second = cluster.stage(flow, "one"), cluster.stage(flow, "two")
        home = cluster.where(first)
        cluster.give(Disconnect(home, "a"))
        cluster.give(Hello(home, "a", f"origin-{home}", a_machine(1), [], trouble="its keeper is frozen"))
        assert cluster.where(second) == ""
        cluster.give(Hello(home, "a", f"origin-{home}", a_machine(1), []))
        assert cluster.where(first) == home or cluster.where(second) == home

    @pytest.mark.parametrize("how", ["drained", "lost"])
    def test_it_is_bound_anew_when_its_node_is_gone(self, how: str) -> None:
        cluster, x, y = self.two_workflows()
        first, second = cluster.stage(x, "one"), cluster.stage(x, "two")
        home = cluster.where(first)
        other = "w1" if home == "w2" else "w2"
        cluster.finish(cluster.stage(y, "one"))
        cluster.finish(cluster.stage(y, "two"))
        if how == "drained":
            cluster.give(Drain(home, "repair"))
        else:
            cluster.now += 1000
            cluster.give(Hello(other, "b", f"origin-{other}", a_machine(1), []), Tick())
        assert cluster.where(second if how == "drained" else first) == other
        assert cluster.state.bindings.workflows[x] == other
        assert [node.bound_to for node in cluster.state.nodes.values() if node.name == home] == [""]

    def test_a_cancelled_workflow_lets_its_node_go(self) -> None:
        cluster = DispatchCluster(self.POLICY, {"w1": a_machine(8)})
        flow = cluster.run(a_task("rag"))
        cluster.give(Cancel(cluster.stage(flow)))
        assert cluster.state.nodes["w1"].bound_to == ""
        assert cluster.state.bindings.workflows == {}


class TestFixedPipeline:
    def test_c16_a_type_keeps_its_node(self) -> None:
        cluster = DispatchCluster(
            DispatchPolicy(mode="fixed_pipeline"), {"w1": a_machine(1), "w2": a_machine(1, cost=2.0)}
        )
        first = cluster.stage(cluster.run(a_task("rag")))
        home = cluster.where(first)
        assert home == "w1"
        same, other = (cluster.stage(cluster.run(a_task(each))) for each in ("rag", "embedding"))
        assert cluster.where(same) == ""
        assert why(cluster, same)[0] == "NoWorkerReady"
        assert cluster.where(other) == "w2"
        cluster.finish(first)
        assert cluster.where(same) == "w1"

    def test_tasks_without_a_type_are_bound_to_no_node(self) -> None:
        policy = DispatchPolicy(mode="fixed_pipeline")
        cluster = DispatchCluster(policy, {"w1": a_machine(1), "w2": a_machine(1, cost=2.0)})
        stages: list[dict[str, object]] = [{"name": name, "spec": {"command": ["true"]}} for name in "abc"]
        flow = cluster.run(a_flow(*stages))
        first, second, third = (cluster.stage(flow, name) for name in "abc")
        assert [cluster.where(each) for each in (first, second, third)] == ["w1", "w2", ""]  # in one plan
        assert why(cluster, third)[0] == "WaitingCapacity"
        cluster.finish(second)
        assert cluster.where(third) == "w2"  # and in the next
        assert cluster.state.bindings.types == {}

    def test_a_node_that_could_never_hold_the_task_binds_it_to_another(self) -> None:
        cluster = DispatchCluster(
            DispatchPolicy(mode="fixed_pipeline"), {"w1": a_machine(2), "w2": a_machine(8, cost=9.0)}
        )
        assert cluster.at_once(a_task("rag")) == "w1"
        assert cluster.at_once(a_task("rag", **hardware(cpu=4))) == "w2"
        assert cluster.at_once(a_task("rag")) == "w2"


class TestRoundRobin:
    POLICY = DispatchPolicy(mode="static_round_robin")

    def test_c17_nodes_take_turns(self) -> None:
        cluster = DispatchCluster(self.POLICY, {name: a_machine(8) for name in "abc"})
        assert [cluster.at_once(a_task("rag")) for _ in range(4)] == ["a", "b", "c", "a"]
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.bindings.turns == cluster.state.bindings.turns == {"a": 4, "b": 2, "c": 3}
        cluster.join("d", a_machine(8))
        assert cluster.at_once(a_task("rag")) == "d"

    def test_turns_within_one_plan(self) -> None:
        cluster = DispatchCluster(self.POLICY, {name: a_machine(8) for name in "abc"})
        stages: list[dict[str, object]] = [
            {"name": f"s{at}", "spec": {"taskType": "rag"}} for at in range(12)
        ]
        flow = cluster.run(a_flow(*stages))
        assert "".join(cluster.where(cluster.stage(flow, f"s{at}")) for at in range(12)) == 4 * "abc"

    def test_a_task_with_gpus_may_be_given_a_node_without_or_with_fewer(self) -> None:
        asks = a_task("inference", **hardware(cpu=1, gpu={"type": "h100", "count": 2}))
        cluster = DispatchCluster(
            self.POLICY, {"cpu": a_machine(8), "gpu": a_machine(8, kinds="t4 t4 t4", vram=16)}
        )
        jobs = [cluster.stage(cluster.run(asks)) for _ in range(4)]
        assert [cluster.where(job) for job in jobs] == ["cpu", "gpu", "cpu", "gpu"]
        attempts = [cluster.attempt(job) for job in jobs]
        assert [len(each.grant.devices) for each in attempts if each] == [0, 2, 0, 1]

    def test_cores_are_never_given_twice(self) -> None:
        cluster = DispatchCluster(self.POLICY, {"a": a_machine(1), "b": a_machine(1)})
        jobs = [cluster.stage(cluster.run(a_task("rag"))) for _ in range(3)]
        assert [cluster.where(job) for job in jobs] == ["a", "b", ""]
        assert why(cluster, jobs[2])[0] == "WaitingCapacity"


class TestSticky:
    POLICY = DispatchPolicy(sticky=True, jitter=0.0)

    def a_chain(self, child: str, **policy: object) -> tuple[DispatchCluster, str, str]:
        """A stage that has run on w1, which is full now, and one that continues from its weights."""
        cluster = DispatchCluster(structs.replace(self.POLICY, **policy), {"w1": a_machine(2)})
        flow = cluster.run(
            a_flow(
                {"name": "A", "spec": {"taskType": "sft"}},
                {
                    "name": "B",
                    "dependsOn": ["A"],
                    "spec": {"taskType": child, "checkpoint": {"load": {"url": "${A.result.x}"}}},
                },
            )
        )
        cluster.join("w2", a_machine(64, cost=0.1))
        first = cluster.stage(flow, "A")
        attempt = cluster.attempt(first)
        assert attempt is not None
        cluster.run_job("filler", "default", target="w1", cores=1)
        cluster.run_job("more", "default", target="w1", cores=1)
        cluster.finish(first, '{"x": "s3://weights"}')
        assert cluster.where("more") == "w1"
        return cluster, cluster.stage(flow, "B"), flow

    def test_c20_training_waits_for_the_node_with_its_weights(self) -> None:
        cluster, job, _ = self.a_chain("sft")
        assert cluster.where(job) == ""
        assert why(cluster, job)[0] == "StickyWorkerBusy"
        for _ in range(50):
            cluster.now += 1.0
            cluster.beat("w2")
        told = [event for turn in cluster.turns for event in turn.events if isinstance(event, d.TaskDeferred)]
        assert [(event.job, event.node) for event in told] == [(job, "w1")]
        assert cluster.state.jobs[job].attempts[0] == 0
        cluster.finish("filler")
        assert cluster.where(job) == "w1"
        assert cluster.note(job).strategy == "stage_weight_affinity"
        assert why(cluster, job)[-1] == "Dispatched"

    def test_the_node_is_gone(self) -> None:
        cluster, job, _ = self.a_chain("sft")
        cluster.give(Drain("w1", "repair"))
        assert cluster.where(job) == "w2"

    def test_inference_does_not_wait(self) -> None:
        cluster, job, _ = self.a_chain("inference")
        assert cluster.where(job) == "w2"

    def test_it_is_off_unless_asked_for(self) -> None:
        cluster, job, _ = self.a_chain("sft", sticky=False)
        assert cluster.where(job) == "w2"

    def test_adapters_do_not_stick(self) -> None:
        cluster, job, _ = self.a_chain("lora_sft")
        assert cluster.where(job) == "w2"

    def test_others_pass_one_that_waits_for_its_node(self) -> None:
        cluster, job, _ = self.a_chain("sft")
        assert cluster.where(job) == ""
        other = cluster.stage(cluster.run(a_task("sft")))
        assert cluster.where(other) == "w2"
        assert cluster.overall(other) == Status.ASSIGNED


class TestContextNames:
    """Which texts of a specification are names of models and datasets, and that the search is short."""

    @pytest.mark.parametrize(
        ("spec", "names"),
        [
            ({"model": "Org/A"}, ("org/a",)),
            ({"x": {"model": "org/a"}}, ()),
            ({"model": {"source": {"identifier": "org/a"}}, "reward_model": {"path": "/b"}}, ("org/a", "/b")),
            ({"models": [{"identifier": "org/a"}, {"identifier": ["org/b", 3, None]}]}, ("org/a", "org/b")),
            ({"data": {"dataset_name": "d", "name": "n", "items": ["x", "y"]}}, ("d", "n")),
            ({"training": {"name": "t", "url": "u"}}, ("u",)),
            ({"data": {"template": {"name": "t"}}}, ()),
            ({"adapters": [{"path": ""}, {"path": "p" * 513}]}, ()),
        ],
    )
    def test_names(self, spec: dict[str, object], names: tuple[str, ...]) -> None:
        assert context_names(json.dumps(spec)) == names

    def test_a_large_specification_is_looked_through_at_once(self) -> None:
        spec: object = [""] * 30_000
        for _ in range(95):
            spec = {"k": spec, "model": [{}] * 100}
        text = json.dumps(spec)
        for _ in range(20):
            assert context_names(text) == ()
