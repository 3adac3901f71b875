"""Those who found no room, in order: who of them is the head, and what is remembered of it from one plan to the next.

`reservation.py` says what a reservation is. Only the nodes kept for a head outlive a plan, in its memory.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from msgspec import structs

from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.plan import KeptNodes, PlanMemory, Policy
from phalanx.core.model.waiting import Rank, Unit, Waiting, WaitingClass
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.reserve.reservation import Reservation, reserve, run_s


class Unplaced:
    """Those who found no room, in order. The first of them that could ever run is the head."""

    def __init__(self, draft: Draft, policy: Policy, gain: int, waiting: Waiting, memory: PlanMemory) -> None:
        self._draft = draft
        self._waiting = waiting
        self._memory = memory
        self._policy = policy
        self._gain = gain
        self._line: list[tuple[Rank, WaitingClass]] = []
        self._reservation: Reservation | None = None
        self._runs_s: dict[JobId, float] = {}
        self.reserves_for: WaitingClass | None = None  # while it is worked out what is kept for the head

    def begin(self, full: list[tuple[Rank, WaitingClass]]) -> None:
        """Those of whom an earlier plan knew that there is no room, and nothing has ended since."""
        notes, gain = self._memory.notes, self._gain
        self._line = [each for each in full if notes[each[1].number].hopeless_at != gain]
        heapify(self._line)

    def join(self, rank: Rank, kind: WaitingClass) -> None:
        """The unit of this rank found no room."""
        if self._memory.notes[kind.number].hopeless_at != self._gain:
            heappush(self._line, (rank, kind))

    @property
    def first(self) -> tuple[Rank, WaitingClass] | None:
        return self._line[0] if self._line else None

    def note_start(self, job: Job) -> None:
        """The draft has placed something of this job."""
        self._runs_s[job.id] = run_s(job)

    def is_before(self, rank: Rank) -> bool:
        """Whether somebody before this rank found no room."""
        return bool(self._line) and self._line[0][0] < rank

    def is_reserved(self, rank: Rank) -> bool:
        """Whether what a unit of this rank has to leave alone is known already."""
        return not self.is_before(rank) or (
            self._reservation is not None and self._reservation.rank == self._line[0][0]
        )

    def reservation(self, rank: Rank) -> Reservation | None:
        """What a unit of this rank has to leave alone. Worked out when first asked, once for a plan."""
        while self.is_before(rank):
            if self.is_reserved(rank):
                return self._reservation
            first, kind = self._line[0]
            unit = kind.units[first]
            self.reserves_for = kind
            before = kept_for(self._memory, self._waiting, unit, self._draft)
            self._reservation = reserve(self._draft, unit, self._policy, self._runs_s, before)
            if self._reservation is None:
                note = structs.replace(self._memory.of(kind), hopeless_at=self._gain)
                self._memory.notes[kind.number] = note
                heappop(self._line)
            else:
                self._remember(unit, self._reservation)
            self.reserves_for = None
        return None

    def _remember(self, unit: Unit, found: Reservation) -> None:
        """Nodes that are full need not be remembered: the next plan may find others that lack less."""
        if found.is_open_ended and found.protects:
            entry = self._waiting.entry(unit.rank)
            self._memory.kept[unit.rank] = KeptNodes(found.nodes, entry, _next_of(unit, self._draft))
        else:
            self._memory.kept.pop(unit.rank, None)


def kept_for(memory: PlanMemory, waiting: Waiting, unit: Unit, draft: Draft) -> tuple[str, ...]:
    """The nodes that plans have kept for a unit so far."""
    found = memory.kept.get(unit.rank)
    if found is None or found.entry != waiting.entry(unit.rank) or found.position != _next_of(unit, draft):
        return ()
    return found.nodes


def _next_of(unit: Unit, draft: Draft) -> int:
    """The task of a group that has its turn: when it has started, other nodes are kept for the next."""
    if unit.is_gang:
        return -1
    placed = draft.positions_of(unit.job.id)
    ready = unit.ready(1 + len(placed))
    return next((position for position in ready if position not in placed), -1)
