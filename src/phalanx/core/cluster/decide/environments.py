"""Which environments are kept with a job that is accepted, and why a job with one may be refused."""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Decision, refuse
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.inputs import Submit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.reason import Tier


def without_environment(state: ClusterState, given: Submit) -> Decision | None:
    """The refusal of a job whose environment nobody has, or is too much; None if there is nothing against it."""
    no = state.environments.why_not(given.job, given.environments)
    return None if no is None else refuse(no, "too_many" if no.tier == Tier.POLICY else "never")


def environments_kept(state: ClusterState, given: Submit, now: float) -> list[e.Event]:
    """The environments that a job is the first in memory to name: they come before it."""
    return [
        EnvironmentKept(at=now, digest=digest, user=given.job.user, sealed=given.environments[digest])
        for digest in state.environments.missing(given.job)
    ]
