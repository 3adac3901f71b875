"""Which jobs a list is to have: what `GET /v1/jobs` asks for, compared with a job in memory or a record."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from phalanx.api.schema.fields import Selector, read_selector
from phalanx.api.schema.queries import JobsQuery
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.workflow_image import is_workflow
from phalanx.core.model.device_types import ANYTHING, in_order
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest
from phalanx.store.protocol import History


class Asked(Struct, frozen=True):
    """Which jobs a list is to have."""

    query: JobsQuery
    status: Status | None
    user: str | None
    selector: Selector
    node_row: int | None = None  # of the node that is asked for, in columns of ended jobs

    @classmethod
    def of(cls, query: JobsQuery, user: str, known_nodes: Sequence[str] = ()) -> Asked:
        """What a query of this user means; `known_nodes` are the names of all nodes there were, by their rows."""
        status = None if query.status is None else Status[query.status.upper()]
        row = known_nodes.index(query.node) + 1 if query.node in known_nodes else None
        whose = user if query.mine else query.user
        return cls(query, status, whose, read_selector(query.selector or ""), row)

    def is_for(self, job: JobState) -> bool:
        query, spec = self.query, job.job
        return (
            (query.name is None or _is_called(query.name, spec.name))
            and query.queue in (None, spec.queue)
            and self.user in (None, spec.user)
            and (query.since is None or spec.submitted_at >= query.since)
            and (query.until is None or spec.submitted_at < query.until)
            and (query.node is None or self._is_there(job))
            and (self.status is None or self.status == job.overall_status)
            and self.selector.selects(spec)
        )

    def _is_there(self, job: JobState) -> bool:
        """Whether a task of a job is on the node, or was there at its end if the job has ended."""
        if any(attempt.node == self.query.node for attempt in job.live.values()):
            return True
        return job.is_over and bool(job.nodes) and self.node_row in (job.nodes or ())

    def among(self, record: History) -> JobState | None:
        """The job of a record of the history, if the list is to have it."""
        job = None if is_workflow(record.body) else decode_job(record.body)
        return job if job is not None and self.is_for(job) else None


def _is_called(asked: str, name: str) -> bool:
    """Whether a job has the name that is asked for, or one that fits it."""
    return in_order(asked.split(ANYTHING), name) if ANYTHING in asked else asked == name


def position_after(cursor: str | None) -> int:
    """The position or revision that a cursor stands for."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
    return int(cursor)
