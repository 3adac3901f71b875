"""What an event does: the only place that changes the state. It makes no choices.

Replaying the log through `apply` gives the state back. An event that names something unknown (because the
record before it was damaged) is counted and passed over, never fatal. What each event does is told in the file of its
noun: `jobs`, `gangs`, `nodes`, `declared`; which places are held changes in `grants` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from phalanx.core.cluster import events as e
from phalanx.core.cluster.apply import declared, gangs, jobs, nodes
from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.effects import Effect
from phalanx.core.cluster.state import ClusterState, Unfit


def apply(state: ClusterState, event: e.Event) -> list[Effect]:
    """Change the state, and say what the shell has to do once the event is durable."""
    kind = type(event)
    if kind not in e.VOLATILE:
        state.revision += 1
    try:
        return CHANGES[kind](state, event) or []
    except Unfit:
        state.skipped += 1
        for job in filter(None, map(state.jobs.get, event.jobs)):
            queue_up(state, job)  # a part of the event may have been done
    return []


def apply_batch(state: ClusterState, events: Iterable[e.Event], revision: int) -> list[Effect]:
    """All events of one record of the log. Its number counts: an empty one may leave numbers out."""
    effects = [effect for event in events for effect in apply(state, event)]
    state.revision = revision
    return effects


def _term_opened(state: ClusterState, event: e.TermOpened) -> None:
    state.epoch = event.epoch
    nodes.begin_term(state, event.at)


def _of_the_log(state: ClusterState, event: e.LogSettled | e.LogRepaired) -> None:
    """Nothing of the cluster has changed."""


CHANGES: dict[type, Callable[[ClusterState, Any], list[Effect] | None]] = {
    e.NodeHeard: nodes.heard,
    e.TaskPlaced: jobs.placed,
    e.AttemptStarted: jobs.started,
    e.AttemptEnded: jobs.ended,
    e.AttemptSuspected: jobs.suspected,
    e.BackoffsEnded: jobs.backoffs_ended,
    e.JobSubmitted: jobs.submitted,
    e.JobAmended: jobs.amended,
    e.JobForgotten: jobs.forgotten,
    e.TasksCancelled: jobs.cancelled,
    e.TaskPaused: jobs.paused,
    e.TaskResumed: jobs.paused,
    e.AttemptReady: gangs.ready,
    e.GangReleased: gangs.released,
    e.GangRecalled: gangs.recalled,
    e.RoomPromised: gangs.promised,
    e.PromiseWithdrawn: gangs.withdrawn,
    e.TasksEvicted: gangs.evicted,
    e.JobReleased: gangs.let_go,
    e.JobRestarted: gangs.restarted,
    e.JobSettled: gangs.settled,
    e.NodeJoined: nodes.joined,
    e.NodeConnected: nodes.connected,
    e.NodeDisconnected: nodes.disconnected,
    e.NodeLost: nodes.lost,
    e.NodeCleared: nodes.cleared,
    e.NodeQuarantined: nodes.quarantined,
    e.NodeHealthChanged: nodes.health_changed,
    e.NodeLeaving: nodes.leaving,
    e.NodeDrained: nodes.drained,
    e.NodeResumed: nodes.resumed,
    e.NodeRested: nodes.rested,
    e.NodeRecovered: nodes.recovered,
    e.NodeRemoved: nodes.removed,
    e.BrakeSet: nodes.brake_set,
    e.BrakeReleased: nodes.brake_released,
    e.TopologySet: declared.topology_set,
    e.QuotaSet: declared.quota_set,
    e.CredentialCreated: declared.credential_created,
    e.CredentialEnds: declared.credential_ends,
    e.CredentialUsed: declared.credential_used,
    e.CredentialForgotten: declared.credential_forgotten,
    e.JoinRedeemed: declared.join_redeemed,
    e.SecretKnown: declared.secret_known,
    e.TermOpened: _term_opened,
    e.LogSettled: _of_the_log,
    e.LogRepaired: _of_the_log,
}
