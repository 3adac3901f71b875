"""A mixed workload for the dispatch modes: chats, fine-tuning, PPO and data, and how long each task takes where.

The times are a model, not a measurement. A task does so much work; a device does so much of it a second, by its kind;
a task that asked for GPUs and was given none runs on the CPU, fifty times slower than on the smallest device. Before
it works, a model that was not used on this node within the last hour is loaded.
"""

from __future__ import annotations

import json
from random import Random

from phalanx.api.schema.workflows import TaskProgram, to_workflow
from phalanx.core.model.dispatch import MERGED_TYPES
from phalanx.core.model.resources import Capacity, Device, Grant
from phalanx.core.model.workflow import Workflow, workflow_id
from phalanx.manifests.read import read

GIB = 1 << 30
SPEED = {"cpu": 0.02, "a40": 1.0, "a100": 3.0, "h100": 6.0}  # work a second of one device
LOAD_S = {"small": 20.0, "medium": 60.0, "large": 150.0}
KEPT_S = 3600.0
MODELS = [f"{size}-{number}" for size in LOAD_S for number in range(3)]


def machine(cores: int, ram: int, gpus: int, kind: str, memory: int, cost: float) -> Capacity:
    devices = tuple(Device(at, kind, memory * GIB) for at in range(gpus))
    return Capacity(cores, ram * GIB, devices=devices, cost_per_hour=cost)


NODES = {
    **{f"cpu{at}": machine(32, 128, 0, "", 0, 1.0) for at in range(2)},
    **{f"small{at}": machine(16, 64, 1, "a40", 48, 1.2) for at in range(6)},
    **{f"mid{at}": machine(64, 512, 4, "a100", 80, 12.0) for at in range(3)},
    **{f"big{at}": machine(128, 1024, 8, "h100", 80, 40.0) for at in range(2)},
}


def arrivals(seed: int, count: int = 120, within_s: float = 3600.0) -> list[tuple[float, Workflow]]:
    """When which workflow is submitted."""
    dice = Random(seed)
    times = sorted(dice.uniform(0.0, within_s) for _ in range(count))
    return [(at, _workflow(dice, at, number)) for number, at in enumerate(times)]


def _workflow(dice: Random, at: float, number: int) -> Workflow:
    kind = dice.choices(("chat", "sft", "ppo", "data"), (6, 2, 1, 3))[0]
    model = dice.choice(MODELS)
    nodes: list[dict[str, object]]
    if kind == "chat":
        nodes = [_stage(f"ask{n}", "inference", 30, model, 1, data=n) for n in range(dice.randint(2, 6))]
    elif kind == "data":
        nodes = [_stage(f"part{n}", "data_profiling", 2, "", 0, data=n) for n in range(dice.randint(2, 8))]
    else:
        nodes = [_stage("prepare", "data_profiling", 2, "", 0)]
        nodes.append(_stage("sft", "sft", 6000, model, 4, ["prepare"]))
        last = "sft"
        if kind == "ppo":
            nodes.append(_stage("ppo", "ppo", 12_000, model, 4, ["sft"], "${sft.result.weights}"))
            last = "ppo"
        nodes.append(_stage("judge", "inference", 60, model, 1, [last]))
    text = json.dumps({"apiVersion": "flowmesh/v1", "spec": {"graph": {"nodes": nodes}}})
    [found] = read([("flow.yaml", text)]).workflows
    return to_workflow(
        found.spec,
        id=workflow_id(1 + number, dice.getrandbits(79)),
        now=at,
        user="ada",
        default_retries=2,
        command_of=lambda task_type: TaskProgram(["run"], task_type in MERGED_TYPES),
    )


def _stage(
    name: str, task_type: str, work: float, model: str, gpus: int, after: list[str] | None = None, weights: str = "",
    data: int = 0,
) -> dict[str, object]:  # fmt: skip
    hardware: dict[str, object] = {"cpu": 4, "memory": "8Gi"}
    spec: dict[str, object] = {"taskType": task_type, "work": work, "data": {"item": data}}
    if gpus:
        hardware["gpu"] = {"count": gpus}
    if model:
        spec["model"] = {"source": {"identifier": model}}
    if weights:
        spec["checkpoint"] = {"load": weights}
    return {"name": name, "dependsOn": after or [], "spec": {**spec, "resources": {"hardware": hardware}}}


def seconds(
    spec: dict[str, object], merged: int, capacity: Capacity, grant: Grant, gpus: int, loaded: bool
) -> float:
    """How long a task takes on what it was given; one that does others' work as well is half as quick for each."""
    kinds = {device.index: device.kind for device in capacity.devices}
    speed = (
        sum(SPEED[kinds[index]] for index in grant.devices)
        if grant.devices
        else SPEED["cpu"]
        if gpus
        else 1.0
    )
    work = float(str(spec["work"])) * (10 if not gpus else 1) * (1 + 0.5 * merged)
    model = spec.get("model")
    size = str(model["source"]["identifier"]).split("-")[0] if isinstance(model, dict) else ""
    return work / speed + (0.0 if loaded or not size else LOAD_S[size])
