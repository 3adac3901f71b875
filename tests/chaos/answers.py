"""What Phalanx reports in the end: every job, every task, and the lines of their stories that the verdict needs."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

import phalanx
from phalanx import StoryLine
from phalanx.errors import NotFound
from tests.chaos.workload import Asked

_ATTEMPT = re.compile(r"attempt (\d+)")
_LOST = re.compile(r"lost on|went offline|declared lost|did not confirm")
_FORMATION = re.compile(r"formation (\d+)")


@dataclass
class Task:
    """How a task ended, and which of its attempts completed or ended by the log."""

    position: int
    status: str
    reason: str
    exit_code: int | None
    attempt: int
    completed: list[int] = field(default_factory=list)  # attempts
    ended: list[int] = field(default_factory=list)
    lost: list[int] = field(
        default_factory=list
    )  # attempts that were declared lost before their end was reported
    started_at: float | None = None  # of its last attempt, by the wall clock of its node
    ended_at: float | None = None


@dataclass
class Job:
    id: str
    name: str
    status: str
    tasks: dict[int, Task]
    released_at: dict[int, float] = field(default_factory=dict)  # by formation, on the coordinator's clock
    stood: dict[int, set[str]] = field(default_factory=dict)  # nodes, by formation


def ask_all(client: phalanx.Client, asked: list[Asked]) -> dict[str, Job]:
    """Every job that was accepted and is known, by its id."""
    found: dict[str, Job] = {}
    for each in asked:
        if each.job:
            with suppress(NotFound):  # then it is lost, and the verdict reports it
                found[each.job] = ask_job(client, each.job)
    return found


def names(client: phalanx.Client) -> dict[str, list[str]]:
    """The ids of all jobs there are, by name."""
    found: dict[str, list[str]] = {}
    cursor: str | None = None
    while True:
        page = client.jobs(cursor=cursor, limit=100)
        for job in page.items:
            found.setdefault(job.name, []).append(job.id)
        if (cursor := page.next_cursor) is None:
            return found


def ask_job(client: phalanx.Client, id: str) -> Job:
    """One job with its tasks and what its story has of them."""
    view = client.job(id)
    job = Job(id, view.name, view.status, {})
    cursor: str | None = None
    while True:
        page = client.tasks(id, cursor=cursor, limit=100)
        for task in page.items:
            at = _position(task.id)
            found = Task(at, task.status, task.reason, task.exit_code, task.attempt)
            found.started_at, found.ended_at = task.started_at, task.ended_at
            job.tasks[at] = found
        if (cursor := page.next_cursor) is None:
            break
    _read_story(client, job)
    return job


def _read_story(client: phalanx.Client, job: Job) -> None:
    cursor: str | None = None
    while True:
        page = client.story(job.id, of="jobs", cursor=cursor, limit=100)
        for line in page.items:
            note(job, line)
        if (cursor := page.next_cursor) is None:
            return


def note(job: Job, line: StoryLine) -> None:
    """Take what the verdict needs from one line. Events are known by their names, not by their sentences."""
    task = job.tasks.get(_position(line.task)) if line.task else None
    if line.event == "AttemptEnded" and task is not None:
        _note_end(task, line)
    elif line.event == "TaskPlaced" and line.node and (formed := _FORMATION.search(line.text)):
        job.stood.setdefault(int(formed[1]), set()).add(line.node)
    elif line.event == "GangReleased":
        job.released_at[_number(_FORMATION, line)] = line.at


def _note_end(task: Task, line: StoryLine) -> None:
    number = _number(_ATTEMPT, line)
    task.ended.append(number)
    if line.text.startswith(f"attempt {number} completed"):
        task.completed.append(number)
    if _LOST.search(line.text):
        task.lost.append(number)


def _number(pattern: re.Pattern[str], line: StoryLine) -> int:
    """The number in a line of the story; a line that has none is not read as something else."""
    found = pattern.search(line.text)
    assert found is not None, f"{line.event}: {line.text}"
    return int(found[1])


def _position(id: str) -> int:
    return int(id.partition(".")[2] or 0)
