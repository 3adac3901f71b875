"""Choices about attempts that their runner does not start: told again, then given up and placed elsewhere.

One that the runner does not list is given up after three heartbeat intervals, one that it lists and has not started
after three heartbeat timeouts. Neither waits for the runner's word, and neither can start later: whatever we sent has
arrived, or a lease has passed within which it had to start (docs/decisions/0024). The node gets no new work until its
runner has confirmed the end, so that nothing it holds is given out twice even if it is wrong.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.effects import Effect, Send
from phalanx.core.cluster.events import AttemptSuspected, NodeQuarantined
from phalanx.core.cluster.inputs import Heartbeat
from phalanx.core.cluster.start_orders import start_order
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import Exit, Phase, Stop
from phalanx.core.model.status import Why


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
