"""The attempts of one task, put together from its events: placed, started, ended."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.attempts import AttemptView
from phalanx.core.cluster.events import AttemptEnded, AttemptStarted, Event, TaskPlaced
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import Exit, Status, Why

ROWS_MAX = 1000  # the newest are kept
_CANCELS = (Why.CANCELLED, Why.EVICTED)


class _Tried(Struct):
    placed: TaskPlaced
    started_at: float | None = None
    ended: AttemptEnded | None = None


class AttemptRows:
    """Hears the events of a job in their order, and keeps what concerns one of its tasks."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._rows: dict[int, _Tried] = {}

    def note(self, event: Event) -> None:
        if (
            not isinstance(event, TaskPlaced | AttemptStarted | AttemptEnded)
            or event.key[1] != self._position
        ):
            return
        number = event.key[2]
        if isinstance(event, TaskPlaced):
            self._rows[number] = _Tried(event)
            if len(self._rows) > ROWS_MAX:
                del self._rows[next(iter(self._rows))]
        elif (row := self._rows.get(number)) is None:
            return  # its beginning is no longer kept
        elif isinstance(event, AttemptStarted):
            row.started_at = event.started_at
        else:
            row.ended = event

    def views(self, job: JobState) -> list[AttemptView]:
        """The oldest first."""
        return [_view(row, Status(job.status[self._position])) for row in self._rows.values()]


def _view(row: _Tried, status: Status) -> AttemptView:
    placed, ended = row.placed, row.ended
    exit = Exit(Why.NONE) if ended is None else ended.exit
    return AttemptView(
        placed.key[2],
        placed.node,
        list(placed.grant.devices),
        placed.at,
        row.started_at or exit.started_at,
        None if ended is None else exit.ended_at or ended.at,
        exit.code,
        (status if ended is None else _became(ended)).word,  # type: ignore[arg-type]  # the names are those of the table
        "" if exit.why == Why.NONE else exit.why.word,
        exit.message,
        ended is not None and ended.charged,
    )


def _became(ended: AttemptEnded) -> Status:
    """How the attempt itself ended: of a task that is tried again, it has failed or had to leave."""
    if ended.status.is_final:
        return ended.status
    if ended.exit.why == Why.NONE:
        return Status.COMPLETED
    return Status.CANCELLED if ended.exit.why in _CANCELS else Status.FAILED
