"""What a job starts after, looked up: a job, a workflow, or a stage, whose job need not exist yet.

What each means is `core/cluster/dependencies.py`'s business.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.dependencies import WHENS
from phalanx.coordinator.lookup import find_stage, find_task
from phalanx.coordinator.naming import find_named
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.dependencies import (
    Predecessor,
    StageWithoutJob,
    has_come,
    not_accepted_after,
    predecessor,
)
from phalanx.core.cluster.workflow_image import decode_workflow, is_workflow
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.job import After, JobId, is_job_id
from phalanx.errors import BadRequest, Conflict, NotFound
from phalanx.store.protocol import Store


async def find_before(
    requests: Requests, store: Store, after: tuple[After, ...], user: str
) -> tuple[After, ...]:
    """What comes first, by its whole id. What came as it had to, and is not in memory as a job, is left out."""
    found: list[After] = []
    for each in after:
        id, other = await _before(requests, store, each, user)
        whole = structs.replace(each, job=id)
        if any(known.job == whole.job for known in found):
            raise BadRequest(f"after: {each.job} is given twice")
        if each.when == "started" and isinstance(other, WorkflowState):
            raise BadRequest(
                f"after: {each}: a workflow is waited for until it has ended, not until it has started",
                hint=f"name one of its stages: {each.job}:STAGE:started",
            )
        if id in requests.state.jobs or not other.is_over:
            found.append(whole)
        elif each.each:
            raise Conflict(
                f"after: {each.job} ended long ago: its tasks cannot be waited for one by one any more",
                reason="DependencyNever",
            )
        elif not has_come(other, each.when):
            raise Conflict(not_accepted_after(other, whole), reason="DependencyNever")
    return tuple(found)


async def _before(requests: Requests, store: Store, after: After, user: str) -> tuple[JobId, Predecessor]:
    """What comes first, and its whole id: a job, a workflow, or a stage whose job need not exist yet."""
    text = await find_named(requests, store, after.job, user, of_all=False)
    if ":" in text:
        try:
            flow, number = await find_stage(requests, store, text)
        except NotFound as error:
            if error.reason == "StageNotFound":  # it names those that there are
                raise
            whens = ", ".join(f":{when}" for when in WHENS)
            hint = f"JOB and WORKFLOW:STAGE may be followed by {whens}"
            raise BadRequest(f"after: {error.detail}", hint=hint) from None
        id = flow.job_id(number)
        return id, requests.state.jobs.get(id) or StageWithoutJob(flow, number)
    if (known := predecessor(requests.state, text)) is not None:
        return text, known
    if is_job_id(text) and (body := await store.history(text)) is not None and is_workflow(body):
        return text, decode_workflow(body)
    job, position = await find_task(requests, store, text)
    if position is not None and job.job.tasks > 1:
        whole = after.job.rpartition(".")[0]
        alike = f", or --after {whole}:each in an array of the same indexes" if job.job.array else ""
        raise BadRequest(
            f"after: {after.job} is one task of {job.job.id}, and a job starts after whole jobs",
            reason="WholeJob",
            hint=f"--after {whole}{alike}",
        )
    return job.job.id, job
