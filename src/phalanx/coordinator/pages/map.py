"""The map: every node in the domains of the network, and the job behind each device."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from phalanx.api.schema.pages import MapHolder, MapNode
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.views import stage_of
from phalanx.coordinator.views_cluster import node_status, note_of
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState

JOBS_SHOWN = 50
NAME_SHOWN = 80


def layers(state: ClusterState) -> list[str]:
    """The layers that nodes stand in, the outermost first."""
    tree = state.table.tree
    return [tree.layer(level) for level in range(1, tree.node_level)]


def map_node(state: ClusterState, node: NodeState, idle: IdleDevices) -> MapNode:
    """One node, and who holds what of it."""
    ledger, tree = state.table.ledgers[node.row], state.table.tree
    devices = node.capacity.devices
    at = {device.index: place for place, device in enumerate(devices)}
    held, task, idle_s = [0] * len(devices), [0] * len(devices), [0.0] * len(devices)
    for lane in node.lanes.values():
        if not lane.grant.devices:
            continue
        id, position, _ = next(iter(lane.attempts))
        number = state.jobs[id].arrival
        for index in lane.grant.devices:
            if index in at:
                held[at[index]], task[at[index]] = number, position
        for each in idle.of(node.name, lane.grant.devices):
            idle_s[at[each.index]] = round(each.idle_s)
    indexes = [device.index for device in devices]
    return MapNode(
        name=node.name,
        path=list(tree.path(tree.node_level, node.row)[:-1]),
        status=node_status(node),
        drained=node.drain_reason is not None,
        note=node.drain_reason or note_of(state, node),
        cores=ledger.capacity.cores,
        cores_free=max(0, ledger.cores_free),
        memory_bytes=ledger.capacity.memory_bytes,
        memory_free_bytes=max(0, ledger.memory_free),
        kind=devices[0].kind if devices else "",
        devices=len(devices),
        index=[] if indexes == list(range(len(devices))) else indexes,
        held=held if any(held) else [],
        task=task if any(task) else [],
        idle_s=idle_s if any(idle_s) else [],
        failed=sorted(node.health.failed) if node.health.devices else [],
        tasks=len(node.attempts),
        jobs=numbers_on(state, node),
    )


def numbers_on(state: ClusterState, node: NodeState) -> list[int]:
    """The numbers of some of the jobs that a node holds tasks of."""
    ids = dict.fromkeys(key[0] for key in islice(node.attempts, 4 * JOBS_SHOWN))
    return [state.jobs[id].arrival for id in islice(ids, JOBS_SHOWN)]


def holder(state: ClusterState, job: JobState) -> MapHolder:
    spec = job.job
    first, step = indexes_of(job)
    return MapHolder(
        number=job.arrival,
        id=spec.id,
        user=spec.user,
        name=(spec.name or "")[:NAME_SHOWN],
        queue=spec.queue,
        tasks=spec.tasks,
        gang=job.gang is not None,
        workflow=stage_of(state, spec),
        status=job.overall_status.word,
        first=first,
        step=step,
    )


def indexes_of(job: JobState) -> tuple[int, int]:
    """The index of a job's first task, and how far the next one is from it: tasks are called by their indexes."""
    array = job.job.array
    first = 0 if array is None else array.index(0)
    return first, 1 if array is None or job.job.tasks < 2 else array.index(1) - first


def holders_on(state: ClusterState, nodes: Iterable[NodeState]) -> list[MapHolder]:
    """The jobs that hold something on these nodes."""
    ids: dict[str, None] = {}
    for node in nodes:
        ids |= dict.fromkeys(key[0] for key in islice(node.attempts, 4 * JOBS_SHOWN))
        ids |= dict.fromkeys(
            next(iter(lane.attempts))[0] for lane in node.lanes.values() if lane.grant.devices
        )
    return [holder(state, state.jobs[id]) for id in ids]
