"""The reservation: when and where the first that found no room will start, so that no unit that passes it delays it.

This is EASY backfill. Only one unit has a reservation, the *head*: the first in order that found no room, has quota
left, and could run at all if every tenant were gone. One that could not must not stop the others. A unit
behind the head goes first if it has ended by then, or if it uses room that the head does not need at that instant.
`Unplaced` finds the head, `engine.py` asks the units in order, and `core/explain/reserved.py` tells what it means to
those that wait.

Time limits may not say when the head can start, since a tenant without one has to leave. Then the nodes on which it
lacks the least are kept for it (`footprint.py`), the same ones from one plan to the next, until it starts there or
finds room elsewhere. What it needs of what is free there, or becomes free, is left alone but by units that have ended
soon: before the last of those with a limit, or within the time for which policy takes the others to stay on. A
unit that does not matter, in whatever order the tenants leave, may enter as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np
from msgspec import structs

from phalanx.core.model.amounts import ADDRESSES, FIXED, written
from phalanx.core.model.columns import Matrix
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.plan import KeptNodes, PlanMemory, Policy
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.score import WORST
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Ask, Rank, Unit, Waiting, WaitingClass
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.precedence import InLine, Precedence
from phalanx.core.placement.reserve.footprint import Lacking, fits, fits_anywhere, footprint, moved
from phalanx.core.placement.reserve.releases import Releases, Scale

Place = tuple[int, Grant]  # node row, what is held there
_MOVES_MAX = 8  # how often a plan looks for another domain for the head; each is a placement of its own
_EXACT_MAX = 64  # nodes of a head on which it is worked out who matters; with more, everybody does
_SUMS_MAX = 4096
ALL_OF_IT = np.iinfo(np.int64).max // 2


def run_s(job: Job) -> float:
    """How long an attempt of this job runs at the most."""
    return inf if job.time_limit_s is None else job.time_limit_s


class Reservation:
    """Room kept for the head from one instant on."""

    def __init__(
        self, ask: Ask, at: float, later: Matrix, need: Matrix, around: Releases, scale: Scale
    ) -> None:
        self.rank = ask.rank
        self.at = at
        self.ask = ask
        self._later = later  # what is free at that instant, less what those who passed still hold then
        self.need = need  # what of it the head takes
        self.around = around
        self.scale = scale
        self.is_fixed = False  # the head can stand nowhere else
        self.is_open_ended = False  # limits do not say when it starts; those with limits run until `at`
        self._moves = 0
        self._known: dict[int, dict[bytes, bool]] = {}  # by row and amount: whether it matters to the head
        self.rows: Column = np.flatnonzero(need.any(axis=0))  # the nodes that the head will stand on

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the head will stand on."""
        return tuple(self.scale.nodes.names[row] for row in self.rows.tolist())

    @property
    def protects(self) -> bool:
        """Whether one of its nodes has something of everything that the head needs there."""
        need, free = self.need[:, self.rows], self.around.free[:, self.rows]
        return bool((np.where(need > 0, free, 1) > 0).all(axis=0).any())

    def spot(self, request: Request, until: float, held: Column | None = None) -> Place | None:
        """The best node on which a task may run beyond the instant, `until` its end; its place is counted already.

        If tasks are spread, nodes come first on which their job has `held` the fewest places.
        """
        nodes = self.scale.nodes
        could = nodes.slots(request).column > 0
        need = self.need[:, self.rows]
        ask = self.scale.ask(request)[:, None]
        lacking = ((self._later[:, self.rows] - need < ask) & (ask > 0) & (need > 0)).any(axis=0)
        could[[row for row in self.rows[lacking].tolist() if self._matters(row, ask[:, 0])]] = False
        values = nodes.scores.column(request, self.around.score)
        if held is not None:
            values = np.lexsort((values, held)).argsort()
        while could.any():
            row = int(np.where(could, values, WORST).argmin())
            answer = nodes.ledgers[row].fit(request)
            if isinstance(answer, Grant) and self.stay([(row, answer)], until):
                return row, answer
            could[row] = False
        return None

    def stay(self, places: Sequence[Place], until: float, leaving: Sequence[Tenant] = ()) -> bool:
        """Let these places be held beyond the instant, if they leave the head what it needs.

        They are held `until` an instant; `leaving` are tenants that make way for them.
        """
        change = self._change(places, leaving)
        if any(self._matters(row, amount) for row, amount in change.items()):
            return False
        for row, amount in change.items():
            self._later[:, row] -= amount
            self._known.pop(row, None)
        if self.is_open_ended and self.need[:, [row for row, _ in places]].any():
            self.at = max(self.at, self.around.reckoned(until))  # others of its nodes may run as long
        return True

    def _matters(self, row: int, amount: Column) -> bool:
        """Whether the head may have to wait for so much on a node, once it is taken."""
        known, key = self._known.setdefault(row, {}), amount.tobytes()
        if key not in known:
            known[key] = self._would_matter(row, amount)
        return known[key]

    def _would_matter(self, row: int, amount: Column) -> bool:
        need, later = self.need[:, row], self._later[:, row]
        short = np.flatnonzero((later - amount < need) & (need > 0) & (amount > 0))
        if not len(short) or not self.is_open_ended or len(self.rows) > _EXACT_MAX:
            return bool(len(short))
        held = self.around.held[:, self.around.node == row]
        return any(
            _is_between(held[at].tolist(), int(need[at] - later[at]), int(amount[at]))
            for at in short.tolist()
        )

    def make_way(self, places: Sequence[Place]) -> bool:
        """Let these places be held if the head can stand on other nodes at the same instant; then it will."""
        if self.is_fixed:
            return False
        later = self._later.copy()
        for row, amount in self._change(places).items():
            later[:, row] -= amount
        need = moved(self.ask, self.scale, later, self.need)
        if need is None and self._moves < _MOVES_MAX and not fits_anywhere(self.ask):
            self._moves += 1
            need = footprint(self.ask, self.scale, later)
        if need is None:
            return False
        self._later, self.need = later, need
        self._known.clear()
        self.rows = np.flatnonzero(need.any(axis=0))
        return True

    def set_aside(self) -> list[Place]:
        """What has to stay free for the head, by node row, of what is free now."""
        kept = ((row, self._set_aside(row)) for row in self.rows.tolist())
        return [(row, grant) for row, grant in kept if grant is not None]

    def _set_aside(self, row: int) -> Grant | None:
        """What has to stay free on a node of what is free there now."""
        ledger = self.scale.nodes.ledgers[row]
        spare, need = self._later[:, row] - self.need[:, row], self.need[:, row]
        millis, memory_bytes = (
            max(0, free - max(0, int(left))) if asked else 0
            for free, left, asked in zip(ledger.free[:ADDRESSES], spare, need, strict=False)
        )
        devices: list[int] = []
        if need[FIXED:].any():
            devices = sorted(ledger.devices_free)[max(0, int(spare[FIXED:].min())) :]
        return (
            Grant(written(millis), memory_bytes, tuple(devices))
            if millis or memory_bytes or devices
            else None
        )

    def _change(self, places: Sequence[Place], leaving: Sequence[Tenant] = ()) -> dict[int, Column]:
        """How much less there will be on each node at that instant."""
        change: dict[int, Column] = {}
        late = [t for t in leaving if self.is_open_ended or self.around.ends_at(t) > self.at]
        for sign, held in ((1, places), (-1, [(tenant.node_row, tenant.grant) for tenant in late])):
            for row, grant in held:
                amount = sign * self.scale.grant(row, grant)
                change[row] = change[row] + amount if row in change else amount
        return change


