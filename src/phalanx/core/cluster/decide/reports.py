"""Choices about what runners report: is it about a living attempt, what follows, and is its node to be excluded?

Stale and repeated reports get a typed answer that names what is in force, and change nothing. What an end leads to is
`endings.py`'s business.

What a node did wrong itself (it could not make a process, write a log, enter a cgroup) excludes it at once. Other
failures that a runner reports count against it only together: so many in a row, and from jobs of two users, or of three
jobs where only one user has work at all; one user's broken program says nothing of a node (decision 33). A success
clears the count, and what we or somebody else ended says nothing. After the rest the node takes work again; its next
failure excludes it anew. If all nodes that could take work are excluded, none is kept away: bad nodes are better than
none. The costs of a report do not depend on how many nodes or jobs there are.

An attempt that its runner does not start is told again, then given up and placed elsewhere: one that the runner does
not list after three heartbeat intervals, one that it lists and has not started after three heartbeat timeouts. Neither
waits for the runner's word, and neither can start later: whatever we sent has arrived, or a lease has passed within
which it had to start (docs/decisions/0024). The node gets no new work until its runner has confirmed the end, so that
nothing it holds is given out twice even if it is wrong.
"""

from __future__ import annotations

from phalanx.core.cluster.decide.endings import Endings, fault_of
from phalanx.core.cluster.decide.gangs import ready
from phalanx.core.cluster.decision import Decision, Disposed, Effect, Send, start_order
from phalanx.core.cluster.events import (
    AttemptStarted,
    AttemptSuspected,
    Event,
    NodeCleared,
    NodeQuarantined,
)
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.inputs import Heartbeat, Tell
from phalanx.core.cluster.nodes import USERS_MIN, NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.orders import (
    Disposition,
    Ended,
    Exit,
    Phase,
    Ready,
    Report,
    Returned,
    Started,
    Stop,
    Why,
)

STAMP_S = (
    1.0  # an exclusion is prolonged in steps of no less, so that a storm of failures does not fill the log
)
TEXT_MAX = 200  # characters of what a node did wrong


def tell(state: ClusterState, given: Tell, now: float) -> Decision:
    """Judge one report."""
    key = given.report.key
    node = state.nodes.get(given.node)
    if given.epoch != state.epoch:
        return _disposed(state, node, given.report, Disposition.STALE_EPOCH)
    if node is None or not node.holds_lease(given.incarnation, given.generation):
        return _disposed(state, node, given.report, Disposition.STALE_LEASE)
    if key in node.leftovers:
        return _leftover(state, node, given, now)
    attempt = state.attempt(key)
    if attempt is None or attempt.node != given.node:
        return _disposed(state, node, given.report, _not_alive(state, node, given.report))
    events = _about(state, attempt, given.report, now, f"report {given.node}")
    judged = Disposition.ACCEPTED if events else Disposition.DUPLICATE
    return _disposed(state, node, given.report, judged, events)


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
    return [*endings.events, *_of_its_node(state, attempt, exit, now, cause)]


def _of_its_node(
    state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str
) -> list[NodeExcluded | NodeRecovered]:
    """Whether its node is excluded after this end, or not any longer."""
    node, rules, fault = state.nodes[attempt.node], state.rules, fault_of(attempt, exit)
    if fault is None:
        return []
    if not fault:
        is_excluded = node.excluded_until is not None
        return [NodeRecovered(at=now, cause=cause, node=node.name)] if is_excluded else []
    failures, until = node.failures + 1, now + rules.breaker_pause_s
    if not rules.breaker_failures or not (exit.of_node or _is_to_blame(state, node, attempt, failures)):
        return []
    if node.excluded_until is not None and until - node.excluded_until < STAMP_S:
        return []
    text = exit.message[:TEXT_MAX] if exit.of_node else ""
    return [NodeExcluded(at=now, cause=cause, node=node.name, failures=failures, until=until, text=text)]


def _is_to_blame(state: ClusterState, node: NodeState, attempt: Attempt, failures: int) -> bool:
    """Whether so many failed here in a row, of so many users, that it is not one of them who did it."""
    enough = failures >= state.rules.breaker_failures
    return enough and len(node.failed_users_with(state.jobs[attempt.key[0]].job)) >= USERS_MIN


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


class UnconfirmedStarts:
    """What one heartbeat says about attempts that have not started, or that are not listed any more."""

    def __init__(self, state: ClusterState, node: NodeState, given: Heartbeat, now: float) -> None:
        self.gone = Endings(state, now, "heartbeat")
        self.effects: list[Effect] = []
        self._state = state
        self._node = node
        self._given = given
        self._now = now

    def unlisted(self, attempt: Attempt) -> None:
        """We believe it is there; the runner does not say so."""
        if attempt.started_at is not None:
            self._suspect(attempt, Why.LOST)
            return
        rules, age = self._state.rules, self._now - attempt.since
        if age <= 2 * rules.heartbeat_s:
            if age > rules.heartbeat_s:  # the order may have been lost on the way: tell it again
                self.effects += start_order(self._state, attempt)
        elif age > 3 * rules.heartbeat_s:
            if self._given.seen_at - attempt.since > 2 * rules.heartbeat_s:
                self._give_up(attempt)  # all that we sent has arrived, and yet the runner does not know it
            else:
                self._suspect(attempt, Why.UNCONFIRMED)

    def unstarted(self, attempt: Attempt, phase: Phase) -> None:
        """The runner has it and has not started it, though nothing keeps it from doing so."""
        if self._now - attempt.since <= self._state.rules.stuck_after_s:
            return
        if phase == Phase.READY and not self._may_go(attempt):
            return
        if self._given.starts_expire:
            self._give_up(attempt)
        else:  # it might yet start: the runner's answer ends it
            self.effects.append(Send(self._node.name, Stop(attempt.key, Why.UNCONFIRMED, 0.0)))

    def _may_go(self, attempt: Attempt) -> bool:
        job = self._state.jobs[attempt.key[0]]
        return attempt.released and job.groups[attempt.group].may_begin

    def _give_up(self, attempt: Attempt) -> None:
        node = self._node.name
        self.gone.add(attempt, _exit(node, Why.UNCONFIRMED))
        self.gone.events.append(NodeQuarantined(at=self._now, cause="heartbeat", node=node, key=attempt.key))
        self.effects.append(Send(node, Stop(attempt.key, Why.UNCONFIRMED, 0.0)))

    def _suspect(self, attempt: Attempt, why: Why) -> None:
        """Asked several times; told as often never to start it, over an ordered connection, it cannot later."""
        if attempt.suspicions + 1 < self._state.rules.suspicions_max:
            self.gone.events.append(AttemptSuspected(at=self._now, cause="heartbeat", key=attempt.key))
        else:
            self.gone.add(attempt, _exit(self._node.name, why))
        self.effects.append(Send(self._node.name, Stop(attempt.key, why, 0.0)))


def _exit(node: str, why: Why) -> Exit:
    if why == Why.LOST:
        return Exit(Why.LOST, -1, message=f"lost on {node}: its runner no longer knows it")
    message = f"Task assignment failed. Runner {node} did not confirm start after multiple checks."
    return Exit(Why.UNCONFIRMED, -1, message=message)
