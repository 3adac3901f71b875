"""Why not, as a value. The code that decides makes these; every surface shows the same ones.

A reason belongs to a tier that says what could help: nothing in this cluster (never), a person (held), time
and policy, free capacity, or only patience (progress). Structural tiers win over waiting ones.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from msgspec import Struct

from phalanx.core.model.quantity import describe_bytes


class Tier(IntEnum):
    """What could turn this no into a yes; the lowest tier is the dominant one."""

    NEVER = 0
    HELD = 1
    POLICY = 2
    CAPACITY = 3
    PROGRESS = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class Reason(Struct, frozen=True):
    """One no: a code for programs, a sentence for people, and the numbers behind it."""

    code: str
    tier: Tier
    text: str
    numbers: dict[str, Any] = {}


def target_not_found(host: str, known: list[str]) -> Reason:
    names = ", ".join(known[:8]) or "none"
    return Reason(
        "TargetNotFound", Tier.NEVER, f"Node not registered: {host} (nodes: {names})", {"host": host}
    )


def no_nodes() -> Reason:
    return Reason("NoNodes", Tier.HELD, "No node has joined this cluster yet")


def offline(host: str) -> Reason:
    return Reason(
        "NodeOffline", Tier.HELD, f"Node status is offline: {host} has not been heard of", {"host": host}
    )


def unreachable(host: str) -> Reason:
    return Reason("NodeUnreachable", Tier.HELD, f"The runner of {host} lost its connection", {"host": host})


def quarantined(host: str, left: int) -> Reason:
    text = f"{host} came back and is still stopping {left} older attempts"
    return Reason("NodeQuarantined", Tier.HELD, text, {"host": host, "left": left})


def drained(host: str, why: str) -> Reason:
    return Reason("Maintenance", Tier.HELD, f"{host} is drained: {why}", {"host": host, "reason": why})


def numa_not_found(host: str, asked: int, valid: list[int]) -> Reason:
    text = f"Invalid NUMA ID {asked} on {host} (Valid: {valid})"
    return Reason("NumaNotFound", Tier.NEVER, text, {"asked": asked, "valid": valid})


def gpu_index_invalid(host: str, bad: list[int], valid: list[int]) -> Reason:
    text = f"Invalid GPU IDs: {bad} on {host} (Valid: {valid})"
    return Reason("GpuIndexInvalid", Tier.NEVER, text, {"bad": bad, "valid": valid})


def gpus_busy(host: str, busy: list[int]) -> Reason:
    text = f"Requested GPUs not available: {busy} on {host} are held by other tasks"
    return Reason("TargetBusy", Tier.CAPACITY, text, {"busy": busy})


def not_enough_gpus(host: str, wanted: int, free: int, total: int, kind: str) -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    if wanted > total:
        text = f"{host} has {total} {kind}, {wanted} asked"
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason(
        "WaitingCapacity", Tier.CAPACITY, f"{host}: {free} of {total} {kind} free, {wanted} asked", numbers
    )


def not_enough_cores(host: str, wanted: int, free: int, total: int, where: str = "") -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    text = f"Insufficient available cores on {host}{where}: {wanted} asked, {free} of {total} free"
    if wanted > total:
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason("WaitingCapacity", Tier.CAPACITY, text, numbers)


def not_enough_memory(host: str, wanted: int, free: int, total: int) -> Reason:
    numbers = {"wanted": wanted, "free": free, "total": total}
    text = (
        f"Insufficient available memory on {host}: {describe_bytes(wanted)} asked, "
        f"{describe_bytes(free)} of {describe_bytes(total)} free"
    )
    if wanted > total:
        return Reason("ExceedsLargestNode", Tier.NEVER, text, numbers)
    return Reason("WaitingCapacity", Tier.CAPACITY, text, numbers)


def at_once_limit(limit: int) -> Reason:
    text = f"The array runs at most {limit} tasks at once, and {limit} are running"
    return Reason("ArrayLimit", Tier.POLICY, text, {"limit": limit})


def behind(ahead: int) -> Reason:
    text = f"{ahead} tasks stand before it in the queue (higher priority, or earlier)"
    return Reason("PriorityBehind", Tier.POLICY, text, {"ahead": ahead})


def backing_off(seconds: float, used: int, allowed: int) -> Reason:
    text = f"It failed and is tried again in {seconds:.1f} s (retry {used} of {allowed})"
    return Reason("RetryBackoff", Tier.PROGRESS, text, {"seconds": seconds, "used": used, "allowed": allowed})


def starting(host: str) -> Reason:
    return Reason(
        "Starting", Tier.PROGRESS, f"Sent to {host}, which has not confirmed the start yet", {"host": host}
    )


def evaluating() -> Reason:
    return Reason("Evaluating", Tier.PROGRESS, "It fits now and is placed at the next turn")


def running(host: str, paused: bool) -> Reason:
    if paused:
        return Reason(
            "Paused", Tier.HELD, f"It is paused on {host} and keeps what it was given", {"host": host}
        )
    return Reason("Running", Tier.PROGRESS, f"It is running on {host}", {"host": host})


def ended(status: str, text: str) -> Reason:
    return Reason(f"Ended{status}", Tier.PROGRESS, text, {"status": status})
