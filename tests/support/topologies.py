"""Builders of small topologies: trees from paths, columns over their nodes, and gangs to place on them."""

from __future__ import annotations

import numpy as np

from phalanx.core.model.job import Command, Gang, Group, Job
from phalanx.core.model.plan import Snapshot
from phalanx.core.model.queues import Queues, Quota
from phalanx.core.model.resources import Capacity, Device, NumaNode, Request, parse_target
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.topology import Layer, Topology
from phalanx.core.model.tree import Column, TopologySurvey, Tree
from phalanx.core.model.waiting import Waiting
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.search import PartSlots
from tests.support.waiting_units import FakeGang

THREE = Topology((Layer("spine", ("spine",)), Layer("block", ("block",)), Layer("rack", ("rack",))))


def labels(path: str) -> dict[str, str]:
    """ "s1/b1/r1" as labels; a layer that is left empty has none."""
    return {layer.name: name for layer, name in zip(THREE.layers, path.split("/"), strict=False) if name}


def a_tree(*paths: str, names: list[str] | None = None) -> Tree:
    """Nodes n1, n2, … at these paths, in this order of rows."""
    survey = TopologySurvey(THREE)
    for row, path in enumerate(paths):
        survey.note(row, labels(path))
    return survey.tree(names or [f"n{row + 1}" for row in range(len(paths))])


def column(*values: int) -> Column:
    return np.array(values, dtype=np.int64)


def asking(count: int, *slots: int, need: int | None = None) -> PartSlots:
    """One group: `slots` has one number for each node row."""
    return PartSlots(count if need is None else need, count, column(*slots))


def a_waiting_gang(*groups: Group, bound: dict[int, int] | None = None, **gang: object) -> FakeGang:
    """A gang of these groups; `bound` says how many members are on which node row already."""
    queue = str(gang.pop("queue", "default"))
    return FakeGang(Job("gang", groups, "gang", 0.0, queue=queue, gang=Gang(**gang)), bound)  # type: ignore[arg-type]


def some(
    tasks: int, least: int = 0, indexes: tuple[int, ...] = (), target: str = "", **asked: object
) -> Group:
    """A group of so many tasks."""
    aim = parse_target(target) if target else None
    request = Request(target=aim, **asked)  # type: ignore[arg-type]
    return Group(Command(("/bin/true",)), request, tasks=tasks, min=least, indexes=indexes)


def a_draft(
    *nodes: str, cores: int = 4, gpus: str = "", numa: int = 0, quotas: dict[str, Quota] | None = None
) -> Draft:
    """A draft over empty nodes n1, n2, … at these paths. GPUs by kind: "a100 h100"."""
    table, queues = NodeTable(), Queues()
    table.set_topology(THREE)
    kinds = gpus.split()
    parts = tuple(NumaNode(at, cores // numa) for at in range(numa))
    devices = tuple(
        Device(at, kind, 80, at * numa // len(kinds) if numa else None) for at, kind in enumerate(kinds)
    )
    for at, path in enumerate(nodes):
        table.put(f"n{at + 1}", Capacity(cores, 100, parts, devices, labels(path)))
        table.set_open(f"n{at + 1}", True)
    queues.quotas.update(quotas or {})
    return Draft(Snapshot(table, Waiting(), 0, Tenants(), queues, 0.0))
