"""The storm: faults drawn from a seed, one after another and overlapping, each recorded with its time.

It runs in the thread that started the parts. A part that ends without a fault is noted and started again, as an init
system would.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.chaos.chaos_cluster import ChaosCluster
from tests.chaos.clock import clock
from tests.chaos.faults import KINDS, Fault, Harm, Undo, choose
from tests.support.waiting import pause

_LOOK_S = 0.1


class Storm:
    """Faults, from the first to the last."""

    def __init__(
        self, cluster: ChaosCluster, chance: Random, leader: Callable[[], str | None], log: Path
    ) -> None:
        self._cluster = cluster
        self._chance = chance
        self.gap_s = 2.4  # between two beginnings, on average
        self.kinds: tuple[str, ...] = ()  # none: all
        self._leader = leader
        self._log = log
        self._harm = Harm(cluster)
        self._open: list[tuple[float, int, Fault, Undo]] = []
        self._troubled: set[str] = set()
        self.faults: list[Fault] = []
        self.fallen: list[str] = []  # parts that ended by themselves

    def blow(self, seconds: float, tell: Callable[[], None]) -> None:
        """Inject faults for so long, then undo all of them. `tell` is called now and then."""
        until = clock() + seconds
        next_at = clock()
        while (now := clock()) < until:
            self._end_due(now)
            self._mind_the_fallen()
            if now >= next_at:
                next_at = now + self._chance.uniform(0.3, 1.7) * self.gap_s
                self._begin(now, until)
            tell()
            pause(min(_LOOK_S, max(0.0, next_at - clock())))
        self._end_due(float("inf"))

    @property
    def last_ended_at(self) -> float:
        return max((fault.ended_at or 0.0 for fault in self.faults), default=clock())

    def _begin(self, now: float, until: float) -> None:
        """Try until a part can be harmed; there nearly always is one."""
        for _ in range(10):
            if (
                drawn := choose(self._chance, self._cluster, self._troubled, self._leader(), self.kinds)
            ) is not None:
                break
        else:
            return
        kind, fault = drawn
        fault.began_at = now
        self._harm.missed = False
        undo = KINDS[kind].begin(self._harm, fault.victims)
        fault.is_idle = self._harm.missed
        self._troubled.update(fault.victims)
        self.faults.append(fault)
        self._write("begins", fault)
        ends_at = min(now + fault.lasts_s, until)
        heapq.heappush(self._open, (ends_at, len(self.faults), fault, undo))

    def _end_due(self, now: float) -> None:
        while self._open and self._open[0][0] <= now:
            _, _, fault, undo = heapq.heappop(self._open)
            undo()
            fault.ended_at = clock()
            self._troubled.difference_update(fault.victims)
            self._write("ends", fault)

    def _mind_the_fallen(self) -> None:
        for name, part in self._cluster.parts.items():
            if name not in self._troubled and not part.is_running:
                self.fallen.append(name)
                self._write("fell by itself", Fault("fell", (name,), clock(), 0.0))
                part.start()

    def _write(self, what: str, fault: Fault) -> None:
        line = {"at": round(clock(), 3), "what": what, "kind": fault.kind, "victims": fault.victims}
        with self._log.open("a") as file:
            file.write(json.dumps(line | {"lasts_s": round(fault.lasts_s, 2)}) + "\n")
