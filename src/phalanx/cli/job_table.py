"""The columns of `phalanx ps`: which there are, what each shows of a job or task, and how a list is sorted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.labels import label
from phalanx.cli.members import ENDED, node_of, placed, standing
from phalanx.cli.output import Table, moment, soon, span, time_of_day
from phalanx.cli.shell_exits import shell_code
from phalanx.clock import SystemClock
from phalanx.errors import BadRequest

Cell = Callable[[Any, float], object]
DEFAULT_QUEUE = "default"
NODES_SHOWN = 3  # on a terminal
NODES_KNOWN = 256  # of no job are there more
TASKS_LOOKED_AT = 1000  # for them


def job_status(job: JobView) -> str:
    """The status of a job in one word, finer than the API's where nothing of it goes on."""
    if job.unapproved and job.status == "Pending":
        return "Unapproved"
    if job.held and job.status == "Pending":
        return "Held"
    if job.status == "Pending" and job.begin_at and job.begin_at > (now := SystemClock().now()):
        return f"Begins {soon(job.begin_at, now)}"
    if job.status == "Assigned" and _ended(job):  # between the end of one task and the start of the next
        return "Running"
    if job.status != "Running":
        return job.status
    kinds = (("Unreachable", job.unreachable), ("Paused", job.paused), ("Unread", job.unread))
    return next((word for word, count in kinds if 0 < job.counts.running <= count), job.status)


def _ended(job: JobView) -> int:
    return job.counts.completed + job.counts.failed + job.counts.cancelled + job.finished


def _done(job: JobView) -> str:
    """`3/10` have done their part, also those that failed; a cancelled one has not, whether it began or not."""
    counts = job.counts
    told = ((counts.failed, "failed"), (counts.cancelled, "cancelled"))
    beside = ", ".join(f"{count} {word}" for count, word in told if count)
    return f"{counts.completed + counts.failed + job.finished}/{job.tasks}" + (
        f" ({beside})" if beside else ""
    )


def _nodes(job: JobView) -> str:
    """A terminal shows a few; a pipe gets all that are known, and whether there may be more."""
    most = NODES_SHOWN if sys.stdout.isatty() else NODES_KNOWN
    is_all = len(job.nodes) <= most and len(job.nodes) < NODES_KNOWN
    looked_for = job.tasks if job.status in ENDED else job.counts.assigned + job.counts.running
    is_all = is_all and looked_for <= TASKS_LOOKED_AT
    return ",".join(job.nodes[:most]) + ("" if is_all or not job.nodes else "…")


def _reason(job: JobView) -> str:
    """The reason in a word; of an eviction, also when, by whom and for whom."""
    if beside := _beside(job):
        return beside
    if not job.evicted or job.evicted_at is None:
        return job.reason
    return f"evicted at {time_of_day(job.evicted_at)}: {job.evicted.removeprefix('phalanx: ')}"


def _beside(job: JobView) -> str:
    """What of a job that runs goes on otherwise than the rest, or not at all."""
    is_held = job.held and job.counts.pending and job.status in {"Assigned", "Running"}
    is_partly_lost = 0 < job.unreachable < job.counts.running
    told = (f"{job.unreachable} unreachable" if is_partly_lost else "", "rest is held" if is_held else "")
    return ", ".join(filter(None, told))


def tags_text(job: JobView) -> str:
    """The tags of a job, with those of its only group."""
    every = job.tags | (job.groups[0].tags if len(job.groups) == 1 else {})
    return ", ".join(f"{key}={value}" for key, value in every.items())


OF_JOBS: dict[str, Cell] = {
    "ID": lambda job, _: label(job),
    "NAME": lambda job, _: job.name,
    "USER": lambda job, _: job.user,
    "STATUS": lambda job, _: job_status(job),
    "DONE/TASKS": lambda job, _: _done(job),
    "QUEUE": lambda job, _: job.queue,
    "ELAPSED": lambda job, now: span(job.started_at, job.ended_at or now),
    "NODES": lambda job, _: _nodes(job),
    "COMMAND": lambda job, _: " ".join(job.command),
    "PRIORITY": lambda job, _: job.priority,
    "REASON": lambda job, _: _reason(job),
    "PHASE": lambda job, _: job.gang.phase if job.gang is not None else None,
    "PLACED/MEMBERS": lambda job, _: placed(job) if job.gang is not None else None,
    "EXIT": lambda job, _: shell_code(job.exit_code, job.reason),
    "CORES": lambda job, _: job.request.cores,
    "GPUS": lambda job, _: job.request.gpus,
    "TARGET": lambda job, _: job.request.target,
    "SUBMITTED": lambda job, _: moment(job.submitted_at),
    "STARTED": lambda job, _: moment(job.started_at),
    "ENDED": lambda job, _: moment(job.ended_at),
    "BEGINS": lambda job, _: moment(job.begin_at) if job.begin_at else None,
    "WORKFLOW": lambda job, _: job.workflow,
    "TAGS": lambda job, _: tags_text(job),
    "LONG ID": lambda job, _: job.id,
}
OF_TASKS: dict[str, Cell] = {
    "ID": lambda task, _: label(task),
    "STATUS": lambda task, _: standing(task),
    "NODE": lambda task, _: node_of(task),
    "GPUS": lambda task, _: ",".join(map(str, task.devices)),
    "PARAMETERS": lambda task, _: " ".join(f"{name}={value}" for name, value in task.params.items()),
    "ATTEMPT": lambda task, _: task.attempt,
    "EXIT": lambda task, _: shell_code(task.exit_code, task.reason),
    "ELAPSED": lambda task, now: span(task.started_at, task.ended_at or now),
    "REASON": lambda task, _: task.reason,
    "GROUP": lambda task, _: task.group,
    "RANK": lambda task, _: task.rank,
    "TARGET": lambda task, _: task.target,
    "STARTED": lambda task, _: moment(task.started_at),
    "ENDED": lambda task, _: moment(task.ended_at),
    "MESSAGE": lambda task, _: task.message,
    "LONG ID": lambda task, _: task.id,
}
_BEYOND_WIDE = ("STARTED", "ENDED", "BEGINS", "WORKFLOW", "TAGS")
_FEW_OF_TASKS = ("ID", "STATUS", "PARAMETERS", "NODE", "GPUS", "ATTEMPT", "EXIT", "ELAPSED", "REASON")
NARROWS = {
    "COMMAND": 10,
    "NAME": 12,
    "NODES": 8,
    "NODE": 8,
    "GPUS": 6,
    "PARAMETERS": 16,
    "REASON": 18,  # most reasons in a word
    "USER": 6,
}
SPARE = ("ELAPSED", "ATTEMPT", "QUEUE")


