"""A node of which a keeper is stopped, dead or cannot be started gets no work: its runner notices and reports it.

That takes a few seconds, and longer if the runner itself or its connection to the coordinator fails too.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.sim.violation import Violation
from phalanx.sim.world import World

SEEN_WITHIN_S = 12.0
RECOVERS_S = 45.0  # how long it may take after a fault of another kind


class Standstill:
    """Since when each keeper, by its place, has been unable to start anything."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, float] = {}
        self._excused_until = 0.0

    def excuse(self, for_s: float) -> None:
        """Another fault of this duration begins."""
        self._excused_until = max(self._excused_until, self._world.now + for_s + RECOVERS_S)

    def begins(self, place: str) -> None:
        self._since.setdefault(place, self._world.now)

    def ends(self, place: str) -> None:
        self._since.pop(place, None)

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        if not isinstance(event, e.TaskPlaced):
            return
        since = [at for place, at in self._since.items() if place.partition("/")[0] == event.node]
        stood_s = self._world.now - max(min(since, default=self._world.now), self._excused_until)
        if stood_s > SEEN_WITHIN_S:
            text = f"{event.key} was placed on {event.node}, whose keeper has not worked for {stood_s:.1f} s"
            raise Violation("standstill", text)
