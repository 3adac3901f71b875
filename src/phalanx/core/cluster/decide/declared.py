"""Choices about what an operator declares: the layers of the network, and what queues may hold."""

from __future__ import annotations

from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.events import QuotaSet, TopologySet
from phalanx.core.cluster.inputs import SetQuota, SetTopology
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.queue import QUEUES_MAX
from phalanx.core.model.reason import Reason, Tier


def set_topology(state: ClusterState, given: SetTopology, now: float) -> Decision:
    """Other layers from now on; what runs stays where it is."""
    if given.topology == state.table.topology:
        return Decision([], [], Accepted(0))
    return Decision(
        [TopologySet(at=now, cause=f"user {given.user}", topology=given.topology)], [], Accepted()
    )


def set_quota(state: ClusterState, given: SetQuota, now: float) -> Decision:
    """Other limits for a queue. What it holds beyond them it keeps; it gets nothing more."""
    known = state.queues.quotas
    if given.quota is not None and given.queue not in known and len(known) >= QUEUES_MAX:
        text = f"{len(known)} queues are declared, at most {QUEUES_MAX} may"
        return Decision([], [], Refused(Reason("TooManyQueues", Tier.NEVER, text), "too_many"))
    if given.quota is None and given.queue not in known:
        text = (
            "nothing was set for this queue" if given.queue == "default" else "nobody has declared this queue"
        )
        return Decision([], [], Refused(Reason("QueueNotFound", Tier.NEVER, text), "not_found"))
    event = QuotaSet(at=now, cause=f"user {given.user}", queue=given.queue, quota=given.quota)
    return Decision([event], [], Accepted())
