"""What people change of a job after it was submitted, as REST carries it, checked."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from phalanx.api.schema.begin import read_begin
from phalanx.api.schema.fields import check_name, check_number, check_text, read_duration
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import PRIORITY_MAX
from phalanx.errors import BadRequest

REASON_BYTES_MAX = 1000
NO_LIMIT = "none"


class HoldRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Hold what waits of a job, and why."""

    reason: str = ""


class UpdateRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Other settings of a job; what is left out stays as it is."""

    priority: int | None = None
    time_limit: float | str | None = None  # seconds, 1h30m, or none
    queue: str | None = None
    begin: float | str | None = None  # 2027-01-31T08:00:00Z, 2h from now, or now
    if_revision: int | None = None  # refuse it if the settings were changed since: `revision` of the job
    at_once: int | None = None  # how many tasks of its array may run at once; 0: all


class UpdateFields(TypedDict, total=False):
    """The fields of `UpdateRequest` as keywords."""

    priority: int
    time_limit: float | str
    queue: str
    begin: float | str
    if_revision: int
    at_once: int


def check_reason(reason: str) -> str:
    """A reason without spaces around it, or a refusal of one that is too long or holds what terminals would obey."""
    check_text("reason", reason, REASON_BYTES_MAX)
    if not reason.isprintable():
        raise BadRequest("reason: it must be one line without control characters")
    return reason.strip()


def check_update(request: UpdateRequest, now: float) -> tuple[float | None, float | None]:
    """The time limit in seconds (0: none) and the instant to begin at, or a refusal that names the field and value."""
    given = (request.priority, request.time_limit, request.queue, request.begin, request.at_once)
    if all(each is None for each in given):
        raise BadRequest("nothing to change: give priority, time_limit, queue, begin or at_once")
    if request.at_once is not None:
        check_number("at_once", request.at_once, 0, TASKS_MAX)
    if request.priority is not None:
        check_number("priority", request.priority, -PRIORITY_MAX, PRIORITY_MAX)
    if request.queue is not None:
        check_name("queue", request.queue)
    limit = request.time_limit
    if limit is not None:
        limit = 0.0 if limit == NO_LIMIT else read_duration("time_limit", limit)
    return limit, None if request.begin is None else read_begin("begin", request.begin, now)
