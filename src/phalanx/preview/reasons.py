"""Why a job does not get all of its places now: the reasons of the code that decides, asked where the job stood.

Everything is asked of a draft in which those who go first have their places already, and the draft is left as it was.
What to do about it is `fixes.py`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from phalanx.api.schema.jobs import DomainSlots
from phalanx.core.cluster.decide import jobs as decide_jobs
from phalanx.core.cluster.gangs import GangState, Promise
from phalanx.core.cluster.groups import GroupState
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain import fixes
from phalanx.core.explain import nodes as explain
from phalanx.core.explain.never import gang_never
from phalanx.core.explain.nodes import Change, Verdict
from phalanx.core.explain.reserved import held_back
from phalanx.core.model import reason
from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status
from phalanx.core.model.waiting import Rank
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang
from phalanx.core.placement.preempt.make_room import make_room
from phalanx.core.placement.reserve.reservation import reserve, run_s
from phalanx.preview.reply import node_reasons
from phalanx.preview.share import Doubt, Share

_Unit = GangState | GroupState


def why_never(state: ClusterState, job: JobState) -> Reason | None:
    """Why a job would be refused as soon as it is submitted."""
    no = decide_jobs.why_never(state, job.job)
    return no if no is not None or job.gang is None else gang_never(state.table, job.gang)


class Doubts:
    """Asks about one job after another, while those who go first take their places in the draft."""

    def __init__(self, state: ClusterState, snapshot: Snapshot, draft: Draft, policy: Policy) -> None:
        self._state, self._snapshot, self._draft, self._policy = state, snapshot, draft, policy
        self._closed = {
            name: no for name, node in state.nodes.items() if (no := decide_jobs.why_closed(node)) is not None
        }
        self._kept: dict[Rank, Reason] = {}
        self._runs_s: dict[JobId, float] = {}  # how long those run who have their places in the draft

    def note_kept(self, share: Share) -> None:
        """For whom room is kept that this job would take. Asked while the columns are those that the pass saw."""
        for unit in share.job.units:
            if (no := held_back(self._snapshot, unit, self._policy)) is not None:
                self._kept[unit.rank] = no

    def note_start(self, job: Job) -> None:
        """It has places in the draft from now on."""
        self._runs_s[job.id] = run_s(job)

    def about(self, share: Share) -> list[Doubt]:
        """Every reason why something of a job waits, the dominant one first; nothing if all of it starts now."""
        job = share.job
        if share.never is not None:
            return [self._never(share.never, job)]
        if job.promise is not None:
            return [
                Doubt(_awaits_victims(self._state, job.promise, self._snapshot.now), len(job.promise.members))
            ]
        found = self._of_groups(share) if job.gang is None else self._of_gang(share, job.gang)
        return sorted(found, key=lambda doubt: not doubt.waits)

    def _never(self, no: Reason, job: JobState) -> Doubt:
        request = _largest(job.job)
        if job.gang is None:
            fix = explain.nearest_change(self._state.table, request, self._closed, ever=True)
        else:
            fix = fixes.other_gang(job.job, self._state.table.topology, self._could_ever, "could run here")
        nodes = node_reasons(self._asked(request).groups, explain.NAMES_SHOWN)
        return Doubt(no, job.job.tasks, domains=_domains(no), nodes=nodes, fix=fix)

    def _of_gang(self, share: Share, unit: GangState) -> Iterator[Doubt]:
        wanted = unit.wanted()
        placed = Counter(share.job.group_of(each.position).number for each in share.placements)
        left = sum(each.most for each in wanted) - len(share.placements)
        if share.placements and all(placed[number] >= each.need for number, each in enumerate(wanted)):
            if left > 0:
                yield Doubt(_more_may_join(len(share.placements), left), left, waits=False)
        elif left > 0:
            lacking = _lacks_members(share.job, unit)
            yield from self._of_unit(unit, left) if lacking is None else [Doubt(lacking, left)]

    def _of_groups(self, share: Share) -> Iterator[Doubt]:
        placed = Counter(share.job.group_of(each.position).number for each in share.placements)
        for unit in share.job.groups:
            left = _ready(share.job, unit) - placed[unit.number]
            if left > 0:
                yield from self._of_unit(unit, left)
            elif not unit.may_begin:
                yield Doubt(_awaits_others(share.job, unit), unit.group.tasks, waits=False)

    def _of_unit(self, unit: _Unit, left: int) -> Iterator[Doubt]:
        """The reasons of a unit that found no room, or not enough."""
        request = unit.request if isinstance(unit, GroupState) else _largest(unit.job)
        said = self._asked(request)
        dominant, *others = reasons = self._reasons(unit, said)
        is_capped = any(
            no.code == "QuotaExhausted" for no in reasons
        )  # which time limits of nodes say nothing about
        yield Doubt(
            dominant,
            left,
            domains=_domains(dominant),
            nodes=node_reasons(said.groups, explain.NAMES_SHOWN),
            fix=self._fix(unit, dominant, request),
            expected_at=None if is_capped else self._expected(unit),
        )
        for no in others:
            yield Doubt(no, left)

    def _reasons(self, unit: _Unit, nodes: Verdict) -> list[Reason]:
        """What policy says comes first, then what the nodes say, then why nobody makes way."""
        said = [self._kept[unit.rank]] if unit.rank in self._kept else []
        said += self._of_nodes(unit, nodes)
        mark = self._draft.mark()
        evicting = make_room(self._draft, unit, self._policy)
        self._draft.rollback(mark)
        if isinstance(evicting, Reason):
            said.append(evicting)
        return list({(no.code, no.text): no for no in said}.values()) or [_behind()]

    def _of_nodes(self, unit: _Unit, nodes: Verdict) -> list[Reason]:
        if isinstance(unit, GangState):
            mark = self._draft.mark()
            found = place_gang(self._draft, unit)
            self._draft.rollback(mark)
            return [found] if isinstance(found, Reason) else []
        quota = self._state.queues.refuses(unit.job.queue, unit.request)
        said = [] if nodes.fits else [nodes.dominant, *nodes.others]
        return said if quota is None else [quota, *said]

    def _fix(self, unit: _Unit, no: Reason, request: Request) -> Change | None:
        if no.code == "ReservedForOther":
            seconds = int(no.numbers["seconds"])
            text = f"give it a time limit of at most {seconds} s, so that it delays nobody"
            return Change(text, {"time_limit": seconds}) if seconds > 0 else None
        change = None
        if isinstance(unit, GroupState):
            if no.tier is not Tier.POLICY:  # the nodes know nothing of quotas
                change = explain.nearest_change(self._state.table, request, self._closed, ever=False)
        elif not unit.owner.live:  # a smaller gang would be another one than that of which some run already
            change = fixes.other_gang(unit.job, self._state.table.topology, self._fits_now, "would start now")
        return change or fixes.other_cluster(self._state, self._draft, unit)

    def _fits_now(self, job: Job) -> bool:
        return fixes.fits(self._draft, fixes.whole_unit(job))

    def _could_ever(self, job: Job) -> bool:
        return why_never(self._state, JobState(job, 0, [0] * 6)) is None

    def _expected(self, unit: _Unit) -> float | None:
        """When it starts if nobody passes it; told only of the first in the queue, and if time limits say so alone."""
        seen = self._snapshot
        for kind in seen.waiting.classes.values():
            if kind.ranks[0] < unit.rank and seen.memory.of(kind).waits_for_room(seen.gain):
                return None
        found = reserve(self._draft, unit, self._policy, self._runs_s)
        return None if found is None or found.is_open_ended else found.at

    def _asked(self, request: Request) -> Verdict:
        """What every node says about one task, as the draft has it."""
        return explain.verdict(self._state.table, request, self._closed)


def _ready(job: JobState, unit: GroupState) -> int:
    """How many tasks of a group may be placed now; of a million they are not gone through one by one."""
    if unit.group.at_once or not unit.has_ready:
        return sum(1 for _ in unit.ready(unit.group.tasks))
    away = sum(unit.first <= position < unit.last for position in job.delayed)
    return job.status[unit.first : unit.last].count(Status.PENDING) - away


def _largest(job: Job) -> Request:
    return max(
        (group.request for group in job.groups), key=lambda each: (each.gpus, each.cores, each.memory_bytes)
    )


def _domains(no: Reason) -> list[DomainSlots]:
    """The slots that a reason has as its evidence."""
    slots = no.numbers.get("domains")
    if not isinstance(slots, dict):
        return []
    layer = str(no.numbers.get("layer", ""))
    return [DomainSlots(layer, path.split("/") if path else [], count) for path, count in slots.items()]


def _lacks_members(job: JobState, unit: GangState) -> Reason | None:
    """Too few members are there, whatever room there is."""
    for group, wanted in zip(job.groups, unit.wanted(), strict=True):
        if wanted.need > wanted.most:
            away = sum(group.first <= position < group.last for position in job.delayed)
            why = [f"{away} have ended"] if away else ["the others are not there, or hold places"]
            return reason.members_missing(group.group.name, wanted.need, wanted.most, why)
    return None


def _more_may_join(count: int, left: int) -> Reason:
    text = f"It starts with {count} members; {left} more may join when there is room"
    return Reason("WaitingCapacity", Tier.CAPACITY, text, {"started": count, "left": left})


def _awaits_others(job: JobState, unit: GroupState) -> Reason:
    """The first group that has to come before this one and has not."""
    name, when = next(each for each in unit.group.after if not job.has_come(*each))
    other = next(each for each in job.groups if each.group.name == name)
    status = job.status[other.first : other.last]
    here = (
        (Status.PENDING, Status.ASSIGNED, Status.RUNNING)
        if when == "completed"
        else (Status.PENDING, Status.ASSIGNED)
    )
    return reason.waiting_dependency(name, when, len(status) - sum(map(status.count, here)), len(status))


def _awaits_victims(state: ClusterState, promise: Promise, now: float) -> Reason:
    victims = [state.jobs[id].job.task_id(position) for id, position, _ in sorted(promise.victims)]
    nodes = Counter(node for node, _ in promise.members.values())
    return reason.waiting_victims(victims, dict(nodes), max(0.0, promise.until - now))


def _behind() -> Reason:
    return Reason("PriorityBehind", Tier.POLICY, "Others that stand before it in the queue go first")
