"""Why a gang finds no room, now or ever: one dominant reason, with the slots of every domain as evidence.

What can never be is said before what is only full now. Never is claimed only where even slots that groups do not
share would not be enough on empty nodes, nodes that are away counted, for they may come back: it is true whatever else
runs, and asked at submit. What to change instead is tried in `fixes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.cluster.decide import jobs as decide_jobs
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import amounts, gang_reasons, reason
from phalanx.core.model.amounts import ANY, CORES, WORDS, describe_bytes, written
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Cores, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Ask, Part, Waiting, WaitingGang
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.domains import Field
from phalanx.core.placement.gang.grants import NoLayout, try_gang
from phalanx.core.placement.gang.search import GangSearch, PartSlots

DOMAINS_SHOWN = 64
NODES_TRIED_MAX = 256  # on more nodes groups that share them are not tried out, only counted


def place_gang(draft: Draft, unit: WaitingGang, *, partial: bool = False) -> GangPlacement | Reason:
    """Place a gang in the draft (`try_gang`), or say why there is no room."""
    found = try_gang(draft, Ask(unit), partial=partial)
    return Shortage(draft.nodes, found).reason() if isinstance(found, NoLayout) else found


def why_never(state: ClusterState, job: JobState) -> Reason | None:
    """Why a job would be refused as soon as it is submitted, or None if it could run."""
    no = decide_jobs.why_never(state, job.job)
    return no if no is not None or job.gang is None else gang_never(state.table, job.gang)


def whole_never(nodes: NodeTable, job: Job) -> Reason | None:
    """Why a job could not start whole even if nothing else ran; None for one that is no gang."""
    gang = JobState(job, 0, [0] * 6).gang
    return None if gang is None else gang_never(nodes, gang)


def gang_never(nodes: NodeTable, unit: WaitingGang) -> Reason | None:
    """Why this gang could not start here even if nothing else ran, or None if it could, as far as we can tell."""
    ask = Ask(unit)
    parts = ask.parts
    if not parts:
        return None
    slots = [PartSlots(part.need, part.most, nodes.ever(part.request)[0]) for part in parts]
    search = GangSearch(nodes.tree, slots, ask.gather, bound=ask.bound)
    no = Shortage(nodes, NoLayout(parts, search)).never()
    if no is not None or len(parts) == 1 or ask.bound or len(nodes) > NODES_TRIED_MAX:
        return no
    return _tried_on_empty_nodes(nodes, unit, sum(part.need for part in parts))


def _tried_on_empty_nodes(nodes: NodeTable, unit: WaitingGang, needed: int) -> Reason | None:
    """Each group finds room on its own; whether they do beside each other has to be tried."""
    empty = NodeTable()
    empty.set_topology(nodes.topology)
    for ledger in nodes:
        empty.put(ledger.name, ledger.capacity)
        empty.set_open(ledger.name, True)
    draft = Draft(Snapshot(empty, Waiting(), 0, Tenants(), Queues(), 0.0))
    found = place_gang(draft, unit)
    if not isinstance(found, Reason) or found.numbers.get("gave_up"):
        return None
    has_rule = any(rule.must for rule in unit.job.gang.gather) if unit.job.gang else False
    return reason.groups_too_large(needed, has_rule, found.numbers)


class Shortage:
    """One gang that found no layout, and the search that found none."""

    def __init__(self, nodes: NodeTable, found: NoLayout) -> None:
        self._nodes, self._gave_up = nodes, found.gave_up
        self._parts: Sequence[Part] = found.parts
        self._search: GangSearch = found.search
        self._tree, self._rules = self._search.tree, self._search.rules

    def reason(self) -> Reason:
        """The dominant reason."""
        return self.never() or self._not_now()

    def never(self) -> Reason | None:
        """Why it could not be placed even if nothing else ran and every node were at work, or None if it could."""
        if unknown := next((rule for rule in self._rules.unknown if rule.must), None):
            return reason.layer_unknown(unknown.layer, self._tree.topology.names())
        if not len(self._nodes):
            return reason.no_nodes()
        pinned = self._search.domains.pinned
        if pinned is not None and len(pinned) > 1:
            assert self._rules.top is not None
            names = ["/".join(self._tree.path(self._rules.top, number)) for number in pinned.tolist()]
            return gang_reasons.members_apart(self._tree.layer(self._rules.top), names)
        return (
            self._too_few_slots() or self._indivisible() or (self._beyond_all() if self._is_mixed else None)
        )

    @property
    def _is_mixed(self) -> bool:
        return len(self._parts) > 1

    @property
    def _needs(self) -> list[int]:
        """How many members of each part have to be placed now, one at the least."""
        needs = [part.need for part in self._parts]
        return needs if any(needs) else [1, *needs[1:]]

    def _together(self, rooms: Sequence[Column]) -> Column:
        """Room for members of all parts: of several, no more of each than it needs, as if they did not share."""
        if not self._is_mixed:
            return rooms[0]
        total = np.zeros(len(rooms[0]), dtype=np.int64)
        for room, need in zip(rooms, self._needs, strict=True):
            total += np.minimum(room, need)
        return total

    def _all_together(self, totals: Sequence[int]) -> int:
        """The same for totals over all nodes."""
        return sum(map(min, totals, self._needs)) if self._is_mixed else totals[0]

    def _too_few_slots(self) -> Reason | None:
        """What even empty nodes could not hold. Members of all groups are counted, since they start together."""
        ever = [self._nodes.ever(part.request) for part in self._parts]
        totals = [int((sums[0] if sums else slots).sum()) for slots, sums in ever]
        for part, total in zip(self._parts, totals, strict=True):
            if not total:
                return self._closest(part.request)
        needed = sum(self._needs)
        total = self._all_together(totals)
        if total < needed:
            return _beyond("members", needed, total)
        top = self._rules.top
        assert top is not None
        multiples = () if self._is_mixed else self._search.multiples
        if not top and not multiples:
            return None  # they may stand anywhere
        held = self._search.held
        room = self._together(
            [Field(self._tree, slots, sums, multiples, held).at(top) for slots, sums in ever]
        )
        if int(room.max()) < needed:
            layer = self._must_layer()
            evidence = self._evidence(top, room, np.arange(len(room)))
            evidence["unlabelled"] = layer in self._tree.absent
            return reason.must_gather_impossible(needed, layer, int(room.max()), evidence)
        return None

    def _closest(self, request: Request) -> Reason:
        """What the largest node that takes work says, were it empty; or the node that is asked for."""
        if request.target is not None:
            row = self._nodes.rows.get(request.target.host)
            if row is None:
                return reason.target_not_found(request.target.host, sorted(self._nodes.names))
        else:
            columns = self._nodes.columns
            size = columns.devices(request, every=True) if request.gpus else columns.every[CORES]
            if request.is_choosy and (labelled := columns.labelled(request)).any():
                size = np.where(labelled, size, -1)
            working = np.where(columns.open, size, -1)
            row = int((working if working.max() >= 0 else size).argmax())
        no = self._nodes.ledgers[row].never(request)
        assert no is not None
        return no

    def _indivisible(self) -> Reason | None:
        """A multiple that no number of members makes. Members that stand elsewhere need not be part of one."""
        if self._search.held is not None:
            return None
        least, most = (sum(each) for each in zip(*((s.need, s.most) for s in self._parts), strict=True))
        for level, multiple in enumerate(self._rules.multiples):
            if most // multiple * multiple < max(1, least):
                return reason.not_a_multiple(most, self._tree.layer(level), multiple)
        return None

    def _beyond_all(self) -> Reason | None:
        """All groups together ask for more than all nodes have."""
        columns = self._nodes.columns
        every = [*columns.every[: amounts.ADDRESSES], columns.of_kind(ANY, every=True)]
        _, *needed = amounts.total((part.request, part.need) for part in self._parts)
        for row, (column, wanted) in enumerate(zip(every, needed, strict=True)):
            if wanted > (there := int(column.sum())):
                shown = (written(wanted), written(there)) if row == CORES else (wanted, there)
                return _beyond(WORDS[1 + row], *shown)
        return None

    def _not_now(self) -> Reason:
        """What is lacking, counted where all members would have to stand."""
        top, pinned = self._rules.top, self._search.domains.pinned
        assert top is not None
        fields = self._search.fields
        numbers = np.arange(self._tree.size(top)) if pinned is None else pinned
        needed = sum(self._needs)
        room = int(self._together([field.at(top)[numbers] for field in fields]).max())
        slots = self._all_together([field.total for field in fields])
        if not top:  # nothing says where they have to stand, so the outermost domains are shown
            top, numbers = self._shown_level(), np.arange(self._tree.size(self._shown_level()))
        evidence = self._evidence(top, self._together([field.at(top)[numbers] for field in fields]), numbers)
        if self._gave_up:
            evidence["gave_up"] = True
        if self._rules.multiples:
            evidence["multiple"] = max(self._rules.multiples)
        if slots >= needed > room:
            return reason.topology_fragmented(needed, slots, room, evidence)
        return reason.gang_incomplete(needed, room, evidence)

    def _shown_level(self) -> int:
        asked = [level for level, multiple in enumerate(self._rules.multiples) if multiple > 1 and level]
        return asked[0] if asked else 1

    def _must_layer(self) -> str:
        """The must rule's own word for the layer, though the tree may know it as another."""
        top = self._rules.top
        layers = [
            rule.layer for rule in self._rules.gather if rule.must and self._tree.level(rule.layer) == top
        ]
        return layers[0] if layers else self._tree.layer(top or 0)

    def _evidence(self, level: int, room: Column, numbers: Column) -> dict[str, Any]:
        """The slots of these domains of a level, the most first; of very many, the first of them."""
        order = np.argsort(-room, kind="stable")[:DOMAINS_SHOWN]
        shown = {"/".join(self._tree.path(level, int(numbers[at]))): int(room[at]) for at in order.tolist()}
        best = next(iter(shown), "")
        return {
            "layer": self._must_layer() if level == self._rules.top else self._tree.layer(level),
            "best": best,
            "best_slots": int(room[order[0]]),
            "domains": shown,
            "domains_total": len(room),
        }


def _beyond(what: str, wanted: Cores, total: Cores) -> Reason:
    """That all nodes together have less than is needed at once."""
    needs, room = f"{wanted} {what}", f"{total}"
    if what == WORDS[2]:  # they are counted in bytes
        needs, room = f"{describe_bytes(int(wanted))} of memory", describe_bytes(int(total))
    return reason.exceeds_cluster_total(what, wanted, total, needs, room)
