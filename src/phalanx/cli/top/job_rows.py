"""Rows of the list of jobs: which jobs, in which order, and what each column says. The reason of a waiting job is the
dominant one of `why`, which is asked for only for the rows on the screen (`ReasonCache`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct

from phalanx.api.schema.jobs import JobView, ReasonView
from phalanx.cli.job_table import DEFAULT_QUEUE, SORTS, job_status
from phalanx.cli.labels import label
from phalanx.cli.output import clean, span
from phalanx.cli.shell_exits import shell_code

HEADINGS = ("ID", "NAME", "USER", "STATUS", "TASKS", "GPUS", "TIME", "REASON OR NODES")
WIDTHS = (5, 12, 8, 9, 6, 4, 6)  # of all columns but the last, which gets the rest
REASON_AGE_S = 10.0  # after which a reason is asked for again
REASONS_AT_ONCE = 30  # all are found in one look at the queue
REASONS_KEPT = 1000
NODES_SHOWN = 4
SORT_WORDS = ("number", "status", "priority", "user", "queue", "name", "tasks")


class JobsShown(Enum):
    """Which jobs the list has."""

    ALL = "running and waiting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"

    @property
    def next(self) -> JobsShown:
        every = list(JobsShown)
        return every[(every.index(self) + 1) % len(every)]


class JobQuery(Struct, frozen=True):
    """What the user asked the list for. Every word of `text` has to be in a job."""

    shown: JobsShown = JobsShown.ALL
    text: str = ""
    sort: str = "number"
    reverse: bool = True


class TopJobRow(Struct, frozen=True):
    """A line of the list."""

    id: str  # of the job, for calls
    cells: tuple[str, ...]
    is_waiting: bool


def is_waiting(job: JobView) -> bool:
    """Whether one of its tasks waits, whatever else of it runs."""
    return job.counts.pending > 0


def job_rows(
    jobs: Iterable[JobView], query: JobQuery, reasons: dict[str, str], now: float, width: int = 80
) -> list[TopJobRow]:
    """The rows that a query asks for."""
    fitting = [job for job in jobs if _fits(job, query)]
    fitting.sort(key=lambda job: (job.number, job.id), reverse=True)  # newest first among equals
    fitting.sort(key=SORTS[query.sort], reverse=query.reverse)
    last = last_width(width)
    return [_row(job, reasons.get(job.id, ""), now, last) for job in fitting]


def counted_reasons(jobs: Iterable[JobView], codes: dict[str, str]) -> list[tuple[str, int]]:
    """How many waiting jobs have which dominant reason, the most frequent first; of those that were asked for."""
    counts: dict[str, int] = {}
    for job in jobs:
        if is_waiting(job) and job.id in codes:
            counts[codes[job.id]] = counts.get(codes[job.id], 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class ReasonCache:
    """The dominant reasons that were asked for lately."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.codes: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    def due(self, ids: Sequence[str], now: float) -> list[str]:
        """Which of these to ask for now: those without a reason first, then the oldest; only a few at once."""
        old = [id for id in ids if now - self._asked_at.get(id, float("-inf")) >= REASON_AGE_S]
        old.sort(key=lambda id: self._asked_at.get(id, float("-inf")))
        return old[:REASONS_AT_ONCE]

    def expire(self) -> None:
        """Every reason is due again, because something was changed from here."""
        self._asked_at = dict.fromkeys(self._asked_at, float("-inf"))

    def note(self, id: str, reason: ReasonView | None, now: float) -> None:
        """None if it does not wait any more, or if its coordinator is of a version that does not answer."""
        if id not in self._asked_at and len(self._asked_at) >= REASONS_KEPT:
            oldest = min(self._asked_at, key=lambda each: self._asked_at[each])
            for each in (self._asked_at, self.texts, self.codes):
                each.pop(oldest, None)
        self._asked_at[id] = now
        if reason is not None:
            self.texts[id], self.codes[id] = reason.text, reason.code


def _fits(job: JobView, query: JobQuery) -> bool:
    if query.shown is JobsShown.RUNNING and job.status == "Pending":
        return False
    if query.shown is JobsShown.WAITING and not is_waiting(job):
        return False
    said = f"{label(job)} {job.name} {job.user} {job.queue} {job_status(job)} {' '.join(job.nodes)}".lower()
    return all(word in said for word in query.text.lower().split())


def _row(job: JobView, reason: str, now: float, last: int) -> TopJobRow:
    waits = job.status == "Pending"
    since = job.submitted_at if waits else job.started_at
    gpus = gpus_of(job)
    told = (reason or job.held or "…") if waits else ended_by(job) or _nodes(job)
    queue = "" if job.queue == DEFAULT_QUEUE else f"[{job.queue}] "
    ended = job.counts.completed + job.counts.failed + job.counts.cancelled + job.finished
    cells = (
        label(job),
        job.name,
        job.user,
        job_status(job),
        f"{ended}/{job.tasks}",
        f"×{gpus}" if gpus else "-",  # of each task, as in `ps`
        span(since, job.ended_at or now),
        f"{queue}{told}",
    )
    fitted = (cut(clean(cell), width) for cell, width in zip(cells, (*WIDTHS, last), strict=True))
    return TopJobRow(job.id, tuple(fitted), is_waiting(job))


def gpus_of(job: JobView) -> int:
    """The GPUs of one task, of the group whose tasks have most."""
    return max([job.request.gpus, *(group.request.gpus for group in job.groups)])


def ended_by(job: JobView) -> str:
    """Of a job that has ended, how."""
    if job.ended_at is None:
        return ""
    number = shell_code(job.exit_code, job.reason)
    code = f"exit code {number}" if number else ""
    return ", ".join(filter(None, (job.reason, code))) or _nodes(job)


def _nodes(job: JobView) -> str:
    return " ".join(job.nodes[:NODES_SHOWN])


def last_width(width: int) -> int:
    """What the other columns leave for the last one, with one column between two and the scroll bar."""
    return max(12, width - sum(WIDTHS) - len(WIDTHS) - 2)


def cut(text: str, width: int) -> str:
    """At most so many characters; a mark shows that there are more."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
