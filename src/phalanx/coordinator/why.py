"""`phalanx why`: the core's verdict on one job or task, in the words of REST, with a fix that was tried."""

from __future__ import annotations

from phalanx.api.schema import Fix, NodeReasons, ReasonView, WhyReply
from phalanx.coordinator.views import job_status
from phalanx.core.cluster.admission import why_closed
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import reason
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.status import Status, Why
from phalanx.core.placement import explain
from phalanx.core.placement.explain import Change, Holder, Verdict

HOLDERS_TRIED = 2000


def why_reply(state: ClusterState, job: JobState, position: int | None, now: float) -> WhyReply:
    """One dominant reason, all others, what the nodes say, and the nearest fix."""
    status = job_status(job) if position is None else Status(job.status[position])
    if position is None:
        position = _speaker(job, status)
    others: list[Reason] = []
    nodes: list[NodeReasons] = []
    fix: Change | None = None
    place: int | None = None
    if status == Status.PENDING:
        closed = closed_nodes(state)
        said = explain.verdict(state.table, job.job.request, closed)
        place = _place_in_queue(state, job)
        dominant, others = _pending(state, job, position, said, place, now)
        fix = _fix(state, job, dominant, closed)
        nodes = [
            NodeReasons(len(names), _view(no), names[: explain.NAMES_SHOWN]) for no, names in said.groups
        ]
    else:
        dominant = _not_pending(job, position, status)
        fix = _fix_of_end(job, position, status)
    return WhyReply(
        id=job.job.id if position is None else job.job.task_id(position),
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        dominant=_view(dominant),
        others=[_view(no) for no in others],
        nodes=nodes,
        fix=None if fix is None else Fix(fix.text, fix.fields, fix.command),
        position=place,
        waiting=state.counts[Status.PENDING],
        at=now,
        epoch=state.epoch,
    )


def closed_nodes(state: ClusterState) -> dict[str, Reason]:
    """The nodes that take no work, and why."""
    return {name: no for name, node in state.nodes.items() if (no := why_closed(node)) is not None}


def _pending(
    state: ClusterState, job: JobState, position: int, said: Verdict, place: int | None, now: float
) -> tuple[Reason, list[Reason]]:
    if position in job.delayed:
        used = job.charged.get(position, 0)
        return reason.backing_off(
            max(0.0, job.delayed[position] - now), used, job.job.max_retries
        ), said.others
    limit = job.job.array.at_once if job.job.array else 0
    if limit and len(job.live) >= limit:
        others = [] if said.fits else [said.dominant]  # that it would fit is no reason why it waits
        return reason.at_once_limit(limit), [*others, *said.others]
    if said.dominant.tier == Tier.CAPACITY and place is not None and place > 1:
        ahead = _ahead_in_class(state, job)
        if ahead:
            return said.dominant, [reason.behind(ahead), *said.others]
    return said.dominant, said.others


def _not_pending(job: JobState, position: int, status: Status) -> Reason:
    attempt = job.live.get(position)
    if status == Status.ASSIGNED and attempt is not None:
        return reason.starting(attempt.node)
    if status == Status.RUNNING and attempt is not None:
        return reason.running(attempt.node, bool(attempt.paused))
    message = job.details.get(position, ("", ""))[0]
    why = Why(job.why[position])
    text = message or (f"ended: {why.word}" if why else "it ended with code 0")
    return reason.ended(status.word, text)


def _fix(state: ClusterState, job: JobState, dominant: Reason, closed: dict[str, Reason]) -> Change | None:
    request, table = job.job.request, state.table
    if dominant.code == "ArrayLimit":
        return Change("submit the array with a larger number after '%', or none")
    if dominant.code == "NoNodes":
        return Change("start a runner", {}, "phalanx runner --join ADDRESS")
    if dominant.code == "Maintenance":
        host = dominant.numbers["host"]
        return Change(f"resume {host}", {}, f"phalanx node resume {host}")
    if dominant.code in ("NodeOffline", "NodeUnreachable"):
        host = dominant.numbers["host"]
        smaller = explain.nearest_change(table, request, closed, ever=False)
        return smaller or Change(f"start the runner on {host} again", {}, f"phalanx runner --name {host}")
    if dominant.tier == Tier.NEVER:
        return explain.nearest_change(table, request, closed, ever=True)
    if dominant.tier == Tier.CAPACITY:
        change = explain.nearest_change(table, request, closed, ever=False)
        return change or explain.nearest_end(table, request, closed, _holders(state))
    return None


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
    """The task that speaks for a whole array: the first with the job's status."""
    return max(0, job.status.find(status))


def _place_in_queue(state: ClusterState, job: JobState) -> int | None:
    """How many jobs would be asked before this one, plus one."""
    if job.job.id not in state.waiting:
        return None
    from_front = 1
    for kind in state.waiting.classes.values():
        from_front += sum(rank < job.rank for rank in kind.ranks)
    return from_front


def _ahead_in_class(state: ClusterState, job: JobState) -> int:
    """Waiting tasks that ask for the same and go first."""
    kind = state.waiting.classes.get(job.job.request)
    if kind is None:
        return 0
    ahead = (state.jobs[kind.jobs[rank].job.id] for rank in kind.ranks if rank < job.rank)
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
