"""Dispatch on real processes, set up by FlowMesh's variables: the seed's testing ideas 1, 2, 4 and 5, and merging.

Every mode is tried, too. The modes are those of queues, so one cluster is enough. Every test leaves it idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from phalanx.api.schema.queues import QuotaSpec
from phalanx.client.client import Client
from phalanx.core.placement.jitter import jitter
from phalanx.errors import PhalanxError
from phalanx.manifests.read import read
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

SMALL = "gpus=1,type=a40,memory=24GiB,cpus=16,ram=64GiB,labels=pool=mixed"
MID = "gpus=4,type=a100,memory=80GiB,cpus=64,ram=512GiB,labels=pool=mixed"
BIG = "gpus=8,type=a100,memory=80GiB,cpus=128,ram=1024GiB,labels=pool=mixed"
TWIN = "gpus=1,type=t4,memory=16GiB,cpus=4,ram=16GiB"
COSTS = {"small": 0.4, "mid": 8.0, "big": 20.0}
FLOWMESH = {
    "ORCHESTRATOR_DISPATCH_MODE": "adaptive",
    "ORCHESTRATOR_WORKER_SELECTION": "best_fit",
    "WORKER_CACHE_TTL_SEC": "3",
    "TASK_MERGE_MAX_BATCH_SIZE": "4",
    "ENABLE_STAGE_WEIGHT_STICKINESS": "true",
}
T4 = {"resources": {"hardware": {"cpu": 1, "gpu": {"type": "t4", "count": 1}}}}
M = {"model": {"source": {"identifier": "org/served-model"}}}
MODULE = """
import os
def answer_all(specs):
    if "gate" in specs[0]:
        open(specs[0]["gate"]).close()
    return [{"pid": os.getpid(), "said": spec["data"], "text": "x" * spec["data"] * 15000} for spec in specs]
"""
SERVE = """
import json, os
children = {each["task_id"]: 7 for each in json.loads(os.environ.get("PHALANX_MERGED", "[]"))}
children["no job" * 100] = 7
own = {"text": "x" * 9000, "cached": ["org/Second"]}
json.dump({"result": own, "children": children}, open(os.environ["PHALANX_RESULT"], "w"))
"""


def submit(client: Client, nodes: list[dict[str, object]], **root: object) -> str:
    """Submit a graph; its id."""
    text = json.dumps({"apiVersion": "flowmesh/v1", "spec": {"graph": {"nodes": nodes}, **root}})
    [found] = read([("flow.yaml", text)]).workflows
    return client.submit_workflow(found.spec).id


def ended(client: Client, id: str) -> dict[str, str]:
    """Wait for a workflow: the node of each stage."""
    view = client.wait_workflow(id, timeout=30)
    assert view.status == "Completed", [(stage.name, stage.reason) for stage in view.stages]
    return {stage.name: stage.node or "" for stage in view.stages}


def run(client: Client, nodes: list[dict[str, object]], **root: object) -> tuple[str, dict[str, str]]:
    """Submit a graph and wait for it: its id, and the node of each stage."""
    id = submit(client, nodes, **root)
    return id, ended(client, id)


def alone(client: Client, task_type: str, **spec: object) -> tuple[str, str]:
    """One stage by itself: the id of its job, and its node."""
    id, nodes = run(client, [{"name": "it", "spec": {"taskType": task_type, "command": ["true"], **spec}}])
    return client.task(f"{id}:it").job_id, nodes["it"]


def until(file: Path) -> list[str]:
    """A command that runs until the file is there."""
    return ["sh", "-c", f"until [ -e {file} ]; do sleep 0.05; done"]


def held(name: str, task_type: str, file: Path, **spec: object) -> dict[str, object]:
    """A stage on a T4 that runs until the file is there."""
    return {"name": name, "spec": {"taskType": task_type, "command": until(file), **T4, **spec}}


def first_reason(client: Client, id: str) -> str:
    """Why a task waits, once that is known; it has not been tried."""
    code = wait_until(lambda: client.why(id).dominant.code, what=f"{id} has a reason")
    view = client.task(id)
    assert (view.status, view.attempt) == ("Pending", 0), view
    return code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two equal nodes, of which one takes one task at a time, and the three of the contract."""
    folder = tmp_path_factory.mktemp("dispatch")
    (folder / "executors.toml").write_text(
        '[executors]\ninference = { run = "served:answer_all", merges = true }\n'
        f"diffusion = {{ run = {json.dumps([sys.executable, '-c', SERVE])}, merges = true }}\n"
    )
    settings = {"coordinator.executors_file": str(folder / "executors.toml")}
    made = RealCluster(folder / "cluster", settings=settings)
    made.environment = FLOWMESH
    made.node_settings = {name: {"runner.cost_per_hour": cost} for name, cost in COSTS.items()}
    made.node_settings["t1"] = {"runner.slots": 1}
    try:
        made.start({"t2": TWIN})  # it joins first
        for name, pretend in {"t1": TWIN, "small": SMALL, "mid": MID, "big": BIG}.items():
            made.start_runner(name, pretend)
        made.wait_online("t1", *COSTS)
        yield made
    finally:
        made.stop()


