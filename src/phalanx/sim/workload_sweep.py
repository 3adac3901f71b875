"""Users with sweeps: small grids of which some tasks fail; failed tasks are retried, at times by two users at once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec import structs

from phalanx.coordinator.retries import failed_again
from phalanx.core.cluster.decision import Accepted, Answer, Replayed
from phalanx.core.cluster.inputs import Submit
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.array import Array
from phalanx.core.model.job import Command, Group, Job, ulid
from phalanx.core.model.orders import Status
from phalanx.core.model.parameters import Axis, Params
from phalanx.core.model.resources import Request
from phalanx.sim.world import World

if TYPE_CHECKING:
    from phalanx.sim.coordinators import SimulatedCoordinators
    from phalanx.sim.users import Users

SHARE = 0.15  # of the runs
STREAM = "users of sweeps"
LOST = 0.1  # of requests, and of replies
AGAIN_S = (1.0, 4.0)


class SweepingUsers:
    """They ask again until they get an answer, each time under the same request id."""

    def __init__(self, world: World, users: Users, coordinators: SimulatedCoordinators) -> None:
        self._world = world
        self._users = users
        self._coordinators = coordinators
        self._dice = world.dice(STREAM)
        self._requests = 0

    def begin(self, until_s: float) -> None:
        dice = self._dice
        if dice.random() >= SHARE:
            return
        for _ in range(dice.randint(1, 3)):
            self._world.after(1.0 + 0.6 * until_s * dice.random(), self._submit)
        for _ in range(dice.randint(2, 6)):
            at = 5.0 + (until_s - 5.0) * dice.random()
            self._world.after(at, self._retry)
            if dice.random() < 0.4:
                self._world.after(at, self._retry)

    def _submit(self) -> None:
        self._send(a_sweep(self._dice, self.new_id(), self._world.now), 0)

    def _retry(self) -> None:
        """Failed tasks of a sweep that has ended, as the coordinator that leads sees it now."""
        leader = self._coordinators.leader()
        if leader is None:
            return
        state = leader.state
        over = [
            job
            for job in state.jobs.values()
            if job.job.params is not None and not job.job.repeats and job.is_over
        ]
        if not over:
            return
        first = self._dice.choice(over)
        retries = state.repeated.get(first.job.id, [])
        jobs = [first, *(state.jobs[id] for id in retries if id in state.jobs)]
        if len(jobs) == len(retries) + 1 and (job := self._repeated(first, jobs)) is not None:
            self._send(job, len(retries))

    def _repeated(self, first: JobState, jobs: list[JobState]) -> Job | None:
        anew = structs.replace(first.job, submitted_at=self._world.now, repeats=first.job.id)
        return failed_again(anew, jobs, {Status.FAILED})

    def _send(self, job: Job, retries: int) -> None:
        self._requests += 1
        self._users.unanswered += 1
        _SweepSubmission(self, f"sweep{self._requests}", job, retries).send()

    def new_id(self) -> str:
        return ulid(int(self._world.now * 1000), self._dice.getrandbits(80))

    def asked(self, submission: _SweepSubmission, given: Submit) -> None:
        """One try: the request or the reply may be lost."""
        dice, leader = self._dice, self._coordinators.leader()
        self._world.after(dice.uniform(*AGAIN_S), submission.send)
        if leader is None or dice.random() < LOST:
            return

        def back(answers: list[Answer | None]) -> None:
            if dice.random() >= LOST:
                self._world.after(0.01, submission.answered, given.job, answers)

        self._world.after(0.01, leader.call, leader.ask, [given], back)

    def answered(self, request_id: str, job: Job | None) -> None:
        self._users.unanswered -= 1
        if job is not None:
            self._users.acknowledged(request_id, [job])


class _SweepSubmission:
    """One request, repeated until it is answered; every try has an id of its own, as a coordinator gives it."""

    def __init__(self, users: SweepingUsers, request_id: str, job: Job, retries: int) -> None:
        self._users = users
        self._request_id = request_id
        self._job = job
        self._retries = retries
        self._tries: dict[str, Job] = {}
        self._is_over = False

    def send(self) -> None:
        if self._is_over:
            return
        id = self._users.new_id()
        job = self._tries[id] = structs.replace(self._job, id=id, batch=id)
        self._users.asked(self, Submit(job, self._request_id, retries=self._retries))

    def answered(self, job: Job, answers: list[Answer | None]) -> None:
        if self._is_over or not answers:
            return
        self._is_over = True
        answer, made = answers[0], None
        if isinstance(answer, Replayed):
            made = self._tries[answer.jobs[0]]
        elif isinstance(answer, Accepted):
            made = job
        self._users.answered(self._request_id, made)


def a_sweep(dice: Random, id: str, now: float) -> Job:
    """A grid of a few tasks; those with code 1 fail."""
    codes = tuple(dice.choice(("0", "0", "1")) for _ in range(dice.randint(1, 3)))
    params = Params((Axis("code", codes), Axis("seed", ((dice.randint(-2, 2), dice.randint(1, 3), 2),))))
    argv = ("run", f"{dice.uniform(0.1, 1.0):.2f}", "{code}", "{seed}", "{i}")
    group = Group(Command(argv), Request(cores=1), tasks=params.count)
    array = Array(((1, params.count, 1),))
    return Job(
        id, (group,), id, now, array=array, max_retries=dice.choice((0, 0, 1)), user="ada", params=params
    )
