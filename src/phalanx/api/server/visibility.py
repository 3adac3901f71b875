"""What of a job an asker may see: everybody sees its name and state, not everybody what is inside.

The values of its environment, and what its tasks wrote, are for those who may inspect it.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.api.server.request import HttpRequest

HIDDEN = "(hidden)"


def seen_job(http_request: HttpRequest, view: JobView) -> JobView:
    """The job as this visitor may see it."""
    if not view.env or http_request.identity.may("inspect", view.id, view.user):
        return view
    return structs.replace(view, env=dict.fromkeys(view.env, HIDDEN))


def seen_task(http_request: HttpRequest, view: TaskView) -> TaskView:
    """The task as this visitor may see it; whose job it is has been asked before."""
    return (
        view if http_request.is_inspector or not view.stderr_tail else structs.replace(view, stderr_tail="")
    )


def seen(http_request: HttpRequest, view: JobView | TaskView) -> JobView | TaskView:
    return seen_job(http_request, view) if isinstance(view, JobView) else seen_task(http_request, view)
