"""What would happen to jobs, as REST schema: a rehearsal of the next pass, of which nothing is carried out."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.api.schema.apply import PlanReply
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.rehearsal import Share, rehearse
from phalanx.core.explain.shortage import why_never
from phalanx.core.explain.trial import EVERYTHING
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.preview.names import Names
from phalanx.preview.reply import plan_reply
from phalanx.preview.submission import Submitter, as_submitted

_UNNAMED = Names()
_ANYBODY = Submitter()


def preview(
    state: ClusterState,
    jobs: Sequence[Job],
    policy: Policy,
    snapshot: Snapshot,
    *,
    known: Sequence[JobId] = (),
    names: Names = _UNNAMED,
    by: Submitter = _ANYBODY,
    most: int = EVERYTHING,
) -> PlanReply:
    """What the scheduler would do with the jobs `known` by id and with these jobs, submitted now in this order."""
    arrivals = enumerate(jobs, state.arrivals + 1)
    new = [as_submitted(state, job, arrival, snapshot.now, by) for arrival, job in arrivals]
    asked = [*(Share(state.jobs[id]) for id in known), *(Share(each, why_never(state, each)) for each in new)]
    rehearse(state, asked, policy, snapshot, by.asker, most)
    return plan_reply(state, asked, names)