def reserve(
    draft: Draft, unit: Unit, policy: Policy, runs_s: Mapping[JobId, float], kept: tuple[str, ...] = ()
) -> Reservation | None:
    """Keep room for a unit at the earliest instant it can start, or None if it could not with all tenants gone.

    `runs_s` says how long the jobs run that the draft has placed; `kept` names the nodes that were kept for it before.
    """
    ask = Ask(unit)
    scale = Scale(draft.nodes, [part.request for part in ask.parts])
    around = Releases(draft, policy, runs_s, scale)
    if not ask.is_gang and _is_exact(ask.parts[0].request):
        return _reserve_exactly(draft, ask, around, scale)
    found = around.first(lambda free: fits(ask, scale, free))
    if found is None:
        return None
    at, later = found
    if at == inf:
        return _reserve_nearest(draft, ask, around, scale, kept)
    need = footprint(ask, scale, later, sparing=around.free)
    if need is None:  # groups that share nodes do not find every place cheaply
        need = footprint(ask, scale, later)
    return None if need is None else Reservation(ask, at, later, need, around, scale)


def _reserve_nearest(
    draft: Draft, ask: Ask, around: Releases, scale: Scale, kept: tuple[str, ...]
) -> Reservation | None:
    """Keep the nodes that were kept before, or else those on which the unit lacks the least."""
    lacking = Lacking(ask, scale, around.free, around.everybody())
    rows = np.array([draft.nodes.rows[name] for name in kept if name in draft.nodes.rows], dtype=np.int64)
    need = lacking.within(rows, on_each=True) if len(rows) else None
    if need is None and (need := lacking.nearest()) is None:
        return None
    at = around.not_before(np.flatnonzero(need.any(axis=0)))
    found = Reservation(ask, at, around.free.copy(), need, around, scale)
    found.is_fixed = found.is_open_ended = True
    return found


