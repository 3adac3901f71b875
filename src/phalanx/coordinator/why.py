"""`phalanx why`: the core's verdict on one job or task, in the words of REST, with a fix that was tried."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from msgspec import Struct, structs

from phalanx.api.schema.jobs import DomainSlots, Fix, NodeReasons, ReasonView, WhyReply
from phalanx.coordinator.views import job_status
from phalanx.coordinator.why_gang import change_to_fit, change_to_start, gang_verdict
from phalanx.coordinator.why_whole import on_its_node, standstill
from phalanx.core.cluster.decide.jobs import why_closed
from phalanx.core.cluster.gangs import GangState
from phalanx.core.cluster.groups import GroupState
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.view import snapshot
from phalanx.core.explain import nodes as explain
from phalanx.core.explain.nodes import Change, Holder, Verdict
from phalanx.core.explain.reserved import held_back, kept_now
from phalanx.core.explain.trial import Trials
from phalanx.core.model import reason
from phalanx.core.model.plan import PlanMemory, Policy, Snapshot
from phalanx.core.model.quantity import parse_bytes
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status, Why

HOLDERS_TRIED = 2000


class Finding(Struct):
    """What is said about one job or task: the dominant reason first, then all others and the evidence."""

    reasons: list[Reason]
    nodes: list[NodeReasons] = []
    fix: Change | None = None
    needed: int | None = None
    domains: list[DomainSlots] = []


def why_reply(
    state: ClusterState,
    job: JobState,
    position: int | None,
    now: float,
    policy: Policy | None = None,
    memory: PlanMemory | None = None,
) -> WhyReply:
    """One dominant reason, all others, what the nodes say, and the nearest fix."""
    whole = position is None
    status = job_status(job) if position is None else Status(job.status[position])
    speaker = _speaker(job, status) if position is None else position
    if status == Status.PENDING:
        found = _Waiting(state, job, speaker, snapshot(state, now, memory), policy or Policy()).finding()
    else:
        said = _not_pending(state, job, speaker, status, now)
        found = Finding([said], fix=_fix_of_silence(said) or _fix_of_end(job, speaker, status))
        if whole and job.gang is not None and status == Status.FAILED:
            found.reasons = [_by_name(found.reasons[0], job.job.task_id(speaker))]
        if whole and job.counts[Status.PENDING] and not job.is_over:
            waiting = job.job.task_id(job.status.index(Status.PENDING))
            found.reasons.append(reason.tasks_waiting(job.counts[Status.PENDING], job.job.tasks, waiting))
        if job.held_because and not job.is_over:  # what runs of it goes on, and nothing else starts
            found.reasons.append(reason.held_back(job.held_because))
    return WhyReply(
        id=job.job.id if whole and job.gang is not None else job.job.task_id(speaker),
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        dominant=_view(found.reasons[0]),
        others=[_view(no) for no in found.reasons[1:]],
        nodes=found.nodes,
        fix=None if found.fix is None else Fix(found.fix.text, found.fix.fields, found.fix.command),
        position=_place_in_queue(state, job) if status == Status.PENDING else None,
        waiting=state.counts[Status.PENDING],
        at=now,
        epoch=state.epoch,
        needed=found.needed,
        domains=found.domains,
        object=job.job.object_name if whole else job.job.object_at(speaker),
    )


def closed_nodes(state: ClusterState) -> dict[str, Reason]:
    """The nodes that take no work, and why."""
    return {name: no for name, node in state.nodes.items() if (no := why_closed(node)) is not None}


class _Waiting:
    """Why one task that waits, or the gang it belongs to, does."""

    def __init__(
        self, state: ClusterState, job: JobState, position: int, seen: Snapshot, policy: Policy
    ) -> None:
        self._state, self._job, self._position, self._policy = state, job, position, policy
        self._group = job.group_of(position)
        self._closed = closed_nodes(state)
        self._snapshot = seen
        self._held = list(standstill(state, job, position, seen.now))  # what the job itself says
        self._trials = Trials(state, job, policy, seen)

    def finding(self) -> Finding:
        unit = self._group if self._job.gang is None else self._job.gang
        kind = self._state.waiting.classes.get(unit.kind)
        failed = None if kind is None else self._snapshot.memory.failed.get(kind.number)
        if failed is not None and failed[0] > self._snapshot.now:
            # Whoever looks for a place for it fails, here as well.
            return Finding([reason.plan_failed(failed[1], failed[0] - self._snapshot.now)])
        return self._of_task() if self._job.gang is None else self._of_gang(self._job.gang)

    def _of_task(self) -> Finding:
        request = self._group.request
        said = explain.verdict(self._state.table, request, self._closed)
        reasons = [*self._held, *self._limited(), *self._refused(said)]
        if not reasons:
            kept = held_back(self._snapshot, self._group, self._policy)
            reasons = [said.dominant if kept is None else kept]
        reasons += self._kept(self._group)
        reasons += [no for no in said.others if no.code not in {each.code for each in reasons}]
        fix = _fix(self._state, request, reasons[0], self._closed, self._starts)
        return Finding(reasons, _node_reasons(said), fix)

    def _starts(self, change: Change) -> bool:
        """Whether the job would start at once with this change of what it asks for."""
        job, group = self._job.job, self._group
        fields: dict[str, Any] = change.fields
        limit = fields.get("time_limit", job.time_limit_s)
        asking = structs.replace(group.group, request=changed_request(group.request, fields))
        groups = (*job.groups[: group.number], asking, *job.groups[group.number + 1 :])
        return self._trials.start(structs.replace(job, groups=groups, time_limit_s=limit))

    def _kept(self, unit: GroupState | GangState) -> list[Reason]:
        """What is kept for it, if it is the first in the queue."""
        kept = kept_now(self._snapshot, unit, self._policy)
        return [] if kept is None else [kept]

    def _limited(self) -> list[Reason]:
        group = self._group
        limit = group.group.at_once
        if limit and group.live.get(group.replica(self._position), 0) >= limit:
            return [reason.at_once_limit(limit)]
        return []

    def _refused(self, said: Verdict) -> list[Reason]:
        """What quotas and nodes say, what only a person can change first; and who goes first."""
        quota = self._state.queues.refuses(self._job.job.queue, self._group.request)
        found = [no for no in (quota, None if said.fits else said.dominant) if no is not None]
        ahead = _ahead_in_class(self._state, self._group) if said.dominant.tier == Tier.CAPACITY else 0
        found.sort(key=lambda no: no.tier)
        return [*found, reason.behind(ahead)] if ahead else found

    def _of_gang(self, gang: GangState) -> Finding:
        if self._held:
            return Finding(self._held, needed=sum(group.needed for group in self._job.job.groups))
        found = gang_verdict(self._snapshot, gang, self._policy)
        reasons = found.reasons or [reason.evaluating()]
        if ahead := _ahead_in_class(self._state, gang):
            reasons.append(reason.behind(ahead))
        reasons += self._kept(gang)
        requests = {each.request: None for each in gang.wanted() if each.most}
        verdicts = [explain.verdict(self._state.table, request, self._closed) for request in requests]
        nodes = [each for said in verdicts for each in _node_reasons(said)]
        if (
            reasons[0].tier == Tier.CAPACITY
        ):  # with every node closed that could hold a member, that comes first
            reasons = [*(said.dominant for said in verdicts if said.dominant.tier == Tier.HELD), *reasons]
        fix = self._fix_of_gang(gang, reasons[0])
        return Finding(reasons, nodes, fix, found.needed, found.domains)

    def _fix_of_gang(self, gang: GangState, dominant: Reason) -> Change | None:
        if dominant.tier == Tier.HELD or dominant.code in ("NoNodes", "QuotaExhausted", "ReservedForOther"):
            return _fix(self._state, self._group.request, dominant, self._closed, self._starts)
        if dominant.tier == Tier.NEVER:
            return change_to_fit(self._state.table, gang.job)
        if dominant.tier == Tier.CAPACITY:
            return change_to_start(self._state, self._snapshot, gang, self._trials)
        return None


def _node_reasons(said: Verdict) -> list[NodeReasons]:
    return [NodeReasons(len(names), _view(no), names[: explain.NAMES_SHOWN]) for no, names in said.groups]


def _not_pending(state: ClusterState, job: JobState, position: int, status: Status, now: float) -> Reason:
    attempt = job.live.get(position)
    if not status.is_final:
        return reason.finished() if attempt is None else on_its_node(state, job, attempt, now)
    if status == Status.COMPLETED:
        return reason.ended(status.word, "it ended with code 0")
    message = "" if attempt is not None else job.details.get(position, ("", ""))[0]
    why = Why(job.why[position])
    code = job.exit_code(position)
    text = message or (f"it ended with code {code}" if code else f"ended: {why.word}")
    if why == Why.EVICTED and position in job.conditions:
        text += f"; {job.conditions[position].message}"
    return reason.ended(status.word, text + (_budget(job) if status == Status.FAILED else ""))


def _by_name(no: Reason, task: str) -> Reason:
    """The end of one task, told of its whole job."""
    return Reason(no.code, no.tier, f"{task}: {no.text}", no.numbers)


def _budget(job: JobState) -> str:
    """That the restarts of the whole job are used up, or who used the retries that its tasks share."""
    restart, used = job.job.restart, sum(job.charged.values())
    if job.restarts_whole and job.restarts and job.restarts >= restart.limit:
        return f"; all tasks had been started anew {job.restarts} of {restart.limit} times"
    if not restart.shared or used <= job.job.max_retries:
        return ""
    who = ", ".join(f"{job.job.task_id(each)} × {count}" for each, count in sorted(job.charged.items()))
    counted = ", evictions and losses among them," if restart.counts_evictions else ""
    return (
        f"; all tasks share {job.job.max_retries} retries, and {used} failures{counted} used them up: {who}"
    )


def _fix(
    state: ClusterState,
    request: Request,
    dominant: Reason,
    closed: dict[str, Reason],
    starts: Callable[[Change], bool],
) -> Change | None:
    table = state.table
    if dominant.code == "ArrayLimit":
        return Change("submit the array with a larger number after '%', or none")
    if dominant.code == "QuotaExhausted":
        return Change("raise the quota of its queue, or wait until others of the queue have ended")
    if dominant.code == "ReservedForOther":
        seconds = int(dominant.numbers["seconds"])
        change = Change(f"it would start now with a time limit of {seconds} s", {"time_limit": seconds})
        return change if seconds and starts(change) else None
    if dominant.code == "NoNodes":
        return Change("start a runner", {}, "phalanx runner --join ADDRESS")
    if dominant.code == "Maintenance":
        host = dominant.numbers["host"]
        return Change(f"resume {host}", {}, f"phalanx node resume {host}")
    if dominant.code == "NodeResting":
        host = dominant.numbers["host"]
        return Change(f"wait until it has rested, or see what failed on {host}", {}, f"phalanx story {host}")
    if dominant.code == "NodeUnhealthy":
        host = dominant.numbers["host"]
        return Change(
            f"see the runner's log on {host}; it takes work again by itself", {}, f"phalanx story {host}"
        )
    if dominant.code in ("NodeOffline", "NodeUnreachable"):
        host = dominant.numbers["host"]
        smaller = explain.nearest_change(table, request, closed, ever=False)
        away = Change(f"start the runner on {host} again", {}, f"phalanx runner --name {host}")
        return smaller if smaller is not None and starts(smaller) else away
    if dominant.tier == Tier.NEVER:
        return explain.nearest_change(table, request, closed, ever=True)
    if dominant.tier == Tier.CAPACITY:
        nearest = explain.nearest_change(table, request, closed, ever=False)
        if nearest is not None and starts(nearest):
            return nearest
        return explain.nearest_end(table, request, closed, _holders(state))
    return None


def changed_request(request: Request, fields: dict[str, Any]) -> Request:
    """A request with fields of `SubmitRequest` in place of its own."""
    changes: dict[str, Any] = {name: fields[name] for name in ("gpus", "cores", "gpu_type") if name in fields}
    for name in ("memory", "gpu_memory"):
        if name in fields:
            size = fields[name]
            changes[f"{name}_bytes"] = parse_bytes(size) if isinstance(size, str) else size
    if fields.get("targets") == []:
        changes["target"] = None
    return structs.replace(request, **changes)


def _fix_of_silence(said: Reason) -> Change | None:
    if said.code != "LossesBraked":
        return None
    host = said.numbers["host"]
    text = f"see whether the coordinator is cut off; if {host} is really gone, say so"
    return Change(text, {}, f"phalanx node lose {host} --reason WHY")


def _fix_of_end(job: JobState, position: int, status: Status) -> Change | None:
    attempt = job.live.get(position)
    if status == Status.RUNNING and attempt is not None and attempt.paused:
        return Change("resume it", {}, f"phalanx resume {job.job.task_id(position)}")
    if status != Status.FAILED:
        return None
    match Why(job.why[position]):
        case Why.OOM:
            return Change("ask for more memory with -m")
        case Why.TIMEOUT:
            return Change(f"give it more than {job.job.time_limit_s or 0:.0f} s with --time-limit")
        case Why.REFUSED:
            return Change("check that the program and the folder exist on the node, and that it may run them")
        case Why.EXITED | Why.SIGNALLED:
            return Change("read its last words", {}, f"phalanx logs {job.job.task_id(position)} --stderr")
    return None


def _speaker(job: JobState, status: Status) -> int:
    """The task that speaks for a whole job: the first with the job's status, one on a node before one that is done.

    Of a job that failed as a whole it is the one that brought it down.
    """
    if status == Status.FAILED and job.outcome is not None:
        return _culprit(job)
    if status == Status.RUNNING and job.done:
        return next((each for each in sorted(job.live) if job.status[each] == status), min(job.done))
    return max(0, job.status.find(status))


def _culprit(job: JobState) -> int:
    """The first that failed by itself; the others ended because the job did."""
    failed = [each for each, status in enumerate(job.status) if status == Status.FAILED]
    own = [each for each in failed if job.why[each] != Why.JOB_FAILED]
    bad = own or [each for each in failed if job.exit_code(each)]
    return min(bad or failed, key=lambda each: (job.finished_at(each) or inf, each), default=0)


def _place_in_queue(state: ClusterState, job: JobState) -> int | None:
    """How many jobs would be asked before this one, plus one."""
    unit = next((unit for unit in job.units if unit in state.waiting), None)
    if unit is None:
        return None
    return 1 + sum(rank < unit.rank for kind in state.waiting.classes.values() for rank in kind.ranks)


def _ahead_in_class(state: ClusterState, unit: GroupState | GangState) -> int:
    """Waiting tasks that ask for the same and go first."""
    kind = state.waiting.classes.get(unit.kind)
    if kind is None:
        return 0
    ahead = (state.jobs[kind.units[rank].job.id] for rank in kind.ranks if rank < unit.rank)
    return sum(each.counts[Status.PENDING] for each in ahead)


def _holders(state: ClusterState) -> list[Holder]:
    found: list[Holder] = []
    for node in state.nodes.values():
        for lane in node.lanes.values():
            if len(lane) > 1:  # the end of one makes no room while others queue behind it
                continue
            key = next(iter(lane.attempts))
            found.append(Holder(state.jobs[key[0]].job.task_id(key[1]), node.name, lane.grant))
            if len(found) >= HOLDERS_TRIED:
                return found
    return found


def _view(no: Reason) -> ReasonView:
    return ReasonView(no.code, no.tier.word, no.text, no.numbers)
