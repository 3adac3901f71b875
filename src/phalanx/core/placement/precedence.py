"""Which of two units goes first: by rank, and in a queue with a fair order also by what their users hold.

There, of jobs with one priority, those of the user who holds the smallest *part* of the cluster go first. The part is
the largest of the parts of cores, memory and GPUs that his tasks hold in that queue, in a plan those of its draft
among them. Three things keep everybody from waiting for ever:

- What a user held when the last plan was made counts as well. Or the one whose task has just ended would hold as
  little as those who wait, for an instant, and have the place again.
- What has waited the longest of all that a user has there counts as if he held less the longer it waits, the whole
  cluster less after `WHOLE_S`, and then the next one from the start. Or the gang of a user who holds a little for ever
  would stand behind all who come and go.
- Of those who hold the same the one goes first that has waited the longest. It waits since a plan saw it first in its
  class, or gave it something: what was held back or at a limit meanwhile has not waited.

Among the jobs of other queues those of a fair queue stand where the oldest of them stands that has a chance in this
plan: the fairest has the turn of the oldest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache, cached_property
from math import ceil, inf
from typing import NamedTuple

from phalanx.core.model.amounts import total
from phalanx.core.model.job import JobId, QueueUser
from phalanx.core.model.plan import PlanMemory, Snapshot
from phalanx.core.model.waiting import Rank, Unit, Waiting, WaitingClass
from phalanx.core.placement.draft import Draft

WHOLE_S = 4 * 3600.0
_MEASURED = slice(1, 4)  # of a quota's rows: cores, memory, GPUs
_NOTHING = (0, 0, 0, 0)
_ROUNDING = 1e-9
_ALL = 1 << 62  # more tasks than there are
_LAST = 1 << 62  # later than any arrival
# Urgency and arrival, of its queue if that is fair; part, since when it waits, and arrival and number of its own.
Place = tuple[float, int, float, float, int, int]
FairQueue = tuple[str, float]  # a queue with a fair order, and those of one urgency in it


class InLine(NamedTuple):
    """A unit and where it stood when that was asked. No two stand at the same place."""

    at: Place
    waiting_class: WaitingClass
    unit: Unit


class Precedence:
    """Where those who wait stand. What users hold is looked up in `queues` each time."""

    def __init__(
        self, where: Snapshot | Draft, waiting: Waiting, memory: PlanMemory, *, plans: bool = False
    ) -> None:
        """`plans`: a plan begins, whose memory this is; otherwise it is only read."""
        self._nodes, self._queues, self._now = where.nodes, where.queues, where.now
        self.waiting, self.memory = waiting, memory
        self._fair = where.queues.fair
        # Of those that may have a chance: arrivals and numbers of classes, the last first.
        self._came: dict[FairQueue, list[tuple[int, int]]] = {}
        self._over: set[int] = set()  # classes that have no further chance in this plan
        if plans:
            self._begin()

    def is_fair(self, unit: Unit) -> bool:
        """Whether what its user holds counts."""
        return unit.job.queue in self._fair

    def place(self, unit: Unit) -> Place:
        """Where it stands now; the smaller goes first."""
        urgency, arrival, number = unit.rank
        if unit.job.queue not in self._fair:
            return urgency, arrival, 0.0, 0.0, 0, number
        came = self.oldest((unit.job.queue, urgency))
        since, is_longest = self._since(unit)
        part, whose = self._part(unit.job.queue_user), unit.job.queue_user
        if is_longest:
            waited_s = self._now - max(since, self.memory.discounted.get(whose, 0.0))
            part = max(0.0, part - waited_s / WHOLE_S)
        return urgency, arrival if came == _LAST else came, part, since, arrival, number

    def oldest(self, queue: FairQueue) -> int:
        """The arrival of the oldest of a fair queue that has a chance in this plan; the last there is if none has."""
        if (line := self._came.get(queue)) is None:
            line = self._came[queue] = self._line_of(*queue)
        while line and line[-1][1] in self._over:
            line.pop()
        return line[-1][0] if line else _LAST

    def in_line(self, waiting_class: WaitingClass, unit: Unit) -> InLine:
        """Where it stands now, with itself."""
        return InLine(self.place(unit), waiting_class, unit)

    def served(self, waiting_class: WaitingClass, unit: Unit) -> None:
        """It is given a place in this plan, and what is left of it waits from now on."""
        if self.is_fair(unit):
            self.memory.waits[waiting_class.number] = self._wait(unit)
            if self._longest.get(unit.job.queue_user) == waiting_class.number:
                self.memory.discounted[unit.job.queue_user] = self._now

    def over(self, waiting_class: WaitingClass) -> None:
        """It has no further chance in this plan."""
        if self._fair:
            self._over.add(waiting_class.number)

    def remember(self) -> None:
        """What users of fair queues hold at the end of a plan."""
        held = self._queues.used_by.items()
        self.memory.held = {whose: tuple(has) for whose, has in held if whose[0] in self._fair}

    def _begin(self) -> None:
        """Whoever is the first of a class for the first time waits from now on."""
        waits: dict[int, tuple[Rank, int, float]] = {}
        for kind in self.waiting.classes.values() if self._fair else ():
            if self.is_fair(first := kind.units[kind.ranks[0]]):
                known = self.memory.waits.get(kind.number)
                is_same = known is not None and known[:2] == (first.rank, self.waiting.entry(first.rank))
                waits[kind.number] = known if known is not None and is_same else self._wait(first)
        self.memory.waits = waits
        after = self._now - WHOLE_S
        self.memory.discounted = {whose: at for whose, at in self.memory.discounted.items() if at > after}

    @cached_property
    def _longest(self) -> dict[QueueUser, int]:
        """Of each user the class that has waited the longest, of those that some node could take if it were empty."""
        found: dict[QueueUser, tuple[float, int]] = {}
        could_ever = cache(self._nodes.could_ever)
        for kind in self.waiting.classes.values() if self._fair else ():
            first, known = kind.units[kind.ranks[0]], self.memory.waits.get(kind.number)
            if known is not None and (first.is_gang or could_ever(first.request)):
                whose = first.job.queue_user
                found[whose] = min(found.get(whose, (inf, 0)), (known[2], kind.number))
        return {whose: number for whose, (_, number) in found.items()}

    def _wait(self, unit: Unit) -> tuple[Rank, int, float]:
        return unit.rank, self.waiting.entry(unit.rank), self._now

    def _since(self, unit: Unit) -> tuple[float, bool]:
        """Since when it waits, and whether nobody else of its user has waited longer.

        Others of its class than the first wait from when they are it.
        """
        kind = self.waiting.class_of(unit)
        known = None if kind is None else self.memory.waits.get(kind.number)
        if kind is None or known is None or known[0] != unit.rank:
            return self._now, False
        return known[2], self._longest.get(unit.job.queue_user) == kind.number

    def _line_of(self, queue: str, urgency: float) -> list[tuple[int, int]]:
        kinds = self.waiting.classes.values()
        mine = [kind for kind in kinds if kind.units[kind.ranks[0]].job.queue == queue]
        found = [(rank[1], kind.number) for kind in mine if (rank := kind.first_of(urgency)) is not None]
        return sorted(found, reverse=True)

    def ahead(self, unit: Unit, waiting: Iterable[tuple[Unit, int]], own: int) -> Counter[JobId]:
        """How many tasks of each other job go before this one, behind so many of its own job. As many of each wait."""
        mine, found = self.place(unit), Counter[JobId]()
        others: dict[str, list[tuple[Place, Unit, int]]] = {}
        for other, count in waiting:
            if other.job.id == unit.job.id or count <= 0:
                continue
            theirs = self.place(other)
            if self._take_turns(other, unit):
                others.setdefault(other.job.user, []).append((theirs, other, count))
            elif theirs < mine:
                found[other.job.id] += count
                own += count if other.job.queue_user == unit.job.queue_user else 0
        part = mine[2] + own * self._part_of_one(unit)  # when its turn has come
        for units in others.values():
            found.update(self._turns(sorted(units), part, mine))
        return found

    def _take_turns(self, other: Unit, unit: Unit) -> bool:
        """Whether their users take turns, task by task."""
        is_same = (other.job.queue, other.rank[0]) == (unit.job.queue, unit.rank[0])
        return is_same and self.is_fair(unit) and other.job.user != unit.job.user and not other.is_gang

    def _turns(self, units: list[tuple[Place, Unit, int]], part: float, mine: Place) -> Counter[JobId]:
        """The tasks of one user that go before that of another, who holds so great a part then."""
        found, first = Counter[JobId](), units[0][0]
        at = first[2]
        # Who holds as much as the other goes first if he was there first: had as much before, or held more.
        wins = at > mine[2] + _ROUNDING or (at > mine[2] - _ROUNDING and first < mine)
        for _, unit, count in units:
            one = self._part_of_one(unit)
            steps = (part - at) / one if one else inf if at < part else -1.0
            found[unit.job.id] = most = min(count, _whole_steps(steps, wins=wins))
            at += most * one
            if most < count:
                break
        return found

    def _part_of_one(self, unit: Unit) -> float:
        """The part that a task of it takes; of a gang, whose tasks come together, what all of them take."""
        asked = [(part.request, part.most) for part in unit.wanted()] if unit.is_gang else [(unit.request, 1)]
        return self._part_of(total(asked))

    def _part(self, whose: QueueUser) -> float:
        """The part of the cluster that a user's tasks hold in a queue, or held when the last plan was made."""
        now = self._part_of(self._queues.used_by.get(whose, _NOTHING))
        return max(now, self._part_of(before)) if (before := self.memory.held.get(whose)) else now

    def _part_of(self, held: list[int] | tuple[int, ...]) -> float:
        return max(
            min(1.0, has / whole) if whole else 0.0
            for has, whole in zip(held[_MEASURED], self._whole, strict=True)
        )

    @cached_property
    def _whole(self) -> list[int]:
        """What all nodes have of each."""
        columns = self._nodes.columns
        millis, memory, _ = (int(column[: len(columns)].sum()) for column in columns.every)
        return [millis, memory, sum(len(ledger.devices) for ledger in columns.ledgers)]


def _whole_steps(steps: float, *, wins: bool) -> int:
    """How often somebody goes before he holds more than another, or as much and `wins` or not."""
    if steps == inf or steps < -_ROUNDING:
        return _ALL if steps > 0 else 0
    whole = round(steps)
    return whole + wins if abs(steps - whole) < _ROUNDING else ceil(steps)


def precedence_in(snapshot: Snapshot) -> Precedence:
    """As the next plan will find it."""
    return Precedence(snapshot, snapshot.waiting, snapshot.memory)
