"""Tasks that run as one: which may, and what the end of the one means for the others.

The program of a merged task gets the specifications of all (PHALANX_MERGED) and answers for all in one result,
`{"result": its own, "children": {"ID": theirs, ...}}`. A task for which the answer has no part runs by itself.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from phalanx.core.cluster.dispatch_events import MergedEnd, MergedEnded
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import RESULT_BYTES_MAX, Exit, Status, Why

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
    if asked is None or not asked.merge_key or len(set(children)) < len(children):
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


def split(exit: Exit) -> tuple[Exit, dict[str, str]]:
    """The end of a merged task as its own, and the results of the others by their ids."""
    try:
        found: Any = msgspec.json.decode(exit.result) if exit.result else None
    except (msgspec.DecodeError, RecursionError):
        found = None
    children = found.get("children") if isinstance(found, dict) else None
    if not isinstance(children, dict) or "result" not in found:
        return exit, {}
    own = msgspec.json.encode(found["result"]).decode()
    if len(own.encode()) > RESULT_BYTES_MAX:
        return exit, {}
    parts = {id: msgspec.json.encode(each).decode() for id, each in children.items()}
    return structs.replace(exit, result=own), {
        id: part for id, part in parts.items() if len(part.encode()) <= RESULT_BYTES_MAX
    }


def _still_merged(state: ClusterState, attempt: Attempt) -> list[JobId]:
    """The jobs that are a part of an attempt, and were not cancelled meanwhile."""
    return [id for id in attempt.merged if id in state.jobs and state.jobs[id].merged_into == attempt.key]


def all_alone(state: ClusterState, attempt: Attempt, now: float) -> MergedEnded:
    """The answer is in the place for files, so its parts cannot be told apart here: each task runs by itself."""
    waiting = _still_merged(state, attempt)
    parent = attempt.key[0]
    return MergedEnded(at=now, cause=f"job {parent}", key=attempt.key, alone=(parent, *waiting))


def merged_ended(
    state: ClusterState, attempt: Attempt, exit: Exit, status: Status, parts: dict[str, str], now: float
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
            done = Exit(Why.NONE, 0, exit.started_at, exit.ended_at, f"{PART_OF}{parent}", result=parts[id])
            ends.append(MergedEnd(id, status, done))
    ended = {end.job for end in ends}
    alone = tuple(id for id in waiting if id not in ended)
    return MergedEnded(at=now, cause=f"job {parent}", key=attempt.key, ends=tuple(ends), alone=alone)
