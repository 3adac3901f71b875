"""Jobs that begin later, are held and changed, and say where they run: users who ask for it, and what has to be true.

No task is placed while its job is held or before its time, none on a node that it may not use, nothing beside a task
that has its node for itself, and of an array no more at once than its limit, as it was changed last, lets. The checker
shares no code with `apply`. What is drawn here is drawn apart from all else, in some of the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

from phalanx.core.cluster import change_events as c
from phalanx.core.cluster import events as e
from phalanx.core.cluster.inputs import Hold, Input, ReleaseJob, Update
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Job, JobId
from phalanx.sim.places import Places
from phalanx.sim.violation import Violation
from phalanx.sim.world import World

RUNS_SHARE, JOBS_SHARE, EXCLUSIVE_SHARE, SPREAD_SHARE = 0.3, 0.4, 0.15, 0.5
LATER_S = (1.0, 15.0)
OPERATOR = "op"


class JobChanges:
    """Users who hold, release and change jobs, and submit some that begin later or are choosy about nodes."""

    def __init__(self, world: World, nodes: list[str]) -> None:
        self._world = world
        self._nodes = sorted(nodes)
        self._dice: Random = world.dice("changes")
        self._are_made = self._dice.random() < RUNS_SHARE
        self._spread: Random = world.dice("spread jobs")
        self._spreads = self._spread.random() < SPREAD_SHARE
        self._limits: Random = world.dice("limits of arrays")

    def begin(self, until_s: float, known: list[Job], ask: Callable[[list[Input]], None]) -> None:
        if self._are_made:
            for _ in range(self._dice.randint(2, 8)):
                at = 1.0 + (until_s - 1.0) * self._dice.random()
                self._world.after(at, self._change, known, ask)
            for _ in range(self._limits.randint(1, 4)):
                at = 1.0 + (until_s - 1.0) * self._limits.random()
                self._world.after(at, self._limit, known, ask)

    def given(self, jobs: list[Job]) -> list[Job]:
        """The same jobs, some of which begin later, and some of which say where they run."""
        if not self._are_made:
            return jobs
        return [self._given(job) if self._dice.random() < JOBS_SHARE else job for job in jobs]

    def settle(self, job: JobState, ask: Callable[[list[Input]], None]) -> None:
        """Let it end: nothing keeps it from starting any more."""
        if job.held_because:
            ask([ReleaseJob(job.job.id, OPERATOR, True)])
        if job.begins_at and not job.is_over:
            ask([Update(job.job.id, OPERATOR, begin_at=0.0)])

    def _given(self, job: Job) -> Job:
        dice = self._dice
        if dice.random() < 0.5:
            return structs.replace(job, begin_at=self._world.now + dice.uniform(*LATER_S))
        is_spread = (
            self._spreads and self._spread.random() < SPREAD_SHARE and not (job.gang and job.gang.gather)
        )
        is_exclusive, left_out = dice.random() < EXCLUSIVE_SHARE, (dice.choice(self._nodes),)
        groups = tuple(
            structs.replace(
                group,
                request=structs.replace(
                    group.request,
                    exclusive=is_exclusive and group.request.target is None,
                    spread=is_spread and group.request.target is None,
                    exclude=() if is_exclusive or group.request.target is not None else left_out,
                ),
            )
            for group in job.groups
        )
        return structs.replace(job, groups=groups)

    def _change(self, known: list[Job], ask: Callable[[list[Input]], None]) -> None:
        if not known:
            return
        dice = self._dice
        job, way = dice.choice(known[-6:]).id, dice.random()
        if way < 0.5:
            ask([Hold(job, "ada", "a look at it")])
            self._world.after(dice.uniform(0.5, 20.0), ask, [ReleaseJob(job, "ada")])
        elif way < 0.8:
            ask([Update(job, "ada", priority=dice.randint(-3, 3))])
        else:
            ask([Update(job, "ada", begin_at=self._world.now + dice.uniform(*LATER_S))])

    def _limit(self, known: list[Job], ask: Callable[[list[Input]], None]) -> None:
        """Another number of tasks of an array may run at once, or all."""
        arrays = [job.id for job in known if job.gang is None and len(job.groups) == 1 and job.tasks > 1]
        if arrays:
            ask([Update(self._limits.choice(arrays[-6:]), "ada", at_once=self._limits.randint(0, 3))])


class ChangeChecker:
    """Every placement, against what its job said last."""

    def __init__(self, places: Places, count: Callable[[str], None]) -> None:
        self._places = places
        self._count = count
        self._held: set[JobId] = set()
        self._begin_at: dict[JobId, float] = {}
        self._at_once: dict[JobId, int] = {}
        self._shown_at = 0.0  # the latest time that an event has: the next coordinator's clock may be behind

    def note(self, event: e.Event) -> None:
        """Called before `places` knows of the event."""
        self._shown_at = max(self._shown_at, event.at)
        match event:
            case e.JobSubmitted() | e.JobAmended() if event.job.begin_at:
                self._begin_at[event.job.id] = event.job.begin_at
                self._count("job that begins later")
            case c.JobHeld():
                self._held.add(event.job)
                self._count("job that is held")
            case c.JobReleased():
                self._held.discard(event.job)
            case c.JobUpdated():
                self._count("job that is changed")
                if event.begin_at is not None:
                    self._begin_at[event.job] = event.begin_at
                if event.at_once is not None:
                    self._at_once[event.job] = event.at_once
                    self._count("limit of an array that is changed")
            case e.TaskPlaced():
                self._placed(event)

    def _placed(self, event: e.TaskPlaced) -> None:
        id = event.key[0]
        if id in self._held:
            raise Violation("held", f"{event.key} was placed while its job is held")
        if self._shown_at < self._begin_at.get(id, 0.0):
            raise Violation(
                "begin", f"{event.key} was placed at {event.at:.1f}, before {self._begin_at[id]:.1f}"
            )
        job = self._places.jobs[id]
        asked = job.groups[job.group_at(event.key[1])[0]].request
        if event.node in asked.exclude or (asked.nodes and event.node not in asked.nodes):
            raise Violation("nodes", f"{event.key} was placed on {event.node}, which its job may not use")
        self._check_limit(event, job)
        lane = (event.node, event.lane)
        others = [
            each for each in self._places.holders.values() if each.node == event.node and each.lane != lane
        ]
        if asked.spread:
            self._count("task of a job that is spread")
        if asked.exclusive:
            self._count("node that a task has for itself")
        if others and (asked.exclusive or any(each.grant.exclusive for each in others)):
            raise Violation("exclusive", f"{event.key} and {others[0].key} are on {event.node} together")

    def _check_limit(self, event: e.TaskPlaced, job: Job) -> None:
        """Of an array, as many as may hold places at once."""
        most = self._at_once.get(job.id, job.groups[0].at_once)
        if not most or job.gang is not None or len(job.groups) > 1:
            return
        size = job.groups[0].completions
        held = sum(each.key[1] // size == event.key[1] // size for each in self._places.of(job.id))
        self._count("task of an array with a limit")
        if held >= most:
            raise Violation("limit", f"{event.key} was placed, and {held} of its job hold places: {most} may")
