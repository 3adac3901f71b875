"""Users: they submit, cancel, evict, pause, drain, disable and declare, over a network that loses requests and replies.

A user who gets no reply asks again, a submission with the same request id. The checkers get a reply when it reaches
the user.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.events import RoomPromised
from phalanx.core.cluster.inputs import (
    Cancel,
    CancelWorkflow,
    Drain,
    Evict,
    Input,
    RetryWorkflow,
    SetElastic,
    SetPaused,
    SetQuota,
    SetTopology,
    Undrain,
)
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.shortage import gang_never
from phalanx.core.model.job import After, Job, When
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Capacity
from phalanx.core.model.table import NodeTable
from phalanx.core.model.topology import DEFAULT, Layer, Topology
from phalanx.core.model.workflow import Workflow, workflow_id
from phalanx.sim.changes import JobChanges
from phalanx.sim.checkers import Checkers, ignore
from phalanx.sim.coordinators import SimulatedCoordinators
from phalanx.sim.environments import EnvironmentsOfJobs
from phalanx.sim.images import ImagesOfJobs
from phalanx.sim.logins import RUNS_SHARE as LOGIN_RUNS_SHARE
from phalanx.sim.logins import LoggingInUsers
from phalanx.sim.network import Network
from phalanx.sim.queue_limits import LimitingOperators
from phalanx.sim.reservations import ReservingUsers
from phalanx.sim.submissions import Submission, WorkflowSubmission
from phalanx.sim.workload import again, cluster_s, is_endless, some_jobs
from phalanx.sim.workload_gang import QUEUES
from phalanx.sim.workload_overlay import with_addresses
from phalanx.sim.workload_workflow import a_wide_workflow, a_workflow, limited
from phalanx.sim.world import World

ASK_AGAIN_S = (1.0, 4.0)
TIDY_EVERY_S = 4.0
ASKED_S_MAX = 60.0  # what they ask for keeps the cluster busy for less than the quiet time
OTHER_LAYERS = (
    Topology((Layer("rack", ("rack",)),)),
    Topology((Layer("block", ("rack",)), Layer("rack", ("block",)))),
)
Reply = Callable[[list[Answer | None]], None]


def _ignore_reply(answers: list[Answer | None]) -> None:
    """The reply function of a user who does not wait for the answer."""


class Users:
    """All users. After `settle_down` they only undo what would keep the cluster busy."""

    def __init__(
        self,
        world: World,
        coordinators: SimulatedCoordinators,
        network: Network,
        checkers: Checkers,
        nodes: dict[str, Capacity],
    ) -> None:
        self._world = world
        self._coordinators = coordinators
        self._network = network
        self._checkers = checkers
        self._nodes = nodes
        self._dice = world.dice("users")
        self._order = world.dice("dependencies")
        self._orders_jobs = self._order.random() < 0.5
        self._flow_dice, self._wide_dice = world.dice("workflows"), world.dice("wide workflows")
        self._limit_dice = world.dice("limits of workflows")
        self._flows: list[Workflow] = []
        self._toggles = world.dice("elastic")
        self._address_dice, self.has_overlay = world.dice("addresses"), False
        self._images = ImagesOfJobs(world.dice("images"))
        self.environments = EnvironmentsOfJobs(world.dice("environments"), checkers.environments)
        self._known: list[Job] = []
        self._changes = JobChanges(world, sorted(nodes))
        self._operators = LimitingOperators(world)
        self._requests, self._asked_s, self._meddles, self.unanswered = 0, 0.0, 0, 0

    def begin(self, submissions: int, until_s: float) -> None:
        """Spread the requests over the busy time, some at once, most of them early, so that faults meet work."""
        at = 0.0
        for _ in range(submissions):
            if self._dice.random() > 0.45:
                at = 1.0 + until_s * self._dice.random() ** 1.3
            self._world.after(at + self._dice.random(), self._submit)
        effects = (self._cancel, *[self._pause] * 3, self._drain, self._evict, self._evict)
        for _ in range(2 * submissions // 3):
            effect = self._dice.choice(effects)
            self._world.after(5.0 + (until_s - 5.0) * self._dice.random(), effect)
        if self._flow_dice.random() < 0.5:
            self._begin_workflows(until_s)
        if self._wide_dice.random() < 0.3:
            for _ in range(self._wide_dice.randint(1, 3)):
                self._world.after(1.0 + 0.7 * until_s * self._wide_dice.random(), self._submit_wide_workflow)
        for effect, chance in ((self._limit, 0.4), (self._rewire, 0.15), (self._meddle, 0.6)):
            if self._dice.random() < chance:
                self._world.after(5.0 + (until_s - 5.0) * self._dice.random(), effect)
        self._changes.begin(until_s, self._known, self.ask)
        self._operators.begin(until_s, self.ask)
        for _ in range(self._toggles.choice((0, 0, 0, 2, 5))):
            self._world.after(5.0 + (until_s - 5.0) * self._toggles.random(), self._toggle)
        if self.has_overlay:
            ReservingUsers(self._world, self, sorted(self._nodes), self._address_dice).begin(until_s)
        logins = self._world.dice("logins")
        if logins.random() < LOGIN_RUNS_SHARE:
            LoggingInUsers(self._world, self, logins).begin(until_s)

    def settle_down(self) -> None:
        """Undo what would keep the cluster busy: undrain, enable, resume, and cancel what never ends."""
        leader = self._coordinators.leader()
        if leader is not None:
            state = leader.state
            for node in state.nodes.values():
                if node.drain_reason is not None:
                    self.ask([Undrain(node.name)])
                by_hand = node.disabled_reason is not None and not node.disabled_automatically
                if by_hand or (node.disabled_reason is not None and len(state.waiting)):
                    self.ask([SetElastic(node.name, True)])
            if state.table.topology != DEFAULT:
                self.ask([SetTopology(DEFAULT)])
            for queue in state.queues.quotas:
                self.ask([SetQuota(queue, None)])
            for job in state.jobs.values():
                self._let_end(job, state.table)
                self._changes.settle(job, self.ask)
        self._world.after(TIDY_EVERY_S, self.settle_down)

    def _let_end(self, job: JobState, table: NodeTable) -> None:
        # A gang accepted under other layers may never fit in these, nor a job accepted before any node had joined.
        never = not job.live and (
            any(not table.could_ever(group.request) for group in job.job.groups)
            if job.gang is None
            else gang_never(table, job.gang) is not None
        )
        if not job.is_over and (never or is_endless(job.job)):
            self.ask([Cancel(job.job.id)])
        for position, attempt in job.live.items():
            if attempt.paused:
                self.ask([SetPaused(job.job.id, position, False)])

    # Requests.

    def _submit(self, like: list[Job] | None = None) -> None:
        jobs = self.renewed(like) if like else some_jobs(self._dice, self._nodes, self._world.now)
        if self.has_overlay and not like:
            jobs = with_addresses(self._address_dice, jobs)
        if not like:
            jobs = self._images.given(self._operators.given(jobs))
            jobs = self._changes.given(self.environments.given(jobs))
        self._asked_s += sum(cluster_s(job, self._nodes) for job in jobs)
        if self._asked_s > ASKED_S_MAX:
            return
        self._requests += 1
        self.unanswered += 1
        request_id = f"r{self._requests}"
        no_queue = self._dice.random() < 0.1
        if self._orders_jobs and not no_queue:
            jobs = self._with_jobs_before(jobs)
        Submission(self, request_id, jobs, no_queue).send()

    def _begin_workflows(self, until_s: float) -> None:
        """Some workflows, and users who cancel or retry some of them."""
        dice = self._flow_dice
        for _ in range(dice.randint(1, 3)):
            self._world.after(1.0 + until_s * dice.random() ** 1.3, self._submit_workflow)
        for _ in range(dice.randint(0, 4)):
            self._world.after(5.0 + (until_s - 5.0) * dice.random(), self._touch_workflow)

    def _submit_workflow(self) -> None:
        self._send_workflow(limited(self._limit_dice, a_workflow(self._flow_dice, self._world.now)))

    def _submit_wide_workflow(self) -> None:
        self._send_workflow(a_wide_workflow(self._wide_dice, self._world.now))
        self._world.after(0.5 + 2 * self._wide_dice.random(), self._cancel_stage)

    def _cancel_stage(self) -> None:
        """One stage of a workflow that holds a place, perhaps in a lane with others."""
        leader = self._coordinators.leader()
        jobs = [] if leader is None else [each.job for each in leader.state.jobs.values() if each.live]
        stages = [job.id for job in jobs if job.workflow is not None]
        if stages:
            self.ask([Cancel(self._wide_dice.choice(stages))])

    def _send_workflow(self, flow: Workflow) -> None:
        self._requests += 1
        self.unanswered += 1
        WorkflowSubmission(self, f"r{self._requests}", flow).send()

    def _touch_workflow(self) -> None:
        if self._flows:
            flow = self._flow_dice.choice(self._flows)
            stage = self._flow_dice.choice((None, None, self._flow_dice.randrange(len(flow.stages))))
            retry = RetryWorkflow(flow.id, stage)
            self.ask([CancelWorkflow(flow.id) if self._flow_dice.random() < 0.3 else retry])

    def _with_jobs_before(self, jobs: list[Job]) -> list[Job]:
        """These jobs after up to three of the latest, mostly none; or an array again, each task after its own."""
        # A submission that was answered twice is known twice, and no job may be named twice.
        dice, known = self._order, list({job.id: job for job in self._known[-8:]}.values())
        whens: tuple[When, ...] = ("ok", "ok", "any", "failed", "started")
        arrays = [job for job in known if job.array is not None]
        if arrays and dice.random() < 0.3:
            first = dice.choice(arrays)
            after = After(first.id, dice.choice(whens), each=True)
            return [structs.replace(again(first, dice, self._world.now, None), after=(after,))]
        chosen = dice.sample(known, min(dice.choice((0, 0, 0, 1, 1, 2, 3)), len(known)))
        others = tuple(After(job.id, dice.choice(whens)) for job in chosen)
        return [structs.replace(job, after=others) for job in jobs]

    def _cancel(self) -> None:
        if self._known:
            job = self._dice.choice(self._known)
            whole = self._dice.random() < 0.5
            self.ask([Cancel(job.id, None if whole else self._dice.randrange(job.tasks))])

    def _pause(self) -> None:
        if not self._known:
            return
        job = self._dice.choice(self._known[-4:])
        position = self._dice.randrange(job.tasks)
        self.ask([SetPaused(job.id, position, True)])
        later_s = self._dice.uniform(1.0, 10.0)
        self._world.after(later_s, self.ask, [SetPaused(job.id, position, False)])

    def _drain(self) -> None:
        node = self._dice.choice(sorted(self._nodes))
        self.ask([Drain(node, "maintenance")])
        self._world.after(self._dice.uniform(2.0, 20.0), self.ask, [Undrain(node)])

    def _toggle(self) -> None:
        """Disable a node for a while, or enable one that may be disabled."""
        node = self._toggles.choice(sorted(self._nodes))
        if self._toggles.random() < 0.3:
            self.ask([SetElastic(node, True, "busy", "ann")])
            return
        self.ask([SetElastic(node, False, "idle", "ann")])
        self._world.after(self._toggles.uniform(2.0, 30.0), self.ask, [SetElastic(node, True)])

    def _evict(self) -> None:
        """Evict a whole job, or one task of it, as a spot market or an operator would."""
        if self._known:
            job = self._dice.choice(self._known[-6:])
            whole = self._dice.random() < 0.5
            self.ask([Evict(job.id, None if whole else self._dice.randrange(job.tasks))])

    def _limit(self) -> None:
        """Set a queue's quota for a while."""
        quota = self._dice.choice((Quota(tasks=2), Quota(cores=3), Quota(gpus=1, tasks=6)))
        self.ask([SetQuota(QUEUES[-1], quota)])
        self._world.after(self._dice.uniform(10.0, 40.0), self.ask, [SetQuota(QUEUES[-1], None)])

    def _rewire(self) -> None:
        """Declare other network layers, and after a while the default ones again."""
        self.ask([SetTopology(self._dice.choice(OTHER_LAYERS))])
        self._world.after(self._dice.uniform(5.0, 25.0), self.ask, [SetTopology(DEFAULT)])

    def _meddle(self) -> None:
        """The next times that places are promised, cancel the job or submit a more urgent one that needs the same."""
        self._meddles = 3
        self._checkers.on_promise = self._change_mind

    def _change_mind(self, event: RoomPromised) -> None:
        position, node, _ = self._dice.choice(event.members)
        options = self._dice.choice(
            (Cancel(event.job), Cancel(event.job, position), Drain(node, "moved"), None)
        )
        soon_s = self._dice.uniform(0.0, 0.5)
        if options is None:
            urgent = self._checkers.places.jobs[event.job]
            self._world.after(soon_s, self._submit, [structs.replace(urgent, priority=urgent.priority + 5)])
        else:
            self._world.after(soon_s, self.ask, [options])
            self._world.after(self._dice.uniform(2.0, 20.0), self.ask, [Undrain(node)])
        self._meddles -= 1
        if not self._meddles:
            self._checkers.on_promise = ignore

    def acknowledged(self, request_id: str, jobs: list[Job]) -> None:
        self._checkers.chronicle.acknowledged(request_id, [job.id for job in jobs])
        self._known += jobs

    def acknowledged_workflow(self, request_id: str, flow: Workflow) -> None:
        self._checkers.workflows.acknowledged(request_id, flow.id)
        self._flows.append(flow)

    # To a coordinator and back.

    def ask(self, inputs: list[Input], reply: Reply = _ignore_reply) -> None:
        """One try: the request or the reply may be lost. Some ask a standby, or one that no longer leads."""
        alive = self._coordinators.alive()
        coordinator = self._coordinators.leader()
        if len(alive) > 1 and self._dice.random() < 0.3:
            coordinator = self._dice.choice(alive)
        if coordinator is None or self._is_lost():
            return
        back = self._way_back(reply)
        self._world.after(self._network.delay_s(), coordinator.call, coordinator.ask, inputs, back)

    def _way_back(self, reply: Reply) -> Reply:
        def travel(answers: list[Answer | None]) -> None:
            if not self._is_lost():
                self._world.after(self._network.delay_s(), reply, answers)

        return travel

    def _is_lost(self) -> bool:
        return self._dice.random() < (0.2 if self._network.is_stormy else 0.04)

    def try_again(self, effect: Callable[[], None]) -> None:
        self._world.after(self._dice.uniform(*ASK_AGAIN_S), effect)

    def renewed_workflow(self, flow: Workflow) -> Workflow:
        """The workflow for another try, with a new id."""
        id = workflow_id(int(self._world.now * 1000), self._flow_dice.getrandbits(79))
        return structs.replace(flow, id=id)

    def renewed(self, jobs: list[Job]) -> list[Job]:
        """The jobs of a submission for another try, with new ids."""
        first = again(jobs[0], self._dice, self._world.now, None)
        return [first, *(again(job, self._dice, self._world.now, first.id) for job in jobs[1:])]
