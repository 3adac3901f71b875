"""The nearest fix for work that cannot start: what to ask for instead, or what to do.

`FIXES` has the way to a fix for each code, and each tier for the codes without one of their own. Whatever claims that
something would start or fit was tried with the scheduler's own code, the smallest loss first: other rules for where
members stand, fewer members that are needed, less for each of them, a node that is taken back, another job that ends.
A command is offered only to those who may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain, islice
from math import ceil

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState
from phalanx.core.explain import quota as quotas
from phalanx.core.explain.case import Case
from phalanx.core.explain.change import NOBODY, Asker, Change
from phalanx.core.explain.endings import end_of_another
from phalanx.core.explain.queue_limits import fair_order
from phalanx.core.explain.shortage import why_never
from phalanx.core.explain.smaller import Changes, Holds, Requests, other_gangs, smaller_requests, with_group
from phalanx.core.explain.submit_command import submit_line
from phalanx.core.explain.trial import SLACK_S
from phalanx.core.model.job import Job
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Tier
from phalanx.core.model.resources import Request

TRIES = 32  # of each kind
NAMES_SHOWN = 5
SLACK = 0.1  # of the longest time limit that lets a task go first, this much is left for submitting it


def fix_for(case: Case) -> Change | None:
    """What would turn this no into a yes, as far as anything does."""
    way = FIXES.get(case.no.code) or _BY_TIER.get(case.no.tier)
    return None if way is None else way(case)


def change_to_fit(state: ClusterState, job: Job, asker: Asker = NOBODY) -> Change | None:
    """The nearest change of what a job asks for, of its queue or of its quota, with which it could ever run here."""

    def could_ever(changed: Job) -> bool:
        return why_never(state, JobState(changed, 0, [0] * 6)) is None

    text, fields, changed = next(_smaller_ever(state, job, could_ever), ("", {}, None))
    quota = _quota_in_the_way(state, job)
    if quota is None or not could_ever(structs.replace(job, queue="")):
        line = None if changed is None else submit_line(changed)
        return Change(f"it would fit {text}", fields, line or "") if text else None
    others = (each.queue for each in quotas.elsewhere(state.queues, job) if could_ever(each))
    ways = [*filter(None, [text]), *(f"in queue {queue}" for queue in islice(others, 1))]
    text = "it would fit " + ", ".join([*ways, f"{'or ' if ways else ''}with a higher quota"])
    if asker.declares:
        return Change(text, fields, quotas.command(job.queue, quota, state.queues.quotas[job.queue]))
    return Change(f"{text}, which an admin can set", fields)


def _smaller_ever(state: ClusterState, job: Job, could_ever: Holds) -> Changes:
    """Jobs that ask for a little less and could ever run here."""
    table, queues = state.table, state.queues
    for number, group in enumerate(job.groups):
        smaller: Requests = iter(())
        if not table.could_ever(group.request):
            # What a node could hold that takes work comes before what one could that is away.
            away = [name for name in table.names if not table.is_open(name)]
            tables = (away, ()) if 0 < len(away) < len(table) else ((),)
            smaller = chain.from_iterable(
                smaller_requests(table, group.request, closed, ever=True) for closed in tables
            )
        elif queues.lacks(job.queue_user, [(group.request, 1)], ever=True) is not None:
            smaller = quotas.requests_within(queues, job.queue_user, group.request, ever=True)
        for text, fields, request in smaller:
            if could_ever(changed := _asking(job, number, request)):
                yield text, fields, changed
    if job.gang is not None:
        gangs = other_gangs(job, table.topology, could_ever)
        yield from (each for each in gangs if could_ever(each[2]))


def _quota_in_the_way(state: ClusterState, job: Job) -> Quota | None:
    """The quota that its queue would need to hold it at all; None if that is no more than it has."""
    queues = state.queues
    if job.queue not in queues.quotas:
        return None
    for unit in JobState(job, 0, [0] * 6).units:
        quota = quotas.raised(queues, job.queue_user, quotas.asked_by(unit), ever=True)
        queues = queues.with_quotas({job.queue: quota})
    quota = queues.quotas[job.queue]
    return None if quota == state.queues.quotas[job.queue] else quota


# One way to a fix for each code


def _to_fit(case: Case) -> Change | None:
    found = change_to_fit(case.state, case.job.job, case.asker)
    if found is None or not case.is_submitted or found.command.startswith("phalanx queue"):
        return found
    return case.submitted_so(found.text, found.fields, found.command)


def _to_start(case: Case) -> Change | None:
    """A node that is excluded for failures, or for an operator also one that is disabled; less of what it asks for, a
    drained node, another's end."""
    nodes = case.state.nodes.items()
    soon = [name for name, node in nodes if node.is_kept_away or node.disabled_reason is not None]
    first = _taken_back(case, soon) if case.asker.operates else _end_of_exclusions(case)
    found = first or _other_or_taken_back(case)
    return found or fair_order(case) or end_of_another(case)


