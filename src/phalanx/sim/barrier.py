"""A gang starts whole or not at all: compares the formations of the log with what keepers really hold and run.

Members of a formation wait at the barrier. It is released once, when all of them are ready and enough; or it is
recalled, and then none of them ever runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Start
from phalanx.sim.floor import Floor
from phalanx.sim.places import PlaceHolder, Places
from phalanx.sim.violation import Violation

Formation = tuple[JobId, int]


class Barrier:
    """Every formation that was ever tried."""

    def __init__(self, places: Places, floor: Floor, count: Callable[[str], None]) -> None:
        self._places = places
        self._floor = floor
        self._count = count
        self._of: dict[AttemptKey, Formation] = {}
        self._waiting: set[Formation] = set()  # neither released nor recalled
        self._released: set[Formation] = set()
        self._recalled: set[Formation] = set()
        self._satisfied: set[JobId] = set()  # gangs that have started whole since their last restart
        self._placed: set[Formation] = set()  # in this batch
        self._parts: set[Formation] = set()  # formations that held only a part after the batch before

    # Events that became durable. `note` is called before `Places` applies the event.

    def note(self, event: e.Event) -> None:
        match event:
            case e.TaskPlaced() if event.formation:
                self._place(event)
            case e.GangReleased():
                self._release((event.job, event.formation))
            case e.GangRecalled():
                self._recall((event.job, event.formation))
            case e.JobRestarted() if event.positions is None:
                self._satisfied.discard(event.job)

    def end_of_batch(self) -> None:
        """Members placed in one decision are in one batch, so a strict formation is whole from its first batch on."""
        before, self._parts = self._parts, set()
        for name in sorted(self._waiting):
            if not any(not each.is_leaving for each in self._members(name)):
                self._waiting.discard(name)
            elif name[0] not in self._satisfied and not self._places.is_enough(name[0], self._held(name)):
                self._parts.add(name)
        for name in sorted(self._parts):
            if self._is_strict(name[0]):
                held = dict(self._held(name))
                raise Violation("gang-whole", f"{_spell(name)} is strict and holds only a part: {held}")
            others = self._parts & before - {name}
            if name in self._placed and others:
                text = f"{_spell(name)} got a part of what it needs while {_spell(min(others))} held a part"
                raise Violation("gang-whole", text)
        self._placed.clear()

    def may_go(self, key: AttemptKey) -> bool:
        """Whether the release of this member's formation is durable."""
        return self._of.get(key) in self._released

    def is_recalled(self, key: AttemptKey) -> bool:
        return self._of.get(key) in self._recalled

    def _place(self, event: e.TaskPlaced) -> None:
        name = (event.key[0], event.formation)
        if name in self._released or name in self._recalled:
            raise Violation("gang-whole", f"{event.key} was placed in {_spell(name)}, which is over")
        self._of[event.key] = name
        self._waiting.add(name)
        self._placed.add(name)

    def _release(self, name: Formation) -> None:
        if name in self._released or name in self._recalled:
            raise Violation("gang-whole", f"{_spell(name)} was released after it was over")
        for member in [each for each in self._members(name) if not each.is_leaving]:
            if not member.is_ready:
                raise Violation("gang-whole", f"{_spell(name)} was released before {member.key} was ready")
            if member.key not in self._floor.ready:
                text = f"{_spell(name)} was released, and no keeper ever had {member.key} ready"
                raise Violation("gang-whole", text)
        staying = self._places.staying(name[0])
        if name[0] not in self._satisfied and not self._places.is_enough(name[0], staying):
            raise Violation(
                "gang-whole", f"{_spell(name)} was released with too few members: {dict(staying)}"
            )
        self._waiting.discard(name)
        self._released.add(name)
        self._satisfied.add(name[0])
        self._count("gang released")

    def _recall(self, name: Formation) -> None:
        if name in self._released:
            raise Violation("gang-whole", f"{_spell(name)} was recalled after it was released")
        self._waiting.discard(name)
        self._recalled.add(name)
        self._count("formation recalled")

    def _held(self, name: Formation) -> Counter[int]:
        return self._places.staying(name[0])

    def _members(self, name: Formation) -> list[PlaceHolder]:
        return [each for each in self._places.of(name[0]) if each.formation == name[1]]

    def _is_strict(self, job: JobId) -> bool:
        gang = self._places.jobs[job].gang
        return gang is None or gang.strict

    # What nodes do.

    def started(self, node: str, start: Start) -> None:
        """A member runs: the release of its formation must be in the log already."""
        name = (start.key[0], start.formation)
        if name in self._recalled:
            raise Violation("gang-whole", f"{start.key} runs on {node}, though {_spell(name)} was recalled")
        if name not in self._released:
            raise Violation("gang-whole", f"{start.key} runs on {node} before {_spell(name)} was released")

    # At the end.

    def finish(self) -> None:
        if self._waiting:
            raise Violation("gang-whole", f"{_spell(min(self._waiting))} still waits at the barrier")


def _spell(name: Formation) -> str:
    return f"formation {name[1]} of {name[0]}"
