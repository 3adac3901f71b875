"""What users see of the cluster: nodes and queues as the words of REST."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal

from msgspec import convert, to_builtins

from phalanx.api.schema.cluster import AccountsView, DeviceView, IsolationView, NodeView, NumaView
from phalanx.api.schema.jobs import EXCLUDED
from phalanx.api.schema.queues import QueueUserView, QueueView, QuotaView, UsageView, UserLimitsView
from phalanx.coordinator.views import task_number
from phalanx.core.cluster.decide.nodes import holds_for, trouble_of
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import plural, written
from phalanx.core.model.containers import OF_RUNTIMES
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.queues import DEFAULT, NAMES_MAX, Queues, Quota
from phalanx.core.model.resources import ISOLATED, Capacity, Device

TASKS_SHOWN = 1000
StatusOfNode = Literal["Online", "Unreachable", "Offline", "Quarantined", "Unhealthy", "Stopping"]


def node_view(state: ClusterState, node: NodeState) -> NodeView:
    """One node, and who holds each of its devices."""
    ledger = state.table.ledgers[node.row]
    holders = {
        device: next(iter(lane.attempts)) for lane in node.lanes.values() for device in lane.grant.devices
    }
    keys = [*islice(node.attempts, TASKS_SHOWN)]
    return NodeView(
        name=node.name,
        status=node_status(node),
        drained=node.drain_reason is not None,
        drain_reason=node.drain_reason or "",
        cores=ledger.capacity.cores,
        cores_free=ledger.cores_free,
        memory_bytes=ledger.capacity.memory_bytes,
        memory_free_bytes=max(0, ledger.memory_free),
        numa=[
            NumaView(numa.id, numa.cores, written(ledger.numa_free[numa.id])) for numa in ledger.capacity.numa
        ],
        devices=[_device_view(state, node, d, holders.get(d.index)) for d in node.capacity.devices],
        labels={name: value for name, value in ledger.capacity.labels.items() if name not in _OF_RUNNERS},
        tasks=[_task_id(state, key) for key in keys],
        numbers=[task_number(state.jobs[job], position) for job, position, _ in keys],
        task_count=len(node.attempts),
        incarnation=node.incarnation,
        last_seen_at=node.heard_at or None,
        generation=node.generation,
        failures=node.failures,
        excluded_until=node.excluded_until,
        rests_until=node.excluded_until,
        note=note_of(state, node),
        cost_per_hour=ledger.capacity.cost_per_hour,
        slots=ledger.capacity.slots,
        elastic_disabled=node.disabled_reason is not None,
        disabled_reason=node.disabled_reason or "",
        disabled_automatically=node.disabled_automatically,
        toggled_at=node.toggled_at,
        idle_since=node.idle_since,
        isolation=_isolation(ledger.capacity),
        containers=ledger.capacity.containers,
        accounts=_accounts(ledger.capacity),
    )


# Labels that say what other fields say.
_OF_RUNNERS = (ISOLATED[0], *(name for name, _ in OF_RUNTIMES))


def _accounts(capacity: Capacity) -> AccountsView | None:
    has = capacity.accounts
    return None if has is None else AccountsView(has.mapped, has.shared, has.root)


def _isolation(capacity: Capacity) -> IsolationView | None:
    has = capacity.isolation
    if has is None:
        return None
    return IsolationView(
        has.cpus,
        has.cpu_time,
        has.memory,
        has.processes,
        has.devices,
        has.scratch,
        has.lacking,
        has.note,
        has.network,
    )


def brake_text(state: ClusterState) -> str:
    """That no node is declared lost for now, and why; empty normally."""
    if state.brake is None:
        return ""
    said = (
        f"{state.brake.silent} of {state.brake.nodes} nodes became unreachable at once: none is declared lost"
    )
    return f"{said}; see whether the coordinator is cut off"


def note_of(state: ClusterState, node: NodeState) -> str:
    """What is unusual about a node."""
    if state.brake is not None and holds_for(state, node):
        return "silent; not believed to be lost, for most nodes are silent"
    if node.disabled_reason is not None:
        return f"disabled {node.disabled_reason}"
    if not node.lost and (trouble := trouble_of(node)):
        return trouble
    if state.rules.overlay.encrypted and node.capacity.no_wireguard:
        return f"no tasks with addresses: {node.capacity.no_wireguard}"
    if node.excluded_until is None or not node.could_work:
        return ""
    failed = node.exclusion_text or f"{plural(node.failures, 'task')} in a row failed here"
    return f"{EXCLUDED}: {failed}" if node.is_kept_away else f"{failed}, but nobody else takes work"


def queue_view(state: ClusterState, name: str, waiting: int, *, with_users: bool = True) -> QueueView:
    """One queue: its limits, what its tasks hold, how many jobs wait in it, and what its users hold."""
    queues = state.queues
    quota = queues.quotas.get(name)
    return QueueView(
        name,
        None if quota is None else convert(to_builtins(quota), QuotaView),
        _usage(queues.usage.get(name)),
        waiting,
        queues.submitted.get(name, 0),
        sum(state.jobs[id].job.queue == name for id in state.unapproved),
        users=_users(queues, name) if with_users else [],
    )


def _users(queues: Queues, name: str) -> list[QueueUserView]:
    """Those who hold or submitted something there, or have limits of their own, by name."""
    quota = queues.quotas.get(name, Quota())
    known = {user for queue, user in (*queues.used_by, *queues.submitted_by) if queue == name}
    found: list[QueueUserView] = []
    for user in sorted({*known, *quota.by_user})[:NAMES_MAX]:
        limits = quota.of_user(user)
        shown = convert(to_builtins(limits), UserLimitsView) if limits.is_set else None
        whose = (name, user)
        used, submitted = _usage(queues.used_by.get(whose)), queues.submitted_by.get(whose, 0)
        found.append(QueueUserView(user, used, submitted, shown))
    return found


def _usage(used: list[int] | None) -> UsageView:
    tasks, millis, memory_bytes, gpus = used or (0, 0, 0, 0)
    return UsageView(tasks, written(millis), memory_bytes, gpus)


def known_queues(state: ClusterState, waiting: Iterable[str]) -> list[str]:
    """Every queue that has a quota, usage, or a job that waits in it."""
    held = {name for name, used in state.queues.usage.items() if used[0]}
    return sorted({DEFAULT, *state.queues.quotas, *held, *waiting})


def node_status(node: NodeState) -> StatusOfNode:
    if node.lost:
        return "Offline"
    if not node.connected:
        return "Unreachable"
    if node.trouble or node.health.reason:
        return "Unhealthy"
    if node.leaving:
        return "Stopping"
    return "Quarantined" if node.leftovers else "Online"


def _device_view(
    state: ClusterState, node: NodeState, device: Device, holder: AttemptKey | None
) -> DeviceView:
    view = DeviceView(
        device.index, device.kind, device.memory_bytes, device.numa, device.uuid, name=device.name
    )
    if node.health.devices:
        view.out_of_service = node.health.failed.get(device.index, "")
    if holder is not None:
        job = state.jobs[holder[0]]
        view.task, view.number = job.job.task_id(holder[1]), task_number(job, holder[1])
        view.job_name, view.user = job.job.name, job.job.user
    return view


def _task_id(state: ClusterState, key: tuple[str, int, int]) -> str:
    return state.jobs[key[0]].job.task_id(key[1])
