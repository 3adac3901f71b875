"""Users who reserve addresses of the overlay network, and use the tokens: once, twice, too late, elsewhere or never."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from phalanx.core.cluster.decision import Accepted, Answer
from phalanx.core.cluster.inputs import ReleaseReservation, ReserveAddress, Submit
from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.sim.workload_overlay import a_job_with_token, a_reservation
from phalanx.sim.world import World

if TYPE_CHECKING:
    from phalanx.sim.users import Users

RESERVATIONS = 6  # in one run


class ReservingUsers:
    """Their requests go through those of `Users`, and may be lost like those."""

    def __init__(self, world: World, users: Users, nodes: list[str], dice: Random) -> None:
        self._world = world
        self._users = users
        self._nodes = nodes
        self._dice = dice
        self._requests = 0

    def begin(self, until_s: float) -> None:
        for _ in range(RESERVATIONS):
            self._world.after(5.0 + (until_s - 5.0) * self._dice.random(), self._reserve)

    def _reserve(self) -> None:
        dice = self._dice
        made = a_reservation(dice, dice.choice(self._nodes), self._world.now)
        self._users.ask([ReserveAddress(made)])
        for _ in range(dice.choice((0, 1, 1, 2))):
            self._world.after(dice.uniform(0.5, 8.0), self._use_token, made)
        if dice.random() < 0.3:
            released = [ReleaseReservation(made.id, made.user)]
            self._world.after(dice.uniform(0.5, 8.0), self._users.ask, released)

    def _use_token(self, made: ReservedAddress) -> None:
        node = self._dice.choice(self._nodes) if self._dice.random() < 0.2 else made.node
        self._requests += 1
        job, request_id = a_job_with_token(self._dice, node, self._world.now), f"token{self._requests}"

        def answered(answers: list[Answer | None]) -> None:
            if answers and isinstance(answers[0], Accepted):
                self._users.acknowledged(request_id, [job])

        self._users.ask([Submit(job, request_id, ip_digest=made.digest)], answered)
