"""Why one job or task is as it is: it waits, holds a place, or has ended. `phalanx why` shows what is found here.

Of one that waits the finding is that of a rehearsal (`rehearsal.py`), which `phalanx plan` shows as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.attempts import fix_placed, why_placed
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.choices import why_there
from phalanx.core.explain.finding import Finding
from phalanx.core.explain.gate_fixes import fix_at_gate
from phalanx.core.explain.queue_limits import tasks_ahead
from phalanx.core.explain.rehearsal import Share, rehearse
from phalanx.core.explain.trial import EVERYTHING
from phalanx.core.model import reason
from phalanx.core.model.amounts import plural
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.plan import PlanMemory, Policy, Snapshot
from phalanx.core.model.reason import Reason
from phalanx.core.placement.precedence import precedence_in

PARAMETERS_SHOWN = 200  # characters
NODES_SHOWN = 8


def explain(
    state: ClusterState,
    job: JobState,
    position: int | None,
    policy: Policy,
    seen: Snapshot,
    asker: Asker = ADMIN,
    most: int = EVERYTHING,
) -> Finding:
    """What is found about one task, or about a whole job if `position` is None."""
    status = job.overall_status if position is None else Status(job.status[position])
    if status == Status.PENDING:
        share = Share(job, position=position)
        rehearse(state, [share], policy, seen, asker, most)
        first = max(0, job.status.find(Status.PENDING))
        waits = next(iter(share.findings), Finding([reason.evaluating()], first))
        waits.reasons.extend(_evicted(job, waits.position, seen.now))
        return waits
    speaker = _speaker(job, status) if position is None else position
    said = why_placed(state, job, speaker, seen.now)
    if status == Status.FAILED and asker.may_cancel(job.job) and (given := job.job.params_at(speaker)):
        said = structs.replace(said, text=f"{said.text} ({_parameters(given)})")
    found = Finding([said], speaker, status=status, fix=fix_placed(job, speaker, said, asker))
    if position is None:
        found.reasons = list(_of_whole(job, said, speaker, status))
        if again := state.repeated.get(job.job.id):
            found.reasons.append(reason.retried(again[-1], job.job.id))
    if (there := why_there(job, speaker)) is not None:
        found.reasons.append(there)
    if job.held_because and not job.is_over:  # what runs of it goes on, and nothing else starts
        found.reasons.append(reason.held_back(job.held_because))
    if job.begins_at and not job.is_over:
        found.reasons.append(reason.begins_later(job.begins_at, max(0.0, job.begins_at - seen.now)))
    if position is None and not job.is_over:
        found.fix = found.fix or fix_at_gate(state, job, asker)
    if status == Status.RUNNING and found.dominant.code == "Running":
        found.reasons.extend(_evicted(job, speaker, seen.now))
    return found


def why_waiting(
    state: ClusterState, jobs: Sequence[JobState], policy: Policy, seen: Snapshot, most: int = EVERYTHING
) -> list[Reason]:
    """The first reason of each of these jobs, all of which wait: one pass over the queue answers for all."""
    shares = [Share(job) for job in jobs]
    rehearse(state, shares, policy, seen, None, most)
    return [share.findings[0].dominant if share.findings else reason.evaluating() for share in shares]


def _evicted(job: JobState, position: int, now: float) -> Iterator[Reason]:
    """That an earlier attempt of a task was evicted: when, and by whom."""
    if (condition := job.conditions.get(position)) is not None:
        yield reason.was_evicted(condition.at, condition.message, now)


def place_in_queue(
    state: ClusterState, job: JobState, position: int, now: float, memory: PlanMemory | None = None
) -> int | None:
    """The place of a task among all that wait: 1 is placed first. None if it is not looked at for a place."""
    unit = job.group_of(position) if job.gang is None else job.gang
    if unit not in state.waiting:
        return None
    own = 0 if job.gang is not None else job.group_of(position).ahead_of(position)
    ahead, _ = tasks_ahead(precedence_in(state.snapshot(now, memory)), state.waiting, unit, own)
    return 1 + ahead.total() + own


def _of_whole(job: JobState, said: Reason, speaker: int, status: Status) -> Iterator[Reason]:
    """What one task says, told of its whole job, and that others of it wait."""
    if job.job.tasks > 1 and status == Status.FAILED:
        said = structs.replace(said, text=f"{job.job.task_id(speaker)}: {said.text}")
    if said.code == "Running" and len(job.live) > 1:
        said = structs.replace(said, text=_running_on(job, speaker))
    yield said
    if status == Status.FAILED and job.gang is None and (failed := job.counts[Status.FAILED]) > 1:
        yield reason.tasks_failed(failed, job.job.tasks, job.job.id)
    if job.counts[Status.PENDING] and not job.is_over:
        waiting = job.job.task_id(job.status.index(Status.PENDING))
        yield reason.tasks_waiting(job.counts[Status.PENDING], job.job.tasks, waiting)


def _running_on(job: JobState, speaker: int) -> str:
    """How many tasks of a job run, and where, the node of the one that speaks first."""
    running = [each for each in sorted(job.live) if job.status[each] == Status.RUNNING]
    nodes = list(dict.fromkeys(job.live[each].node for each in (speaker, *running)))
    shown = ", ".join(nodes[:NODES_SHOWN]) + (", …" if len(nodes) > NODES_SHOWN else "")
    return f"{plural(len(running), 'task')} running on {shown}"


def _parameters(given: dict[str, str]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in given.items())
    return text if len(text) <= PARAMETERS_SHOWN else f"{text[: PARAMETERS_SHOWN - 1]}…"


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
