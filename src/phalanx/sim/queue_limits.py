"""Limits of queues and of their users: operators who set them for a while, and what has to be true of them.

No place is given, promised or submitted beyond a limit, and nobody waits for a limit that is not reached. What is held
is counted from the log (`places`), and shares no code with `core/model/queues.py`. What is drawn here is drawn apart
from all else, in some of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from random import Random

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.change_events import JobUpdated
from phalanx.core.cluster.inputs import Input, SetQuota
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job, JobId, QueueUser
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.plan import Snapshot
from phalanx.core.model.queues import Quota, UserLimits
from phalanx.core.model.resources import Grant
from phalanx.core.model.waiting import Block, Unit
from phalanx.sim.chronicle import Chronicle
from phalanx.sim.places import Places
from phalanx.sim.violation import Violation
from phalanx.sim.world import World

RUNS_SHARE = 0.3
USERS = ("ada", "ada", "bob", "eve")
QUEUES = ("default", "lab")
LASTS_S = (10.0, 50.0)
LIMITS = (
    Quota(each_user=UserLimits(running=1)),
    Quota(each_user=UserLimits(running=2)),
    Quota(each_user=UserLimits(cores=3)),
    Quota(each_user=UserLimits(gpus=1)),
    Quota(by_user={"ada": UserLimits(running=1)}),
    Quota(each_user=UserLimits(running=3), by_user={"bob": UserLimits(gpus=0)}),
    Quota(tasks=4, each_user=UserLimits(running=2)),
    Quota(submitted=8),
    Quota(each_user=UserLimits(submitted=4)),
    Quota(order="fair"),
    Quota(order="fair", gpus=6, each_user=UserLimits(running=3)),
)
WORDS = ("places", "thousandths of cores", "bytes of memory", "GPUs")
Amounts = tuple[int, int, int, int]
Limits = tuple[int | None, ...]


class LimitingOperators:
    """Operators who limit queues and their users for a while, and the users of the jobs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice: Random = world.dice("queue limits")
        self._are_set = self._dice.random() < RUNS_SHARE

    def begin(self, until_s: float, ask: Callable[[list[Input]], None]) -> None:
        if self._are_set:
            for _ in range(self._dice.randint(2, 5)):
                at = 1.0 + (until_s - 1.0) * self._dice.random() ** 1.5
                self._world.after(at, self._limit, ask)

    def given(self, jobs: list[Job]) -> list[Job]:
        """The same jobs, of several users."""
        user = self._dice.choice(USERS) if self._are_set else ""
        return [structs.replace(job, user=user) for job in jobs] if user else jobs

    def _limit(self, ask: Callable[[list[Input]], None]) -> None:
        queue = self._dice.choice(QUEUES)
        ask([SetQuota(queue, self._dice.choice(LIMITS))])
        self._world.after(self._dice.uniform(*LASTS_S), ask, [SetQuota(queue, None)])


