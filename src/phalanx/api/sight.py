"""What of a job an asker may see: everybody sees its name and state, not everybody what is inside.

The values of its environment, and what its tasks wrote, are for those who may inspect it.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema import JobView, TaskView
from phalanx.api.visit import Visit

HIDDEN = "(hidden)"


def seen_job(visit: Visit, view: JobView) -> JobView:
    """The job as this visitor may see it."""
    if not view.env or visit.identity.may("inspect", view.id, view.user):
        return view
    return structs.replace(view, env=dict.fromkeys(view.env, HIDDEN))


def seen_task(visit: Visit, view: TaskView) -> TaskView:
    """The task as this visitor may see it; whose job it is has been asked before."""
    return view if visit.is_inspector or not view.stderr_tail else structs.replace(view, stderr_tail="")


def seen(visit: Visit, view: JobView | TaskView) -> JobView | TaskView:
    return seen_job(visit, view) if isinstance(view, JobView) else seen_task(visit, view)
