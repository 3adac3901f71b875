"""Cluster files: nodes, jobs that hold places on them, jobs that wait, the layers of the network and quotas.

A `ClusterSpec` is what a plan needs without a server. It is read from our own YAML here, or made in `read.py` from
what `kubectl get nodes,pods,podgroups,clusternetworktopologies -A -o yaml` prints. `preview/` makes plans of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from msgspec import Struct, ValidationError, convert, structs

from phalanx.api.schema.fields import read_cores, read_memory, shown
from phalanx.api.schema.groupspec import CORES_MAX, GPUS_MAX
from phalanx.api.schema.queues import QuotaSpec, to_quota
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.core.model.job import PRIORITY_MAX, Job, is_name
from phalanx.core.model.queues import QUEUES_MAX, Quota
from phalanx.core.model.resources import Capacity, Cores, Device, NumaNode
from phalanx.core.model.topology import Topology
from phalanx.errors import PhalanxError
from phalanx.manifests.found import ParsedJob, Placed
from phalanx.manifests.job import read_native, validate
from phalanx.manifests.load import Document, Map
from phalanx.manifests.nodes import NodeSpec
from phalanx.manifests.topology import read_layers
from phalanx.manifests.view import Source, View

NODES_MAX = 200_000
WORDS = ("nodes", "running", "waiting", "topology", "queues", "now")
_ACCESS = ("users", "roles", "submitted", "each_user", "by_user", "approval", "order")
_RANGE = re.compile(r"\[([0-9]{1,9})-([0-9]{1,9})\]", re.ASCII)


_OF_JOBS = ("groups", "command", "shell")  # `nodes` of a job are those that it may run on


class ClusterSpec(Struct):
    """A cluster at one instant. Jobs that hold places have them in `placed`; the others wait, in this order."""

    nodes: list[NodeSpec]
    jobs: list[ParsedJob]
    topology: Topology | None = None
    queues: dict[str, Quota] = {}
    now: float | None = None  # the time in the cluster, if a file has it


def is_cluster_file(document: View) -> bool:
    """Whether a document without a kind is a cluster file of ours rather than a job file."""
    content = document.content
    return any(word in content for word in WORDS) and not any(word in content for word in _OF_JOBS)


def read_cluster_file(document: View) -> ClusterSpec:
    """Read one cluster file of ours."""
    for key in document.content:
        if key not in (*WORDS, "name"):
            raise document.error(key, f"is unknown in a cluster file, which has {', '.join(WORDS)}")
        if not document.source.lenient and key in ("nodes", "running", "waiting"):
            raise document.error(key, "belongs in a cluster file: give this file with --cluster")
    document.skip("name")
    nodes = [node for each in document.views("nodes") for node in _nodes(each)]
    if len(nodes) > NODES_MAX:
        raise document.error("nodes", f"{len(nodes)} are too many, at most {NODES_MAX} are read")
    jobs = [_job(each, f"running[{number}]") for number, each in enumerate(document.views("running"))]
    jobs += [_job(each, f"waiting[{number}]") for number, each in enumerate(document.views("waiting"))]
    return ClusterSpec(
        nodes,
        jobs,
        read_layers(document, "topology") if "topology" in document else None,
        _queues(document.view("queues")),
        _instant(document, "now"),
    )


def spread(name: str) -> list[str]:
    """The names of `n[1-8]`; leading zeros are kept, as in `n[01-16]`."""
    match = _RANGE.search(name)
    if match is None:
        return [name]
    first, last = int(match.group(1)), int(match.group(2))
    if not first <= last < first + NODES_MAX:
        raise ValueError(f"{match.group()} is not a range of at most {NODES_MAX} numbers")
    width = len(match.group(1)) if match.group(1).startswith("0") else 0
    before, after = name[: match.start()], name[match.end() :]
    return [f"{before}{number:0{width}}{after}" for number in range(first, last + 1)]


def _nodes(each: View) -> Iterator[NodeSpec]:
    labels = each.view("labels")
    words = {key: labels.text(key) for key in labels.content}
    cores = each.number("cores", 1, 0, CORES_MAX)
    numa = each.number("numa", 0, 0, 64)
    parts = tuple(NumaNode(id, (id + 1) * cores // numa - id * cores // numa) for id in range(numa))
    devices = tuple(_devices(each, numa))
    capacity = Capacity(cores, _size(each, "memory", "a node"), parts, devices, words)
    closed = each.text("closed")
    for name in _names(each, "name", each.text("name")):
        yield NodeSpec(name, capacity, closed)
    for view, key in each.left():
        raise view.error(key, "is unknown: a node has name, cores, memory, gpus, gpu_type, gpu_memory, devices, numa,"
                         " labels, closed")  # fmt: skip


def _devices(each: View, numa: int) -> Iterator[Device]:
    kinds = [
        (
            each.number("gpus", 0, 0, GPUS_MAX),
            each.text("gpu_type", "gpu"),
            _size(each, "gpu_memory", "a device"),
        )
    ]
    kinds += [
        (more.number("count", 1, 0, GPUS_MAX), more.text("kind", "gpu"), _size(more, "memory", "a device"))
        for more in each.views("devices")
    ]
    total = sum(count for count, _, _ in kinds)
    if total > GPUS_MAX:
        raise each.error("devices", f"{total} are too many for one node, at most {GPUS_MAX}")
    index = 0
    for count, kind, memory in kinds:
        for _ in range(count):
            yield Device(index, kind, memory, index * numa // total if numa else None)
            index += 1


def _job(each: View, field: str) -> ParsedJob:
    """A job that runs or waits: the keys of a job file, and `places`."""
    content = Map(each.content)
    content.line, content.lines = each.line, each.content.lines
    source = Source(
        Document(each.source.file, content), f"{each.source.title} {field}".strip(), each.source.cautions,
        for_plan=True,
    )  # fmt: skip
    view = View(source, content, line=each.line)
    groups = view.views("groups") if "groups" in view else [view]
    places = [_places(group) for group in groups]
    if "groups" not in view and "tasks" not in view and "array" not in view and places[0]:
        content["tasks"] = len(places[0])
    spec = read_native(view, placed=True)
    job = validate(spec, view, view.where(), "")
    each.skip(*each.content)
    placed = tuple(_placed(job, groups, places))
    return ParsedJob(spec, view.where(), spec.name or field, placed=placed, asked=False)


def _places(group: View) -> list[str]:
    """A node for each task that runs; a mapping has the number of tasks on each node."""
    value = group.get("places")
    if isinstance(value, Map):
        counts = group.view("places")
        return [name for name in value for _ in range(counts.number(name, 1, 0, 1_000_000))]
    listed = [value] if isinstance(value, str) else group.strings("places")
    return [name for each in listed for name in _names(group, "places", each)]


def _placed(job: Job, groups: list[View], places: list[list[str]]) -> Iterator[Placed]:
    first = 0
    for group, view, nodes in zip(job.groups, groups, places, strict=True):
        if len(nodes) > group.tasks:
            raise view.error("places", f"{len(nodes)} are given for {group.tasks} tasks")
        started = _instant(view, "started_at")
        ask, ending = group.request, view.flag("ending")
        for offset, node in enumerate(nodes):
            yield Placed(first + offset, node, ask.cores, ask.memory_bytes, ask.gpus, started, ending)
        first += group.tasks


def _instant(view: View, key: str) -> float | None:
    value = view.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise view.error(key, f"{shown(value)} is not a time in seconds")
    return None if value is None else float(value)


def _cores(view: View) -> Cores:
    value = view.get("cores")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise view.error("cores", f"{shown(value)} is not a number of cores, such as 2 or 0.5")
    try:
        return read_cores("cores", value, 1 << 60)
    except PhalanxError as error:
        raise view.error("cores", str(error).removeprefix("cores: ")) from None


def _queues(queues: View) -> dict[str, Quota]:
    found: dict[str, Quota] = {}
    if len(queues.content) > QUEUES_MAX:
        raise queues.error("", f"{len(queues.content)} queues are too many, at most {QUEUES_MAX}")
    for name in queues.content:
        if not is_name(name):
            raise queues.error(name, "is not a name of a queue: lower-case letters, digits, '.', '_' or '-'")
        quota = queues.view(name)
        limits = {key: quota.number(key, 0, 0, 1 << 60) for key in ("tasks", "gpus") if key in quota}
        cores = _cores(quota) if "cores" in quota else None
        memory = _size(quota, "memory", "a task") if "memory" in quota else None
        most = "priority_max"
        priority = quota.number(most, 0, -PRIORITY_MAX, PRIORITY_MAX) if most in quota else None
        mode = _word(quota, "dispatch_mode", DispatchMode)
        selection = _word(quota, "selection", Selection)
        gpus = limits.get("gpus")
        held = Quota(limits.get("tasks"), cores, memory, gpus, priority, mode, selection)
        found[name] = structs.replace(held, **_access(quota))
        for view, key in quota.left():
            known = ("tasks", "cores", "memory", "gpus", most, "dispatch_mode", "selection", *_ACCESS)
            raise view.error(key, f"is unknown: a queue has {', '.join(known)}")
    return found


def _access(view: View) -> dict[str, Any]:
    """Who may use a queue, what each user may hold there, whether jobs wait for an approval, and their order."""
    given = {key: view.get(key) for key in _ACCESS if key in view}
    try:
        read = to_quota(convert(given, QuotaSpec))
    except (ValidationError, PhalanxError) as error:
        raise view.error("", str(error)) from None
    return {key: getattr(read, key) for key in given}


def _word(view: View, key: str, words: Any) -> Any:
    """One of these words, if the key is there."""
    value = view.get(key)
    if value is not None and value not in get_args(words):
        raise view.error(key, f"{shown(value)} is not one of {', '.join(get_args(words))}")
    return value


def _size(view: View, key: str, of: str) -> int:
    value = view.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise view.error(key, f"{shown(value)} is not a size, such as 512GiB")
    try:
        return read_memory(key, value, of)
    except PhalanxError as error:
        raise view.error("", error.detail) from None


def _names(view: View, key: str, text: str) -> list[str]:
    try:
        names = spread(text)
    except ValueError as error:
        raise view.error(key, str(error)) from None
    for name in names:
        if not is_name(name):
            raise view.error(key, f"{shown(name)} is not a name: lower-case letters, digits, '.', '_' or '-'")
    return names
