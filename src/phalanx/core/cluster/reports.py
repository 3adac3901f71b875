"""Choices about what runners report: is it about a living attempt, and what becomes of the task?

Stale and repeated reports get a typed answer and change nothing. Retries are charged only for what the task
did itself; what befell its node has a limit of its own.
"""

from __future__ import annotations

from phalanx.core.cluster.decision import Decision, Disposed
from phalanx.core.cluster.events import AttemptEnded, AttemptStarted, Event, NodeCleared
from phalanx.core.cluster.inputs import Tell
from phalanx.core.cluster.jobs import Attempt, JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import Disposition, Ended, Exit, Report, Returned, Started
from phalanx.core.model.status import UNCHARGED, Status, Why

NOT_RETRIED = frozenset({Why.TIMEOUT, Why.REFUSED, Why.STUCK})
"""Trying again would only repeat these: the limit, the missing program and the folder stay as they are."""


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


def end(state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str) -> AttemptEnded:
    """The event that ends an attempt: what its task becomes, and when it may be tried again."""
    job = state.jobs[attempt.key[0]]
    position = attempt.key[1]
    status = Status(job.status[position])
    if status.is_final:  # cancelled meanwhile: the end only frees what it held
        return AttemptEnded(at=now, cause=cause, key=attempt.key, exit=exit, status=status)
    if exit.why == Why.NONE and exit.code == 0:
        return AttemptEnded(at=now, cause=cause, key=attempt.key, exit=exit, status=Status.COMPLETED)
    if exit.why in UNCHARGED:
        return _uncharged(state, job, attempt, exit, now, cause)
    used = job.charged.get(position, 0) + 1
    if exit.why in NOT_RETRIED or used > job.job.max_retries:
        return AttemptEnded(
            at=now, cause=cause, key=attempt.key, exit=exit, status=Status.FAILED, charged=True
        )
    retry_at = now + backoff_s(state, used)
    return AttemptEnded(
        at=now,
        cause=cause,
        key=attempt.key,
        exit=exit,
        status=Status.PENDING,
        retry_at=retry_at,
        charged=True,
    )


def backoff_s(state: ClusterState, failures: int) -> float:
    """The first retry is at once; then 1, 2, 4, … seconds up to the limit."""
    if failures <= 1:
        return 0.0
    return min(state.rules.backoff_max_s, state.rules.backoff_s * 2.0 ** min(failures - 2, 30))


def _about(state: ClusterState, attempt: Attempt, report: Report, now: float, cause: str) -> list[Event]:
    match report:
        case Started():
            if attempt.started_at is not None:
                return []
            return [AttemptStarted(at=now, cause=cause, key=attempt.key, started_at=report.at)]
        case Ended():
            return [end(state, attempt, report.exit, now, cause)]
        case Returned():
            if attempt.started_at is not None:
                return []
            return [end(state, attempt, Exit(Why.RETURNED), now, cause)]


def _uncharged(
    state: ClusterState, job: JobState, attempt: Attempt, exit: Exit, now: float, cause: str
) -> AttemptEnded:
    loss = exit.why not in (Why.RETURNED, Why.EVICTED)
    losses = job.losses.get(attempt.key[1], 0) + loss
    if loss and losses > state.rules.loss_limit:
        return AttemptEnded(at=now, cause=cause, key=attempt.key, exit=exit, status=Status.FAILED, loss=True)
    return AttemptEnded(
        at=now, cause=cause, key=attempt.key, exit=exit, status=Status.PENDING, retry_at=now, loss=loss
    )


def _leftover(state: ClusterState, node: NodeState, given: Tell, now: float) -> Decision:
    if isinstance(given.report, Started):
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