class LimitChecker:
    """What every queue and user holds and has submitted, against the limits that the log has."""

    def __init__(self, places: Places, chronicle: Chronicle, count: Callable[[str], None]) -> None:
        self._places = places
        self._chronicle = chronicle
        self._count = count
        self._quotas: dict[str, Quota] = {}
        self._whose: dict[JobId, QueueUser] = {}
        self._submitted: dict[JobId, int] = {}  # the tasks of jobs that have not ended

    def note(self, event: e.Event) -> None:
        """Called before `places` knows of the event."""
        match event:
            case e.QuotaSet():
                self._set(event)
            case e.JobSubmitted() | e.JobAmended():
                self._whose[event.job.id] = event.job.queue, event.job.user
                if event.job.workflow is None:  # those of stages were counted with their workflow
                    self._submit(event.job)
            case JobUpdated() if event.queue is not None:
                self._whose[event.job] = event.queue, self._whose[event.job][1]
            case e.TaskPlaced() if event.opens and not event.promised:
                self._check(event.key[0], [event.grant], f"{event.key} was placed", self._held())
            case e.RoomPromised():
                grants = [grant for _, _, grant in event.members]
                staying = self._held(set(event.victims), {event.job, *event.displaced})
                self._check(event.job, grants, f"places were promised to {event.job}", staying)

    def check_waits(self, view: Snapshot, state: ClusterState) -> None:
        """Nobody waits for a limit that is not reached. Asked of the newest state alone."""
        if (state.epoch, state.revision) != (self._chronicle.epoch, self._chronicle.revision):
            return
        for kind in view.waiting.classes.values():
            if view.memory.of(kind).blocked_by not in (Block.QUOTA, Block.USER):
                continue
            for unit in kind.units.values():
                self._count("unit that waits for a limit")
                needed = _needed(unit)
                if needed is not None and not self._exceeded(unit.job.id, needed, list(self._held())):
                    raise Violation("queue-limits", f"{unit.job.id} waits for a limit that is not reached")

    def _set(self, event: e.QuotaSet) -> None:
        if event.quota is None:
            self._quotas.pop(event.queue, None)
        else:
            self._quotas[event.queue] = event.quota
            if event.quota.limits_users:
                self._count("limit for users of a queue")

    def _submit(self, job: Job) -> None:
        self._submitted[job.id] = job.tasks
        queue, user = self._whose[job.id]
        quota = self._quotas.get(queue)
        if quota is None:
            return
        tasks = self._chronicle.jobs
        over = [id for id in self._submitted if all(task.final is not None for task in tasks[id])]
        for id in over:
            del self._submitted[id]
        of_queue = [id for id in self._submitted if self._whose[id][0] == queue]
        of_user = [id for id in of_queue if self._whose[id][1] == user]
        for ids, limit in ((of_queue, quota.submitted), (of_user, quota.of_user(user).submitted)):
            if limit is not None and (many := sum(self._submitted[id] for id in ids)) > limit:
                raise Violation(
                    "queue-limits", f"{job.id} makes {many} tasks in {queue}, at most {limit} may be"
                )

    def _check(self, job: JobId, grants: list[Grant], what: str, held: Iterable[tuple[JobId, Grant]]) -> None:
        if self._whose[job][0] in self._quotas and (said := self._exceeded(job, _asked(grants), list(held))):
            raise Violation("queue-limits", f"{what} beyond a limit of {self._whose[job]}: {said}")

    def _exceeded(self, job: JobId, more: Amounts, held: list[tuple[JobId, Grant]]) -> str:
        """Which limit so much more breaks, or "". Who asks for none of something breaks no limit of it."""
        queue, user = self._whose[job]
        quota = self._quotas.get(queue)
        if quota is None:
            return ""
        of_queue = [(id, grant) for id, grant in held if self._whose[id][0] == queue]
        of_user = [grant for id, grant in of_queue if self._whose[id][1] == user]
        own = quota.of_user(user)
        for used, limits in (
            (_total(grant for _, grant in of_queue), _row(quota.tasks, quota)),
            (_total(of_user), _row(own.running, own)),
        ):
            for word, limit, has, added in zip(WORDS, limits, used, more, strict=True):
                if limit is not None and added and has + added > limit:
                    return f"{has + added} {word}, at most {limit}"
        return ""

    def _held(
        self, gone: set[AttemptKey] | None = None, displaced: AbstractSet[JobId] = frozenset()
    ) -> Iterator[tuple[JobId, Grant]]:
        """What every lane and promise holds; with `gone`, once these and all that leave have left."""
        seen: set[tuple[str, int]] = set()
        for key, holder in self._places.holders.items():
            if (gone is not None and (key in gone or holder.is_leaving)) or holder.lane in seen:
                continue
            seen.add(holder.lane)
            yield key[0], holder.grant
        for job, promised in self._places.promises.items():
            if job not in displaced:
                yield from ((job, grant) for _, grant in promised.values())


def _row(places: int | None, limits: Quota | UserLimits) -> Limits:
    cores = None if limits.cores is None else round(1000 * limits.cores)
    return places, cores, limits.memory_bytes, limits.gpus


def _total(grants: Iterable[Grant]) -> Amounts:
    every = list(grants)
    cores = sum(round(1000 * grant.cores) for grant in every)
    memory = sum(grant.memory_bytes for grant in every)
    return len(every), cores, memory, sum(len(grant.devices) for grant in every)


def _asked(grants: list[Grant]) -> Amounts:
    """The same of what is given now. Whole nodes are admitted by the smallest that would do, so their number counts."""
    places, *amounts = _total(grants)
    is_whole = any(grant.exclusive for grant in grants)
    return (places, 0, 0, 0) if is_whole else (places, amounts[0], amounts[1], amounts[2])


def _needed(unit: Unit) -> Amounts | None:
    """What has to be admitted for a unit to start; None where its node decides how much that is."""
    asked = [(part.request, part.need) for part in unit.wanted()] if unit.is_gang else [(unit.request, 1)]
    if any(request.exclusive for request, _ in asked) or not sum(count for _, count in asked):
        return None
    return (
        sum(count for _, count in asked),
        sum(round(1000 * request.cores) * count for request, count in asked),
        sum(request.memory_bytes * count for request, count in asked),
        sum(request.gpus * count for request, count in asked),
    )
