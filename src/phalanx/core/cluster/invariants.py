"""What must always be true of the state, one function per sentence. Tests and the simulator ask often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.status import Status


def check(state: ClusterState) -> list[str]:
    """Every sentence that does not hold."""
    return [broken for sentence in SENTENCES for broken in sentence(state)]


def ledgers_are_exact(state: ClusterState) -> Iterator[str]:
    """What is free on a node is what it has less the grants of its lanes."""
    for node in state.nodes.values():
        expected = Ledger(node.name, state.table.ledgers[node.row].capacity)
        for lane in node.lanes.values():
            expected.take(lane.grant)
        found = state.table.ledgers[node.row]
        for field in ("cores_free", "memory_free", "numa_free", "devices_free"):
            if getattr(found, field) != getattr(expected, field):
                yield f"{node.name}: {field} is {getattr(found, field)}, lanes say {getattr(expected, field)}"
        if (
            state.table.cores[node.row] != found.cores_free
            or state.table.memory[node.row] != found.memory_free
        ):
            yield f"{node.name}: the columns do not follow the ledger"


def devices_have_one_holder(state: ClusterState) -> Iterator[str]:
    """No device is in two lanes."""
    for node in state.nodes.values():
        held = Counter(device for lane in node.lanes.values() for device in lane.grant.devices)
        yield from (f"{node.name}: device {device} is held {n} times" for device, n in held.items() if n > 1)


def lanes_hold_live_attempts(state: ClusterState) -> Iterator[str]:
    """A lane is never empty, and nodes, lanes and jobs agree on who is alive."""
    for node in state.nodes.values():
        in_lanes = {key for lane in node.lanes.values() for key in lane.attempts}
        if in_lanes != set(node.attempts):
            yield f"{node.name}: lanes and attempts differ"
        yield from (
            f"{node.name}: lane {lane.id} is empty" for lane in node.lanes.values() if not lane.attempts
        )
    for job in state.jobs.values():
        for attempt in job.live.values():
            if attempt.key not in state.nodes[attempt.node].attempts:
                yield f"{attempt.key} is alive for its job but not on {attempt.node}"


def status_follows_attempts(state: ClusterState) -> Iterator[str]:
    """Assigned and Running tasks have a live attempt, Pending ones have none, and the counts are right."""
    totals = [0, 0, 0, 0, 0, 0]
    for job in state.jobs.values():
        counts = [job.status.count(status) for status in Status]
        if counts != job.counts:
            yield f"{job.job.id}: counts {job.counts}, tasks say {counts}"
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        active = {p for p, s in enumerate(job.status) if s in (Status.ASSIGNED, Status.RUNNING)}
        if not active <= set(job.live):
            yield f"{job.job.id}: tasks {sorted(active - set(job.live))[:5]} have no attempt"
        pending = [p for p in job.live if job.status[p] == Status.PENDING]
        if pending:
            yield f"{job.job.id}: pending tasks {pending[:5]} have a live attempt"
    if totals != state.counts:
        yield f"totals {state.counts}, jobs say {totals}"


def ready_jobs_wait(state: ClusterState) -> Iterator[str]:
    """A job is in the queue exactly when it has a task to place."""
    for id, job in state.jobs.items():
        if any(True for _ in job.ready(1)) and id not in state.waiting:
            yield f"{id} has ready tasks but is not in the queue"


SENTENCES = (
    ledgers_are_exact,
    devices_have_one_holder,
    lanes_hold_live_attempts,
    status_follows_attempts,
    ready_jobs_wait,
)
