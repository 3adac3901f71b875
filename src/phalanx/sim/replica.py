"""Compares the state that a restart would read with the one in memory, field by field."""

from __future__ import annotations

from typing import Any

from msgspec import msgpack, structs

from phalanx.coordinator.restore import restore
from phalanx.core.cluster.events import BackoffsEnded
from phalanx.core.cluster.image import ClusterImage, decode_state, encode_state
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.store.protocol import Loaded


def differences(state: ClusterState, loaded: Loaded, now: float, latest: float = 0.0) -> list[str]:
    """Where the stored state differs from this one, which has seen the time `now`.

    `latest` is the latest time that any coordinator's clock has shown. Backoffs end with time, not with events, so an
    image written by a faster clock has more of them ended than the log tells a slower one: both are woken up to then.
    """
    replayed = restore(loaded, state.rules)
    if latest > now:
        state = decode_state(encode_state(state), state.rules)
        apply(state, BackoffsEnded(at=latest))
    apply(replayed, BackoffsEnded(at=max(now, latest)))
    mine, theirs = _fields(state), _fields(replayed)
    return [
        f"{name} is {mine.get(name)!r} in memory, {theirs.get(name)!r} in the store"
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name) != theirs.get(name)
    ]


def _fields(state: ClusterState) -> dict[str, Any]:
    """Everything that must survive, by name. Heaps and sets are compared by their contents."""
    image = msgpack.decode(encode_state(state), type=ClusterImage)
    fields: dict[str, Any] = {
        "epoch": image.epoch,
        "revision": image.revision,
        "arrivals": image.arrivals,
        "ended": image.ended,
        "requests": image.request_ids,
        "counts": list(state.counts),
        "waiting": sorted(
            unit.rank for job in state.jobs.values() for unit in job.units if unit in state.waiting
        ),
        "forming": sorted(state.forming),
        "incomplete": sorted(state.incomplete),
        "promised": sorted(state.promised),
        "topology": image.topology,
        "quotas": image.quotas,
    }
    for tenant in state.tenants.tenants:
        if tenant is not None:
            fields[f"tenant {tenant.key}"] = _facts(tenant)
    for kept in image.jobs:
        for attempt in kept.live:
            attempt.row = 0  # a restart numbers the rows of the table anew
        for name, value in structs.asdict(kept).items():
            fields[f"job {kept.job.id} {name}"] = sorted(value) if name == "again" else value
    fields["ended workflows"] = image.ended_workflows
    bindings = state.bindings
    fields["bindings"] = (bindings.workflows, bindings.types, bindings.turns, sorted(bindings.deferred))
    fields["contexts"] = bindings.contexts.image()
    fields["run times"] = bindings.run_times.image(), bindings.stage_times.image()
    fields["stages of users"] = state.stages_of
    fields["overlay"] = state.overlay.image()
    fields["logins"] = state.logins.image()
    for flow in image.workflows:
        missing = state.workflows[flow.workflow.id].missing
        for name, value in (*structs.asdict(flow).items(), ("missing", missing)):
            fields[f"workflow {flow.workflow.id} {name}"] = value
    for node in image.nodes:
        for name, value in structs.asdict(node).items():
            fields[f"node {node.name} {name}"] = sorted(value) if name == "leftovers" else value
    for ledger in state.table:
        free = (*ledger.free, ledger.numa_free, sorted(ledger.devices_free))
        fields[f"ledger {ledger.name}"] = free
    return fields


def _facts(tenant: Tenant) -> tuple[Any, ...]:
    """What preemption uses of a tenant: its job, whether it may be evicted, and whether it is leaving."""
    may_go, will_end = tenant.evictable_at < NEVER, tenant.ends_at < NEVER
    return tenant.job, tenant.group, may_go, will_end, tenant.is_leaving, tenant.is_promise
