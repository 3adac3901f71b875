"""`phalanx why`: what is found about one job or task, in the words of REST."""

from __future__ import annotations

from phalanx.api.schema.jobs import Fix, WhyReply
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.explain import explain, place_in_queue
from phalanx.core.explain.trial import QUESTION_MAX
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import PlanMemory, Policy
from phalanx.preview.reply import domain_slots, node_reasons, reason_view


def why_reply(
    state: ClusterState,
    job: JobState,
    position: int | None,
    now: float,
    policy: Policy | None = None,
    memory: PlanMemory | None = None,
    asker: Asker = ADMIN,
) -> WhyReply:
    """One dominant reason, all others, what the nodes say, and the nearest fix."""
    found = explain(
        state, job, position, policy or Policy(), state.snapshot(now, memory), asker, QUESTION_MAX
    )
    status, waiting = found.status, found.status is Status.PENDING
    return WhyReply(
        id=job.job.id if position is None and job.gang is not None else job.job.task_id(found.position),
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        dominant=reason_view(found.dominant),
        others=[reason_view(no) for no in found.reasons[1:]],
        nodes=node_reasons(found.nodes),
        fix=None if found.fix is None else Fix(found.fix.text, found.fix.fields, found.fix.command),
        position=place_in_queue(state, job, found.position) if waiting else None,
        waiting=state.counts[Status.PENDING],
        at=now,
        epoch=state.epoch,
        needed=found.needed,
        domains=domain_slots(found.domains),
        object=job.job.object_name if position is None else job.job.object_at(found.position),
    )
