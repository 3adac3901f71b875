"""Verdicts about time: leases and limits that hold, times reported as they were, and no request that waits for ever."""

from __future__ import annotations

from tests.chaos.answers import Task
from tests.chaos.evidence import Evidence
from tests.chaos.faults import CLOCKS, NOT_WATCHED, OUT_OF_TOUCH
from tests.chaos.ledger import Life

EARLY_S = 0.3  # a limit is counted from a moment about the birth of the process
LATE_S = 5.0  # to notice that a limit has passed, on a machine that has much to do
GRACE_S = 10.0  # between SIGTERM and SIGKILL; our tasks end at once
MEASURED_S = 0.5  # what may pass between an end and the line about it
TOLD_S = 3.0  # between what a process and its keeper take for the same moment
STARVED_S = 10.0


def outlived_leases(evidence: Evidence) -> list[str]:
    """What runs on a node that receives nothing from the coordinator has ended when the node is declared lost."""
    found = []
    for fault in evidence.faults:
        if fault.kind not in OUT_OF_TOUCH:
            continue
        over_at = fault.began_at + evidence.lost_after_s
        for life in evidence.lives.values():
            if life.node != fault.victims[0] or not life.started_at < fault.began_at:
                continue
            last_at = life.ended_at or life.seen_at
            if over_at + MEASURED_S < last_at < (fault.ended_at or last_at + 1.0):
                late_s = last_at - over_at
                found.append(
                    f"{life.key} on {life.node} ({fault.kind}) lived {late_s:.1f} s longer than its lease"
                )
    return found  # fmt: skip


def limits(evidence: Evidence) -> list[str]:
    """A task with a time limit is not stopped before it, and not much later, whatever the clocks say."""
    found = []
    for asked, task, life in evidence.last_lives():
        where = f"{asked.request} {life.key} on {life.node}"
        lived_s = None if life.ended_at is None else life.ended_at - life.born_at
        if task.reason == "timeout" and asked.limit_s is None:
            found.append(f"{where}: it timed out, and has no limit")
        elif asked.limit_s is None or lived_s is None:
            continue
        elif task.reason == "timeout" and lived_s < asked.limit_s - EARLY_S:
            found.append(f"{where}: stopped after {lived_s:.2f} s, its limit is {asked.limit_s:g} s")
        elif (
            life.ended_at is not None and life.ended_at > _stopped_by(evidence, life, asked.limit_s) + LATE_S
        ):
            found.append(f"{where}: ended after {lived_s:.2f} s, its limit is {asked.limit_s:g} s")
    return found


def _stopped_by(evidence: Evidence, life: Life, limit_s: float) -> float:
    """When it must have been stopped: while its node is harmed, as soon as that is over."""
    due_at = life.born_at + limit_s
    for fault in sorted(evidence.faults, key=lambda fault: fault.began_at):
        if fault.kind not in CLOCKS and fault.touches(life.node, due_at - evidence.lost_after_s, due_at):
            due_at = max(due_at, (fault.ended_at or due_at) + evidence.lost_after_s)
    return due_at


def untrue_times(evidence: Evidence) -> list[str]:
    """Starts and ends are reported as they were; no end comes before its start."""
    found = []
    for asked, task, life in evidence.last_lives():
        where = f"{asked.request} {life.key} on {life.node}"
        if task.started_at is not None and task.ended_at is not None and task.ended_at < task.started_at:
            found.append(
                f"{where}: said to have ended {task.started_at - task.ended_at:.1f} s before it began"
            )
        if life.ended_at is None or task.reason not in ("", "exited", "timeout"):
            continue
        if evidence.harmed(life.node, life.born_at - TOLD_S, life.ended_at + TOLD_S, (*CLOCKS, *NOT_WATCHED)):
            continue
        found += [f"{where}: {wrong}" for wrong in _wrong_times(task, life, evidence.wall_offset_s)]
    return found


def _wrong_times(task: Task, life: Life, offset_s: float) -> list[str]:
    pairs = (("began", task.started_at, life.started_at), ("ended", task.ended_at, life.ended_at))
    return [
        f"it {word} at {true + offset_s:.1f}, and it is said: {'never' if told is None else f'{told:.1f}'}"
        for word, told, true in pairs
        if true is not None and (told is None or abs(told - true - offset_s) > TOLD_S)
    ]


def starved(evidence: Evidence) -> list[str]:
    """Every request is answered as long as there is a leader: no other user, and no slow reader, delays it."""
    found = []
    for wait in evidence.waits:
        served_s = sum(
            max(0.0, min(wait.ended_at, until) - max(wait.began_at, since)) for since, until in evidence.led
        )
        if served_s > STARVED_S:
            found.append(
                f"{wait.user} waited {served_s:.1f} s for the answer to a {wait.what}, though one led"
            )
    return found
