"""Tasks that run as one: which may, and what the end of the one means for the others.

The program of a merged task gets the specifications of all (PHALANX_MERGED) and answers for all in one result, which
its runner takes apart (`core/model/task_results.py`). A task for which the answer has no part runs by itself.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.dispatch_events import MergedEnd, MergedEnded
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import RESULT_BYTES_MAX, Exit, Status, Why
from phalanx.core.model.task_results import PartResult, taken_apart

TOO_LARGE = f"the answer for all merged tasks is over {RESULT_BYTES_MAX} bytes, so each runs by itself"

PART_OF = "it ran as a part of "


def parent_of(job: JobState) -> JobId | None:
    """The job as a part of which this one runs or ran, in whose log its output is; None: it has its own."""
    if job.merged_into is not None:
        return job.merged_into[0]
    message, _ = job.details.get(0, ("", ""))
    is_part = message.startswith(PART_OF) and not job.live
    return message.removeprefix(PART_OF).partition(",")[0] if is_part else None


def may_merge(state: ClusterState, parent: JobState, children: tuple[JobId, ...]) -> bool:
    """Whether these jobs may run as a part of another: they wait, and differ from it only in their data."""
    asked = parent.job.dispatch
    if asked is None or not asked.may_merge or len(set(children)) < len(children):
        return False
    jobs = [state.jobs.get(id) for id in children]
    return all(
        job is not None
        and job is not parent
        and job.job.dispatch is not None
        and job.job.dispatch.merge_key == asked.merge_key
        and job.is_ready(0)
        for job in jobs
    )


def split(exit: Exit) -> tuple[Exit, dict[JobId, PartResult]]:
    """The end of a merged task as its own, and the results of the others by their ids."""
    if exit.is_own:
        return structs.replace(exit, parts=()), {part.job: part for part in exit.parts}
    found = taken_apart(exit.result)  # by a runner of an older version it was not
    if found is None:
        return exit, {}
    own, children = found
    if not _is_short(own):  # numbers may be longer as they are written here
        return exit, {}
    parts = {id: PartResult(id, each) for id, each in children.items() if _is_short(each)}
    return structs.replace(exit, result=own), parts


def _is_short(result: str) -> bool:
    return len(result.encode()) <= RESULT_BYTES_MAX


def _still_merged(state: ClusterState, attempt: Attempt) -> list[JobId]:
    """The jobs that are a part of an attempt, and were not cancelled meanwhile."""
    return [id for id in attempt.merged if id in state.jobs and state.jobs[id].merged_into == attempt.key]


def all_alone(state: ClusterState, attempt: Attempt, now: float) -> MergedEnded:
    """The answer is in the place for files, so its parts cannot be told apart here: each task runs by itself."""
    waiting = _still_merged(state, attempt)
    parent = attempt.key[0]
    return MergedEnded(at=now, cause=f"job {parent}", key=attempt.key, alone=(parent, *waiting))


def merged_ended(
    state: ClusterState,
    attempt: Attempt,
    exit: Exit,
    status: Status,
    parts: dict[JobId, PartResult],
    now: float,
) -> MergedEnded | None:
    """What the end of an attempt means for those that ran as a part of it; None if they simply wait again."""
    parent = state.jobs[attempt.key[0]].job.id
    waiting = _still_merged(state, attempt)
    if not waiting or status not in (Status.COMPLETED, Status.FAILED):
        return None
    ends: list[MergedEnd] = []
    for id in waiting:
        if status == Status.FAILED:
            failed = Exit(
                Why.DEPENDENCY,
                None,
                exit.started_at,
                exit.ended_at,
                f"{PART_OF}{parent}, which failed",
            )
            ends.append(MergedEnd(id, status, failed))
        elif id in parts:
            done = Exit(
                Why.NONE,
                0,
                exit.started_at,
                exit.ended_at,
                f"{PART_OF}{parent}",
                result=parts[id].result,
                result_bytes=parts[id].result_bytes,
                result_sha256=parts[id].result_sha256,
            )
            ends.append(MergedEnd(id, status, done))
    ended = {end.job for end in ends}
    alone = tuple(id for id in waiting if id not in ended)
    return MergedEnded(at=now, cause=f"job {parent}", key=attempt.key, ends=tuple(ends), alone=alone)
