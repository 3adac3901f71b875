"""The reservation: when and where the first that found no room will start, so that nobody who passes it delays it.

This is EASY backfill. Only one unit has a reservation, the *head*: the first in order that found no room, has quota
left, and could run at all if every tenant were gone. One that could not must not stop the others. Whoever stands
behind the head goes first if it has ended by then, or if it uses room that the head does not need at that instant.
Who is asked in which order is decided in `engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar, cast

import numpy as np
from msgspec import Struct

from phalanx.core.model import reason
from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.score import WORST
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Block, Rank, Unit, WaitingClass, WaitingGroup
from phalanx.core.placement.departures import Departures, Matrix, Scale
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.footprint import fits, footprint, moved, requests_of, stands_anywhere

Found = TypeVar("Found")
Place = tuple[int, Grant]  # node row, what is held there
_MOVES_MAX = 8  # how often a plan looks for another domain for the head; each is a placement of its own
_ALL_OF_IT = np.iinfo(np.int64).max // 2


def run_s(job: Job, policy: Policy) -> float:
    """How long an attempt of this job is taken to run."""
    return policy.assumed_run_s if job.time_limit_s is None else job.time_limit_s


class Forecast(Struct, frozen=True):
    """When a unit is expected to start if nobody passes it, where, and how many leave by assumption until then."""

    at: float
    nodes: tuple[str, ...]
    assumed: int  # of the tenants that have to leave, those without a time limit
    assumed_run_s: float  # how long each of these is taken to run


class Reservation:
    """Room kept for the head from one instant on."""

    def __init__(
        self, unit: Unit, at: float, later: Matrix, need: Matrix, around: Departures, scale: Scale
    ) -> None:
        self.job = unit.job.id
        self.rank = unit.rank
        self.at = at
        self._unit = unit
        self._later = later  # what is free at that instant, less what those who passed still hold then
        self._need = need  # what of it the head takes
        self._around = around
        self._scale = scale
        self.is_fixed = False  # the head can stand nowhere else
        self._moves = 0
        self._rows: Column = np.flatnonzero(need.any(axis=0))  # the nodes that the head will stand on

    @property
    def forecast(self) -> Forecast:
        nodes = tuple(self._scale.nodes.names[row] for row in self._rows.tolist())
        return Forecast(self.at, nodes, self._around.assumed(self.at), self._around.assumed_run_s)

    def spot(self, request: Request) -> Place | None:
        """The best node on which a task may stay beyond the instant; its place is counted already."""
        nodes = self._scale.nodes
        could = nodes.slots(request).column > 0
        need = self._need[:, self._rows]
        lacking = self._later[:, self._rows] - need < self._scale.ask(request)[:, None]
        could[self._rows[(lacking & (need > 0)).any(axis=0)]] = False
        values = nodes.scores.column(request, self._around.score)
        while could.any():
            row = int(np.where(could, values, WORST).argmin())
            answer = nodes.ledgers[row].fit(request)
            if isinstance(answer, Grant) and self.stay([(row, answer)]):
                return row, answer
            could[row] = False
        return None

    def stay(self, places: Sequence[Place], leaving: Sequence[Tenant] = ()) -> bool:
        """Let these places be held beyond the instant, if they leave the head what it needs.

        `leaving` are tenants that make way for them.
        """
        change = self._change(places, leaving)
        for row, amount in change.items():
            need = self._need[:, row]
            if ((self._later[:, row] - amount < need) & (need > 0)).any():
                return False
        for row, amount in change.items():
            self._later[:, row] -= amount
        return True

    def make_way(self, places: Sequence[Place]) -> bool:
        """Let these places be held if the head can stand on other nodes at the same instant; then it will."""
        if self.is_fixed:
            return False
        later = self._later.copy()
        for row, amount in self._change(places).items():
            later[:, row] -= amount
        need = moved(self._unit, self._scale, later, self._need)
        if need is None and self._moves < _MOVES_MAX and not stands_anywhere(self._unit):
            self._moves += 1
            need = footprint(self._unit, self._scale, later)
        if need is None:
            return False
        self._later, self._need = later, need
        self._rows = np.flatnonzero(need.any(axis=0))
        return True

    def keeping(self, attempt: Callable[[], Found]) -> Found:
        """Try something while the columns show only what may be held beyond the instant."""
        nodes = self._scale.nodes
        set_aside = [
            (row, grant) for row in self._rows.tolist() if (grant := self._set_aside(row)) is not None
        ]
        for row, grant in set_aside:
            nodes.promise(row, grant)
        try:
            return attempt()
        finally:
            for row, grant in set_aside:
                nodes.withdraw(row, grant)

    def _set_aside(self, row: int) -> Grant | None:
        """What has to stay free on a node of what is free there now."""
        ledger = self._scale.nodes.ledgers[row]
        spare, need = self._later[:, row] - self._need[:, row], self._need[:, row]
        cores, memory = (
            max(0, free - max(0, int(left))) if asked else 0
            for free, left, asked in zip((ledger.cores_free, ledger.memory_free), spare, need, strict=False)
        )
        devices: list[int] = []
        if need[2:].any():
            devices = sorted(ledger.devices_free)[max(0, int(spare[2:].min())) :]
        return Grant(cores, memory, tuple(devices)) if cores or memory or devices else None

    def _change(self, places: Sequence[Place], leaving: Sequence[Tenant] = ()) -> dict[int, Column]:
        """How much less there will be on each node at that instant."""
        change: dict[int, Column] = {}
        late = [tenant for tenant in leaving if self._around.ends_at(tenant) > self.at]
        for sign, held in ((1, places), (-1, [(tenant.node_row, tenant.grant) for tenant in late])):
            for row, grant in held:
                amount = sign * self._scale.grant(row, grant)
                change[row] = change[row] + amount if row in change else amount
        return change


def reserve(draft: Draft, unit: Unit, policy: Policy, runs_s: Mapping[JobId, float]) -> Reservation | None:
    """Keep room for a unit at the earliest instant it can start, or None if it could not with everybody gone.

    `runs_s` says how long the jobs run that the draft has placed.
    """
    scale = Scale(draft.nodes, requests_of(unit))
    around = Departures(draft, policy, runs_s, scale)
    if not unit.is_gang and _is_exact(cast(WaitingGroup, unit)):
        return _reserve_exactly(draft, cast(WaitingGroup, unit), around, scale)
    found = around.first(lambda free: fits(unit, scale, free))
    if found is None:
        return None
    at, later = found
    need = footprint(unit, scale, later, sparing=around.free)
    if need is None:  # groups that share nodes do not find every place cheaply
        need = footprint(unit, scale, later)
    return None if need is None else Reservation(unit, at, later, need, around, scale)


class Front:
    """Those who found no room, in order. The first of them that could ever run is the head."""

    def __init__(self, draft: Draft, policy: Policy, gain: int) -> None:
        self._draft = draft
        self._policy = policy
        self._gain = gain
        self._line: list[tuple[Rank, WaitingClass]] = []
        self._reservation: Reservation | None = None
        self._runs_s: dict[JobId, float] = {}

    def begin(self, full: list[tuple[Rank, WaitingClass]]) -> None:
        """Those of whom an earlier plan knew that there is no room, and nothing has ended since."""
        self._line = [(rank, kind) for rank, kind in full if kind.hopeless_at != self._gain]
        heapify(self._line)

    def join(self, rank: Rank, kind: WaitingClass) -> None:
        """The unit of this rank found no room."""
        if kind.hopeless_at != self._gain:
            heappush(self._line, (rank, kind))

    @property
    def first(self) -> tuple[Rank, WaitingClass] | None:
        return self._line[0] if self._line else None

    def note_start(self, job: Job) -> None:
        """The draft has placed something of this job."""
        self._runs_s[job.id] = run_s(job, self._policy)

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
            self._reservation = reserve(self._draft, kind.units[first], self._policy, self._runs_s)
            if self._reservation is None:
                kind.hopeless_at = self._gain
                heappop(self._line)
        return None


def forecast(snapshot: Snapshot, unit: Unit, policy: Policy) -> Forecast | None:
    """When this unit would start if it were the head, or None if not even with everybody gone."""
    found = reserve(Draft(snapshot), unit, policy, {})
    return None if found is None else found.forecast


def held_back(snapshot: Snapshot, unit: Unit, policy: Policy) -> Reason | None:
    """For whom the room is kept that this unit would otherwise take now, as the last plan found; or None."""
    kind = snapshot.waiting.classes.get(unit.kind)
    if kind is None or kind.blocked_at != snapshot.gain or kind.blocked_by is not Block.HELD:
        return None
    head = kind.held_behind
    first = next((each.units[head] for each in snapshot.waiting.classes.values() if head in each.units), None)
    if head is None or first is None or unit.rank < head:
        return None
    expected = forecast(snapshot, first, policy)
    if expected is None:
        return None
    may_pass = policy.backfill == "easy"
    if may_pass and snapshot.now + run_s(unit.job, policy) <= expected.at:
        return None
    return reason.reserved_for_other(first.job.id, expected.at, expected.at - snapshot.now, may_pass)


def _is_exact(unit: WaitingGroup) -> bool:
    """Whether it names a NUMA node or devices, so that counting is not enough."""
    target = unit.request.target
    return target is not None and (target.numa is not None or bool(target.devices))


def _reserve_exactly(
    draft: Draft, unit: WaitingGroup, around: Departures, scale: Scale
) -> Reservation | None:
    """For a request that names its devices: let the tenants of its node leave one by one until it fits.

    Which devices would stay free is not counted, so the node is kept whole.
    """
    nodes, target = draft.nodes, unit.request.target
    row = None if target is None else nodes.rows.get(target.host)
    if row is None or not nodes.open[row] or nodes.ledgers[row].never(unit.request) is not None:
        return None
    at = float(around.ends[around.node == row].max(initial=around.now))
    mark = draft.mark()
    for tenant in sorted(_tenants_on(draft, row), key=around.ends_at):
        draft.evict(tenant)
        if isinstance(nodes.ledgers[row].fit(unit.request), Grant):
            at = around.ends_at(tenant)
            break
    draft.rollback(mark)
    later = around.free.copy()
    need = np.zeros_like(later)
    need[:, row] = _ALL_OF_IT
    found = Reservation(unit, at, later, need, around, scale)
    found.is_fixed = True
    return found


def _tenants_on(draft: Draft, row: int) -> list[Tenant]:
    tenants = draft.tenants
    found = [tenants.tenants[slot] for slot in np.flatnonzero(tenants.used & (tenants.node == row)).tolist()]
    return [tenant for tenant in found if tenant is not None and tenant.key not in draft.gone]
