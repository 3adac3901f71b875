"""What a handle says of a job: how several stand together, that it has not ended, and why it did not complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.api.schema.jobs import JobView, StatusWord, TaskView
from phalanx.client.calls import FINAL
from phalanx.errors import JobFailed

_ORDER: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending", "Failed", "Cancelled")


def number_of(view: JobView | TaskView) -> str:
    """What messages call it; an older coordinator gives no number."""
    return str(view.number or view.id)


def _called(task: TaskView) -> str:
    """The number of a task, and its parameters if it has some."""
    params = ", ".join(f"{name}={value}" for name, value in task.params.items())
    return f"{number_of(task)} ({params})" if params else number_of(task)


def job_of(view: JobView | TaskView) -> JobView:
    assert isinstance(view, JobView), "the id of a job has no index"
    return view


def least_far(views: Sequence[JobView]) -> StatusWord:
    """The status that says most of several jobs: one that has not ended, else one that did not complete."""
    found = {view.status for view in views}
    return next((status for status in _ORDER if status in found), "Completed")


def first_not_completed(views: Sequence[JobView]) -> JobView:
    return next((view for view in views if view.status != "Completed"), views[0])


def check_ended(view: JobView | TaskView) -> None:
    """Raise TimeoutError for one that has not."""
    if view.status not in FINAL:
        raise TimeoutError(
            f"{number_of(view)} has not ended: it is {view.status} (wait(…, must_end=False) returns it so)"
        )


def only_result(results: list[Any], id: str) -> Any:
    if len(results) != 1:
        raise ValueError(f"{id} has {len(results)} tasks: results() gives the result of each")
    return results[0]


def failure(view: JobView, task: TaskView | None, tail: str, *, has_others: bool = False) -> JobFailed:
    """Why it did not complete, of the first task that did not; `has_others`: results of others can be had."""
    what = view.name or (view.command[0] if view.command else view.id)
    code = view.exit_code if task is None else task.exit_code
    message = "" if task is None else task.message
    if task is not None and view.tasks > 1:
        count = view.counts.failed if view.status == "Failed" else view.counts.cancelled
        message = (
            f"{count} of {view.tasks} tasks, the first is {_called(task)}{f', {message}' if message else ''}"
        )
    detail = f"{what} ({number_of(view)}) is {view.status}{f': {message}' if message else ''}"
    if has_others:
        detail += "; results(check=False) gives what the others gave, and None for these"
    last = tail.strip()
    return JobFailed(
        f"{detail}\n{last}" if last else detail,
        reason=view.reason if task is None else task.reason,
        hint=f"phalanx logs {number_of(view if task is None else task)} shows all that it wrote",
        job=view,
        task=task,
        code=code,
        log_tail=last,
    )


def first_of_failed(tasks: Sequence[TaskView]) -> TaskView | None:
    """The first that failed, else the first that did not complete."""
    wanting = [task for task in tasks if task.status != "Completed"]
    return next((task for task in wanting if task.status == "Failed"), wanting[0] if wanting else None)
