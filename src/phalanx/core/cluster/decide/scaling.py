"""Choices about elastic nodes: which are disabled, which are enabled, and when one is needed that is not there.

A disabled node takes no work of any kind; what runs there goes on. People say so (`set_elastic`), or the cluster does
from time to time (`rescale`), by the rules in `core/model/elastic.py`: first idle nodes are disabled, then one node may
be enabled. The poll comes after a plan, so whoever waits then has found no room.

**The ready queue** is what waits for a place and for nothing else: no closed gate, no backoff, and a quota that would
admit it. A task that no node of the cluster could hold, however empty, is not in it, because no node that is enabled
or kept would help it. Only the `needed` notice counts it as well.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decision import Accepted, Decision, refuse_because
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import plural
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Mask
from phalanx.core.model.waiting import Ask, Unit, WaitingClass

CLASSES_ASKED = 256  # so many waiting classes ask every node, the first in the queue: a turn stays short


def set_elastic(state: ClusterState, given: i.SetElastic, now: float) -> Decision:
    """A person disables or enables a node."""
    node, mode = state.nodes.get(given.node), state.rules.elastic.mode
    is_disabled = node is not None and node.disabled_reason is not None
    is_stuck = is_disabled and given.enabled  # what was disabled before must not stay so for ever
    if mode == "off" and not is_stuck:
        text = "elastic nodes are off (elastic.mode = off); `phalanx node drain` keeps work away from a node"
        return refuse_because("ElasticOff", text, "bad")
    if node is None:
        return refuse_because("NotFound", f"no node {given.node!r}", "not_found")
    if is_disabled != given.enabled:
        return Decision([], [], Accepted(0))
    who = f"user {given.user}".strip()
    by = f"by {given.user or 'a user'}" + (f": {given.reason}" if given.reason else "")
    if given.enabled:
        return Decision([e.NodeEnabled(at=now, cause=who, node=node.name, reason=by)], [], Accepted())
    return Decision([e.NodeDisabled(at=now, cause=who, node=node.name, reason=by)], [], Accepted())


def rescale(state: ClusterState, _: i.Rescale, now: float) -> Decision:
    """One poll: disable idle nodes, enable one if enough waits, and say so if that does not help."""
    rules, queue = state.rules.elastic, ReadyQueue.of(state)
    if not rules.is_automatic:
        return Decision(_needed(state, queue, now), [], Accepted())
    events: list[e.Event] = [*_disabled(state, queue, now)]
    enabled = _enabled(state, queue, now)
    return Decision([*events, *(enabled or _needed(state, queue, now))], [], Accepted())


def no_longer_automatic(state: ClusterState, now: float) -> list[e.Event]:
    """Nodes that the cluster has disabled are enabled when it no longer does such things by itself."""
    if state.rules.elastic.is_automatic:
        return []
    why = f"elastic.mode is {state.rules.elastic.mode} now"
    return [
        e.NodeEnabled(at=now, cause="settings", node=node.name, reason=why, automatic=True)
        for node in state.nodes.values()
        if node.disabled_reason is not None and node.disabled_automatically
    ]


class WaitingFirst(Struct, frozen=True):
    """The first unit of a waiting class, and which rows of the table could hold a task of it if they were empty."""

    unit: Unit
    rows: Mask


class ReadyQueue(Struct, frozen=True):
    """What waits for a place, counted as far as it matters."""

    tasks: int  # that some node could hold
    never: int  # that none could
    firsts: tuple[WaitingFirst, ...]  # in the order of the queue

    @classmethod
    def of(cls, state: ClusterState) -> ReadyQueue:
        rules = state.rules.elastic
        most = max(rules.queue_max + 1, rules.enables_at)
        tasks = never = 0
        firsts: list[WaitingFirst] = []
        for kind in sorted(state.waiting.classes.values(), key=lambda each: each.ranks[0]):
            unit = kind.units[kind.ranks[0]]
            requests, admitted = _admitted(state, unit, most)
            if not admitted:
                continue
            count = min(admitted, _count(kind, most))
            if len(firsts) == CLASSES_ASKED:  # of so many the rest are only counted
                tasks += count
                if tasks >= most:
                    break
                continue
            masks = [_rows(state, request) for request in requests]
            firsts.append(WaitingFirst(unit, np.logical_or.reduce(masks)))
            if all(mask.any() for mask in masks):
                tasks += count
            else:
                never += count
        return cls(min(tasks, most), min(never, most), tuple(firsts))


def _rows(state: ClusterState, request: Request) -> Mask:
    """Which nodes could hold a task with this request if they were empty and at work."""
    table, target = state.table, request.target
    if target is None:
        return table.columns.slots(request, every=True) > 0
    mask = np.zeros(len(table), dtype=np.bool_)
    row = table.rows.get(target.host)
    if row is not None:
        mask[row] = table.ledgers[row].never(request) is None
    return mask


def _admitted(state: ClusterState, unit: Unit, most: int) -> tuple[tuple[Request, ...], int]:
    """What a unit asks for, and how many tasks like it its queue's quota admits now, up to `most`."""
    if unit.is_gang:
        parts = Ask(unit).parts
        no = isinstance(state.queues.admitted(unit.job.queue_user, parts), Reason)
        return tuple(part.request for part in parts), 0 if no else most
    room = state.queues.room(unit.job.queue_user, unit.request)
    return (unit.request,), most if room is None else min(room, most)


