"""Which node takes a task in FlowMesh's modes.

`adaptive`: nodes that have loaded what the task needs come first, whatever they cost; of those the best by
λ · throughput − (1 − λ) · cost. Both terms are scaled to 0 … 1 over the nodes that come into question, so a score says
which of them is best and nothing beyond that. A jitter that follows from the ids of task and node breaks ties the same
way each time. `static_worker` and `fixed_pipeline` bind a workflow or a task type to the node that its first task was
given; `static_round_robin` lets the nodes take turns.

A mode may insist on one node. If that has no room the task waits for it, and no other waits behind the task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from msgspec import structs

from phalanx.core.model.bindings import DispatchView, workflow_key
from phalanx.core.model.dispatch import LANE, Dispatch, DispatchNote, Selection, checked
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.plan import Placement
from phalanx.core.model.proxies import Numbers
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.run_times import hardware_class, work_kind
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Block, WaitingClass, WaitingGroup
from phalanx.core.model.workflow import SPEC_BYTES_MAX, SPEC_VARIABLE
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.jitter import jitters
from phalanx.core.placement.node_limits import is_too_much
from phalanx.core.placement.reserve.reservation import Reservation, run_s

OTHERS_SHOWN = 4
IN_LANE = DispatchNote(LANE, 1)


def is_dispatched(unit: WaitingGroup) -> bool:
    """Whether a mode chooses the node: not for one that names its node."""
    return unit.job.dispatch is not None and unit.request.target is None


class Choice(NamedTuple):
    """A node for one task, what it would be given there, and what that rests on."""

    row: int
    grant: Grant
    note: DispatchNote


class OneNode(NamedTuple):
    """The task waits for this node and takes no other."""

    node: str


def bound_node(view: DispatchView, nodes: NodeTable, job: Job, request: Request) -> str | None:
    """The one node that this task may be given, by an earlier placement; None if it may be any.

    A node that is lost, drained, disabled or gone binds nobody, and neither does one that could never hold the task.
    """
    asked = job.dispatch
    assert asked is not None
    if asked.mode == "static_worker":
        name = view.bindings.workflows.get(workflow_key(job))
    elif asked.mode == "fixed_pipeline":
        name = view.bindings.types.get(asked.bound_type) if asked.bound_type else None
    else:
        name = asked.sticky if asked.mode == "adaptive" and asked.waits_for_sticky else None
    node = None if name is None else view.nodes.get(name)
    if name is None or node is None or node.is_out or name not in nodes.rows:
        return None
    if asked.mode == "adaptive" and not node.takes_work_of(job):
        return None
    return name if nodes.ledger(name).never(request) is None else None


class ScoredNodes(NamedTuple):
    """The nodes that may be best once the jitter is added, in the order of their names, and their scores before."""

    rows: list[int]
    names: list[str]
    encoded: list[bytes]  # the same names
    scores: Numbers
    others: list[tuple[str, float]]  # the best of those that cannot win, with their scores


class Dispatcher:
    """The choices of one plan: what an earlier one of them binds or uses holds for the next."""

    def __init__(self, nodes: NodeTable, view: DispatchView, now: float) -> None:
        self._nodes = nodes
        self._view = view
        self._policy = view.policy
        self._now = now
        self._workflows: dict[str, str] = {}  # what this plan has bound so far
        self._types: dict[str, str] = {}
        self._turns: dict[str, int] = {}
        self._last_turn = view.bindings.last_turn
        self._proxies: tuple[Numbers, Numbers] | None = None
        self._scored: dict[tuple[float, float], tuple[bytes, ScoredNodes]] = {}  # the last by weight, jitter
        self.merged: set[JobId] = set()  # jobs that run as a part of others

    def choose(
        self, unit: WaitingGroup, position: int, avoid: AbstractSet[int] = frozenset()
    ) -> Choice | OneNode | None:
        """The node for one task; the one that it waits for; or None if no node has room. It avoids these rows."""
        asked, job, request = unit.job.dispatch, unit.job, unit.request
        assert asked is not None
        if asked.mode == "static_round_robin":
            return self._next_in_turn(request, checked(request, asked.mode), avoid)
        bound = self._bound(job, asked, request)
        if bound is not None:
            found = self._at(bound, unit, asked)
            return OneNode(bound) if isinstance(found, Choice) and found.row in avoid else found
        rows = (self._nodes.slots(request).column > 0).nonzero()[0]
        if self._workflows:  # what was bound in this very plan the table does not know yet
            avoid = avoid | {self._nodes.rows[name] for name in self._workflows.values()}
        if avoid:
            rows = np.array([row for row in rows.tolist() if row not in avoid], dtype=np.int64)
        task = job.task_id(position)
        while len(rows):
            row, note = self._best(rows, task, job.user, asked)
            answer = self._nodes.ledgers[row].fit(request)
            if isinstance(answer, Grant):
                return Choice(row, answer, note)
            rows = rows[rows != row]  # the columns promise more than the node's own ledger can give
        return None

    def note(self, unit: WaitingGroup, row: int) -> None:
        """A task was given this node."""
        asked, name = unit.job.dispatch, self._nodes.names[row]
        assert asked is not None
        if asked.mode == "static_worker":
            self._workflows[workflow_key(unit.job)] = name
        elif bound_type := asked.bound_type:
            self._types[bound_type] = name
        elif asked.mode == "static_round_robin":
            self._last_turn += 1
            self._turns[name] = self._last_turn

    def merged_with(self, unit: WaitingGroup, waiting_class: WaitingClass) -> tuple[JobId, ...]:
        """The next jobs of the class that may run as a part of this one, as far as all their specifications fit."""
        asked = unit.job.dispatch
        if asked is None or not asked.may_merge or not self._policy.merge:
            return ()
        found: list[JobId] = []
        room = SPEC_BYTES_MAX
        ranks = waiting_class.ranks
        for at in range(bisect_right(ranks, unit.rank), len(ranks)):
            if len(found) >= self._policy.merge_max - 1:
                break
            other = waiting_class.units[ranks[at]]
            if other.is_gang or other.job.id in self.merged:
                continue
            if next(other.ready(1), None) is None:
                continue
            room -= len(other.job.groups[0].command.env[SPEC_VARIABLE].encode()) + 100
            if room < 0:
                break
            found.append(other.job.id)
        self.merged.update(found)
        return tuple(found)

    def _bound(self, job: Job, asked: Dispatch, request: Request) -> str | None:
        if asked.mode == "static_worker" and (mine := self._workflows.get(workflow_key(job))):
            return mine
        if asked.bound_type and (mine := self._types.get(asked.bound_type)):
            return mine
        return bound_node(self._view, self._nodes, job, request)

    def _at(self, name: str, unit: WaitingGroup, asked: Dispatch) -> Choice | OneNode:
        """On the one node that it may be given."""
        row, node = self._nodes.rows[name], self._view.nodes.get(name)
        answer = self._nodes.ledgers[row].fit(unit.request)
        if not isinstance(answer, Grant) or (node is not None and not node.takes_work_of(unit.job)):
            return OneNode(name)
        if asked.mode == "adaptive":
            return Choice(row, answer, DispatchNote("stage_weight_affinity", 1, score=1.0))
        return Choice(row, answer, DispatchNote(asked.mode, 1))

    def _next_in_turn(self, request: Request, anywhere: Request, avoid: AbstractSet[int]) -> Choice | None:
        """The node whose last turn is longest ago; its devices are not checked, those that are free are given."""
        nodes = self._nodes
        rows = np.flatnonzero(nodes.slots(anywhere).column > 0).tolist()
        for row in sorted(set(rows) - avoid, key=self._turn):
            ledger = nodes.ledgers[row]
            count = min(request.gpus, len(ledger.devices_free))
            answer = ledger.fit(structs.replace(anywhere, gpus=count))
            if isinstance(answer, Grant):
                return Choice(row, answer, DispatchNote("static_round_robin", len(rows)))
        return None

    def _turn(self, row: int) -> tuple[int, int]:
        name = self._nodes.names[row]
        turn = self._turns.get(name) or self._view.bindings.turns.get(name, 0)
        return turn, self._joined(row)

    def _joined(self, row: int) -> int:
        node = self._view.nodes.get(self._nodes.names[row])
        return row if node is None else node.number

    def _best(self, rows: Column, task: str, user: str, asked: Dispatch) -> tuple[int, DispatchNote]:
        """Of the nodes with room, the one that the mode and the selection prefer."""
        if asked.mode != "adaptive":  # the first task of what is bound: no reuse, no jitter, one weight
            return self._by_score(rows, task, 0.5, 0.0, DispatchNote(asked.mode, len(rows), weight=0.5))
        pool, names = len(rows), self._nodes.names
        if asked.sticky and self._nodes.rows.get(asked.sticky, -1) in rows:
            return self._nodes.rows[asked.sticky], DispatchNote("stage_weight_affinity", pool, score=1.0)
        reused = 0
        if asked.context and self._policy.reuse:
            rows, reused = self._with_context(rows, asked.context)
        selection: Selection = asked.selection or self._policy.selection
        if selection == "first_fit":
            row = min(rows.tolist(), key=self._joined)
            return row, DispatchNote(selection, pool, reused)
        if selection == "min_satisfying":
            throughputs, costs = self._columns()
            sizes = throughputs[rows] + jitters(
                task, [names[row].encode() for row in rows.tolist()], self._policy.jitter
            )
            size, _, _, row = min(
                (size, costs[row], names[row], row)
                for size, row in zip(sizes.tolist(), rows.tolist(), strict=True)
            )
            return row, DispatchNote(selection, pool, reused, score=round(size, 9))
        weight = self._policy.weight(asked.task_type)
        note = DispatchNote(selection, pool, reused, weight)
        times = self._run_times(rows, user, asked) if self._policy.learn and len(rows) > 1 else None
        row, note = self._by_score(rows, task, weight, self._policy.jitter, note, times)
        if times is not None:
            note = structs.replace(note, learned_s=round(float(times[np.flatnonzero(rows == row)[0]]), 3))
        return row, note

    def _run_times(self, rows: Column, user: str, asked: Dispatch) -> Numbers | None:
        """How long such a task takes on each of these nodes, if that is known of all of them."""
        known, kind = self._view.bindings.run_times, work_kind(user, asked)
        if not known.samples(kind):
            return None
        classes = [hardware_class(self._nodes.ledgers[row].capacity) for row in rows.tolist()]
        found = known.of(kind, set(classes))
        return None if found is None else np.array([found[each] for each in classes], dtype=np.float64)

    def _with_context(self, rows: Column, context: tuple[str, ...]) -> tuple[Column, int]:
        """Of these rows those that have most of what is wanted; all of them if none has any."""
        hits = self._view.bindings.contexts.hits(context, self._now, self._policy.reuse_s)
        if not hits:
            return rows, 0
        found = [hits.get(self._nodes.names[row], 0) for row in rows.tolist()]
        most = max(found)
        return (rows[np.array(found) == most], most) if most else (rows, 0)

    def _by_score(
        self,
        rows: Column,
        task: str,
        weight: float,
        most: float,
        note: DispatchNote,
        times: Numbers | None = None,
    ) -> tuple[int, DispatchNote]:
        """The best by score and jitter; of equals the smallest name. Only those that can win are hashed."""
        if len(rows) == 1:  # scaled, both terms are 0
            return int(rows[0]), note
        scored = (
            self._nodes_by_score(rows, weight, most)
            if times is None
            else self._score(rows, weight, most, times)
        )
        scores = scored.scores + jitters(task, scored.encoded, most)
        order = (-scores).argsort(kind="stable")[: OTHERS_SHOWN + 1]
        best, *rest = zip(order.tolist(), scores[order].tolist(), strict=True)
        others = [(scored.names[at], round(score, 6)) for at, score in rest]
        others += scored.others[: OTHERS_SHOWN - len(others)]
        at, score = best
        return scored.rows[at], structs.replace(note, score=round(score, 9), others=tuple(others))

    def _nodes_by_score(self, rows: Column, weight: float, most: float) -> ScoredNodes:
        """The last result again if it is about the same nodes: many tasks in a row find the same ones with room."""
        found, last = rows.tobytes(), self._scored.get((weight, most))
        if last is not None and last[0] == found:
            return last[1]
        scored = self._score(rows, weight, most)
        self._scored[weight, most] = found, scored
        return scored

    def _score(self, rows: Column, weight: float, most: float, times: Numbers | None = None) -> ScoredNodes:
        throughputs, costs = (column[rows] for column in self._columns())
        if times is not None:  # what a task takes and costs, not what its node has and costs by the hour
            throughputs, costs = 1.0 / times, costs * times
        scores = weight * _scaled(throughputs) - (1 - weight) * _scaled(costs)
        names = self._nodes.names
        can_win = (scores >= scores.max() - 2 * max(most, 0.0)).nonzero()[0].tolist()
        near = sorted(can_win, key=lambda at: names[rows[at]])
        others: list[tuple[str, float]] = []
        if len(near) <= OTHERS_SHOWN and len(rows) > len(near):
            rest = np.argsort(-scores, kind="stable")[len(near) : len(near) + OTHERS_SHOWN].tolist()
            others = [(names[rows[at]], round(float(scores[at]), 6)) for at in rest]
        found = rows[near].tolist()
        named = [names[row] for row in found]
        return ScoredNodes(found, named, [name.encode() for name in named], scores[near], others)

    def _columns(self) -> tuple[Numbers, Numbers]:
        """Throughput and cost of every node, by row."""
        if self._proxies is None:
            self._proxies = self._nodes.proxies.columns()
        return self._proxies


def lane_notes(
    view: DispatchView, unit: WaitingGroup, now: float
) -> Callable[[NodeName], DispatchNote | None]:
    """What is noted of a task that queues behind others of its kind: no choice, but it may use what is loaded there."""
    asked, policy = unit.job.dispatch, view.policy
    if asked is None or not is_dispatched(unit):
        return lambda _: None
    if asked.mode != "adaptive" or not asked.context or not policy.reuse:
        return lambda _: IN_LANE
    hits = view.bindings.contexts.hits(asked.context, now, policy.reuse_s)
    return lambda node: DispatchNote(LANE, 1, hits[node]) if node in hits else IN_LANE


def place_by_mode(
    dispatcher: Dispatcher, draft: Draft, waiting_class: WaitingClass, unit: WaitingGroup,
    guard: Reservation | None, most: int, quota: int | None,
) -> Block | None:  # fmt: skip
    """Place up to so many tasks of a unit where its mode wants them; what keeps the next one from a place."""
    for placed, position in enumerate(unit.ready(most)):
        if placed == quota:
            return Block.QUOTA
        found, avoid = dispatcher.choose(unit, position), set[int]()
        while isinstance(found, Choice) and (
            is_too_much(draft.queues, unit, found.grant)
            or (guard is not None and not _may_stay(guard, found, draft.now + run_s(unit.job)))
        ):
            avoid.add(found.row)
            found = dispatcher.choose(unit, position, avoid)
        if isinstance(found, OneNode):
            return Block.NODE
        if found is None:
            return Block.HELD if avoid else Block.ROOM
        name = draft.nodes.names[found.row]
        merged = dispatcher.merged_with(unit, waiting_class)
        placement = Placement(unit.job.id, position, name, found.grant, note=found.note, merged=merged)
        draft.place(found.row, placement, unit.job.queue_user)
        dispatcher.note(unit, found.row)
    return None


def _may_stay(guard: Reservation, choice: Choice, until: float) -> bool:
    """Whether the head is not delayed by it."""
    place = [(choice.row, choice.grant)]
    return guard.stay(place, until) or guard.make_way(place)


def _scaled(values: Numbers) -> Numbers:
    """Between 0 for the least and 1 for the most; 0 for all if they are the same."""
    least, most = values.min(), values.max()
    if most <= least:
        return np.zeros(len(values))
    found: Numbers = (values - least) / (most - least)
    return found
