"""Elastic nodes: nothing is placed on one that is disabled, and automatic scaling keeps its rules.

Checked by the log alone. Times are those of the events, by the clock of the coordinator that wrote them; a new term
shortens them as the coordinator itself does.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.orders import AttemptKey
from phalanx.sim.violation import Violation

SLACK_S = 0.001  # of rounding


class WatchedNode:
    """What the log says of a node."""

    def __init__(self, joined_at: float) -> None:
        self.idle_since = joined_at
        self.toggled_at: float | None = None
        self.is_disabled = False
        self.is_drained = False
        self.is_lost = False
        self.attempts: set[AttemptKey] = set()

    @property
    def may_work(self) -> bool:
        return not (self.is_disabled or self.is_drained or self.is_lost)


class ElasticNodes:
    """Which nodes are disabled, since when each is idle, and when it was last disabled or enabled."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self.rules = ElasticRules()
        self._nodes: dict[str, WatchedNode] = {}
        self._where: dict[AttemptKey, WatchedNode] = {}
        self._enabled = 0  # automatically, in this batch
        self._count = count

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        match event:
            case e.NodeJoined():
                node = self._nodes.setdefault(event.node, WatchedNode(event.at))
                node.is_lost = False
                node.idle_since = event.at
            case e.NodeRemoved():
                del self._nodes[event.node]
            case e.NodeLost():
                self._nodes[event.node].is_lost = True
            case e.NodeDrained() | e.NodeResumed():
                self._nodes[event.node].is_drained = isinstance(event, e.NodeDrained)
            case e.TermOpened():
                self._new_term(event.at)
            case e.TaskPlaced():
                self._placed(event)
            case e.RoomPromised():
                for _, name, _ in event.members:
                    self._require_enabled(name, f"a place for {event.job}")
            case e.AttemptEnded():
                self._ended(event)
            case e.NodeDisabled():
                self._disabled(event, self._nodes[event.node])
            case e.NodeEnabled():
                self._enable(event, self._nodes[event.node])

    def end_of_batch(self) -> None:
        if self._enabled > 1:
            raise Violation("elastic", f"{self._enabled} nodes were enabled in one poll")
        self._enabled = 0

    def _new_term(self, at: float) -> None:
        for node in self._nodes.values():
            node.idle_since = min(node.idle_since, at)
            if node.toggled_at is not None:
                node.toggled_at = min(node.toggled_at, at)

    def _placed(self, event: e.TaskPlaced) -> None:
        self._require_enabled(event.node, str(event.key))
        node = self._where[event.key] = self._nodes[event.node]
        node.attempts.add(event.key)

    def _require_enabled(self, name: str, what: str) -> None:
        if self._nodes[name].is_disabled:
            raise Violation("elastic", f"{what} was placed on {name}, which is disabled")

    def _ended(self, event: e.AttemptEnded) -> None:
        node = self._where.pop(event.key)
        node.attempts.discard(event.key)
        if not node.attempts:
            node.idle_since = event.at

    def _disabled(self, event: e.NodeDisabled, node: WatchedNode) -> None:
        node.is_disabled = True
        if event.automatic:
            self._count("node disabled")
            self._require_cooled(event, node)
            idle_s, left = event.at - node.idle_since, sum(each.may_work for each in self._nodes.values())
            if node.attempts or idle_s < self.rules.idle_s - SLACK_S:
                held = len(node.attempts)
                raise Violation(
                    "elastic", f"{event.node} was disabled after {idle_s:.1f} s with {held} attempts"
                )
            if left < max(1, self.rules.active_min):
                raise Violation("elastic", f"only {left} nodes are left after {event.node} was disabled")
        node.toggled_at = event.at

    def _enable(self, event: e.NodeEnabled, node: WatchedNode) -> None:
        node.is_disabled = False
        if event.automatic:
            self._count("node enabled")
            self._enabled += 1
            self._require_cooled(event, node)
        node.toggled_at = node.idle_since = event.at

    def _require_cooled(self, event: e.NodeDisabled | e.NodeEnabled, node: WatchedNode) -> None:
        if self.rules.mode != "auto":
            raise Violation("elastic", f"{event.node} was toggled automatically in mode {self.rules.mode}")
        since_s = None if node.toggled_at is None else event.at - node.toggled_at
        if since_s is not None and since_s < self.rules.cooldown_s - SLACK_S:
            raise Violation("elastic", f"{event.node} was toggled again after {since_s:.1f} s")
