"""Nodes that rest: where the node itself failed, or tasks of several users did, no new work goes for a while.

What a node did wrong itself (it could not make a process, write a log, enter a cgroup) sends it to rest at once. Other
failures that a runner reports count against it only together: so many in a row, and from jobs of two users, or of
three jobs where only one user has work at all; one user's broken program says nothing of a node (decision 33). A
success clears the count, and what we or somebody else ended says nothing. After the rest the node takes work again;
its next failure sends it to rest anew. If everyone who could take work rests, nobody is kept away: bad nodes are
better than none. That a rest has taken its time is noticed with a Tick. The costs of a report do not depend on how many
nodes or jobs there are.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.events import AttemptEnded, Event, NodeRecovered, NodeRested
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.ids import JobId
from phalanx.core.model.orders import Exit
from phalanx.core.model.status import UNCHARGED, Why

STAMP_S = 1.0  # a rest is prolonged in steps of no less, so that a storm of failures does not fill the log
USERS_MIN, JOBS_MIN = (
    2,
    3,
)  # of how many failures must come to be the node's; jobs where only one user has work
TEXT_MAX = 200


def fault_of(attempt: Attempt, exit: Exit) -> bool | None:
    """What an end says of its node: it failed there, it did well, or nothing."""
    if attempt.ending is not None or exit.why in UNCHARGED or exit.why == Why.CANCELLED:
        return True if exit.of_node and attempt.ending is None else None
    return exit.why != Why.NONE or exit.code != 0


def after_report(
    state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str
) -> list[NodeRested | NodeRecovered]:
    """Whether its node has to rest after this end, or need not rest any longer."""
    node, rules, fault = state.nodes[attempt.node], state.rules, fault_of(attempt, exit)
    if fault is None:
        return []
    if not fault:
        rests = node.rests_until is not None
        return [NodeRecovered(at=now, cause=cause, node=node.name)] if rests else []
    failures, until = node.failures + 1, now + rules.breaker_pause_s
    if not rules.breaker_failures or not (exit.of_node or _is_to_blame(state, node, attempt, failures)):
        return []
    if node.rests_until is not None and until - node.rests_until < STAMP_S:
        return []
    text = exit.message[:TEXT_MAX] if exit.of_node else ""
    return [NodeRested(at=now, cause=cause, node=node.name, failures=failures, until=until, text=text)]


def _is_to_blame(state: ClusterState, node: NodeState, attempt: Attempt, failures: int) -> bool:
    """Whether so many failed here in a row, of so many people, that it is not one of them who did it."""
    if failures < state.rules.breaker_failures:
        return False
    users, jobs = _with(state, node, attempt.key[0])
    return len(users) >= USERS_MIN or (len(jobs) >= JOBS_MIN and len(state.working) <= 1)


def rested(state: ClusterState, now: float) -> list[Event]:
    """Rests that have taken their time."""
    found: list[Event] = []
    for name in state.resting:
        until = state.nodes[name].rests_until
        if until is not None and until <= now:
            found.append(NodeRecovered(at=now, cause="rest over", node=name))
    return found


def count_fault(state: ClusterState, node: NodeState, event: AttemptEnded) -> None:
    """An attempt has ended there."""
    if event.fault:
        node.failures += 1
        node.failed_users, node.failed_jobs = _with(state, node, event.key[0])
    elif event.fault is not None:
        forgive(node)


def forgive(node: NodeState) -> None:
    """What failed there before says nothing any more."""
    node.failures, node.failed_users, node.failed_jobs = 0, (), ()


def _with(state: ClusterState, node: NodeState, job: JobId) -> tuple[tuple[str, ...], tuple[JobId, ...]]:
    """Whose jobs failed in a row with this one, as far as it matters."""
    users, jobs, user = node.failed_users, node.failed_jobs, state.jobs[job].job.user
    if user not in users and len(users) < USERS_MIN:
        users = (*users, user)
    if job not in jobs and len(jobs) < JOBS_MIN:
        jobs = (*jobs, job)
    return users, jobs


def set_rest(state: ClusterState, node: NodeState, until: float | None) -> None:
    """The node rests from now on, or no longer."""
    node.rests_until = until
    if until is None:
        state.resting.pop(node.name, None)
    else:
        state.resting[node.name] = None
    reopen(state, node)


def reopen(state: ClusterState, node: NodeState) -> None:
    """Say in the table whether a node takes work; if it now does, room may have appeared."""
    could, rests = node.could_work, node.rests_until is not None
    former, node.counted = node.counted, (could, could and rests)
    state.could_work += node.counted[0] - former[0]
    state.could_rest += node.counted[1] - former[1]
    nobody_else = state.could_rest == state.could_work
    touched = [node]
    if nobody_else != state.nobody_else:
        state.nobody_else = nobody_else
        touched += [state.nodes[name] for name in state.resting if name != node.name]
    for each in touched:
        each.is_kept_away = each.rests_until is not None and not nobody_else
        state.table.set_open(each.name, each.takes_work)
        state.gain += each.takes_work
