"""A no of the core, said as an error that HTTP and the shell understand, with the nearest fix as its hint."""

from __future__ import annotations

from phalanx.api.schema import FailedTarget
from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job
from phalanx.core.placement.explain import nearest_request
from phalanx.errors import BadRequest, Busy, Conflict, NeverFits, NoRoom, NotFound, PhalanxError, TooMany

_KINDS: dict[str, type[PhalanxError]] = {
    "never": NeverFits,
    "target": BadRequest,
    "busy": Busy,
    "no_room": NoRoom,
    "conflict": Conflict,
    "bad": BadRequest,
    "not_found": NotFound,
    "too_many": TooMany,
    "stale": Conflict,
}


def refusal(refused: Refused, what: str) -> PhalanxError:
    """The error for one refused wish about `what`."""
    return _error(refused.kind, f"{what}: {refused.reason.text}", refused.reason.code, "", [])


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
    first = refused[0]
    detail = first.reason.text
    if len(failed) > 1:
        listed = "; ".join(f"{each.target}: {each.detail}" for each in failed)
        detail = f"Failed to schedule task for any target. Failures: {listed}"
    fix = nearest_request(state.table, jobs[0][1].request) if first.kind == "never" else ""
    return _error(first.kind, detail, first.reason.code, fix or _HINTS.get(first.kind, ""), failed)


_HINTS = {
    "busy": "leave out --no-queue to wait for it",
    "no_room": "leave out --no-queue to wait for room",
    "target": "phalanx nodes lists the nodes, their NUMA nodes and GPUs",
    "never": "ask for less, or submit with --allow-infeasible to wait for a larger node",
    "too_many": "wait until some tasks have run",
}


def _error(kind: str, detail: str, code: str, hint: str, failed: list[FailedTarget]) -> PhalanxError:
    retry = 1.0 if kind in ("too_many", "no_room", "busy") else None
    return _KINDS[kind](detail, reason=code, hint=hint, retry_after_s=retry, extra=_targets(failed))


def _targets(failed: list[FailedTarget]) -> dict[str, list[FailedTarget]]:
    return {"failed_targets": failed} if failed else {}
