"""Choices about what runners report: is it about a living attempt, and what follows?

Stale and repeated reports get a typed answer that names what is in force, and change nothing. What an end leads to is
`endings.py`'s business, and what it says of its node `breaker.py`'s.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.barrier import ready
from phalanx.core.cluster.breaker import after_report
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.decision import Decision, Disposed
from phalanx.core.cluster.events import AttemptStarted, Event, NodeCleared
from phalanx.core.cluster.inputs import Tell
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import Disposition, Ended, Exit, Ready, Report, Returned, Started
from phalanx.core.model.status import Why


def tell(state: ClusterState, given: Tell, now: float) -> Decision:
    """Judge one report."""
    key = given.report.key
    node = state.nodes.get(given.node)
    if given.epoch != state.epoch:
        return _disposed(state, node, given.report, Disposition.STALE_EPOCH)
    if node is None or not holds_lease(node, given.incarnation, given.generation):
        return _disposed(state, node, given.report, Disposition.STALE_LEASE)
    if key in node.leftovers:
        return _leftover(state, node, given, now)
    attempt = state.attempt(key)
    if attempt is None or attempt.node != given.node:
        return _disposed(state, node, given.report, _not_alive(state, node, given.report))
    events = _about(state, attempt, given.report, now, f"report {given.node}")
    judged = Disposition.ACCEPTED if events else Disposition.DUPLICATE
    return _disposed(state, node, given.report, judged, events)


def holds_lease(node: NodeState, incarnation: str, generation: int) -> bool:
    """Whether a runner speaks in the life and under the lease that are in force."""
    return node.incarnation == incarnation and node.generation == generation and not node.lost


def _about(state: ClusterState, attempt: Attempt, report: Report, now: float, cause: str) -> list[Event]:
    match report:
        case Ready():
            return ready(state, [attempt], now, cause)
        case Started():
            if attempt.started_at is not None:
                return []
            return [AttemptStarted(at=now, cause=cause, key=attempt.key, started_at=report.at)]
        case Ended():
            return _end(state, attempt, report.exit, now, cause)
        case Returned():
            if attempt.started_at is not None:
                return []
            return _end(state, attempt, Exit(Why.RETURNED), now, cause)


def _end(state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str) -> list[Event]:
    endings = Endings(state, now, cause)
    endings.add(attempt, exit)
    return [*endings.events, *after_report(state, attempt, exit, now, cause)]


def _leftover(state: ClusterState, node: NodeState, given: Tell, now: float) -> Decision:
    if isinstance(given.report, Started | Ready):
        return _disposed(state, node, given.report, Disposition.STALE_ATTEMPT)
    event = NodeCleared(at=now, cause=f"report {node.name}", node=node.name, key=given.report.key)
    return _disposed(state, node, given.report, Disposition.STALE_ATTEMPT, [event])


def _not_alive(state: ClusterState, node: NodeState, report: Report) -> Disposition:
    """Why a report is refused that is not about what lives on this node.

    It is repeated, of an older attempt, of one that was given to another node, or of nothing we know.
    """
    job_id, position, number = report.key
    job = state.jobs.get(job_id)
    if job is None or not 0 <= position < len(job.status):
        return Disposition.UNKNOWN
    was_its_own = job.nodes is not None and job.nodes[position] == node.number + 1
    is_newest = number == job.attempts[position] and position not in job.live
    if was_its_own and is_newest and isinstance(report, Ended):
        return Disposition.DUPLICATE
    return Disposition.STALE_ATTEMPT


def _disposed(
    state: ClusterState,
    node: NodeState | None,
    report: Report,
    disposition: Disposition,
    events: list[Event] | None = None,
) -> Decision:
    generation = 0 if node is None else node.generation
    return Decision(events or [], [], Disposed(report.key, disposition, state.epoch, generation))
