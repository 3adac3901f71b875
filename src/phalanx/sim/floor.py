"""The processes that really run, on all nodes: which are alive, what each holds, and how each ended.

It records what keepers do, not what coordinators believe. Members of gangs that a keeper holds at the barrier are
recorded too.
"""

from __future__ import annotations

from phalanx.core.model.amounts import fixed, written
from phalanx.core.model.orders import AttemptKey, Start
from phalanx.core.model.resources import Capacity
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.sim.violation import Violation


class Floor:
    """One process per attempt ever, one live attempt per task, and no device or core twice."""

    def __init__(self, capacities: dict[str, Capacity]) -> None:
        self.alive: dict[AttemptKey, tuple[str, Start]] = {}
        self.ends: dict[AttemptKey, ProcessEnd] = {}
        self.begun_at: dict[AttemptKey, float] = {}  # in true time
        self.seen_at: dict[AttemptKey, float] = {}  # when a keeper saw it end, in true time
        self.ready: set[AttemptKey] = set()  # members that a keeper has held at the barrier
        self._capacities = capacities
        self._begun: dict[AttemptKey, str] = {}
        self._remembered: set[AttemptKey] = set()  # ended by themselves, and still in a journal

    def started(self, node: str, start: Start, now: float) -> None:
        key = start.key
        if key in self._begun:
            raise Violation("one-run", f"{key} was started on {self._begun[key]} and again on {node}")
        self._begun[key], self.begun_at[key] = node, now
        for other in self.alive:
            if other[:2] == key[:2]:
                text = f"{key} starts on {node} while {other} is alive on {self.alive[other][0]}"
                raise Violation("one-run", text)
        self.alive[key] = (node, start)
        self._check_devices(node, start)
        self._check_address(start)
        self._check_capacity(node)

    def ended(self, node: str, key: AttemptKey, end: ProcessEnd) -> None:
        self.ends[key] = end
        if self.alive.pop(key)[0] != node:
            raise Violation("one-run", f"{key} ended on {node}, where it never ran")

    def seen(self, key: AttemptKey, by_itself: bool, now: float) -> None:
        """A keeper has seen this attempt end, perhaps late, and has it in its journal."""
        self.seen_at[key] = now
        if by_itself:
            self._remembered.add(key)

    def journal_lost(self, node: str) -> None:
        """The node's record of what ran there is gone."""
        self._remembered -= {key for key, where in self._begun.items() if where == node}

    def knows_end(self, key: AttemptKey) -> bool:
        """Whether a keeper saw this attempt end by itself and can still report it."""
        return key in self._remembered

    def _check_devices(self, node: str, start: Start) -> None:
        for where, other in self.alive.values():
            shared = set(other.grant.devices) & set(start.grant.devices)
            if where == node and other is not start and shared:
                text = f"{start.key} uses devices {sorted(shared)} of {node} while {other.key} does"
                raise Violation("devices", text)

    def _check_address(self, start: Start) -> None:
        for where, other in self.alive.values():
            if start.grant.address and other is not start and other.grant.address == start.grant.address:
                text = f"{start.key} has address {start.grant.address} while {other.key} on {where} has it"
                raise Violation("addresses", text)

    def _check_capacity(self, node: str) -> None:
        grants = [start.grant for where, start in self.alive.values() if where == node]
        millis, memory, _ = (sum(column) for column in zip((0, 0, 0), *map(fixed, grants), strict=True))
        capacity = self._capacities[node]
        memory -= sum(grant.exclusive for grant in grants)  # one byte more than there is
        if millis > fixed(capacity)[0] or memory > capacity.memory_bytes:
            raise Violation(
                "devices", f"{node} has {capacity.cores} cores, its processes use {written(millis)}"
            )
