"""What an event is about: the jobs and the node whose stories it belongs to."""

from __future__ import annotations

from phalanx.core.cluster.events import (
    AttemptEnded,
    AttemptReady,
    AttemptStarted,
    AttemptSuspected,
    Event,
    GangRecalled,
    GangReleased,
    JobAmended,
    JobForgotten,
    JobRestarted,
    JobSettled,
    JobSubmitted,
    PromiseWithdrawn,
    RoomPromised,
    TaskPaused,
    TaskPlaced,
    TaskResumed,
    TasksCancelled,
    TasksEvicted,
)
from phalanx.core.cluster.events_log import JobReleased, LogRepaired
from phalanx.core.model.ids import JobId, NodeName


def jobs_of(event: Event) -> tuple[JobId, ...]:
    """Every job whose story an event belongs to: an eviction is told of the victims as well."""
    match event:
        case RoomPromised():
            return tuple(dict.fromkeys([event.job, *(key[0] for key in event.victims), *event.displaced]))
        case TasksEvicted():
            return tuple(dict.fromkeys(key[0] for key in event.keys))
        case LogRepaired():
            return event.jobs
    job = job_of(event)
    return () if job is None else (job,)


def job_of(event: Event) -> JobId | None:
    """The job an event belongs to, if it belongs to one."""
    match event:
        case JobSubmitted() | JobAmended():
            return event.job.id
        case (
            TasksCancelled()
            | JobForgotten()
            | GangReleased()
            | GangRecalled()
            | RoomPromised()
            | PromiseWithdrawn()
            | JobRestarted()
            | JobSettled()
            | JobReleased()
        ):
            return event.job
        case (
            TaskPlaced()
            | AttemptReady()
            | AttemptStarted()
            | AttemptSuspected()
            | AttemptEnded()
            | TaskPaused()
            | TaskResumed()
        ):
            return event.key[0]
    return None


def node_of(event: Event) -> NodeName | None:
    """The node an event is about, if it is about one."""
    return getattr(event, "node", None)
