"""Connects to the keeper, or starts one. A keeper that has been silent for longer than a lease is ended.

By then its watchdog has ended what it ran, and another one can take its place. The loop reads what a keeper kept
(`Processes.found`).
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.logger import logger
from phalanx.runner.health import KeeperHealth
from phalanx.runner.keeper_messages import Event
from phalanx.runner.processes import KeeperSilent, Machine, Processes
from phalanx.runner.turn import RunnerEngine

log = logger("runner")
FIRST_WITHIN_S = 10.0  # one try when the runner starts
AGAIN_WITHIN_S = 3.0  # one try while it runs


class Connecting:
    """The connection of one runner to the keeper of its machine."""

    def __init__(
        self, machine: Machine, health: KeeperHealth, engine: RunnerEngine, on_event: Callable[[Event], None]
    ) -> None:
        self._machine = machine
        self._health = health
        self._engine = engine
        self._on_event = on_event

    async def first(self) -> Processes:
        """At the runner's start: a keeper that does not answer is waited for; raises KeeperFailed if there is none.

        It may run attempts, so nothing is sent to the coordinator before we know which.
        """
        while True:
            try:
                return await self.again(FIRST_WITHIN_S)
            except KeeperSilent as error:
                log.error("no keeper, trying again", error=str(error))

    async def again(self, within_s: float = AGAIN_WITHIN_S) -> Processes:
        """One try; raises KeeperFailed."""
        try:
            keeper = await Processes.open(self._machine, self._on_event, deadline_s=within_s)
        except KeeperSilent as error:
            if error.is_there and self._health.is_unreached(within_s, self._engine.self_fence_s):
                self.end_keeper()
            raise
        self._health.works()
        if not keeper.found.facts.log_cap:
            log.warning("logs are not bounded: their filesystem cannot punch holes", log_cap=False)
        return keeper

    def end_keeper(self) -> None:
        if self._machine.end_keeper():
            log.error("the keeper is killed: it has not answered for longer than a lease")
        else:
            log.error("the keeper has not answered for longer than a lease, and cannot be found to be killed")