def _count(kind: WaitingClass, most: int) -> int:
    """How many tasks of a class wait for a place, up to `most`."""
    count = 0
    for unit in kind.units.values():
        if unit.is_gang:
            count += max(1, sum(part.need for part in unit.wanted()))
        else:
            count += sum(1 for _ in unit.ready(most - count))
        if count >= most:
            break
    return min(count, most)


def _disabled(state: ClusterState, queue: ReadyQueue, now: float) -> list[e.NodeDisabled]:
    """Idle nodes, in the order in which they joined, until as few are left as may be."""
    rules = state.rules.elastic
    if not rules.idle_s or queue.tasks > rules.queue_max:
        return []
    active = sum(node.takes_work for node in state.nodes.values())
    found: list[e.NodeDisabled] = []
    for node in sorted(state.nodes.values(), key=lambda each: each.number):
        if active - len(found) <= rules.stays:
            break
        if node.takes_work and _idle_s(state, node, now) >= rules.idle_s and _has_cooled(rules, node, now):
            idle_s = _idle_s(state, node, now)
            text = f"automatically after {idle_s:.0f} s idle, until {_when(rules)}"
            found.append(e.NodeDisabled(at=now, cause="idle", node=node.name, reason=text, automatic=True))
    return found


def _enabled(state: ClusterState, queue: ReadyQueue, now: float) -> list[e.Event]:
    """One node that could hold something that waits: for the first of those if there is one, the largest of these."""
    rules = state.rules.elastic
    if queue.tasks < rules.enables_at:
        return []
    nodes = [each for each in state.nodes.values() if each.is_only_disabled and _has_cooled(rules, each, now)]
    if (node := _most_useful(queue, nodes)) is None:
        return []
    text = f"automatically, since {_tasks(queue.tasks)} for a place"
    return [e.NodeEnabled(at=now, cause="queue", node=node.name, reason=text, automatic=True)]


def _needed(state: ClusterState, queue: ReadyQueue, now: float) -> list[e.Event]:
    """That work waits which no node can take that is there and enabled; not more often than nodes may change."""
    rules, tasks = state.rules.elastic, queue.tasks + queue.never
    is_new = state.needed_at is None or now - state.needed_at >= rules.cooldown_s
    if not rules.notifies or tasks < rules.enables_at or not is_new:
        return []
    disabled = [
        each
        for each in state.nodes.values()
        if each.disabled_reason is not None and each.drain_reason is None
    ]
    if rules.is_automatic and _most_useful(queue, [each for each in disabled if each.is_only_disabled]):
        return []  # it is enabled as soon as it has cooled down
    node = _most_useful(queue, disabled)
    if node is not None:
        is_away = node.lost or node.leaving or not node.connected
        what = "disabled, and its runner is not connected" if is_away else "disabled"
        why = f"{_tasks(tasks)} for a place; {node.name} could hold one and is {what}"
    elif queue.tasks:
        why = f"{_tasks(tasks)} for a place, and no disabled node could hold one"
    else:
        why = f"{_tasks(tasks)} for a place that no node of the cluster has, even when empty"
    job = queue.firsts[0].unit.job.id
    name = "" if node is None else node.name
    return [e.NodeNeeded(at=now, cause="queue", node=name, first_job=job, tasks=tasks, reason=why)]


def _most_useful(queue: ReadyQueue, nodes: list[NodeState]) -> NodeState | None:
    """Of these nodes, the largest of those that could hold the first unit in the queue that any of them could."""
    for first in queue.firsts if nodes else ():
        able = [node for node in nodes if first.rows[node.row]]
        if able:
            return min(able, key=_smallness)
    return None


def _smallness(node: NodeState) -> tuple[float, ...]:
    """Nodes with devices come first, then by their memory, by memory and by cores; then by when they joined."""
    has = node.capacity
    device_bytes = sum(device.memory_bytes for device in has.devices)
    return -bool(has.devices), -device_bytes, -has.memory_bytes, -has.cores, node.number


def _idle_s(state: ClusterState, node: NodeState, now: float) -> float:
    """How long nothing has been held there; 0 if something is."""
    if node.idle_since is None or state.holds_anything(node):
        return 0.0
    return now - node.idle_since


def _has_cooled(rules: ElasticRules, node: NodeState, now: float) -> bool:
    return node.toggled_at is None or now - node.toggled_at >= rules.cooldown_s


def _when(rules: ElasticRules) -> str:
    return "a task waits" if rules.enables_at == 1 else f"{rules.enables_at} tasks wait"


def _tasks(count: int) -> str:
    return f"{plural(count, 'task')} {'waits' if count == 1 else 'wait'}"
