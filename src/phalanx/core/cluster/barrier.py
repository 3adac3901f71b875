"""The gang barrier: no member's command runs before every member of its formation is ready.

A runner that holds a member at the barrier says so; with the last of them the formation is released, and only then
is anybody told to go. While the node of a member is away nobody is released: it could not be told to go, and the others
would start without it. A formation that is not whole in time is recalled: its members give back their places, and none
of them has run.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.decide.endings import recalled
from phalanx.core.cluster.effects import Effect, Send
from phalanx.core.cluster.events import AttemptReady, Event, GangReleased
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Go


def ready(state: ClusterState, attempts: list[Attempt], now: float, cause: str) -> list[Event]:
    """Members are held at the barrier. If they were the last ones missing, their gang may go.

    Several may be told of in one message, so they are judged together: each alone would seem to miss the others.
    """
    events: list[Event] = []
    for id in dict.fromkeys(attempt.key[0] for attempt in attempts):
        job = state.jobs[id]
        members = [
            each for each in attempts if each.key[0] == id and not each.released and each.ending is None
        ]
        if job.forming is None or job.gang is None or not members:
            continue
        fresh = [each for each in members if not each.ready]
        events += [AttemptReady(at=now, cause=cause, key=each.key) for each in fresh]
        missing = not_ready(state, job) - {each.key[1] for each in fresh if state.nodes[each.node].connected}
        if not missing and job.gang.is_whole:
            number = job.forming.number
            events.append(GangReleased(at=now, cause=cause, job=id, formation=number))
    return events


def not_ready(state: ClusterState, job: JobState) -> set[int]:
    """The members that a formation still waits for: their runners have not said that they are ready, or are away."""
    if job.forming is None:
        return set()
    ready = job.forming.ready
    return {
        position
        for position in job.forming.positions
        if position not in ready or not state.nodes[job.live[position].node].connected
    }


def late(state: ClusterState, now: float) -> list[Event]:
    """Formations whose members have waited for each other too long."""
    events: list[Event] = []
    for id in state.forming:
        job = state.jobs[id]
        gang, forming = job.job.gang, job.forming
        if gang is not None and forming is not None and now - forming.formed_at > gang.wait_s:
            missing = len(not_ready(state, job))
            text = f"not whole after {gang.wait_s:.0f} s: {missing} of {len(forming.positions)} members were not ready"
            if not missing:
                text = f"not whole after {gang.wait_s:.0f} s: members are still without a place"
            events.append(recalled(state, job, now, "gang timeout", text))
    return events


def go_orders(job: JobState) -> list[Effect]:
    """Tell every released member that has not started to go, in the order its groups begin."""
    return [
        Send(attempt.node, Go(attempt.key))
        for attempt in job.live.values()
        if attempt.formation and attempt.released and attempt.started_at is None and attempt.ending is None
        and job.groups[attempt.group].may_begin
    ]  # fmt: skip
