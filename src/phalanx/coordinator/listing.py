"""Which jobs a list is to have: what `GET /v1/jobs` asks for, compared with a job in memory or a record."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.fields import Selector, read_selector
from phalanx.api.schema.queries import JobsQuery
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.workflow_image import is_workflow
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest
from phalanx.store.protocol import History


class Asked(Struct, frozen=True):
    """Which jobs a list is to have."""

    query: JobsQuery
    status: Status | None
    user: str | None
    selector: Selector

    @classmethod
    def of(cls, query: JobsQuery, user: str) -> Asked:
        """What a query of this user means."""
        status = None if query.status is None else Status[query.status.upper()]
        return cls(query, status, user if query.mine else query.user, read_selector(query.selector or ""))

    def is_for(self, job: JobState) -> bool:
        query, spec = self.query, job.job
        return (
            query.name in (None, spec.name)
            and query.queue in (None, spec.queue)
            and self.user in (None, spec.user)
            and (query.since is None or spec.submitted_at >= query.since)
            and (self.status is None or self.status == job.overall_status)
            and self.selector.selects(spec)
        )

    def among(self, record: History) -> JobState | None:
        """The job of a record of the history, if the list is to have it."""
        job = None if is_workflow(record.body) else decode_job(record.body)
        return job if job is not None and self.is_for(job) else None


def position_after(cursor: str | None) -> int:
    """The position or revision that a cursor stands for."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
    return int(cursor)