def _is_between(amounts: Sequence[int], least: int, width: int) -> bool:
    """Whether some of those who leave give back at least so much, but not so much and the width; or too many do."""
    sums = {0}
    for amount in amounts:
        sums |= {each + amount for each in sums}
        if len(sums) > _SUMS_MAX:
            return True
    return any(least <= each < least + width for each in sums)


def _is_exact(request: Request) -> bool:
    """Whether it names a NUMA node or devices, so that counting is not enough."""
    target = request.target
    return target is not None and (target.numa is not None or bool(target.devices))


def _reserve_exactly(draft: Draft, ask: Ask, around: Releases, scale: Scale) -> Reservation | None:
    """For a request that names its devices: let the tenants of its node leave one by one until it fits.

    Which devices would stay free is not counted, so the node is kept whole.
    """
    nodes, request = draft.nodes, ask.parts[0].request
    row = None if request.target is None else nodes.rows.get(request.target.host)
    if row is None or not nodes.open[row] or nodes.ledgers[row].never(request) is not None:
        return None
    at = float(around.ends[around.node == row].max(initial=around.now))
    mark = draft.mark()
    for tenant in sorted(_tenants_on(draft, row), key=around.ends_at):
        draft.evict(tenant)
        if isinstance(nodes.ledgers[row].fit(request), Grant):
            at = around.ends_at(tenant)
            break
    draft.rollback(mark)
    later = around.free.copy()
    need = np.zeros_like(later)
    need[:, row] = ALL_OF_IT
    is_open_ended = at == inf
    if is_open_ended:
        at = around.not_before(np.array([row]))
    found = Reservation(ask, at, later, need, around, scale)
    found.is_fixed, found.is_open_ended = True, is_open_ended
    return found


def _tenants_on(draft: Draft, row: int) -> list[Tenant]:
    tenants = draft.tenants
    found = (tenants.tenants[slot] for slot in np.flatnonzero(draft.here & (tenants.node == row)).tolist())
    return [tenant for tenant in found if tenant is not None]


class Unplaced:
    """The units that found no room, in order. The first of them that could ever run is the head."""

    def __init__(self, draft: Draft, policy: Policy, gain: int, precedence: Precedence) -> None:
        self._draft = draft
        self._precedence = precedence
        self._waiting, self._memory = precedence.waiting, precedence.memory
        self._policy = policy
        self._gain = gain
        self._line: list[InLine] = []
        self._reservation: Reservation | None = None
        self._runs_s: dict[JobId, float] = {}
        self.reserves_for: WaitingClass | None = None  # while it is worked out what is kept for the head

    def begin(self, full: list[InLine]) -> None:
        """Units for which an earlier plan found no room, and nothing has ended since."""
        notes, gain = self._memory.notes, self._gain
        self._line = [each for each in full if notes[each.waiting_class.number].hopeless_at != gain]
        heapify(self._line)

    def join(self, waiting_class: WaitingClass, unit: Unit) -> None:
        """A unit found no room."""
        if self._memory.notes[waiting_class.number].hopeless_at != self._gain:
            heappush(self._line, self._precedence.in_line(waiting_class, unit))

    @property
    def first(self) -> InLine | None:
        return self._line[0] if self._line else None

    def is_first(self, rank: Rank | None) -> bool:
        """Whether it is the unit of this rank."""
        return bool(self._line) and self._line[0].unit.rank == rank

    def note_start(self, job: Job) -> None:
        """The draft has placed something of this job."""
        self._runs_s[job.id] = run_s(job)

    def is_before(self, unit: Unit) -> bool:
        """Whether a unit before this one found no room."""
        return bool(self._line) and self._line[0].at < self._precedence.place(unit)

    def is_reserved(self, unit: Unit) -> bool:
        """Whether what a unit has to leave alone is known already."""
        return not self.is_before(unit) or (
            self._reservation is not None and self._reservation.rank == self._line[0].unit.rank
        )

    def reservation(self, passing: Unit) -> Reservation | None:
        """What a unit has to leave alone. Worked out when first asked, once for a plan."""
        while self.is_before(passing):
            if self.is_reserved(passing):
                return self._reservation
            _, waiting_class, unit = self._line[0]
            self.reserves_for = waiting_class
            before = kept_for(self._memory, self._waiting, unit, self._draft)
            self._reservation = reserve(self._draft, unit, self._policy, self._runs_s, before)
            if self._reservation is None:
                note = structs.replace(self._memory.of(waiting_class), hopeless_at=self._gain)
                self._memory.notes[waiting_class.number] = note
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
