"""Which environments are kept with a submission that is accepted, and why one that names any may be refused."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Decision, refuse
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.reason import Tier


def without_environment(
    state: ClusterState, user: str, named: Collection[str], given: dict[str, bytes]
) -> Decision | None:
    """The refusal of a submission whose environment nobody has, or is too much; None if there is nothing against it."""
    no = state.environments.why_not(user, named, given)
    return None if no is None else refuse(no, "too_many" if no.tier == Tier.POLICY else "never")


def environments_kept(
    state: ClusterState, user: str, named: Collection[str], given: dict[str, bytes], now: float
) -> list[e.Event]:
    """The environments that a submission is the first in memory to name: they come before it."""
    return [
        EnvironmentKept(at=now, digest=digest, user=user, sealed=given[digest])
        for digest in state.environments.missing(named)
    ]
