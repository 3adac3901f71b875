"""Conditions: what Kubernetes would say of a task whose attempt was asked to leave."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.job import Job


class Condition(Struct):
    """That an attempt was asked to leave, by whom and for whom: Kubernetes' DisruptionTarget."""

    at: float
    message: str
    preempted: bool  # by the scheduler, for a more urgent job; otherwise somebody evicted it
    past_at: float | None = None  # when a later attempt was placed, of which it is not true


def preemptor(job: Job, number: int) -> str:
    """A job as its victims are told of it: what it is called, its number, whose it is, and how urgent."""
    if job.object_name:
        return job.object_name
    if not (number and job.user):
        return f"{job.name or job.id} (priority {job.priority})"
    whose = f"job {number} of {job.user}"
    return (
        f"{job.name} ({whose}, priority {job.priority})" if job.name else f"{whose} (priority {job.priority})"
    )


def told_preemption(message: str) -> bool:
    """What an image of an earlier version says of a condition, which kept its sentence alone."""
    return ", preemptor: " in message or "preempted to make room for" in message
