"""What the reservation means to those who wait: when the head starts and where, and who would delay it, as reasons.

The reservation is worked out as a plan works it out (`reservation.py`), and nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from phalanx.core.model.ids import JobId
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.quantity import describe_bytes
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Cores
from phalanx.core.model.waiting import Block, Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.reserve.reservation import Forecast, kept_for, reserve, run_s

NODES_SHOWN = 5


def forecast(snapshot: Snapshot, unit: Unit, policy: Policy) -> Forecast | None:
    """When this unit would start if it were the head, or None if not even with everybody gone."""
    with Draft(snapshot, policy.score) as draft:
        return _forecast(snapshot, draft, unit, policy, {})


def kept_now(
    snapshot: Snapshot, draft: Draft, unit: Unit, policy: Policy, runs_s: dict[JobId, float]
) -> Forecast | None:
    """What is kept for this unit in a draft, if it is the head; `runs_s`: how long those run who are placed in it."""
    head = head_of(snapshot)
    if head is None or head.rank != unit.rank:
        return None
    return _forecast(snapshot, draft, unit, policy, runs_s)


def held_back(snapshot: Snapshot, unit: Unit, policy: Policy) -> Reason | None:
    """For whom the room is kept that this unit would otherwise take now, as the last plan found; or None."""
    kind = snapshot.waiting.classes.get(unit.kind)
    if kind is None:
        return None
    note = snapshot.memory.of(kind)
    if note.blocked_at != snapshot.gain or note.blocked_by is not Block.HELD:
        return None
    head = note.held_behind
    first = next((each.units[head] for each in snapshot.waiting.classes.values() if head in each.units), None)
    if head is None or first is None or unit.rank < head:
        return None
    expected = forecast(snapshot, first, policy)
    if expected is None:
        return None
    may_pass = policy.backfill == "easy"
    if may_pass and run_s(unit.job) <= expected.passes_s:
        return None
    return _would_delay(first.job.id, expected, may_pass)


def head_of(snapshot: Snapshot) -> Unit | None:
    """The head, as the last plan found it."""
    without_room = (
        kind.units[kind.ranks[0]]
        for kind in snapshot.waiting.classes.values()
        if snapshot.memory.of(kind).waits_for_room(snapshot.gain)
    )
    return min(without_room, key=lambda unit: unit.rank, default=None)


def _forecast(
    snapshot: Snapshot, draft: Draft, unit: Unit, policy: Policy, runs_s: dict[JobId, float]
) -> Forecast | None:
    found = reserve(draft, unit, policy, runs_s, kept_for(snapshot.memory, snapshot.waiting, unit, draft))
    return None if found is None else found.forecast


def room_kept(found: Forecast) -> Reason:
    """What is kept for the head, and what is not free there yet."""
    first, names = "First in the queue", _named(found.nodes)
    if found.at != inf:
        text = f"{first}; starts on {names} within {found.passes_s:.0f} s, by the time limits there"
        numbers: dict[str, Any] = {"nodes": list(found.nodes), "at": found.at, "seconds": found.passes_s}
        return Reason("RoomKept", Tier.PROGRESS, text, numbers)
    text = f"{first}; {_where(found)} kept for it"
    if missing := [_share(*each) for each in found.lacks]:
        text += f"; still in use there: {', '.join(missing)}"
    if found.unlimited:
        some = "1 task there has" if found.unlimited == 1 else f"{found.unlimited} tasks there have"
        text += f"; {some} no time limit, so the start time is unknown"
    lacks = {what: amount for what, amount, _ in found.lacks}
    numbers = {"nodes": list(found.nodes), "lacks": lacks, "unlimited": found.unlimited}
    return Reason("RoomKept", Tier.PROGRESS, text, numbers)


def _would_delay(job: str, found: Forecast, may_pass: bool) -> Reason:
    """Room is kept for a job that stands before it; `may_pass`: those who end in time may go first."""
    seconds, ends = found.passes_s, found.at != inf
    numbers = {"job": job, "nodes": list(found.nodes), "at": found.at if ends else None, "seconds": seconds}
    text = f"There is room, but it would delay {job}, which is ahead and for which {_where(found)} kept"
    if not may_pass:
        text = f"There is room, but {job} is ahead and has none, and backfill is off"
    elif ends:
        text = f"There is room, but it is kept for {job}, which is ahead and starts within {seconds:.0f} s"
    if may_pass and seconds:
        text += f"; a time limit of at most {seconds:.0f} s would let it go first"
    return Reason("ReservedForOther", Tier.POLICY, text, numbers)


def _where(found: Forecast) -> str:
    names = _named(found.nodes) + (" is" if len(found.nodes) == 1 else " are")
    return f"{found.domain} ({_named(found.nodes)}) is" if found.domain else names


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_SHOWN
    return ", ".join(nodes[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _share(what: str, amount: Cores, total: Cores) -> str:
    if what == "memory":
        return f"{describe_bytes(int(amount))} of {describe_bytes(int(total))} of memory"
    return f"{amount} of {total} {what}"
