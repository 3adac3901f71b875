"""The outcome of a pass as REST schema: placements, evictions, reasons, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.api.schema.apply import (
    MUST_WAIT,
    NEVER,
    NOW,
    PlannedEviction,
    PlannedPlacement,
    PlanReason,
    PlanReply,
)
from phalanx.api.schema.jobs import DomainSlots, Fix, NodeReasons, ReasonView
from phalanx.core.cluster.apply.gangs import eviction_text
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.change import Change
from phalanx.core.explain.finding import DomainRoom, Finding
from phalanx.core.explain.rehearsal import Share
from phalanx.core.model.plan import Placement
from phalanx.core.model.reason import Reason, Tier
from phalanx.preview.names import Names

NAMES_SHOWN = 5  # of the nodes with one reason


def plan_reply(state: ClusterState, shares: list[Share], names: Names) -> PlanReply:
    """Everything about all jobs; the exit code is the worst of theirs."""
    renderer = _PlanRenderer(state, names)
    worst = max(map(_exit, shares), default=0)
    return PlanReply(
        placements=[view for share in shares for view in renderer.placements(share)],
        evictions=[view for share in shares for view in renderer.evictions(share)],
        reasons=[view for share in shares for view in renderer.reasons(share)],
        exit=worst,  # type: ignore[arg-type]  # it is one of the three
    )


class _PlanRenderer:
    """Renders what became of jobs, with their names."""

    def __init__(self, state: ClusterState, names: Names) -> None:
        self._state = state
        self._names = names
        names.live = state.jobs

    def placements(self, share: Share) -> Iterator[PlannedPlacement]:
        promise = share.job.promise
        for each in share.placements:
            yield self._placement(share, each, share.waits_for_victims)
        for position, (node, grant) in promise.members.items() if promise is not None else ():
            yield self._placement(share, Placement(share.job.job.id, position, node, grant), True)

    def _placement(self, share: Share, placed: Placement, nominated: bool) -> PlannedPlacement:
        job, tree = share.job.job, self._state.table.tree
        number, first = job.group_at(placed.position)
        group = job.groups[number]
        row = self._state.table.rows[placed.node]
        return PlannedPlacement(
            task=self._names.task(job, placed.position),
            node=placed.node,
            devices=list(placed.grant.devices),
            job=self._names.job(job),
            group=group.name,
            index=group.indexes[placed.position - first] if group.indexes else placed.position,
            domain=list(tree.path(tree.node_level, row)[:-1]),
            cores=placed.grant.cores,
            memory_bytes=placed.grant.memory_bytes,
            nominated=nominated,
        )

    def evictions(self, share: Share) -> Iterator[PlannedEviction]:
        """The holders of lanes that have to be vacated, and the attempts queued in them."""
        if share.gang_placement is None:
            return
        why = self._names.plain(self._told(share.job, share.gang_placement.trigger))
        for node, lane_id in share.victims:
            lane = self._state.nodes[node].lanes[lane_id]
            for id, position, _ in lane.attempts:
                victim = self._state.jobs[id].job
                yield PlannedEviction(
                    task=self._names.task(victim, position),
                    node=node,
                    job=self._names.job(victim),
                    devices=list(lane.grant.devices),
                    priority=victim.priority,
                    preemptor=self._names.job(share.job.job),
                    why=why,
                    name=victim.name,
                    id=victim.task_id(position),
                )

    def _told(self, job: JobState, trigger: int) -> str:
        """What victims read. A job that is only planned has no number."""
        return eviction_text(job, trigger, job.arrival if job.job.id in self._state.jobs else 0)

    def reasons(self, share: Share) -> Iterator[PlanReason]:
        """The findings of each unit; the evidence is with the dominant reason."""
        for finding in share.findings:
            for number, no in enumerate(finding.reasons):
                dominant = finding is share.findings[0] and not number
                yield self._reason(share, finding, no, evidence=not number, dominant=dominant)

    def _reason(
        self, share: Share, found: Finding, no: Reason, *, evidence: bool, dominant: bool
    ) -> PlanReason:
        return PlanReason(
            job=self._names.job(share.job.job),
            code=no.code,
            tier=no.tier.word,
            text=self._names.plain(no.text),
            numbers=self._names.plain_values(no.numbers),
            dominant=dominant,
            waits=found.waits,
            tasks=found.tasks,
            domains=domain_slots(found.domains) if evidence else [],
            nodes=node_reasons(found.nodes) if evidence else [],
            fix=self._fix(found.fix) if evidence and found.fix is not None else None,
            expected_at=found.expected_at if evidence else None,
        )

    def _fix(self, fix: Change) -> Fix:
        return Fix(self._names.plain(fix.text), fix.fields, self._names.plain(fix.command))


def reason_view(no: Reason) -> ReasonView:
    return ReasonView(no.code, no.tier.word, no.text, no.numbers)


def node_reasons(groups: list[tuple[Reason, list[str]]]) -> list[NodeReasons]:
    """The reasons of the nodes, grouped by equal reasons."""
    return [NodeReasons(len(names), reason_view(no), names[:NAMES_SHOWN]) for no, names in groups]


def domain_slots(rooms: list[DomainRoom]) -> list[DomainSlots]:
    return [DomainSlots(each.layer, each.path, each.slots, each.nodes) for each in rooms]


def _exit(share: Share) -> int:
    """0 now, 3 must wait, 4 never.

    With evictions it is still now: the scheduler acts at once, and no other action is needed.
    """
    first = next((found.dominant for found in share.findings if found.waits), None)
    if first is None:
        return NOW
    return NEVER if first.tier is Tier.NEVER else MUST_WAIT
