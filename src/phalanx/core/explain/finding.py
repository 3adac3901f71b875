"""Why a unit waits, and what would help: one finding, which `why` and `plan` both show.

It is asked of a draft in which those who go first have their places, with the code that decides: gates first, then
quotas and nodes in the order of their tiers, then what is kept for others, then why nobody is evicted. The draft is
left as it was. Nothing of this is worked out in a planning pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct

from phalanx.core.cluster.decide.closed_nodes import why_closed
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.repairs import repairs
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain import fixes, gates, queue_limits, reserved
from phalanx.core.explain.case import Case
from phalanx.core.explain.change import Asker, Change
from phalanx.core.explain.choices import why_one_node
from phalanx.core.explain.endings import holders
from phalanx.core.explain.evictions import make_room_or_why
from phalanx.core.explain.gate_fixes import fix_at_gate
from phalanx.core.explain.nodes import Verdict, verdict
from phalanx.core.explain.shortage import place_gang
from phalanx.core.explain.trial import Trials
from phalanx.core.model import reason
from phalanx.core.model.dispatch import checked
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import GangPlacement, Placement, Policy, Snapshot
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.waiting import Rank
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.node_limits import counted, spot_within
from phalanx.core.placement.precedence import Precedence
from phalanx.core.placement.reserve.reservation import run_s


class DomainRoom(Struct, frozen=True):
    """How many members find room in one domain, and on how many nodes it could be."""

    layer: str
    path: list[str]
    slots: int
    nodes: int


class Finding(Struct):
    """What keeps tasks from starting: the dominant reason first, then all others and the evidence."""

    reasons: list[Reason]
    position: int = 0  # the task that speaks for the others
    tasks: int = 0  # for how many it speaks
    waits: bool = True  # False for what is only worth telling: it comes later by itself
    needed: int | None = None  # of a gang: members that start together
    nodes: list[tuple[Reason, list[str]]] = []
    domains: list[DomainRoom] = []
    fix: Change | None = None
    expected_at: float | None = None
    status: Status = Status.PENDING  # of the task, or of its job if that was asked about

    @property
    def dominant(self) -> Reason:
        return self.reasons[0]


class Explainer:
    """Explains one unit after another, while those who go first take their places in the draft."""

    def __init__(
        self, state: ClusterState, snapshot: Snapshot, draft: Draft, policy: Policy, asker: Asker | None
    ) -> None:
        """Without an asker only the first reason is wanted: no fix is looked for, and nobody who goes first counted."""
        self._state, self._snapshot, self._draft = state, snapshot, draft
        self._policy, self._asker = policy, asker
        self._closed = {
            name: no for name, node in state.nodes.items() if (no := why_closed(node)) is not None
        }
        self._repairs = repairs(state)
        self._reserved: dict[Rank, Reason] = {}
        self._runs_s: dict[JobId, float] = {}  # how long those run who have their places in the draft
        self._started: Counter[Rank] = Counter()  # how many tasks of a unit have places in the draft
        self._trials = Trials(state, snapshot, draft, policy)

    def note_reserved(self, job: JobState) -> None:
        """For whom room is kept that this job would take. Asked while the columns are those that the pass saw."""
        for unit in job.units:
            if (no := reserved.held_back(self._snapshot, unit, self._policy)) is not None:
                self._reserved[unit.rank] = no

    def note_start(self, job: JobState, placed: Sequence[Placement]) -> None:
        """It has these places in the draft from now on."""
        self._runs_s[job.job.id] = run_s(job.job)
        for each in placed:
            self._started[_unit_of(job, each.position).rank] += 1

    def failed(self, job: JobState, position: int, tasks: int) -> Finding | None:
        """That the scheduler failed when it looked for a place for it."""
        unit = _unit_of(job, position)
        kind = self._snapshot.waiting.class_of(unit)
        until, error = (0.0, "") if kind is None else self._snapshot.memory.failed.get(kind.number, (0.0, ""))
        seconds = until - self._snapshot.now
        return Finding([reason.plan_failed(error, seconds)], position, tasks) if seconds > 0.0 else None

    def gated(self, job: JobState, position: int, tasks: int) -> Finding | None:
        """What has to come first for one task, whatever room there is."""
        said = gates.why_closed(self._state, job, position, self._snapshot.now)
        if not said:
            return None
        comes = gates.COME_BY_THEMSELVES.issuperset(gates.closed_gates(job, position))
        waits = not comes or said[0].tier is Tier.NEVER
        fix = self._fix_at_gate(job, position, said[0])
        return Finding(said, position, tasks, waits, _needed(job), fix=fix)

    def _fix_at_gate(self, job: JobState, position: int, no: Reason) -> Change | None:
        if self._asker is None:
            return None
        is_submitted = job.job.id in self._state.jobs
        fix = fix_at_gate(self._state, job, self._asker) if is_submitted else None
        return fix or (self._fix(job, _unit_of(job, position), no, 0) if no.code in fixes.FIXES else None)

    def never(self, job: JobState, no: Reason) -> Finding:
        """That it would be refused as soon as it is submitted."""
        nodes = self._asked(_largest(job.job)).groups
        fix = None if self._asker is None else fixes.change_to_fit(self._state, job.job, self._asker)
        domains = _domains(self._state.table, no)
        return Finding([no], 0, job.job.tasks, needed=_needed(job), nodes=nodes, domains=domains, fix=fix)

    def without_room(self, job: JobState, position: int, tasks: int) -> Finding:
        """Why a unit whose gates are open found no room, or not enough."""
        unit = _unit_of(job, position)
        if isinstance(unit, GroupState) and (one := self._one_node(unit)) is not None:
            return Finding(one, position, tasks)
        ahead = unit.ahead_of(position) if isinstance(unit, GroupState) else 0
        verdicts = [self._asked(request) for request in _requests(unit)]
        said = self._said(unit, verdicts)
        has_quota = all(no.tier != Tier.POLICY for no in said)
        kept = reserved.kept_now(self._snapshot, self._draft, unit, self._policy, self._runs_s)
        is_full = any(no.tier == Tier.CAPACITY for no in said)
        if said and isinstance(unit, GroupState):
            said += verdicts[0].others
        if is_full:
            said += self._nobody_evicted(unit)
            if self._asker is not None and (before := self._behind(unit, ahead)).numbers["ahead"]:
                said.append(before)
        if not said:
            said = [self._reserved.get(unit.rank) or self._behind(unit, ahead)]
        if kept is not None and self._policy.backfill != "none":
            said.append(reserved.room_kept(kept))
        said = [self._by_whom(unit, no) for no in list({no.code: no for no in reversed(said)}.values())[::-1]]
        return Finding(
            said,
            position,
            tasks,
            needed=sum(each.need for each in unit.wanted()) if isinstance(unit, GangState) else None,
            nodes=[group for each in verdicts for group in each.groups],
            domains=next((rooms for no in said if (rooms := _domains(self._state.table, no))), []),
            fix=self._fix(job, unit, said[0], ahead),
            expected_at=kept.at if has_quota and kept is not None and kept.at != inf else None,
        )

    def _one_node(self, unit: GroupState) -> list[Reason] | None:
        """That it waits for one node, and what that node says; None if it may be given any, or that one has room."""
        no = why_one_node(self._snapshot.dispatch, self._state.table, unit.job, unit.request)
        if no is None:
            return None
        node = self._state.nodes[no.numbers["host"]]
        said = self._draft.nodes.ledgers[node.row].fit(unit.request)
        closed = None if node.takes_work_of(unit.job) else why_closed(node)
        if closed is None and not isinstance(said, Reason):
            return None
        return [no, *(each for each in (closed, said) if isinstance(each, Reason))]

    def _by_whom(self, unit: GroupState | GangState, no: Reason) -> Reason:
        """Devices that are in use, with the tasks that hold them."""
        if no.code != "TargetBusy" or isinstance(unit, GangState) or unit.request.target is None:
            return no
        names = holders(self._state, unit.request.target.host, no.numbers["busy"])
        text = f"{no.text} by {', '.join(names)}" if names else no.text
        return Reason(no.code, no.tier, text, {**no.numbers, "by": names})

    def _said(self, unit: GroupState | GangState, verdicts: list[Verdict]) -> list[Reason]:
        """What quotas and nodes say, what only a person can change first."""
        if isinstance(unit, GroupState):
            quota = self._limited(unit)
            room = None if verdicts[0].fits else verdicts[0].dominant
            return sorted([no for no in (room, quota) if no is not None], key=lambda no: no.tier)
        room = quota = self._tried(self._draft, unit)
        if unit.job.queue in self._draft.queues.quotas:
            room = self._tried(_without_quotas(self._snapshot), unit)
        said = sorted([no for no in (room, quota) if no is not None], key=lambda no: no.tier)
        if (
            said and said[0].tier == Tier.CAPACITY
        ):  # with every node closed that could hold a member, that comes first
            said = [*(each.dominant for each in verdicts if each.dominant.tier == Tier.HELD), *said]
        return said

    def _limited(self, unit: GroupState) -> Reason | None:
        """What the limits of its queue and user say: to what it asks for, or to the only nodes with room for it."""
        nodes, queues, whose = self._draft.nodes, self._draft.queues, unit.job.queue_user
        no = queues.lacks(whose, [(counted(nodes, queues, unit), 1)])
        spot = BestNode(nodes, unit.request).best() if no is None and unit.request.exclusive else None
        if spot is None or spot_within(nodes, queues, unit, spot) is not None:
            return no
        return queues.lacks_grants(whose, (spot[1],))

    def _tried(self, draft: Draft, gang: GangState) -> Reason | None:
        mark = draft.mark()
        found = place_gang(draft, gang)
        draft.rollback(mark)
        return found if isinstance(found, Reason) else None

    def _nobody_evicted(self, unit: GroupState | GangState) -> list[Reason]:
        """Why no room is made for it either."""
        mark = self._draft.mark()
        found = make_room_or_why(self._draft, unit, self._policy)
        if isinstance(found, GangPlacement):
            self._draft.rollback(mark)
            return []
        return [found]

    def _behind(self, unit: GroupState | GangState, own: int) -> Reason:
        """How many tasks wait and go first, whatever they ask for: of other jobs, and so many of its own group."""
        own = max(0, own - self._started[unit.rank])
        waiting = self._snapshot.waiting
        precedence = Precedence(self._draft.nodes, self._draft.queues, waiting, self._snapshot.memory.turn)
        return queue_limits.behind(precedence, waiting, unit, own, self._started)

    def _asked(self, request: Request) -> Verdict:
        """What every node says about one task, as the draft has it."""
        return verdict(self._state.table, request, self._closed, self._repairs)

    def _fix(self, job: JobState, unit: GroupState | GangState, no: Reason, ahead: int) -> Change | None:
        if self._asker is None:
            return None
        ahead = max(0, ahead - self._started[unit.rank])
        case = Case(self._state, self._draft, job, unit, no, ahead, self._closed, self._trials, self._asker)
        return fixes.fix_for(case)


def _unit_of(job: JobState, position: int) -> GroupState | GangState:
    return job.group_of(position) if job.gang is None else job.gang


def _requests(unit: GroupState | GangState) -> Iterable[Request]:
    if isinstance(unit, GroupState):
        asked = unit.job.dispatch
        return [checked(unit.request, None if asked is None else asked.mode)]
    return dict.fromkeys(each.request for each in unit.wanted() if each.most)


def _largest(job: Job) -> Request:
    """The request of a job that asks for most."""
    return max(
        (group.request for group in job.groups), key=lambda each: (each.gpus, each.cores, each.memory_bytes)
    )


def _needed(job: JobState) -> int | None:
    return None if job.gang is None else sum(group.needed for group in job.job.groups)


def _domains(nodes: NodeTable, no: Reason) -> list[DomainRoom]:
    """The slots of every domain that a reason counted, the most first."""
    slots = no.numbers.get("domains")
    if not isinstance(slots, dict):
        return []
    layer, tree = str(no.numbers.get("layer", "")), nodes.tree
    level = tree.level(layer)
    sizes: dict[str, int] = {}
    if level is not None:
        paths = ((number, "/".join(tree.path(level, number))) for number in range(tree.size(level)))
        sizes = {path: len(tree.rows(level, number)) for number, path in paths}
    return [
        DomainRoom(layer, path.split("/") if path else [], count, sizes.get(path, 0))
        for path, count in slots.items()
    ]


def _without_quotas(snapshot: Snapshot) -> Draft:
    free = snapshot.queues.unlimited()
    return Draft(
        Snapshot(snapshot.nodes, snapshot.waiting, snapshot.gain, snapshot.tenants, free, snapshot.now)
    )
