"""Choices about what runners report: is it about a living attempt, and what follows?

Stale and repeated reports get a typed answer and change nothing. What an end leads to is `endings.py`'s business.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.barrier import ready
from phalanx.core.cluster.decision import Decision, Disposed
from phalanx.core.cluster.endings import Endings
from phalanx.core.cluster.events import AttemptStarted, Event, NodeCleared
from phalanx.core.cluster.inputs import Tell
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import Disposition, Ended, Exit, Ready, Report, Returned, Started
from phalanx.core.model.status import Why


def tell(state: ClusterState, given: Tell, now: float) -> Decision:
    """Judge one report."""
    key = given.report.key
    if given.epoch != state.epoch:
        return _disposed(state, given.report, Disposition.STALE_EPOCH)
    node = state.nodes.get(given.node)
    if node is None or node.incarnation != given.incarnation or node.lost:
        return _disposed(state, given.report, Disposition.STALE_LEASE)
    if key in node.leftovers:
        return _leftover(state, node, given, now)
    attempt = state.attempt(key)
    if attempt is None or attempt.node != given.node:
        return _disposed(state, given.report, _not_alive(state, given.report))
    events = _about(state, attempt, given.report, now, f"report {given.node}")
    return _disposed(state, given.report, Disposition.ACCEPTED if events else Disposition.DUPLICATE, events)


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
    return endings.events


def _leftover(state: ClusterState, node: NodeState, given: Tell, now: float) -> Decision:
    if isinstance(given.report, Started | Ready):
        return _disposed(state, given.report, Disposition.STALE_ATTEMPT)
    event = NodeCleared(at=now, cause=f"report {node.name}", node=node.name, key=given.report.key)
    return _disposed(state, given.report, Disposition.STALE_ATTEMPT, [event])


def _not_alive(state: ClusterState, report: Report) -> Disposition:
    """Why a report about no living attempt is refused: repeated, of an older attempt, or of nothing we know."""
    job_id, position, number = report.key
    job = state.jobs.get(job_id)
    if job is None or not 0 <= position < len(job.status):
        return Disposition.UNKNOWN
    if number == job.attempts[position] and position not in job.live and isinstance(report, Ended):
        return Disposition.DUPLICATE
    return Disposition.STALE_ATTEMPT


def _disposed(
    state: ClusterState, report: Report, disposition: Disposition, events: list[Event] | None = None
) -> Decision:
    return Decision(events or [], [], Disposed(report.key, disposition, state.epoch))
