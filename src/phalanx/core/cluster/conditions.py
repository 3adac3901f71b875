"""Conditions: what Kubernetes would say of a task whose attempt was asked to leave."""

from __future__ import annotations

from msgspec import Struct


class Condition(Struct):
    """That an attempt was asked to leave, by whom and for whom: Kubernetes' DisruptionTarget."""

    at: float
    message: str
    preempted: bool  # by the scheduler, for a more urgent job; otherwise somebody evicted it
    past_at: float | None = None  # when a later attempt was placed, of which it is not true


def told_preemption(message: str) -> bool:
    """What an image of an earlier version says of a condition, which kept its sentence alone."""
    return ", preemptor: " in message or "preempted to make room for" in message
