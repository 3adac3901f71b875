"""A plan as a person reads it: job by job, where its tasks go, whom it evicts, or why it must wait.

Tasks are listed by node, nodes by domain; a reason comes with its evidence and a fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from phalanx.cli.output import Table, clean, moment
from phalanx.cli.why import repeats
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.core.model.reason import said

if TYPE_CHECKING:
    from phalanx.api.schema.apply import (
        PlannedEviction,
        PlannedPlacement,
        PlanReason,
        PlanReply,
        WorkflowEstimate,
    )

TASKS_SHOWN = 8


def lines(reply: PlanReply, wide: bool) -> Iterable[str]:
    """The whole plan, one paragraph for each job."""
    jobs = [line for job in jobs_of(reply) for line in _paragraph(reply, job, wide)]
    return [clean(line) for line in [*jobs, *(_estimate(flow) for flow in reply.workflows)]]


def jobs_of(reply: PlanReply) -> Iterable[str]:
    """Whom it is about, each once."""
    jobs = [placed.job for placed in reply.placements] + [no.job for no in reply.reasons]
    return dict.fromkeys(jobs)


def _paragraph(reply: PlanReply, job: str, wide: bool) -> Iterator[str]:
    placed = [each for each in reply.placements if each.job == job]
    evicted = [each for each in reply.evictions if each.preemptor == job]
    reasons = [each for each in reply.reasons if each.job == job]
    yield from _verdict(job, placed, evicted, reasons)
    if placed:
        yield from _places(placed, wide)
    yield from _evictions(evicted, wide)
    for why in dict.fromkeys(said(each.why) for each in evicted):
        yield f"    their users read: {why}"
    nodes = [group for no in reasons for group in no.nodes]
    for no in reasons:
        if wide or no.dominant or not any(repeats(group, no) for group in nodes):
            yield from _reason(no, wide)


def _evictions(evicted: list[PlannedEviction], wide: bool) -> Iterator[str]:
    """A line for each job that loses tasks, with their nodes; with `wide` a line for each task."""
    jobs: dict[str, list[PlannedEviction]] = {}
    for each in evicted:
        jobs.setdefault(each.id if wide else each.job, []).append(each)
    for each, *others in jobs.values():
        job = f"{each.job} {each.name}" if each.name and each.job.isdigit() else each.job
        if not others:
            yield f"  evicts {each.task} on {_place([each])} (job {job}, priority {each.priority})"
            continue
        nodes: dict[str, list[PlannedEviction]] = {}
        for other in (each, *others):
            nodes.setdefault(other.node, []).append(other)
        places = ", ".join(_place(on_node) for on_node in nodes.values())
        yield f"  evicts {len(others) + 1} tasks of job {job} (priority {each.priority}): {places}"


def _place(evicted: list[PlannedEviction]) -> str:
    """A node, and the devices that tasks leave there: n1 GPUs 0-3."""
    devices = sorted({device for each in evicted for device in each.devices})
    word = "GPU" if len(devices) == 1 else "GPUs"
    return evicted[0].node + (f" {word} {_numbers(devices)}" if devices else "")


def _estimate(flow: WorkflowEstimate) -> str:
    """What earlier runs say of the whole workflow."""
    later = flow.stages - flow.begins
    text = f"{flow.name}: {plural(flow.stages, 'stage')}" + (
        f", {later} of them after others" if later else ""
    )
    if len(flow.unknown) == flow.stages:
        return f"{text}; no earlier run of it is known"
    time, cost = describe_seconds(flow.expected_s), f"{flow.expected_cost:.2f}"
    without = f", {plural(len(flow.unknown), 'stage')} not counted that never ran" if flow.unknown else ""
    least = (
        f", at the least {describe_seconds(flow.least_s)} and {flow.least_cost:.2f}" if flow.least_s else ""
    )
    return f"{text}; by earlier runs it takes {time} without waits and costs {cost}{least}{without}"


def _verdict(
    job: str, placed: list[PlannedPlacement], evicted: list[PlannedEviction], reasons: list[PlanReason]
) -> Iterator[str]:
    where = f"{plural(len(placed), 'task')} on {plural(len({each.node for each in placed}), 'node')}"
    together = _common([each.domain for each in placed])
    if together:
        where += f" in {'/'.join(together)}"
    first = next((each for each in reasons if each.waits), None)
    if first is not None and first.tier == "never" and not placed:
        yield f"{job} can never run here: {first.text} ({first.code})"
    elif first is not None and not placed:
        yield f"{job} must wait: {first.text} ({first.code})"
    elif first is not None and any(each.nominated for each in placed):
        yield f"{job} waits for its places, {where}: {first.text} ({first.code})"
    elif first is not None:
        verb = "can never start" if first.tier == "never" else "must wait"
        waits = f"{plural(first.tasks, 'task')} {verb}: {first.text} ({first.code})"
        yield f"{job} would start in part, {where}; {waits}"
    elif evicted:
        leave = "has" if len(evicted) == 1 else "have"
        yield f"{job} would start, {where}, when {plural(len(evicted), 'task')} that it evicts {leave} left"
    else:
        yield f"{job} would start now: {where}"


def _places(placed: list[PlannedPlacement], wide: bool) -> Iterator[str]:
    """A row for each node, in the order of the members."""
    rows: dict[tuple[str, str], list[PlannedPlacement]] = {}
    for each in placed:
        rows.setdefault((each.node, each.group), []).append(each)
    has_domains = any(each.domain for each in placed)
    headings = ("  NODE", *(["DOMAIN"] if has_domains else []), "GPUS", "TASKS")
    table = Table(*headings, narrows={"TASKS": 20, "DOMAIN": 12, "  NODE": 12})
    for (node, _), members in rows.items():
        tasks = [each.task for each in members]
        shown = tasks if wide or len(tasks) <= TASKS_SHOWN else [*tasks[: TASKS_SHOWN - 1], f"… {tasks[-1]}"]
        domain = ["/".join(members[0].domain)] if has_domains else []
        devices = _numbers(sorted(device for each in members for device in each.devices))
        count = f"{len(tasks)}: " if len(tasks) > 1 else ""
        table.add(f"  {node}", *domain, devices, count + " ".join(shown))
    yield from table.lines()


def _reason(reason: PlanReason, wide: bool) -> Iterator[str]:
    if not reason.waits:
        more = f"{plural(reason.tasks, 'more task')}; " if reason.tasks else ""
        yield f"  later: {more}{reason.text} ({reason.code})"
    elif not reason.dominant:
        yield f"  also: {reason.text} ({reason.code})"
    needed = reason.numbers.get("wanted", reason.numbers.get("needed"))
    for each in reason.domains:
        of = f" of {needed} needed" if needed is not None else ""
        yield f"  {each.layer} {'/'.join(each.domain)}: room for {each.slots}{of}"
    for group in reason.nodes:
        names = ", ".join(group.nodes) + (", …" if group.count > len(group.nodes) else "")
        if wide or group.count > 1 or not repeats(group, reason):
            yield f"  {plural(group.count, 'node')}: {group.reason.text} ({group.reason.code}) [{names}]"
    if reason.expected_at is not None:
        yield f"  expected to start by {moment(reason.expected_at)}, if time limits are used up and nobody passes it"
    if reason.fix is not None:
        yield f"  fix: {reason.fix.text}"
        if reason.fix.command:
            yield f"    {reason.fix.command}"


def _common(paths: list[list[str]]) -> list[str]:
    """The innermost domain that holds all of them."""
    found: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        found.append(names[0])
    return found


def _numbers(numbers: list[int]) -> str:
    """0-3,7"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
