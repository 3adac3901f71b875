"""No unit waits in vain: one that still waits in a quiet turn finds no room, has no quota, or is held back for
another.

Checked on what the last plan left, in turns in which nothing happened: a turn that places or evicts may have changed
the state it planned on, and the next one plans again.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.core.explain.shortage import place_gang
from phalanx.core.model.plan import GangPlacement, Policy, Snapshot
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.waiting import Block, Unit, WaitingClass
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.make_room import make_room
from phalanx.sim.violation import Violation

PATIENCE_S = 2.5  # how long an eviction that could be made, or the start of a unit held back, may take


def check_waits(view: Snapshot) -> None:
    """Check the first unit of each class, which stands for all of it."""
    for kind in view.waiting.classes.values():
        unit, note = kind.units[kind.ranks[0]], view.memory.of(kind)
        if note.blocked_at != view.gain:
            raise Violation("heals", f"{unit.job.id} waits, and no plan has looked for a place for it")
        if note.blocked_by is Block.ROOM and _fits(view, unit):
            raise Violation("heals", f"{unit.job.id} waits though there is room for it")
        if note.blocked_by in (Block.QUOTA, Block.USER) and _has_quota(view, unit):
            raise Violation("heals", f"{unit.job.id} waits for quota that its queue has")


def check_patience(view: Snapshot, policy: Policy) -> None:
    """Nothing has happened for a while: units are held back only for a head, and no eviction could help."""
    for kind in view.waiting.classes.values():
        if view.memory.of(kind).blocked_by is Block.HELD:
            _check_held(view, kind, kind.units[kind.ranks[0]])
    kinds = [
        kind for kind in view.waiting.classes.values() if view.memory.of(kind).blocked_by is not Block.NODE
    ]
    units = [unit for kind in kinds for unit in kind.units.values()]
    first = min(units, key=lambda each: each.rank, default=None)
    if first is not None:
        _check_evictions(view, policy, first)


def _check_evictions(view: Snapshot, policy: Policy, first: Unit) -> None:
    with Draft(view) as draft:
        draft.now -= PATIENCE_S
        found = make_room(draft, first, policy)
    if isinstance(found, GangPlacement):
        raise Violation(
            "heals", f"{first.job.id} waits though {len(found.victims)} could have been evicted for it"
        )


def _check_held(view: Snapshot, kind: WaitingClass, unit: Unit) -> None:
    """A unit may be held back only for one that is ahead of it and has no room itself."""
    head = view.memory.of(kind).held_behind
    first = next((each for each in view.waiting.classes.values() if head in each.units), None)
    if head is None or first is None or head >= unit.rank:
        raise Violation("heals", f"{unit.job.id} is held back, and no unit is ahead of it")
    if view.memory.of(first).blocked_by is not Block.ROOM:
        raise Violation("heals", f"{unit.job.id} is held back for one that does not wait for room")


def _fits(view: Snapshot, unit: Unit) -> bool:
    if unit.is_gang:
        with Draft(view) as draft:
            found = place_gang(draft, unit)
        return isinstance(found, GangPlacement)
    return any(True for _ in _grants(view, unit.request))


def _grants(view: Snapshot, request: Request) -> Iterator[Grant]:
    """What each node with room for one task would give it."""
    for row, ledger in enumerate(view.nodes.ledgers):
        is_meant = request.target is None or request.target.host == ledger.name
        if view.nodes.open[row] and is_meant and isinstance(grant := ledger.fit(request), Grant):
            yield grant


def _has_quota(view: Snapshot, unit: Unit) -> bool:
    if unit.is_gang:
        return _fits(view, unit)
    user = unit.job.queue_user
    if unit.request.exclusive:  # it is given the whole node, which may be more than the limit admits
        return any(not view.queues.refuses(user, [grant], ()) for grant in _grants(view, unit.request))
    return view.queues.room(user, unit.request) != 0
