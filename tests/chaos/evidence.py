"""The evidence: everything known when the storm is over, as plain values. `verdict.py` draws the conclusions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.answers import Job, Task
from tests.chaos.faults import Fault
from tests.chaos.flow import FoundFlow
from tests.chaos.ledger import Life
from tests.chaos.workload import Asked, Wait


@dataclass
class Evidence:
    """What was submitted, what the tasks recorded, what Phalanx reports, and which faults there were."""

    asked: list[Asked]
    jobs: dict[str, Job]
    lives: dict[str, Life]
    faults: list[Fault] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)
    rivals: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    healed_s: float | None = 0.0  # None: never
    damages: list[str] = field(default_factory=list)  # what a check of the store found
    wall_offset_s: float = 0.0  # the wall clock minus that of the ledger
    lost_after_s: float = 9.0
    waits: list[Wait] = field(default_factory=list)
    led: list[tuple[float, float]] = field(default_factory=list)  # when a leader could be reached
    trespasses: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    slow: dict[str, int] = field(default_factory=dict)  # what the slow clients did
    flow: FoundFlow | None = None  # the workflow, if there was one

    @property
    def accepted(self) -> list[Asked]:
        return [each for each in self.asked if each.job]

    def last_lives(self) -> Iterable[tuple[Asked, Task, Life]]:
        """The last attempt of every task that ran, as it recorded itself, and as Phalanx reports it."""
        for asked in self.accepted:
            job = self.jobs.get(asked.job)
            for task in job.tasks.values() if job else ():
                life = self.lives.get(f"{asked.job}/{task.position}/{task.attempt}")
                if life is not None:
                    yield asked, task, life

    def harmed(self, node: str, since: float, until: float, kinds: tuple[str, ...] = ()) -> list[Fault]:
        """The faults of a node between two instants; of all kinds, or of these."""
        return [
            fault
            for fault in self.faults
            if (not kinds or fault.kind in kinds) and fault.touches(node, since, until)
        ]
