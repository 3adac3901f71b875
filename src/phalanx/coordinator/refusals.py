"""A no of the core, said as an error that HTTP and the shell understand, with the nearest fix as its hint."""

from __future__ import annotations

from phalanx.api.schema.documents import FailedTarget
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.fixes import change_to_fit
from phalanx.core.model.job import Job
from phalanx.core.model.reason import Reason
from phalanx.errors import (
    BadRequest,
    Busy,
    Conflict,
    Forbidden,
    NeverFits,
    NoRoom,
    NotFound,
    PhalanxError,
    TooMany,
    Unprocessable,
)

_KINDS: dict[str, type[PhalanxError]] = {
    "never": NeverFits,
    "target": BadRequest,
    "busy": Busy,
    "no_room": NoRoom,
    "conflict": Conflict,
    "forbidden": Forbidden,
    "bad": BadRequest,
    "range": Unprocessable,
    "reservation": BadRequest,
    "not_found": NotFound,
    "too_many": TooMany,
    "stale": Conflict,
}


def refusal(refused: Refused, what: str) -> PhalanxError:
    """The error for one refused request about `what`."""
    text = refused.reason.text
    detail = text if what in text.split()[:2] else f"{what}: {text}"  # n1 was heard; job ID has ended
    return _error(refused.kind, detail, refused.reason.code, "", [])


def unwelcome(refused: Refused) -> PhalanxError:
    """The error for what a queue does not take: a user, a priority, so many tasks; or for one that was not declared."""
    no = refused.reason
    hint = _HINTS_BY_CODE.get(no.code, _HINTS.get(refused.kind, ""))
    return _error(refused.kind, no.text, no.code, hint, [])


def accepted(answers: list[Answer | None], what: str) -> Accepted:
    """The first answer, which is yes, or the error for a no."""
    answer = answers[0]
    if isinstance(answer, Refused):
        raise refusal(answer, what)
    assert isinstance(answer, Accepted)
    return answer


def reused(request_id: str, id: str) -> Conflict:
    """The error for a request id that stands for something else."""
    detail = f"request_id {request_id!r} was used for {id}, which is another request"
    return Conflict(detail, reason="RequestIdReused", hint="use a new id for every new submission")


def job_refusal(state: ClusterState, number: int, job: Job, refused: Refused) -> PhalanxError:
    """One of several jobs was refused, and with it all of them."""
    refused = _untargeted(job, refused)
    detail = f"specs[{number}]{f' ({job.name})' if job.name else ''}: {refused.reason.text}"
    hint = hint_for(state, job, refused)
    return _error(refused.kind, detail, refused.reason.code, hint, [])


def submit_refusal(
    state: ClusterState,
    jobs: list[tuple[str | None, Job]],
    refused: list[Refused],
    failed: list[FailedTarget],
) -> PhalanxError:
    """Every target failed: one error that lists each with its reason."""
    if not refused:
        detail = "; ".join(each.detail for each in failed)
        return BadRequest(
            detail, reason=failed[0].reason if failed else "Misconfigured", extra=_targets(failed)
        )
    first = _untargeted(jobs[0][1], refused[0])
    detail = first.reason.text
    if len(failed) > 1:
        listed = "; ".join(f"{each.target}: {each.detail}" for each in failed)
        detail = f"Failed to schedule task for any target. Failures: {listed}"
    return _error(first.kind, detail, first.reason.code, hint_for(state, jobs[0][1], first), failed)


def _untargeted(job: Job, refused: Refused) -> Refused:
    """A job that names no node was not refused for its target: it could never start, whichever node is asked."""
    no = refused.reason
    if refused.kind != "target" or any(group.request.target is not None for group in job.groups):
        return refused
    if no.code in ("NoMatchingLabels", "NotIsolated", "NoContainers") and not no.text.startswith(
        "No node can hold"
    ):
        text = f"No node can hold a task of it, even when empty; closest: {no.text}"
        no = Reason(no.code, no.tier, text, no.numbers)
    return Refused(no, "never")


def hint_for(state: ClusterState, job: Job, refused: Refused) -> str:
    """The nearest fix that was tried, or what helps in general."""
    fix = ""
    if refused.reason.code in _HINTS_BY_CODE:
        return _HINTS_BY_CODE[refused.reason.code]
    if refused.reason.code in ("AppliedOtherwise", "GangWhole"):
        name = job.object_name.partition(",")[0] or job.id
        return f"phalanx cancel {name} ends it; then apply all of it again"
    if refused.reason.code == "NotIsolated":
        return "phalanx node show NAME says what a node holds tasks to; see docs/operations/isolation.md"
    if refused.reason.code == "NoContainers":
        return "phalanx node show NAME says whether a node can run containers; see docs/guides/containers.md"
    if refused.reason.code == "TargetNotFound" and refused.kind == "never":  # of --nodes or --exclude
        return "phalanx nodes lists the nodes; --allow-infeasible accepts the name of one that will come"
    if (layers := refused.reason.numbers.get("layers")) and not refused.reason.numbers.get("nearest"):
        return f"write one of {', '.join(layers)}; phalanx topology shows what is in each"
    if refused.reason.numbers.get("lacking"):
        return "phalanx nodes -o wide lists the labels of each node"
    if refused.kind == "never":
        change = change_to_fit(state, job)
        fix = "" if change is None else change.text
    return fix or _HINTS.get(refused.kind, "")


_HINTS_BY_CODE = {
    "QuotaExhausted": "omit --no-queue to wait for other jobs of the queue to end; an admin can raise its quota",
    "QueueNotFound": "phalanx queue list shows them; an admin declares one with phalanx queue set NAME",
    "QueueNotAllowed": "phalanx queue list shows the others; an admin lets you in with phalanx queue set NAME --users",
    "UserLimitReached": "omit --no-queue to wait for your own tasks there to end",
    "UserSubmitLimit": "wait until some of your tasks there have ended, or use another queue",
    "QueueSubmitLimit": "wait until some tasks of the queue have ended, or use another queue",
    "PriorityTooHigh": "an admin can allow more in a queue: phalanx queue set NAME --priority-max N",
}
_HINTS = {
    "busy": "omit --no-queue to wait for it",
    "no_room": "omit --no-queue to wait for room",
    "target": "phalanx nodes lists the nodes, phalanx node show NAME the NUMA nodes and GPUs of one",
    "never": "ask for less, or submit with --allow-infeasible to wait for a larger node",
    "too_many": "wait until some tasks have run",
    "reservation": "phalanx node ip-reserve NODE makes another; each is for one task on that node",
}


def _error(kind: str, detail: str, code: str, hint: str, failed: list[FailedTarget]) -> PhalanxError:
    retry = 1.0 if kind in ("too_many", "no_room", "busy") else None
    return _KINDS[kind](detail, reason=code, hint=hint, retry_after_s=retry, extra=_targets(failed))


def _targets(failed: list[FailedTarget]) -> dict[str, list[FailedTarget]]:
    return {"failed_targets": failed} if failed else {}
