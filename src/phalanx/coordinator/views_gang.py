"""What users see of tasks that act as one: the gang's phase, its barrier, its promise, conditions and ranks."""

from __future__ import annotations

from phalanx.api.schema.jobs import ConditionView, FormationView, GangView, PhaseWord, PromiseView
from phalanx.api.schema.jobspec import GatherSpec
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Formation, GangState, GroupState, Promise
from phalanx.core.explain.gates import nominated, task_names
from phalanx.core.model.status import Status

PREEMPTED = "PreemptionByScheduler"
EVICTED = "EvictionByEvictionAPI"  # as Kubernetes calls an eviction that a user asked for


def gang_view(state: ClusterState, job: JobState) -> GangView | None:
    """How far a gang has come; None for a job that is none."""
    if job.gang is None:
        return None
    gang = job.gang.gang
    draft = job.job.draft if job.job.draft is not None and job.job.draft.needed else None
    return GangView(
        phase=phase(job, job.gang),
        placed=job.gang.staying().total(),
        needed=sum(group.needed for group in job.job.groups) if draft is None else draft.needed,
        strict=gang.strict,
        match=gang.match,
        wait_s=gang.wait_s,
        gather=[GatherSpec(each.layer, each.must, each.multiple) for each in gang.gather],
        id=gang.id,
        formations=job.formations,
        formation=None if job.forming is None else _formation_view(job.forming, gang.wait_s),
        promise=None if job.promise is None else _promise_view(state, job.promise),
        members=None if draft is None else draft.members,
    )


def has_no_members(job: JobState) -> bool:
    """Whether none of a gang's members have come, so that its only group runs nothing."""
    draft = job.job.draft
    return draft is not None and draft.needed > 0 and draft.members == 0


def phase(job: JobState, gang: GangState) -> PhaseWord:
    """Where a gang stands, in the words of a PodGroup; asked of every group, and all have to be as far.

    Koordinator calls a gang Finished once its minimum has ended well; here it is when nobody of it waits or runs.
    """
    if job.job.draft is not None and not job.is_over:
        return "Pending"
    tally = [_Tally(job, group) for group in job.groups]
    if job.is_over and (job.outcome == Status.COMPLETED or all(each.well >= each.needed for each in tally)):
        return "Finished"
    if job.is_over or (
        any(each.failed for each in tally)
        and all(each.well + each.running + each.failed >= each.needed for each in tally)
    ):
        return "Failed"
    if all(each.well + each.running >= each.needed for each in tally):
        return "Running"
    held = gang.staying()
    if all(each.well + held[number] >= each.needed for number, each in enumerate(tally)):
        return "Scheduled"
    if held.total() or job.promise is not None:
        return "Scheduling"
    return "PreScheduling" if gang.has_ready else "Pending"


def conditions(job: JobState, position: int) -> list[ConditionView]:
    """That a task was asked to leave its place: by whom and for whom. It is no longer true of a later attempt."""
    found = job.conditions.get(position)
    if found is None:
        return []
    reason = PREEMPTED if found.preempted else EVICTED
    if found.past_at is None:
        return [ConditionView("DisruptionTarget", "True", reason, found.message, found.at)]
    return [ConditionView("DisruptionTarget", "False", reason, found.message, found.past_at)]


def ranks(job: JobState) -> dict[int, int]:
    """The place of each member among those that stand together, by their index in the network.

    Before a gang is placed only the ranks of one that cannot start with fewer are known.
    """
    if job.gang is None:
        return {}
    if not job.live and any(group.needed < group.tasks for group in job.job.groups):
        return {}
    members = job.live or range(job.job.tasks)
    ordered = sorted((_index(job.group_of(position), position), position) for position in members)
    return {position: rank for rank, (_, position) in enumerate(ordered)}


def _formation_view(forming: Formation, wait_s: float) -> FormationView:
    until = forming.formed_at + wait_s
    return FormationView(forming.number, forming.formed_at, until, len(forming.positions), len(forming.ready))


def _promise_view(state: ClusterState, promise: Promise) -> PromiseView:
    victims = task_names(state, promise.victims)
    return PromiseView(promise.made_at, promise.until, victims, nominated(promise))


def _index(group: GroupState, position: int) -> int:
    indexes = group.group.indexes
    return indexes[position - group.first] if indexes else position


class _Tally:
    """The tasks of one group by how they fare."""

    def __init__(self, job: JobState, group: GroupState) -> None:
        status = job.status[group.first : group.last]
        done = job.done_in(group)
        self.needed = group.group.needed
        self.well = status.count(Status.COMPLETED) + done
        self.running = status.count(Status.RUNNING) - done
        self.failed = status.count(Status.FAILED)
