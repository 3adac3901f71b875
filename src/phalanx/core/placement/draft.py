"""A plan being tried: what it takes is taken from the columns and put back when the plan is made."""

from __future__ import annotations

from phalanx.core.model.ids import JobId
from phalanx.core.model.plan import Placement, Plan, Snapshot
from phalanx.core.model.resources import Grant


class Draft:
    """Speculative placements over a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self._placements: list[Placement] = []
        self._taken: list[tuple[int, Grant]] = []

    @property
    def size(self) -> int:
        return len(self._placements)

    def take(self, row: int, grant: Grant, placement: Placement) -> None:
        self.nodes.take(row, grant)
        self._taken.append((row, grant))
        self._placements.append(placement)

    def queue(self, placement: Placement) -> None:
        """A placement into a lane takes nothing more."""
        self._placements.append(placement)

    def positions_of(self, job: JobId) -> set[int]:
        return {each.position for each in self._placements if each.job == job}

    def plan(self, more: bool = False) -> Plan:
        """The proposal; the columns are as they were before the draft began."""
        for row, grant in reversed(self._taken):
            self.nodes.give_back(row, grant)
        self._taken.clear()
        return Plan(self._placements, more)
