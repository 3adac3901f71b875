"""A time limit counts the time that has really passed, whatever the clocks of the node show.

No attempt is ended for a limit that it has not reached. One that has reached it is stopped soon, unless a fault other
than a clock's has just happened: the runner that enforces limits may be dead, or may not have received them yet.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.model.orders import AttemptKey, Why
from phalanx.sim.floor import Floor
from phalanx.sim.places import Places
from phalanx.sim.violation import Violation
from phalanx.sim.world import World

DRIFT_MAX = 0.02  # rate error of the node's clock
SOON_S = 3.0
RECOVERS_S = 45.0  # how long after a fault limits may be late


class TimeLimits:
    """Every attempt whose job has a time limit."""

    def __init__(self, places: Places, floor: Floor, world: World) -> None:
        self._places = places
        self._floor = floor
        self._world = world
        self._excused_until = 0.0

    def excuse(self, for_s: float) -> None:
        """A fault of this duration begins."""
        self._excused_until = max(self._excused_until, self._world.now + for_s + RECOVERS_S)

    def note(self, event: e.Event) -> None:
        """An end became durable."""
        if not isinstance(event, e.AttemptEnded) or event.exit.why != Why.TIMEOUT:
            return
        limit_s = self._places.jobs[event.key[0]].time_limit_s
        ran_s = self._floor.seen_at.get(event.key, self._world.now) - self._floor.begun_at[event.key]
        if limit_s is None or ran_s < limit_s * (1.0 - DRIFT_MAX) - 0.01:
            raise Violation(
                "limits", f"{event.key} was ended for its limit of {limit_s} s after {ran_s:.1f} s"
            )

    def ended(self, key: AttemptKey) -> None:
        """A process has ended."""
        job = self._places.jobs.get(key[0])
        if job is None or job.time_limit_s is None:
            return
        ran_s = self._world.now - self._floor.begun_at[key]
        stopped_by = self._floor.begun_at[key] + job.time_limit_s * (1.0 + DRIFT_MAX)
        if self._world.now > max(stopped_by, self._excused_until) + job.grace_s + SOON_S:
            raise Violation(
                "limits", f"{key} has a limit of {job.time_limit_s:.1f} s and ran for {ran_s:.1f} s"
            )