def _other_or_taken_back(case: Case) -> Change | None:
    """Something else to ask for; of a gang that need not be smaller if a node is taken back, that as well."""
    other = _other_request(case)
    if other is not None and not isinstance(case.unit, GangState):
        return other
    node = _taken_back(case)
    if other is None or node is None:
        return other or node
    said = f"; or {node.text.removeprefix('it would start now ')}"
    return Change(
        f"{other.text}{said}{f': `{node.command}`' if node.command else ''}", other.fields, other.command
    )


def _more_quota(case: Case) -> Change | None:
    """A higher quota for those who may set it; for others less of what it asks for, or the end of another first."""
    queue, user = case.job.job.queue_user
    quota = _enough_quota(case)
    if quota is None:
        return _to_start(case)
    old = case.draft.queues.quotas[queue]
    if case.asker.declares:
        what = f"quota of {queue}" if quota.by_user == old.by_user else f"limit of {user} in {queue}"
        return Change(f"it would start now with a higher {what}", {}, quotas.command(queue, quota, old))
    more = quotas.differs(old, quota, queue)
    return _to_start(case) or Change(f"it would start now if an admin raised {more}")


def _enough_quota(case: Case) -> Quota | None:
    """The quota of its queue with which it would start: raised for it alone, or for those ahead in the queue too."""
    queues, mine = case.draft.queues, quotas.asked_by(case.unit, case.ahead)
    for asked in (mine, [*quotas.asked_before(case.state.waiting, case.unit), *mine]):
        quota = quotas.raised(queues, case.job.job.queue_user, asked)
        if case.trials.starts_with_quota(case.unit, case.ahead, quota):
            return quota
    return None


def _shorter(case: Case) -> Change | None:
    """A time limit with which it may go first, also if it is submitted a little later: what is left shrinks."""
    most = int(case.no.numbers["seconds"])
    slack = max(SLACK_S, ceil(most * SLACK))
    seconds = most - slack
    changed = structs.replace(case.job.job, time_limit_s=float(seconds))
    if seconds <= 0 or not case.may_change or not case.starts(changed):
        return None
    text = f"it would start now with a time limit of {seconds} s, which leaves {slack} s to submit it"
    return case.asking_for(text, {"time_limit": seconds}, changed)


def _higher_limit(case: Case) -> Change | None:
    """That its array could run more, if there is room for more."""
    if not case.fits(case.unit):
        return None
    job = case.job.job
    if not case.is_submitted:
        return Change(
            "there is room for more of it: submit it with a higher limit (`%`, --limit, at_once), or none"
        )
    command = f"phalanx update {job.id} --limit {int(case.no.numbers['limit']) + 1}"
    text = "there is room for more of it: raise its limit, or remove it with 0"
    return Change(text, {}, command) if case.asker.may_cancel(job) else Change(f"{text} (its user can)")


def _first_node(case: Case) -> Change | None:
    if not case.asker.operates:
        return Change("an operator has to start a runner")
    return Change(
        "start a runner: `phalanx runner --join HOST:7434`, with the host of this coordinator; if it asks for tokens,"
        " `--token-file FILE` with what `phalanx token create --join` prints"
    )


def _resume(case: Case) -> Change | None:
    return _taken_back(case) or _to_start(case)


def _wait_for_exclusion(case: Case) -> Change | None:
    """The end of the rest, if that starts it; in any case what failed there can be seen."""
    if (resumed := _taken_back(case)) is not None and resumed.command:
        return resumed
    host = case.no.numbers["host"]
    return Change(
        f"wait until it is included again, or see what failed on {host}", {}, f"phalanx story {host}"
    )


def _end_of_exclusions(case: Case) -> Change | None:
    """Waiting, if it would start with the nodes that are excluded for a while."""
    nodes = case.state.nodes.items()
    names = [name for name, node in nodes if node.is_kept_away and node.is_fit and not node.disabled_reason]
    if not names or not _with_open(case, names):
        return None
    text = f"it would start once {_named(names)} {'is' if len(names) == 1 else 'are'} included again"
    return Change(f"{text}; `phalanx nodes` says when", {}, "phalanx nodes")


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (" and others" if len(names) > NAMES_SHOWN else "")


