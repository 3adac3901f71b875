"""The outcome of a pass as REST schema: placements, evictions, reasons, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.api.schema.apply import PlannedEviction, PlannedPlacement, PlanReason, PlanReply
from phalanx.api.schema.jobs import Fix, NodeReasons, ReasonView
from phalanx.core.cluster.apply.gangs import eviction_text
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.nodes import Change
from phalanx.core.model.plan import Placement
from phalanx.core.model.reason import Reason
from phalanx.preview.names import Names
from phalanx.preview.share import Doubt, Share


def plan_reply(state: ClusterState, shares: list[Share], names: Names) -> PlanReply:
    """Everything about all jobs; the exit code is the worst of theirs."""
    said = _Telling(state, names)
    worst = max((share.exit for share in shares), default=0)
    return PlanReply(
        placements=[view for share in shares for view in said.placements(share)],
        evictions=[view for share in shares for view in said.evictions(share)],
        reasons=[said.reason(share, doubt) for share in shares for doubt in share.doubts],
        exit=worst,  # type: ignore[arg-type]  # it is one of the three
    )


class _Telling:
    """Renders what became of jobs, with their names."""

    def __init__(self, state: ClusterState, names: Names) -> None:
        self._state = state
        self._names = names
        names.live = state.jobs

    def placements(self, share: Share) -> Iterator[PlannedPlacement]:
        promise = share.job.promise
        for each in share.placements:
            yield self._placement(share, each, share.waits)
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
        why = self._names.plain(eviction_text(share.job, share.gang_placement.trigger))
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
                )

    def reason(self, share: Share, doubt: Doubt) -> PlanReason:
        no, fix = doubt.reason, doubt.fix
        return PlanReason(
            job=self._names.job(share.job.job),
            code=no.code,
            tier=no.tier.word,
            text=self._names.plain(no.text),
            numbers=self._names.plain_values(no.numbers),
            dominant=doubt is share.doubts[0],
            waits=doubt.waits,
            tasks=doubt.tasks,
            domains=doubt.domains,
            nodes=doubt.nodes,
            fix=None if fix is None else self._fix(fix),
            expected_at=doubt.expected_at,
        )

    def _fix(self, fix: Change) -> Fix:
        return Fix(self._names.plain(fix.text), fix.fields, self._names.plain(fix.command))


def reason_view(no: Reason) -> ReasonView:
    return ReasonView(no.code, no.tier.word, no.text, no.numbers)


def node_reasons(groups: list[tuple[Reason, list[str]]], shown: int) -> list[NodeReasons]:
    """The reasons of the nodes, grouped by equal reasons."""
    return [NodeReasons(len(names), reason_view(no), names[:shown]) for no, names in groups]
