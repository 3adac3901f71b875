"""In which order units have their turn: by rank, and in a queue with a fair order also by what their users hold.

There, of jobs with one priority, those of the user who holds the smallest part of the cluster go first, and arrival
decides between equals. The part is the largest of the parts of cores, memory and GPUs that his tasks hold in that
queue. It is less than a point of priority, and counts from what the one holds who waits there and holds least, so that
his jobs stand among those of other queues where their arrival puts them.

It follows from what is held, in a plan from what is held in its draft. One thing is remembered: once room has been
gathered for a unit that needs much, it is its turn, and nobody of its queue and priority goes before it. Or small
tasks of somebody who holds nothing for an instant would take that room again and again.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, inf, isclose
from typing import NamedTuple

from phalanx.core.model.amounts import total
from phalanx.core.model.job import GROUPS_MAX, QueueUser
from phalanx.core.model.plan import KeptTurn
from phalanx.core.model.queues import Queues
from phalanx.core.model.table import NodeTable
from phalanx.core.model.waiting import Rank, Unit, Waiting, WaitingClass

_ALL = 0.999  # the largest part: less than a point of priority
_MEASURED = slice(1, 4)  # of a quota's rows: cores, memory, GPUs


class InLine(NamedTuple):
    """Where a unit stood when that was asked. No two stand at the same place."""

    at: Rank
    waiting_class: WaitingClass
    unit: Unit


class Precedence:
    """The order of what waits. What users hold is looked up in `queues` each time."""

    def __init__(
        self, nodes: NodeTable, queues: Queues, waiting: Waiting, turn: KeptTurn | None = None
    ) -> None:
        self._nodes, self._queues, self._waiting = nodes, queues, waiting
        self._fair = queues.fair
        self._turn = None if turn is None else _whose(turn, waiting)

    def is_fair(self, unit: Unit) -> bool:
        """Whether what its user holds counts."""
        return unit.job.queue in self._fair

    def rank(self, unit: Unit) -> Rank:
        """Where it stands now; the smaller goes first."""
        if unit.job.queue not in self._fair:
            return unit.rank
        found, turn = self._by_part(unit), self._turn
        if turn is None or turn is unit or (turn.job.queue, turn.rank[0]) != (unit.job.queue, unit.rank[0]):
            return found
        first = self._by_part(turn)
        if found > first:
            return found
        _, arrival, number = unit.rank
        return first[0], first[1], first[2] + 1 + arrival * GROUPS_MAX + number  # right behind it

    def served(self, unit: Unit) -> None:
        """It was given a place, so its turn is over."""
        if self._turn is unit:
            self._turn = None

    def _by_part(self, unit: Unit) -> Rank:
        urgency, arrival, number = unit.rank
        whose = unit.job.queue_user
        return urgency + min(_ALL, self.part(whose) - self._least.get(whose[0], 0.0)), arrival, number

    def in_line(self, waiting_class: WaitingClass, unit: Unit) -> InLine:
        """Where it stands now, with itself."""
        return InLine(self.rank(unit), waiting_class, unit)

    def ahead(self, other: Unit, waiting: int, unit: Unit) -> int:
        """How many of the tasks of another unit, of which so many wait, go before this one."""
        theirs, mine = self.rank(other), self.rank(unit)
        if theirs >= mine:
            return 0
        if other.job.queue_user == unit.job.queue_user or other.job.queue not in self._fair:
            return waiting
        if other.job.queue != unit.job.queue or other.rank[0] != unit.rank[0]:
            return waiting
        one = self.part_of_one(other)  # then they take turns: its user goes first until he holds as much
        return (
            min(waiting, _turns((mine[0] - theirs[0]) / one, wins=other.rank < unit.rank)) if one else waiting
        )

    def part(self, whose: QueueUser) -> float:
        """The part of the cluster that a user's tasks hold in a queue."""
        held = self._queues.used_by.get(whose)
        return 0.0 if held is None else self._part(held)

    def part_of_one(self, unit: Unit) -> float:
        """The part that one more task of it takes; of a gang, nothing, since its tasks come at once."""
        return 0.0 if unit.is_gang else self._part(total([(unit.request, 1)]))

    def _part(self, held: list[int]) -> float:
        return max(
            (min(1.0, has / whole) for has, whole in zip(held[_MEASURED], self._whole, strict=True) if whole),
            default=0.0,
        )

    @cached_property
    def _whole(self) -> list[int]:
        """What all nodes have of each."""
        columns = self._nodes.columns
        millis, memory, _ = (int(column[: len(columns)].sum()) for column in columns.every)
        return [millis, memory, sum(len(ledger.devices) for ledger in columns.ledgers)]

    @cached_property
    def _least(self) -> dict[str, float]:
        """What the one holds in each of these queues who holds least of those who wait there."""
        found: dict[str, float] = {}
        for kind in self._waiting.classes.values():
            whose = kind.units[kind.ranks[0]].job.queue_user
            if whose[0] in self._fair:
                found[whose[0]] = min(found.get(whose[0], inf), self.part(whose))
        return found


def _turns(steps: float, *, wins: bool) -> int:
    """How often somebody goes first who has so many steps to go until both hold as much, and then `wins` or not."""
    whole = round(steps)
    return whole + wins if isclose(steps, whole, abs_tol=1e-9) else ceil(steps)


def _whose(turn: KeptTurn, waiting: Waiting) -> Unit | None:
    """The unit that has its turn, if it still waits for the same."""
    unit = waiting.unit(turn.rank) if waiting.entry(turn.rank) == turn.entry else None
    if unit is None or unit.is_gang:
        return unit
    return unit if next(unit.ready(1), -1) == turn.position else None
