"""Builders of small topologies: trees from paths, columns over their nodes, and gangs to place on them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from phalanx.core.model.job import Command, Gang, Group, Job
from phalanx.core.model.plan import Snapshot
from phalanx.core.model.queue import Queues, Quota
from phalanx.core.model.resources import Capacity, Device, NumaNode, Request, parse_target
from phalanx.core.model.survey import TopologySurvey
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.topology import Layer, Topology
from phalanx.core.model.tree import Column, Tree
from phalanx.core.model.waiting import Part, Waiting
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.search import PartSlots

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


class GangOwner:
    """A gang that waits: what it wants of each group, and who of it already stands where."""

    is_gang: Literal[True] = True
    is_surplus = False
    may_hold_part = False
    comes_back = False
    rank = (0.0, 0, 0)
    kind: object = "gang"

    def __init__(self, *groups: Group, bound: dict[int, int] | None = None, **gang: object) -> None:
        queue = str(gang.pop("queue", "default"))
        self.job = Job("crew", groups, "crew", 0.0, queue=queue, gang=Gang(**gang))  # type: ignore[arg-type]
        self._bound = bound or {}

    def wanted(self) -> tuple[Part, ...]:
        return tuple(Part(group.request, group.needed, group.tasks) for group in self.job.groups)

    def members(self, group: int) -> list[tuple[int, int]]:
        first = sum(each.tasks for each in self.job.groups[:group])
        of = self.job.groups[group]
        return sorted((of.indexes[at] if of.indexes else at, first + at) for at in range(of.tasks))

    def bound(self) -> list[tuple[int, int]]:
        return sorted(self._bound.items())


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
