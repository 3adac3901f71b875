"""The nearest fix for work that cannot start: what to ask for instead, or what to do.

`FIXES` has the way to a fix for each code, and each tier for the codes without one of their own. Whatever claims that
something would start or fit was tried with the scheduler's own code, the smallest loss first: other rules for where
members stand, fewer members that are needed, less for each of them, a node that is taken back, another job that ends.
A command is offered only to those who may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.change import Asker, Change
from phalanx.core.explain.never import why_never
from phalanx.core.explain.smaller import Holds, other_gangs, smaller_requests, with_group
from phalanx.core.explain.trial import Trials
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.status import Status
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.topology import Topology
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang

TRIES = 32  # of each kind
NAMES_SHOWN = 5
HOLDERS_TRIED = 2000  # whose end is asked about on one node alone


class Case(Struct):
    """One unit that waits, and everything that is needed to try what would help it."""

    state: ClusterState
    draft: Draft
    job: JobState
    unit: GroupState | GangState
    no: Reason  # what keeps it from starting
    ahead: int  # tasks of its own group that go first
    closed: dict[str, Reason]  # nodes that take no work, and why
    trials: Trials
    asker: Asker

    @property
    def request(self) -> Request:
        return self.unit.request if isinstance(self.unit, GroupState) else largest(self.unit.job)

    def has_room(self, ended: JobState | None = None) -> bool:
        """Whether the draft has room for a whole gang, or for one task of a group, and the next pass would give it."""
        return self.fits(self.unit) and self.trials.starts_with_room(self.unit, self.ahead, ended)

    def fits(self, unit: GroupState | GangState) -> bool:
        """Whether the draft has room for a unit, whoever goes first. It is left as it was."""
        mark = self.draft.mark()
        try:
            if isinstance(unit, GangState):
                return isinstance(place_gang(self.draft, unit), GangPlacement)
            has_quota = self.draft.queues.room(unit.job.queue, unit.request) != 0
            return has_quota and BestNode(self.draft.nodes, unit.request).best() is not None
        finally:
            self.draft.rollback(mark)

    def would_fit(self, changed: Job) -> bool:
        """Whether there is room if the job asks for this, whoever goes first."""
        return self.fits(JobState(changed, 0, [0] * 6).units[self.unit.rank[2]])

    def starts(self, changed: Job) -> bool:
        """Whether it would start now if the job asked for this."""
        return self.would_fit(changed) and self.trials.starts_changed(
            self.job, self.unit, changed, self.ahead
        )


def fix_for(case: Case) -> Change | None:
    """What would turn this no into a yes, as far as anything does."""
    way = FIXES.get(case.no.code) or _BY_TIER.get(case.no.tier)
    return None if way is None else way(case)


def change_to_fit(state: ClusterState, job: Job) -> Change | None:
    """The nearest change of what a job asks for with which it could ever run here."""

    def could_ever(changed: Job) -> bool:
        return why_never(state, JobState(changed, 0, [0] * 6)) is None

    table = state.table
    for number, group in enumerate(job.groups):
        if not table.could_ever(group.request):
            for text, fields, request in smaller_requests(table, group.request, (), ever=True):
                if table.could_ever(request) and could_ever(_asking(job, number, request)):
                    return Change(f"it would fit {text}", fields)
    if job.gang is None:
        return None
    return _other_gang(job, table.topology, could_ever, could_ever, "would fit")


def largest(job: Job) -> Request:
    """The request of a job that asks for most."""
    return max(
        (group.request for group in job.groups), key=lambda each: (each.gpus, each.cores, each.memory_bytes)
    )


# One way to a fix for each code


def _to_fit(case: Case) -> Change | None:
    return change_to_fit(case.state, case.job.job)


def _to_start(case: Case) -> Change | None:
    """Less of what it asks for, a node that is taken back, or the end of another."""
    return _other_request(case) or _taken_back(case) or _end_of_another(case)


def _more_quota(case: Case) -> Change | None:
    if case.asker.declares:
        return Change("raise the quota of its queue, or wait for other jobs of the queue to end")
    return Change("wait for other jobs of the queue to end; an admin can raise its quota")


def _shorter(case: Case) -> Change | None:
    seconds = int(case.no.numbers["seconds"])
    changed = structs.replace(case.job.job, time_limit_s=float(seconds))
    if seconds <= 0 or not case.starts(changed):
        return None
    return Change(f"it would start now with a time limit of {seconds} s", {"time_limit": seconds})


def _first_node(case: Case) -> Change | None:
    if case.asker.operates:
        return Change("start a runner", {}, "phalanx runner --join ADDRESS")
    return Change("an operator has to start a runner")


def _resume(case: Case) -> Change | None:
    return _taken_back(case) or _to_start(case)


def _wait_for_rest(case: Case) -> Change | None:
    host = case.no.numbers["host"]
    return Change(
        f"wait until it is included again, or see what failed on {host}", {}, f"phalanx story {host}"
    )


def _see_runner(case: Case) -> Change | None:
    host = case.no.numbers["host"]
    text = f"see the runner's log on {host}; it takes work again once that works"
    return Change(text, {}, f"phalanx story {host}")


def _bring_back(case: Case) -> Change | None:
    """Something else that starts now, or the runner that is away."""
    if (other := _other_request(case)) is not None:
        return other
    host = str(case.no.numbers["host"])
    if not _with_open(case, [host]):
        return None
    if case.asker.operates:
        return Change(f"start the runner on {host} again", {}, f"phalanx runner --name {host}")
    return Change(f"an operator has to start the runner on {host} again")


FIXES: dict[str, Callable[[Case], Change | None]] = {
    "ArrayLimit": lambda _: Change("submit the array with a higher limit after '%', or none"),
    "QuotaExhausted": _more_quota,
    "ReservedForOther": _shorter,
    "NoNodes": _first_node,
    "Maintenance": _resume,
    "NodeResting": _wait_for_rest,
    "NodeUnhealthy": _see_runner,
    "NodeOffline": _bring_back,
    "NodeUnreachable": _bring_back,
}
_BY_TIER: dict[Tier, Callable[[Case], Change | None]] = {
    Tier.NEVER: _to_fit,
    Tier.CAPACITY: _to_start,
}


# What to ask for instead


def _other_request(case: Case) -> Change | None:
    """The smallest change of what it asks for with which it would start now."""
    job, unit = case.job.job, case.unit
    if isinstance(unit, GangState):
        if unit.bound():  # a smaller gang would be another one, and some of this one run already
            return None
        return _other_gang(job, case.state.table.topology, case.would_fit, case.starts, "would start now")
    for text, fields, request in smaller_requests(case.state.table, unit.request, case.closed, ever=False):
        if case.starts(_asking(job, unit.number, request)):
            return Change(f"it would start now {text}", fields)
    return None


def _other_gang(job: Job, topology: Topology, fits: Holds, helps: Holds, when: str) -> Change | None:
    """The smallest change of a gang that would fit and helps."""
    for text, fields, changed in other_gangs(job, topology, fits):
        if fits(changed) and helps(changed):
            return Change(f"it {when} {text}", fields)
    return None


def _asking(job: Job, number: int, request: Request) -> Job:
    return with_group(job, number, structs.replace(job.groups[number], request=request))


# What else could change


def _taken_back(case: Case) -> Change | None:
    """A drained node with which it would start, or all of them."""
    nodes = case.state.nodes
    drained = [name for name, node in nodes.items() if _only_drained(node)]
    tries = [[name] for name in drained[:TRIES]] + ([drained] if len(drained) > 1 else [])
    names = next((names for names in tries if _with_open(case, names)), None)
    if names is None:
        return None
    which = ", ".join(names[:NAMES_SHOWN]) + (" and others" if len(names) > NAMES_SHOWN else "")
    text = f"it would start now if {which} were resumed (drained: {nodes[names[0]].drain_reason})"
    may_say = case.asker.operates and len(names) <= NAMES_SHOWN
    return Change(text, {}, " && ".join(f"phalanx node resume {name}" for name in names) if may_say else "")


def _only_drained(node: NodeState) -> bool:
    """Whether nothing but the drain keeps a node from taking work."""
    is_there = node.connected and not node.lost and not node.leaving
    is_well = not node.leftovers and not node.trouble and node.rests_until is None
    return node.drain_reason is not None and is_there and is_well


def _with_open(case: Case, names: list[str]) -> bool:
    """Whether it would start if these nodes took work."""
    draft = case.draft
    mark = draft.mark()
    for name in names:
        if not draft.nodes.is_open(name):
            draft.open(name)
    has_room = case.has_room()
    draft.rollback(mark)
    return has_room


def _end_of_another(case: Case) -> Change | None:
    """Whose end alone makes room: the fewer places it holds and the less urgent it is, the sooner named."""
    draft = case.draft
    for tenants in _holders(case):
        mark = draft.mark()
        for tenant in tenants:
            draft.evict(tenant)
        try:
            helps = _may_fit(case, tenants) and case.has_room(_ended(case, tenants))
        finally:
            draft.rollback(mark)
        if helps:
            return _ending(case, tenants)
    return None


def _holders(case: Case) -> Iterator[list[Tenant]]:
    """Places that are left together: a task that stands for itself, or all of a job."""
    draft, jobs = case.draft, case.state.jobs
    of_job = {
        id: [each for each in places.values() if each.key not in draft.gone and not each.is_promise]
        for id, places in draft.tenants.of_job.items()
    }
    if not isinstance(case.unit, GangState):
        alone = [each for id, places in of_job.items() if jobs[id].gang is None for each in places]
        alive = [each for each in alone if _holds_alone(case, each)]
        yield from (
            [each] for each in sorted(alive, key=lambda each: (each.priority, each.job))[:HOLDERS_TRIED]
        )
    whole = [places for id, places in of_job.items() if places and id != case.job.job.id]
    whole = [places for places in whole if len(places) > 1 or isinstance(case.unit, GangState)]
    yield from sorted(whole, key=lambda each: (len(each), each[0].priority, each[0].job))[:TRIES]


def _holds_alone(case: Case, tenant: Tenant) -> bool:
    """Whether the end of one task leaves its place: nobody queues in its lane, and no gate of its job opens."""
    node, lane = tenant.key
    job = case.state.jobs[tenant.job]
    is_followed = any(each.group.at_once or each.group.after for each in job.groups)
    if is_followed and job.counts[Status.PENDING]:
        return False
    return len(case.state.nodes[node].lanes[int(lane)]) == 1


def _may_fit(case: Case, tenants: Sequence[Tenant]) -> bool:
    """A cheap no for a task: none of the nodes that were left has room for it."""
    if isinstance(case.unit, GangState):
        return True
    nodes, request = case.draft.nodes, case.unit.request
    rows = {each.node_row for each in tenants}
    return any(nodes.open[row] and isinstance(nodes.ledgers[row].fit(request), Grant) for row in rows)


def _ended(case: Case, tenants: Sequence[Tenant]) -> JobState | None:
    """The job that ends as a whole with these; None if one task of it does, and others may wait."""
    job = case.state.jobs[tenants[0].job]
    return None if len(tenants) == 1 and job.gang is None else job


def _ending(case: Case, tenants: Sequence[Tenant]) -> Change:
    """How it is told, with a command for whoever may give it."""
    first = tenants[0]
    job, node = case.state.jobs[first.job], case.state.table.names[first.node_row]
    what, where = job.job.id, ""
    if _ended(case, tenants) is None:
        lane = case.state.nodes[node].lanes[int(first.key[1])]
        what, where = job.job.task_id(next(iter(lane.attempts))[1]), f" on {node}"
    may_say = case.asker.may_cancel(job.job) and not all(each.is_leaving for each in tenants)
    return Change(f"it starts when {what}{where} ends", {}, f"phalanx cancel {what}" if may_say else "")
