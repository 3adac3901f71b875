"""The topology map: the tree of domains, what is free in each, and the tasks on each node."""

from __future__ import annotations

import numpy as np

from phalanx.api.schema.apply import DomainView, LayerView, PlaceView, SeatView, TopologyView
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import CORES, fixed, written
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tree import Column, Tree
from phalanx.preview.names import Names


def topology_view(state: ClusterState, names: Names | None = None) -> TopologyView:
    """The current tree: domains depth first, nodes in the same order."""
    tree = state.table.tree
    sums = _Sums(tree, state.table)
    declared = tree.topology
    if names is None:
        names = Names()
        names.live = state.jobs
    return TopologyView(
        cluster_layer=declared.cluster,
        layers=[LayerView(layer.name, list(layer.keys)) for layer in declared.layers],
        node_layer=declared.node,
        domains=[sums.view(tree, *domain) for domain in tree.walk()],
        nodes=[_place(state, tree, int(row), names) for row in tree.order],
    )


class _Sums:
    """The capacity of every domain on nodes that take work, and what of it is free."""

    def __init__(self, tree: Tree, table: NodeTable) -> None:
        totals = [
            (fixed(each.capacity)[CORES], each.free[CORES], len(each.devices), len(each.devices_free))
            if is_open
            else (0, 0, 0, 0)
            for each, is_open in zip(table.ledgers, table.open, strict=False)
        ]
        columns = np.maximum(np.array(totals, dtype=np.int64).reshape(-1, 4), 0).T
        self._whole = [int(column.sum()) for column in columns]
        self._layers: list[tuple[Column, ...]] = [tree.sums(column) for column in columns]

    def view(self, tree: Tree, level: int, number: int) -> DomainView:
        if level == 0:
            cores, cores_free, devices, devices_free = self._whole
        else:
            cores, cores_free, devices, devices_free = (
                int(layers[level - 1][number]) for layers in self._layers
            )
        low, high = tree.span(level, number, level + 1)
        has_domains = level + 1 < tree.node_level
        return DomainView(
            tree.layer(level),
            list(tree.path(level, number)),
            tree.layer(level + 1),
            tree.names[level][low:high] if has_domains else [],  # nodes are listed apart
            len(tree.rows(level, number)),
            written(cores),
            written(cores_free),
            devices,
            devices_free,
            bool(level and tree.virtual[level - 1][number]),
        )


def _place(state: ClusterState, tree: Tree, row: int, names: Names) -> PlaceView:
    ledger = state.table.ledgers[row]
    node = state.nodes[ledger.name]
    return PlaceView(
        name=ledger.name,
        domain=list(tree.path(tree.node_level, row)[:-1]),
        open=bool(state.table.open[row]),
        cores=ledger.capacity.cores,
        cores_free=max(0, ledger.cores_free),
        devices=len(ledger.devices),
        devices_free=len(ledger.devices_free),
        seats=_seats(state, node, names),
        missing=list(tree.missing.get(row, ())),
    )


def _seats(state: ClusterState, node: NodeState, names: Names) -> list[SeatView]:
    """The holder of each lane: the first of the attempts that run in it one after another."""
    found: list[SeatView] = []
    for lane in node.lanes.values():
        id, position, _ = next(iter(lane.attempts))
        job = state.jobs[id].job
        devices = list(lane.grant.devices)
        found.append(SeatView(names.task(job, position), names.job(job), devices, job.name, job.id))
    return sorted(found, key=lambda seat: (seat.devices, seat.task))
