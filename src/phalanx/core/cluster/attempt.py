"""One try at one task, alive: it holds a grant until its end is confirmed."""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Why


class Attempt:
    """A live attempt: where it is, what it holds, and how far it has come."""

    __slots__ = (
        "ending", "formation", "grant", "group", "key", "lane", "node", "paused", "placed_at", "ready", "released",
        "row", "since", "started_at", "suspicions",
    )  # fmt: skip

    def __init__(
        self, key: AttemptKey, node: str, row: int, lane: int, grant: Grant, placed_at: float, group: int = 0
    ) -> None:
        self.key = key
        self.node = node
        self.row = row  # of its node in the table
        self.lane = lane
        self.grant = grant
        self.placed_at = placed_at
        self.group = group  # the number of its group in the job
        self.started_at: float | None = None  # as its node's clock has it
        self.since = placed_at  # by our own clock: when it was placed or released, then when it started
        self.ending: Why | None = None  # being stopped, and why
        self.paused: bool | None = None  # None: it never was
        self.suspicions = 0
        self.formation = 0  # of a gang: the try to start whole that it belongs to
        self.ready = False  # of a gang: its runner holds it at the barrier
        self.released = True  # of a gang: it may run
