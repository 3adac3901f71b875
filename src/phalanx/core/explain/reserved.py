"""What the reservation means for waiting units: when the head starts and where, and what would delay it, as reasons.

The reservation is worked out as a plan works it out (`reservation.py`), and nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from msgspec import Struct

from phalanx.core.model.amounts import describe_bytes, plural, written
from phalanx.core.model.job import JobId
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Cores
from phalanx.core.model.waiting import Block, Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.domains import GatherLevels
from phalanx.core.placement.precedence import Precedence
from phalanx.core.placement.reserve.reservation import ALL_OF_IT, Reservation, kept_for, reserve, run_s

NODES_SHOWN = 5


class Forecast(Struct, frozen=True):
    """When a unit starts at the latest if nobody passes it, and where; `at` is infinite if limits do not say."""

    at: float
    nodes: tuple[str, ...]
    passes_s: float  # a unit that runs no longer than this may go first, wherever there is room
    domain: str = ""  # what its rules want it to stand in together, such as `rack r2`; empty: nothing
    # What is not free there yet: (what, how much, of how much).
    lacks: tuple[tuple[str, Cores, Cores], ...] = ()
    unlimited: int = 0  # tenants of those nodes without a time limit


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
    kind = snapshot.waiting.class_of(unit)
    if kind is None:
        return None
    note = snapshot.memory.of(kind)
    if note.blocked_at != snapshot.gain or note.blocked_by is not Block.HELD:
        return None
    head = note.held_behind
    first = next((each.units[head] for each in snapshot.waiting.classes.values() if head in each.units), None)
    if head is None or first is None:
        return None
    precedence = Precedence(snapshot.nodes, snapshot.queues, snapshot.waiting, snapshot.memory.turn)
    if precedence.rank(unit) < precedence.rank(first):
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
    precedence = Precedence(snapshot.nodes, snapshot.queues, snapshot.waiting, snapshot.memory.turn)
    return min(without_room, key=precedence.rank, default=None)


def _forecast(
    snapshot: Snapshot, draft: Draft, unit: Unit, policy: Policy, runs_s: dict[JobId, float]
) -> Forecast | None:
    found = reserve(draft, unit, policy, runs_s, kept_for(snapshot.memory, snapshot.waiting, unit, draft))
    if found is None:
        return None
    passes_s = max(0.0, found.at - found.around.now)
    if not found.is_open_ended:
        return Forecast(found.at, found.nodes, passes_s)
    here = found.around.ends[np.isin(found.around.node, found.rows)]
    return Forecast(inf, found.nodes, passes_s, _domain(found), _lacks(found), int(np.isinf(here).sum()))


def _domain(found: Reservation) -> str:
    """The domain of the layer that must hold all members of the head."""
    tree = found.scale.nodes.tree
    level = GatherLevels(tree, found.ask.gather).top if found.ask.is_gang else 0
    if not level or level == tree.node_level or not len(found.rows):
        return ""
    number = int(tree.up(tree.node_level, found.rows[:1], level)[0])
    return f"{tree.layer(level)} {'/'.join(tree.path(level, number))}"


def _lacks(found: Reservation) -> tuple[tuple[str, Cores, Cores], ...]:
    """What of its need is not free on its nodes now."""
    need = np.where(found.need >= ALL_OF_IT, 0, found.need)
    missing = np.maximum(need - np.maximum(found.around.free, 0), 0).sum(axis=1).tolist()
    words = ("cores", "memory", "addresses", "GPUs")  # further rows are kinds of the same devices
    lacks = zip(words, missing, need.sum(axis=1).tolist(), strict=False)
    return tuple(
        (word, written(lack), written(all_)) if word == "cores" else (word, lack, all_)
        for word, lack, all_ in lacks
        if lack
    )


def room_kept(found: Forecast) -> Reason:
    """What is kept for the head, and what is not free there yet."""
    first, names = "First in line", _named(found.nodes)
    if found.at != inf:
        text = f"{first}: starts on {names} within {found.passes_s:.0f} s, by the time limits there"
        numbers: dict[str, Any] = {"nodes": list(found.nodes), "at": found.at, "seconds": found.passes_s}
        return Reason("RoomKept", Tier.PROGRESS, text, numbers)
    text = f"{first}: {_where(found)} reserved for it"
    if missing := [_share(*each) for each in found.lacks]:
        is_one = len(missing) == 1 and (found.lacks[0][0] == "memory" or found.lacks[0][1] == 1)
        text += f"; {' and '.join(missing)} that it needs there {'is' if is_one else 'are'} still in use"
    if found.unlimited:
        some = "1 task there has" if found.unlimited == 1 else f"{found.unlimited} tasks there have"
        text += f"; {some} no time limit, so the start time is unknown"
    lacks = {what: amount for what, amount, _ in found.lacks}
    numbers = {"nodes": list(found.nodes), "lacks": lacks, "unlimited": found.unlimited}
    return Reason("RoomKept", Tier.PROGRESS, text, numbers)


def _would_delay(job: str, found: Forecast, may_pass: bool) -> Reason:
    """Room is kept for a job that stands before it; `may_pass`: those who end in time may go first."""
    seconds, ends = int(found.passes_s), found.at != inf
    numbers = {
        "job": job,
        "nodes": list(found.nodes),
        "at": found.at if ends else None,
        "seconds": found.passes_s,
    }
    text = f"There is room, but it would delay {job}, which is ahead and for which {_where(found)} kept"
    if not may_pass:
        text = f"There is room, but {job} is ahead and has none, and backfill is off"
    elif ends:
        text = f"There is room, but it is kept for {job}, which is ahead and starts within {seconds} s"
    if may_pass and seconds:
        text += f"; a time limit of at most {seconds} s would let it go first"
    return Reason("ReservedForOther", Tier.POLICY, text, numbers)


def _where(found: Forecast) -> str:
    names = _named(found.nodes) + (" is" if len(found.nodes) == 1 else " are")
    return f"{found.domain} ({_named(found.nodes)}) is" if found.domain else names


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_SHOWN
    return ", ".join(nodes[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _share(what: str, amount: Cores, total: Cores) -> str:
    """`2 of the 4 cores`, `the 1 GPU`."""
    if what == "memory":
        whole = f"the {describe_bytes(int(total))} of memory"
        return whole if amount == total else f"{describe_bytes(int(amount))} of {whole}"
    whole = plural(total, what.removesuffix("s"))
    return f"the {whole}" if amount == total else f"{amount} of the {whole}"
