"""Kubernetes nodes as ours: their capacity, their labels, and whether they take work.

Pods there share devices in parts, which tasks here never do. So the parts that are taken on a node are added up and
subtracted from it in whole units: the remainder is what a task of ours could have. Cores are thousandths on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from phalanx.core.model.amounts import written
from phalanx.core.model.resources import Capacity, Device, device_kind
from phalanx.manifests.amounts import COUNTED, Amounts, read_quantity, to_amounts
from phalanx.manifests.pods import Pod
from phalanx.manifests.taints import Taint, read_taints
from phalanx.manifests.view import View

PRODUCT = "nvidia.com/gpu.product"
DEVICE_MEMORY_MIB = "nvidia.com/gpu.memory"
DEVICES_MAX = 1024
UNKNOWN = "it is in none of the files, though tasks run there"
# Taints that only repeat the node's own status.
REPEATED = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)


class NodeSpec(Struct, frozen=True):
    """A node of a cluster file. `closed` says why it takes no new work, and is empty if it does."""

    name: str
    capacity: Capacity
    closed: str = ""
    taints: tuple[Taint, ...] = ()  # they exclude jobs that do not tolerate them all


class KubeNode(Struct, frozen=True):
    """A node as Kubernetes reports it, before what runs there is known."""

    name: str
    amounts: Amounts  # allocatable, exact
    kind: str
    device_bytes: int
    product: str  # its name for its devices; empty if there is none
    labels: dict[str, str]
    closed: str
    taints: tuple[Taint, ...]


def read_node(document: View) -> KubeNode:
    """Read one Node."""
    metadata, spec, status = document.view("metadata"), document.view("spec"), document.view("status")
    name = metadata.text("name")
    if not name:
        raise metadata.error("name", "it is missing")
    labels = metadata.view("labels")
    words = {key: labels.text(key) for key in labels.content}
    room = status.view("allocatable") if "allocatable" in status else status.view("capacity")
    product = words.get(PRODUCT, "")
    memory = words.get(DEVICE_MEMORY_MIB, "")
    return KubeNode(
        name=name,
        amounts=to_amounts({key: read_quantity(room, key) for key in sorted(COUNTED) if key in room}),
        kind=device_kind(product) if product else _vendor(room),
        device_bytes=int(memory) << 20 if memory.isascii() and memory.isdecimal() and len(memory) < 12 else 0,
        product=product,
        labels=words,
        closed=_closed(spec, status),
        taints=tuple(taint for taint in read_taints(spec) if taint.key not in REPEATED),
    )


def settle(node: KubeNode, pods: Iterable[Pod]) -> tuple[NodeSpec, bool]:
    """The node without what is taken in parts, and whether more is taken than it has."""
    held = [pod.template.amounts for pod in pods]
    cores = written(max(sum(each.cpu_millis for each in held), node.amounts.cpu_millis))
    gpus = _whole_devices([each.gpu_percent for each in held], node.amounts.gpu_percent)
    memory = sum(each.memory_bytes for each in held)
    devices = tuple(
        Device(index, node.kind, node.device_bytes, name=node.product)
        for index in range(min(gpus, DEVICES_MAX))
    )
    capacity = Capacity(cores, max(memory, node.amounts.memory_bytes), (), devices, node.labels)
    over = (
        sum(each.cpu_millis for each in held) > node.amounts.cpu_millis
        or sum(each.gpu_percent for each in held) > node.amounts.gpu_percent
        or memory > node.amounts.memory_bytes
    )
    return NodeSpec(node.name, capacity, node.closed, node.taints), over


def unknown_node(name: str) -> KubeNode:
    """A node that tasks run on and no file describes."""
    return KubeNode(name, Amounts(), "gpu", 0, "", {}, UNKNOWN, ())


def _whole_devices(held: list[int], total: int) -> int:
    """How many whole devices a node has, of which each holder takes only its whole ones; all in percent."""
    free = (total - sum(held)) // 100
    return sum(each // 100 for each in held) + max(0, free)


def _vendor(room: View) -> str:
    names = [
        key.partition(".")[0]
        for key in ("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
        if key in room
    ]
    return {"amd": "amd", "gpu": "intel"}[names[0]] if names else "gpu"


def _closed(spec: View, status: View) -> str:
    if spec.flag("unschedulable"):
        return "it is cordoned (unschedulable)"
    for condition in status.views("conditions"):
        if condition.content.get("type") == "Ready" and condition.content.get("status") != "True":
            message = condition.content.get("message")
            return (
                f"it is not ready: {message}" if isinstance(message, str) and message else "it is not ready"
            )
    return ""