def _repair(case: Case) -> Change | None:
    """What a person has to repair; for one who may not, first something else that starts now."""
    host = case.no.numbers["host"]
    is_checked = case.no.code == "DevicesFailed" or case.state.nodes[host].health.reason
    if case.no.code != "DevicesFailed" and not _with_open(case, [host]):
        return _to_start(case)
    if not case.asker.operates:
        who = f"an operator has to repair {host}"
        return _other_request(case) or Change(
            f"{who}; see what is wrong with it", {}, f"phalanx story {host}"
        )
    text = f"see the runner's log on {host}; it takes work again once that works"
    if is_checked:
        text = f"repair {host}; it takes work again by itself once its checks pass"
    return Change(text, {}, f"phalanx story {host}")


def _bring_back(case: Case) -> Change | None:
    """The runner that is away, for an operator whose job it is not; for others first something else that starts now."""
    host = str(case.no.numbers["host"])
    is_for_operator = case.asker.operates and case.asker.user != case.job.job.user
    if not (is_for_operator and _with_open(case, [host])) and (other := _other_request(case)) is not None:
        return other
    if not _with_open(case, [host]):
        return None
    if case.asker.operates:
        text = (
            f"start the runner on {host} again, with the host of this coordinator, and --token-file as before"
        )
        return Change(text, {}, f"phalanx runner --join HOST:7434 --name {host}")
    return Change(f"an operator has to start the runner on {host} again")


FIXES: dict[str, Callable[[Case], Change | None]] = {
    "ArrayLimit": _higher_limit,
    "QuotaExhausted": _more_quota,
    "UserLimitReached": _more_quota,
    "ReservedForOther": _shorter,
    "NoNodes": _first_node,
    "Maintenance": _resume,
    "NodeDisabled": _resume,
    "NodeExcluded": _wait_for_exclusion,
    "NodeUnhealthy": _repair,
    "DevicesFailed": _repair,
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
    if not case.may_change:
        return None
    if isinstance(unit, GangState):
        for text, fields, changed in other_gangs(job, case.state.table.topology, case.would_fit):
            if case.starts(changed):
                return case.asking_for(f"it would start now {text}", fields, changed)
        return None
    smaller = chain(
        quotas.requests_within(case.draft.queues, job.queue_user, unit.request, ever=False),
        smaller_requests(case.state.table, unit.request, case.closed, ever=False),
    )
    for text, fields, request in smaller:
        changed = _asking(job, unit.number, request)
        if case.starts(changed):
            return case.asking_for(f"it would start now {text}", fields, changed)
    return None


def _asking(job: Job, number: int, request: Request) -> Job:
    return with_group(job, number, structs.replace(job.groups[number], request=request))


# What else could change


def _taken_back(case: Case, among: Collection[str] | None = None) -> Change | None:
    """A drained, disabled or excluded node with which it would start, or all of them."""
    nodes = case.state.nodes
    held = [name for name in (nodes if among is None else among) if _is_for_resume(nodes[name])]
    tries = [[name] for name in held[:TRIES]] + ([held] if len(held) > 1 else [])
    names = next((names for names in tries if _with_open(case, names)), None)
    if names is None:
        return None
    done = "enabled" if all(_needs_only_enabling(nodes[name]) for name in names) else "resumed"
    change = f"{_named(names)} were {done}" if case.asker.operates else f"an operator {done} {_named(names)}"
    text = f"it would start now if {change} ({_why_held(nodes[names[0]])})"
    may_say = case.asker.operates and len(names) <= NAMES_SHOWN
    commands = [command for name in names for command in _to_take_back(nodes[name])]
    return Change(text, {}, " && ".join(commands) if may_say else "")


def _why_held(node: NodeState) -> str:
    if node.drain_reason is not None:
        return f"drained: {node.drain_reason}"
    if node.disabled_reason is not None:
        return f"disabled {node.disabled_reason}"
    return f"excluded: {node.exclusion_text or 'tasks failed there'}"


def _needs_only_enabling(node: NodeState) -> bool:
    return node.disabled_reason is not None and node.drain_reason is None and not node.is_kept_away


def _to_take_back(node: NodeState) -> list[str]:
    """The commands after which a node takes work: `node resume` ends a drain and an exclusion, but enables no node."""
    resume = [] if _needs_only_enabling(node) else [f"phalanx node resume {node.name}"]
    return resume + ([] if node.disabled_reason is None else [f"phalanx node elastic {node.name} on"])


def _is_for_resume(node: NodeState) -> bool:
    """Whether nothing but a drain, an exclusion or being disabled keeps a node from taking work."""
    is_there = node.connected and not node.lost and not node.leaving
    is_well = not node.leftovers and not node.trouble and not node.health.reason
    is_held = node.drain_reason is not None or node.disabled_reason is not None or node.is_kept_away
    return is_held and is_there and is_well


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
