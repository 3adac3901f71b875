"""What a runner does about keepers that do not work: it says so, gives back what cannot start, ends one that hangs.

One of an older version, which a runner that was updated has found, is replaced as soon as it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.model.orders import AttemptKey
from phalanx.logger import logger
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.keepers import NodeKeeper, NodeKeepers
from phalanx.runner.turn import RunnerEngine

log = logger("runner")


class KeeperLook:
    """The keepers of one runner, looked at every second."""

    def __init__(
        self,
        engine: RunnerEngine,
        keepers: NodeKeepers,
        names: dict[AttemptKey, str],
        beat: Callable[[], None],
        started: Callable[[AttemptKey, tuple[float, Ticks]], None],
    ) -> None:
        self._engine = engine
        self._keepers = keepers
        self._names = names
        self._beat = beat
        self._started = started

    def look(self, now: float) -> None:
        """Check whether the keepers work. A failure is reported before anything is given back, or it would return."""
        for keeper in self._keepers:
            keeper.health.look(keeper.connection)
        trouble = self._keepers.trouble
        if trouble != self._engine.trouble:
            self._engine.trouble = trouble
            log.error("cannot start tasks", trouble=trouble) if trouble else log.info("tasks can start again")
            self._beat()
        for keeper in self._keepers:
            if keeper.health.trouble:
                self._look_after(keeper, now)
        for keeper in self._keepers.outdated:
            keeper.replace()

    def _look_after(self, keeper: NodeKeeper, now: float) -> None:
        """One that does not work."""
        if keeper.connection is not None and keeper.health.is_past(self._engine.self_fence_s):
            keeper.end()
        overdue = self._engine.state.overdue(now) if self._engine.starts_expire else []
        if own := [key for key in overdue if self._keepers.of(key) is keeper]:
            self._give_back(keeper, own, now)

    def _give_back(self, keeper: NodeKeeper, overdue: list[AttemptKey], now: float) -> None:
        """Give back attempts that the keeper does not list and that can start no more, unless it recorded a start."""
        begun = keeper.machine.begun()
        for key in overdue:
            started = begun.get(self._names.get(key, ""))
            if started is None:
                self._engine.state.give_back(key, now)
            else:
                self._started(key, started)