def _elapsed_s(job: JobView) -> float:
    """For how long it runs or ran; one that has not started is before all others."""
    return -1.0 if job.started_at is None else (job.ended_at or SystemClock().now()) - job.started_at


SORTS: dict[str, Callable[[JobView], Any]] = {
    "number": lambda job: (job.number, job.id),
    "name": lambda job: job.name,
    "user": lambda job: job.user,
    "queue": lambda job: job.queue,
    "status": job_status,
    "priority": lambda job: job.priority,
    "submitted": lambda job: job.submitted_at,
    "started": lambda job: job.started_at or float("inf"),
    "ended": lambda job: job.ended_at or float("inf"),
    "tasks": lambda job: job.tasks,
    "elapsed": _elapsed_s,
}


def chosen_columns(
    text: str | None, items: Sequence[JobView | TaskView], wide: bool, has_others: bool = False
) -> list[str]:
    """The headings of a list: those asked for, or those that say something of these items. `has_others`: some are of
    other users than who asks.
    """
    known = OF_TASKS if items and isinstance(items[0], TaskView) else OF_JOBS
    if text is not None:
        return [_heading(word, known) for word in text.split(",")]
    if known is OF_TASKS:
        has_params = any(item.params for item in items if isinstance(item, TaskView))
        few = list(OF_TASKS) if wide else list(_FEW_OF_TASKS)
        return [heading for heading in few if has_params or heading != "PARAMETERS"]
    if wide:
        return [heading for heading in OF_JOBS if heading not in _BEYOND_WIDE]
    jobs = [item for item in items if isinstance(item, JobView)]
    few = ["ID", "NAME", "USER", "STATUS", "DONE/TASKS", "QUEUE", "ELAPSED", "NODES", "COMMAND"]
    if not has_others and len({job.user for job in jobs}) < 2:
        few.remove("USER")
    if {job.queue for job in jobs} <= {DEFAULT_QUEUE}:
        few.remove("QUEUE")
    if not any(job.nodes for job in jobs):
        few.remove("NODES")
    if any(job.evicted or (job.reason and job.status == "Pending") or _beside(job) for job in jobs):
        few.insert(few.index("COMMAND"), "REASON")
    return few


def check_columns(text: str | None, *, of_tasks: bool) -> None:
    """Refuse headings that no list of jobs, or of tasks, has: also of a list that is empty."""
    for word in [] if text is None else text.split(","):
        _heading(word, OF_TASKS if of_tasks else OF_JOBS)


def _heading(word: str, known: dict[str, Cell]) -> str:
    """A column by its heading, or by a part of it: done, tasks, long-id."""
    asked = word.strip().upper().replace("-", " ").replace("_", " ")
    for heading in known:
        if asked in (heading, *heading.split("/")):
            return heading
    names = ", ".join(heading.lower().replace(" ", "-") for heading in known)
    raise BadRequest(f"--columns: {word!r} is not a column here", hint=f"columns are {names}")


def table_of(
    items: Iterable[JobView | TaskView],
    headings: Sequence[str],
    now: float,
    narrows: bool = True,
    spare: Sequence[str] = SPARE,
) -> Table:
    """Jobs or tasks under these headings."""
    table = Table(*headings, narrows=NARROWS if narrows else None, spare=spare)
    for item in items:
        cells = OF_JOBS if isinstance(item, JobView) else OF_TASKS
        table.add(*(cells[heading](item, now) for heading in headings))
    return table


def sorted_jobs(jobs: Iterable[JobView], word: str) -> list[JobView]:
    """By one of the words of SORTS, with a minus before it the other way round."""
    key = SORTS.get(word.removeprefix("-"))
    if key is None:
        raise BadRequest(f"--sort: {word!r} is unknown", hint=f"sort by {', '.join(SORTS)}; -NAME reverses")
    return sorted(jobs, key=key, reverse=word.startswith("-"))
