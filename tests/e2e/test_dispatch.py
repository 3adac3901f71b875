"""Dispatch on real processes, set up by FlowMesh's variables: the seed's testing ideas 1, 2, 4 and 5, and merging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
own = {"text": "x" * 9000, "cached": ["org/Second"]}
json.dump({"result": own, "children": children}, open(os.environ["PHALANX_RESULT"], "w"))
"""


def run(client: Client, nodes: list[dict[str, object]], **root: object) -> tuple[str, dict[str, str]]:
    """Submit a graph and wait for it: its id, and the node of each stage."""
    text = json.dumps({"apiVersion": "flowmesh/v1", "spec": {"graph": {"nodes": nodes}, **root}})
    [found] = read([("flow.yaml", text)]).workflows
    id = client.submit_workflow(found.spec).id
    view = client.wait_workflow(id, timeout=30)
    assert view.status == "Completed", [(stage.name, stage.reason) for stage in view.stages]
    return id, {stage.name: stage.node or "" for stage in view.stages}


def alone(client: Client, task_type: str, **spec: object) -> tuple[str, str]:
    """One stage by itself: the id of its job, and its node."""
    id, nodes = run(client, [{"name": "it", "spec": {"taskType": task_type, "command": ["true"], **spec}}])
    return client.task(f"{id}:it").job_id, nodes["it"]


def test_stages_are_given_nodes_as_flowmesh_does(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(MODULE)
    (tmp_path / "executors.toml").write_text(
        '[executors]\ninference = { run = "served:answer_all", merges = true }\n'
        f"diffusion = {{ run = {json.dumps([sys.executable, '-c', SERVE])}, merges = true }}\n"
    )
    settings = {"coordinator.executors_file": str(tmp_path / "executors.toml")}
    cluster = RealCluster(tmp_path / "cluster", settings=settings)
    cluster.environment = FLOWMESH | {"PYTHONPATH": str(tmp_path)}
    cluster.node_settings = {name: {"runner.cost_per_hour": cost} for name, cost in COSTS.items()}
    try:
        cluster.start({"t2": TWIN})  # it joins first
        others = {"t1": TWIN, "small": SMALL, "mid": MID, "big": BIG}
        for name, pretend in others.items():
            cluster.start_runner(name, pretend)
        cluster.wait_online(*others)
        mixed_workloads(cluster.client)
        ties(cluster.client)
        first_fit(cluster.client)
        merged(cluster.client, tmp_path)
        alone_in_the_form_for_several(cluster.client)
        merged_over_a_restart(cluster, tmp_path)
        reuse(cluster.client)
    finally:
        cluster.stop()


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
