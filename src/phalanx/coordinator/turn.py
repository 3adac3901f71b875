"""One turn of a coordinator: inputs in; events, effects and answers out. No I/O and no waiting.

Two loops drive this engine: asyncio in `loop.py`, virtual time in `sim/`. Inputs of a turn are decided and
applied one after another in memory; the shell holds every effect and answer until the events are durable.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from phalanx.core.cluster.decide.overlay import with_reservation
from phalanx.core.cluster.decision import Accepted, Answer, Effect, Refused, Replayed, refuse_because
from phalanx.core.cluster.events import (
    VOLATILE,
    BackoffsEnded,
    Event,
    JobForgotten,
    NodeHeard,
    encode,
)
from phalanx.core.cluster.image import encode_job
from phalanx.core.cluster.inputs import (
    Abandon,
    Advance,
    Defer,
    Disconnect,
    Heartbeat,
    Hello,
    Input,
    Propose,
    ProposeGang,
    Redeem,
    Rescale,
    Submit,
    SubmitWorkflow,
    Tick,
)
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.repairs import repaired, repairs
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.cluster.workflow_events import WorkflowForgotten
from phalanx.core.cluster.workflow_image import encode_workflow
from phalanx.core.explain.estimate import estimate
from phalanx.core.explain.shortage import NODES_TRIED_MAX, gang_never
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.plan import Plan, PlanMemory, Policy
from phalanx.core.model.reason import Reason
from phalanx.core.placement.engine import PlanFailed, plan
from phalanx.core.placement.place_one import place_one
from phalanx.store.protocol import Batch, History

FAILURES_MAX = 8  # of plans in one turn
EVENTS_MAX = 200  # after so many nothing more follows in the same turn
FOLLOWED_MAX = 1000  # jobs that end, and workflows that go on, in one turn because of what ended before them
FAILED_FOR_S = 10.0  # then jobs that made a plan fail are tried again
# What nobody outside has put a number into: its events are not encoded twice.
_OF_OURS = frozenset(
    {Propose, Defer, ProposeGang, Redeem, Abandon, Advance, Rescale, Tick, Heartbeat, Disconnect}
)


class Turn(Struct):
    """What came of one turn. `answers` stand in the order of the inputs; `more` asks for another turn at once."""

    events: list[Event]
    effects: list[Effect]
    answers: list[Answer | None]
    history: list[History]
    revision: int
    more: bool = False
    failures: list[PlanFailed] = []
    unwritable: list[str] = []  # inputs that were refused because the log cannot hold what would follow
    plans_s: list[float] = []  # how long each plan took
    append_s: float | None = None  # how long the store took to keep it; None: nothing was to be kept

    def batch(self) -> Batch | None:
        """The durable events as one record for the store, or None if there are none."""
        lasting = [event for event in self.events if type(event) not in VOLATILE]
        if not lasting:
            return None
        subjects = {name for event in lasting for name in (*event.jobs, event.on_node) if name}
        return Batch(self.revision, encode(lasting), tuple(sorted(subjects)))


class Engine:
    """The state of one term and the way to move it on."""

    def __init__(self, state: ClusterState, policy: Policy | None = None) -> None:
        self.state = state
        self.policy = policy or Policy()
        self.memory = PlanMemory()  # of the last plan
        self.turned_at = 0.0  # the time that the state has seen pass
        self._planned = (-1, -1)  # what the last plan had seen, so that an idle turn plans nothing
        self._refused: set[JobId] = set()  # whose placements were refused in the last pass
        self._refused_at = -1  # at this revision
        self._look_again_at = 0.0  # when a unit that found no victims may look again
        self.timer: Callable[[], float] = _untimed  # seconds, to measure plans with
        self._rescaled_at: float | None = (
            None  # the pool was last looked at; the first look is one interval later
        )

    def turn(self, inputs: list[Input], now: float) -> Turn:
        """Decide and apply all inputs, then place what can be placed."""
        self.turned_at = now
        if (due := self.state.next_due) is not None and due <= now:
            apply(self.state, BackoffsEnded(at=now))
            self._planned = (-1, -1)  # nothing is written down, and yet there may be something new to plan
        turn = Turn([], [], [], [], 0)
        leaders: dict[str, str] = {}
        for given in inputs:
            if type(given) is Submit:
                self._submit(given, leaders, now, turn)
            elif type(given) is SubmitWorkflow:
                self._decide(self.foreseen(given, now), now, turn)
            else:
                self._decide(given, now, turn)
        self._follow(now, turn)
        self._place(now, turn)
        self._rescale(now, turn)
        turn.revision = self.state.revision
        return turn

    def _decide(self, given: Input, now: float, turn: Turn) -> None:
        decision = decide(self.state, given, now)
        if type(given) not in _OF_OURS and decision.events and (wrong := _unwritable(decision.events)):
            turn.unwritable.append(f"{type(given).__name__}: {wrong}")
            decision = refuse_because("CannotBeWritten", f"a value cannot be written down: {wrong}", "bad")
        for event in decision.events:
            if type(event) is JobForgotten:
                job = self.state.jobs[event.job]
                kept = self.state.environments.of_record(job.job)
                turn.history.append(History(event.job, encode_job(job, kept), job.arrival))
            elif type(event) is WorkflowForgotten:
                flow = self.state.workflows[event.workflow]
                turn.history.append(History(event.workflow, encode_workflow(flow), flow.number))
            turn.events.append(event)
            turn.effects += self._applied(event)
        turn.effects += decision.effects
        turn.answers.append(decision.answer)

    def _applied(self, event: Event) -> list[Effect]:
        """A replay passes over what it cannot place; what was decided just now must fit, or we stop."""
        skipped = self.state.skipped
        effects = apply(self.state, event)
        if self.state.skipped != skipped:
            raise AssertionError(f"{event} was decided on a state that it does not fit")
        return effects

    def _submit(self, given: Submit, leaders: dict[str, str], now: float, turn: Turn) -> None:
        if (known := self._known(given, leaders)) is not None:
            turn.answers.append(known)
            return
        self._decide(self._prepared(given, leaders, now), now, turn)
        if isinstance(turn.answers[-1], Accepted):
            leaders.setdefault(given.job.batch, given.job.id)

    def _known(self, given: Submit, leaders: dict[str, str]) -> Replayed | None:
        """The jobs of an earlier submission with this request id, even if it stands in this very turn.

        It is asked here and not when the request comes in, because only here all that came before is decided,
        and because the answer then waits until it is durable.
        """
        ids = self.state.requests.get(given.job.user, given.request_id)
        return Replayed(tuple(ids)) if ids and given.job.batch not in leaders else None

    def _prepared(self, given: Submit, leaders: dict[str, str], now: float) -> Submit:
        """Name the batch after the first job of it that was accepted; find the place a no_queue job asks for."""
        leader = leaders.get(given.job.batch, given.job.id)
        job = structs.replace(given.job, batch=leader) if leader != given.job.batch else given.job
        reserved = with_reservation(self.state, structs.replace(given, job=job), now)
        job = job if isinstance(reserved, Refused) else reserved  # that it is refused is decided later
        placement = None
        if given.no_queue and job.tasks == 1:
            placement = place_one(self.state.snapshot(now), JobState(job, 0, [0] * 6).groups[0], self.policy)
        never = None if given.allow_infeasible else self._never_together(job)
        return structs.replace(given, job=job, placement=placement, never=never)

    def _never_together(self, job: Job) -> Reason | None:
        """Why a gang as a whole could never fit, if so."""
        gang = None if job.gang is None else JobState(job, 0, [0] * 6).gang
        never = None if gang is None else gang_never(self.state.table, gang)
        if gang is None or never is None or not repairs(self.state):
            return never
        if len(self.state.table) > NODES_TRIED_MAX:
            return None  # too many to try: if it never fits, it waits, and `why` says so
        return gang_never(repaired(self.state), gang)

    def foreseen(self, given: SubmitWorkflow, now: float) -> SubmitWorkflow:
        """With the reason why a stage that is a gang could never fit, or why its limits cannot be kept."""
        flow = given.workflow
        if flow.is_limited and (never := estimate(self.state, flow).never(flow, now)):
            return structs.replace(given, never=never)
        for stage in flow.stages:
            if (never := self._never_together(stage.job)) is not None:
                named = structs.replace(never, text=f"stage {stage.name}: {never.text}")
                return structs.replace(given, never=named)
        return given

    def _follow(self, now: float, turn: Turn) -> None:
        """End what can never start, and let begin the stages whose inputs have come; more may follow from that."""
        jobs, tasks, due = self.state.abandoned, self.state.abandoned_tasks, self.state.due
        for _ in range(FOLLOWED_MAX):
            if len(turn.events) >= EVENTS_MAX:  # enough for one turn: others are heard before the rest
                break
            if jobs or tasks:
                self._propose(Abandon(next(iter(jobs or tasks))), now, turn)
            elif due:
                self._propose(Advance(next(iter(due))), now, turn)
            else:
                return
        turn.more = turn.more or bool(jobs or tasks or due)

    def _place(self, now: float, turn: Turn) -> None:
        """Plan on what is true now; every placement is an input like any other and is checked again.

        A second pass sees the lanes that the first one opened and may queue short tasks in them. A turn that
        has opened as many as one pass may is long enough: whoever asks for something else is heard before the next.
        """
        state, opened = self.state, 0
        for id in [id for id in state.promised if not _is_awaited(state, id)]:
            self._propose(Redeem(id), now, turn)
        for _ in range(2):
            seen = self._planned == self._moment and now < self._look_again_at
            if not len(state.waiting) or seen:
                return
            waiting = len(state.waiting)
            proposal, refused = self._plan(now, turn), dict[JobId, int]()
            for gang_placement in proposal.gang_placements:
                if not self._propose(ProposeGang(gang_placement), now, turn):
                    refused[gang_placement.job] = gang_placement.members[0].position
            for placement in proposal.placements:
                if not self._propose(Propose(placement), now, turn):
                    refused[placement.job] = placement.position
            self._note_refused(refused, now, turn)
            for job in proposal.deferred:
                self._propose(Defer(job), now, turn)
            turn.more = turn.more or proposal.more
            opened += proposal.opened
            if opened >= self.policy.openings_max:
                return
            # Otherwise a unit that was held back, or was not looked at, may be the head now.
            is_settled = len(state.waiting) == waiting and not proposal.more
            if (
                is_settled
                and not proposal.gang_placements
                and all(p.lane is not None for p in proposal.placements)
            ):
                self._planned = self._moment
                self._look_again_at = self.memory.next_look(state.waiting, now)

    def _rescale(self, now: float, turn: Turn) -> None:
        """From time to time, see which elastic nodes are to be disabled or enabled; only once all has been planned."""
        rules = self.state.rules.elastic
        if self._rescaled_at is None:
            self._rescaled_at = now
        if not rules.is_polled or turn.more or now - self._rescaled_at < rules.poll_s:
            return
        self._rescaled_at, before = now, len(turn.events)
        self._propose(Rescale(), now, turn)
        turn.more = turn.more or len(turn.events) > before

    @property
    def _moment(self) -> tuple[int, int]:
        """What a plan has seen: the events, and how often room may have appeared."""
        return self.state.revision, self.state.gain + self.memory.refusals

    def _plan(self, now: float, turn: Turn) -> Plan:
        """A job that makes a plan fail waits for a while, and its `why` says so; the others are placed without it."""
        proposal, began_at = None, self.timer()
        for _ in range(FAILURES_MAX):
            try:
                proposal = plan(self.state.snapshot(now, self.memory), self.policy)
                self.memory = proposal.memory
                break
            except PlanFailed as failed:
                self.memory.failed[failed.waiting_class.number] = now + FAILED_FOR_S, str(failed)
                turn.failures.append(failed)
        turn.plans_s.append(self.timer() - began_at)
        if turn.failures and (broken := check(self.state)):
            raise AssertionError(f"a plan that failed has left its traces: {broken[0]}") from turn.failures[0]
        return proposal or Plan([], more=True)

    def _propose(self, given: Input, now: float, turn: Turn) -> bool:
        """There is no caller to answer; if it is refused, the plan was made on what is no longer true."""
        self._decide(given, now, turn)
        if not isinstance(turn.answers.pop(), Refused):
            return True
        self.memory.refusals += 1
        turn.more = True
        return False

    def _note_refused(self, refused: dict[JobId, int], now: float, turn: Turn) -> None:
        """What two passes plan and both are refused, while nothing changes, would be planned for ever.

        Then plan and check disagree, a defect of ours, and its job waits as one that made the plan fail.
        """
        again = self._refused & refused.keys() if self._refused_at == self.state.revision else set()
        self._refused, self._refused_at = set(refused), self.state.revision
        for id in again:
            job = self.state.jobs[id]
            kind = self.state.waiting.class_of(job.gang or job.group_of(refused[id]))
            if kind is not None:
                error = RuntimeError("the same placement was planned and refused twice")
                failed = PlanFailed(kind, error)
                self.memory.failed[kind.number] = now + FAILED_FOR_S, str(failed)
                turn.failures.append(failed)


def _untimed() -> float:
    """For those who do not want to know how long a plan takes."""
    return 0.0


def _unwritable(events: list[Event]) -> str:
    """Why the log cannot hold these, if so. It is asked before they are applied: later, all else would be lost too."""
    try:
        encode(events)
    except (OverflowError, TypeError, ValueError) as error:
        return str(error)
    return ""


def _is_awaited(state: ClusterState, id: str) -> bool:
    """Whether a victim still has to leave before a promise can be kept."""
    promise = state.jobs[id].promise
    return promise is None or bool(promise.victims)


def leases_only(state: ClusterState, inputs: list[Input], now: float) -> list[Answer | None]:
    """While nothing can be written: a heartbeat or a known hello needs no write; the rest is sent again later."""
    if len(inputs) != 1 or not isinstance(inputs[0], Heartbeat | Hello):
        return []
    node = state.nodes.get(inputs[0].node)
    if node is None or node.incarnation != inputs[0].incarnation or node.lost:
        return []
    if isinstance(inputs[0], Heartbeat) and inputs[0].generation != node.generation:
        return []
    apply(state, NodeHeard(at=now, node=node.name))
    return [Accepted()]
