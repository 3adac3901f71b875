"""The event of an environment that jobs are submitted with."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import ClusterEvent


class EnvironmentKept(ClusterEvent, frozen=True):
    """A job that follows in the same decision names an environment that no job in memory did. Only a shell opens it."""

    digest: str
    user: str
    sealed: bytes