def test_stages_are_given_nodes_as_flowmesh_does(cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(MODULE)
    mixed_workloads(cluster.client)
    ties(cluster.client)
    first_fit(cluster.client)
    merged(cluster.client, tmp_path)
    alone_in_the_form_for_several(cluster.client)
    merged_over_a_restart(cluster, tmp_path)
    reuse(cluster.client)


def test_a_node_with_one_slot_gives_all_of_it_to_one_task(cluster: RealCluster, tmp_path: Path) -> None:
    client, file = cluster.client, tmp_path / "go"
    assert {name: client.node(name).slots for name in ("t1", "t2")} == {"t1": 1, "t2": 0}
    tasks = {
        name: [client.submit(target=name, command=until(file), cores=1).task_ids[0] for _ in range(2)]
        for name in ("t1", "t2")
    }
    for id in (tasks["t1"][0], *tasks["t2"]):
        cluster.wait_task(id, "Running")
    assert first_reason(client, tasks["t1"][1]) == "WaitingCapacity"
    assert {name: client.node(name).cores_free for name in ("t1", "t2")} == {"t1": 0, "t2": 2}
    file.touch()
    for id in (*tasks["t1"], *tasks["t2"]):
        cluster.wait_task(id, "Completed")


def test_min_satisfying_takes_the_smallest(cluster: RealCluster) -> None:
    cluster.client.set_quota("smallest", QuotaSpec(dispatch_mode="adaptive", selection="min_satisfying"))
    pool = {"labels": {"pool": "mixed"}, "queue": "smallest"}
    job, node = alone(cluster.client, "sft", **pool)  # which best_fit gives to the largest
    assert node == "small"
    assert any("(min_satisfying)" in line.text for line in cluster.client.story(job).items)
    four = {"resources": {"hardware": {"cpu": 1, "gpu": {"count": 2}}}}
    assert alone(cluster.client, "sft", **pool, **four)[1] == "mid"


def test_c16_a_type_keeps_its_node_though_another_is_idle(cluster: RealCluster, tmp_path: Path) -> None:
    client, file = cluster.client, tmp_path / "go"
    client.set_quota("pipeline", QuotaSpec(dispatch_mode="fixed_pipeline"))
    first = submit(client, [held("it", "rag", file, queue="pipeline")])
    home = cluster.wait_task(f"{first}:it", "Running").node
    other = {"t1": "t2", "t2": "t1"}[home or ""]
    again = submit(client, [held("it", "rag", file, queue="pipeline")])
    assert first_reason(client, f"{again}:it") == "NoWorkerReady"
    assert alone(client, "embedding", queue="pipeline", **T4)[1] == other
    assert first_reason(client, f"{again}:it") == "NoWorkerReady"
    file.touch()
    assert [ended(client, id)["it"] for id in (first, again)] == [home, home]


def test_c17_nodes_take_turns_whatever_a_task_asks_for(cluster: RealCluster) -> None:
    client = cluster.client
    client.set_quota("turns", QuotaSpec(dispatch_mode="static_round_robin"))
    h100 = {"resources": {"hardware": {"cpu": 1, "gpu": {"type": "h100", "count": 2}}}}
    nodes = [alone(client, "sft", queue="turns", **h100)[1] for _ in range(7)]
    assert sorted(nodes[:5]) == ["big", "mid", "small", "t1", "t2"]
    assert (nodes[0], nodes[5:]) == ("t2", nodes[:2])


def test_c15_two_workflows_do_not_share_a_node(cluster: RealCluster, tmp_path: Path) -> None:
    client, x_goes, y_goes = cluster.client, tmp_path / "x", tmp_path / "y"
    client.set_quota("bound", QuotaSpec(dispatch_mode="static_worker"))
    x = submit(client, [held(name, "rag", x_goes, queue="bound") for name in ("one", "two")])
    home = cluster.wait_task(f"{x}:one", "Running").node or ""
    other = {"t1": "t2", "t2": "t1"}[home]
    assert first_reason(client, f"{x}:two") == "StaticWorkerUnavailable"
    y = submit(client, [held(name, "rag", y_goes, queue="bound") for name in ("one", "two")])
    assert cluster.wait_task(f"{y}:one", "Running").node == other
    plain = client.submit(command=["true"], nodes=[home]).task_ids[0]
    assert first_reason(client, plain) == "NodeBound"
    y_goes.touch()
    assert ended(client, y) == {"one": other, "two": other}
    assert first_reason(client, f"{x}:two") == "StaticWorkerUnavailable", "the other is idle, and not its own"
    client.set_elastic(home, enabled=False)  # no node to be bound to
    assert cluster.wait_task(f"{x}:two", "Running").node == other
    client.set_elastic(home, enabled=True)
    x_goes.touch()
    assert ended(client, x) == {"one": home, "two": other}
    cluster.wait_task(plain, "Completed")
    attempts = {cluster.client.task(f"{flow}:{name}").attempt for flow in (x, y) for name in ("one", "two")}
    assert attempts == {1}


def test_c20_training_waits_for_the_node_with_its_weights(cluster: RealCluster, tmp_path: Path) -> None:
    client, a_goes, filler_goes = cluster.client, tmp_path / "a", tmp_path / "filler"
    made = f'{until(a_goes)[2]}; echo \'{{"x": "weights"}}\' > $PHALANX_RESULT'
    child = {"command": ["true"], "checkpoint": {"load": {"url": "${A.result.x}"}}, **T4}
    flow = submit(
        client,
        [
            {"name": "A", "spec": {"taskType": "sft", "command": ["sh", "-c", made], **T4}},
            {"name": "B", "dependsOn": ["A"], "spec": {"taskType": "sft", **child}},
            {"name": "C", "dependsOn": ["A"], "spec": {"taskType": "rag", **child}},
        ],
    )
    home = cluster.wait_task(f"{flow}:A", "Running").node or ""
    filler = client.submit(
        target=home, gpus=1, command=until(filler_goes), priority=5, preemption="never"
    ).task_ids[0]
    a_goes.touch()
    cluster.wait_task(filler, "Running")
    wait_until(lambda: client.workflow_view(flow).stages[2].job_id, what="what builds on A has begun")
    assert cluster.wait_task(f"{flow}:C", "Completed").node != home, "what does no training does not wait"
    assert first_reason(client, f"{flow}:B") == "StickyWorkerBusy"
    filler_goes.touch()
    assert ended(client, flow)["B"] == home
    told = [line.text for line in client.story(client.task(f"{flow}:B").job_id).items]
    assert sum(f"waits for {home}" in line for line in told) == 1, told
    assert any("stage_weight_affinity" in line for line in told), told
    cluster.wait_task(filler, "Completed")


def mixed_workloads(client: Client) -> None:
    """Idea 5: λ balances throughput and cost by the type of the task, and `why` and `story` show it."""
    pool = {"labels": {"pool": "mixed"}}
    found = {each: alone(client, each, **pool) for each in ("inference", "sft", "rag")}
    assert {each: node for each, (_, node) in found.items()} == {
        "inference": "small",
        "sft": "big",
        "rag": "mid",
    }
    told = [line.text for line in client.story(found["sft"][0]).items]
    assert any("λ 0.8" in line and "next mid 0.287" in line for line in told), told


def ties(client: Client) -> None:
    """Idea 2: identical nodes are chosen by the hash of task and node, the same for everybody."""
    for _ in range(4):
        job, node = alone(client, "rag", **T4)
        assert node == max(("t1", "t2"), key=lambda each: jitter(job, each, 1e-3))


def first_fit(client: Client) -> None:
    """Idea 4: the order is that in which nodes joined."""
    client.set_quota("plain", QuotaSpec(dispatch_mode="adaptive", selection="first_fit"))
    assert {alone(client, "rag", queue="plain", **T4)[1] for _ in range(3)} == {"t2"}


def merged(client: Client, folder: Path) -> None:
    """Tasks that wait at the same time and differ only in their data run in one process, each with its own result."""
    stages: list[dict[str, object]] = [{"name": f"s{at}", "spec": {"data": at}} for at in range(5)]
    id, _ = run(client, stages, taskType="inference", cwd=str(folder))
    results = [client.result(f"{id}:s{at}") for at in range(5)]
    assert [each["said"] for each in results] == list(range(5))
    assert [len(each["text"]) for each in results] == [15_000 * at for at in range(5)]
    assert [results[at]["pid"] == results[0]["pid"] for at in range(5)] == [True, True, True, True, False]
    parent, child = (client.workflow_view(id).stages[at].job_id for at in (0, 1))
    assert b"".join(client.logs(parent)) == b""
    number = client.job(parent).number
    for asked in (
        lambda: b"".join(client.logs(child)),
        lambda: client.files(child),
        lambda: b"".join(client.file(child, "x")),
    ):
        with pytest.raises(PhalanxError, match=f"ran as a part of {number},") as refused:
            asked()
        assert refused.value.reason == "MergedTask"
        assert refused.value.hint.endswith(str(number))


def merged_over_a_restart(cluster: RealCluster, folder: Path) -> None:
    """A runner that did not start the attempt takes its answer apart all the same."""
    gate = folder / "gate"
    os.mkfifo(gate)
    stages: list[dict[str, object]] = [{"name": f"s{at}", "spec": {"data": at}} for at in (1, 2)]
    text = json.dumps(
        {
            "spec": {
                "graph": {"nodes": stages},
                "taskType": "inference",
                "cwd": str(folder),
                "gate": str(gate),
                "labels": {"pool": "mixed"},
            }
        }
    )
    [found] = read([("flow.yaml", text)]).workflows
    id = cluster.client.submit_workflow(found.spec).id

    def running() -> str | None:
        return next(
            (each.node for each in cluster.client.workflow_view(id).stages if each.status == "Running"), None
        )

    node = wait_until(running, 20, "the merged stages run")
    cluster.kill(node)
    cluster.start_runner(node)
    cluster.wait_online(node)
    gate.write_text("")
    view = cluster.client.wait_workflow(id, timeout=30)
    assert view.status == "Completed"
    assert sum(stage.attempts for stage in view.stages) == 1, "they ran once, as one"
    results = [cluster.client.result(f"{id}:s{at}") for at in (1, 2)]
    assert [(each["said"], len(each["text"])) for each in results] == [(1, 15_000), (2, 30_000)]


def alone_in_the_form_for_several(client: Client) -> None:
    """A program that always answers for several runs alone, with a large result that says what is loaded there."""
    id, nodes = run(client, [{"name": "it", "spec": {"taskType": "diffusion", "labels": {"pool": "mixed"}}}])
    assert client.result(f"{id}:it") == {"text": "x" * 9000, "cached": ["org/Second"]}
    second = {"model": {"source": {"identifier": "org/second"}}}
    job, node = alone(client, "sft", **second, labels={"pool": "mixed"})
    assert node == nodes["it"]
    assert any("loaded there already" in line.text for line in client.story(job).items)


def reuse(client: Client) -> None:
    """Idea 1: the node with the model is preferred, whatever the score says, until its time is over."""
    big = {"labels": {"pool": "mixed"}, "resources": {"hardware": {"cpu": 1, "gpu": {"count": 8}}}}
    assert alone(client, "inference", **M, **big)[1] == "big"
    job, node = alone(client, "inference", **M)
    assert node == "big"
    assert any("loaded there already" in line.text for line in client.story(job).items)
    assert alone(client, "inference")[1] != "big"

    used_at = monotonic()
    wait_until(lambda: monotonic() - used_at > 3.5, 10.0, "the model counts as loaded no longer")
    assert alone(client, "inference", **M)[1] != "big"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "ORCHESTRATOR_DISPATCH_MODE",
            "clever",
            "adaptive, static_worker, fixed_pipeline or static_round_robin",
        ),
        ("ORCHESTRATOR_WORKER_SELECTION", "worst_fit", "best_fit, first_fit or min_satisfying"),
        ("SCHEDULER_LAMBDA_TRAINING", "1.5", "a number from 0 to 1"),
        ("TASK_MERGE_MAX_BATCH_SIZE", "0", "a number from 1 to 64"),
    ],
)
def test_unknown_values_are_refused_at_start(tmp_path: Path, variable: str, value: str, told: str) -> None:
    env = {**os.environ, variable: value, "XDG_STATE_HOME": str(tmp_path)}
    made = subprocess.run(
        [sys.executable, "-m", "phalanx", "coordinator"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode != 0
    assert variable in made.stderr and value in made.stderr and told in made.stderr


def test_a_workflow_has_its_node_to_itself(tmp_path: Path) -> None:
    settings = {"scheduler.dispatch_mode": "static_worker"}
    nodes = {"w1": "cpus=4", "w2": "cpus=4"}
    with a_real_cluster(tmp_path / "cluster", nodes, settings=settings) as cluster:
        client = cluster.client
        stages: list[dict[str, object]] = [
            {"name": f"s{at}", "spec": {"command": ["sh", "-c", f"echo {at} >> {tmp_path}/ran"]}}
            for at in range(6)
        ]
        for _ in range(2):
            _, where = run(client, stages)
            assert len(set(where.values())) == 1
        assert len((tmp_path / "ran").read_text().split()) == 12
