"""Checks what must be true of a run, from outside the code that is run.

The facade receives everything observable and passes it to the models: `chronicle` and `places` model what the log
says, `floor` the processes that really run, `replica` what a restart would read; `barrier` checks gangs, `promises`
preemption, `restarts` jobs that act as one, `dependencies` jobs that start after others, `workflows` stages,
`changes` holds, begins and nodes for itself, `queue_limits` what queues and users may hold, `dispatches` the nodes that
stages are given, `lanes` who queues behind whom, `limits` time limits, `standstill` nodes that cannot work, `elastic`
nodes that are disabled, `addresses` those of the overlay network, `numbers` those of jobs, `environments` what those
were submitted with, `sweeps` parameters and retries, `waits` the queue. The first violation ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from phalanx.coordinator.turn import Turn
from phalanx.core.cluster import invariants
from phalanx.core.cluster.events import VOLATILE, AttemptStarted, Event, RoomPromised
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import AttemptKey, Brief, Go, Order, Start, Status, Stop, Why
from phalanx.core.model.resources import Capacity
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.link import wire
from phalanx.sim.addresses import AddressChecker
from phalanx.sim.barrier import Barrier
from phalanx.sim.changes import ChangeChecker
from phalanx.sim.chronicle import Chronicle
from phalanx.sim.coordinator import SimulatedCoordinator
from phalanx.sim.dependencies import Dependencies
from phalanx.sim.disk import drive
from phalanx.sim.dispatches import DispatchChecker
from phalanx.sim.elastic import ElasticNodes
from phalanx.sim.environments import EnvironmentChecker
from phalanx.sim.fences import Fences
from phalanx.sim.floor import Floor
from phalanx.sim.lanes import LaneChecker
from phalanx.sim.limits import TimeLimits
from phalanx.sim.logins import LoginChecker
from phalanx.sim.numbers import NumberChecker
from phalanx.sim.places import Places
from phalanx.sim.promises import Promises
from phalanx.sim.queue_limits import LimitChecker
from phalanx.sim.replica import differences
from phalanx.sim.restarts import Restarts
from phalanx.sim.runner import SimulatedRunner
from phalanx.sim.standstill import Standstill
from phalanx.sim.sweeps import SweepChecker
from phalanx.sim.violation import Violation
from phalanx.sim.waits import PATIENCE_S, check_patience, check_waits
from phalanx.sim.workflows import WorkflowChecker
from phalanx.sim.world import World
from phalanx.store.protocol import Batch, Loaded, Store

REPLAY_EVERY, REPLAY_ALL_EVERY = 30, 120  # of the turns that changed something


class Checkers:
    """All checkers, and the counts of what they have seen."""

    def __init__(self, world: World, capacities: dict[str, Capacity]) -> None:
        self.outside: Store | None = None  # the store without faults; set once there is a vault
        self.keeps_stories = True  # False where the beginning of the log is dropped
        self.counts: Counter[str] = Counter()
        self.floor = Floor(capacities)
        self.chronicle = Chronicle(self.floor)
        self.fences = Fences(self.count)
        self.places = Places(capacities)
        self.barrier = Barrier(self.places, self.floor, self.count)
        self.promises = Promises(self.places, self.floor, self.count)
        self.standstill = Standstill(world)
        self.limits = TimeLimits(self.places, self.floor, world)
        self.restarts = Restarts(self.places, self.barrier, self.count)
        self.dependencies = Dependencies(self.chronicle, self.count)
        self.workflows = WorkflowChecker(self.chronicle, self.count)
        self.dispatches = DispatchChecker(self.count)
        self.lanes = LaneChecker(self.places, self.count)
        self.changes = ChangeChecker(self.places, self.count)
        self.queue_limits = LimitChecker(self.places, self.chronicle, self.count)
        self.elastic = ElasticNodes(self.count)
        self.addresses = AddressChecker(self.count)
        self.numbers = NumberChecker(self.count)
        self.logins = LoginChecker(self.count)
        self.environments = EnvironmentChecker(self.count)
        self.sweeps = SweepChecker(self.chronicle, self.count)
        # Faults set these to act when a member becomes ready on a node, or when places are promised.
        self.on_ready: Callable[[str], None] = ignore
        self.on_promise: Callable[[RoomPromised], None] = ignore
        self.started_at = 0.0  # when the last attempt started
        self._world = world
        self._epochs: dict[str, int] = {}  # the highest epoch that each incarnation of a runner has served
        self._settled = 0
        self._quiet = (0, 0, 0)  # epoch, revision and gain of the last quiet turn that was checked
        self._patient_until = 0.0
        self._latest = 0.0  # the latest time that any coordinator's clock has shown

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # What the store shows.

    def term_opened(self, epoch: int, seat: str) -> None:
        self.chronicle.term_opened(epoch)
        self.fences.term_opened(epoch, seat)

    def wrote(self, process: str, epoch: int) -> None:
        self.fences.wrote(process, epoch)

    def committed(self, epoch: int, batch: Batch) -> None:
        events = self.chronicle.committed(epoch, batch)
        for event in events:
            self.fences.note(event)
            self.barrier.note(event)
            self.promises.note(event, self._world.now)
            self.restarts.note(event)
            self.dependencies.note(event)
            self.workflows.note(event)
            self.dispatches.note(event)
            self.limits.note(event)
            self.standstill.note(event)
            self.elastic.note(event)
            self.addresses.note(event)
            self.numbers.note(event)
            self.logins.note(event)
            self.environments.note(event)
            self.sweeps.note(event)
            self.lanes.note(event)
            self.changes.note(event)
            self.queue_limits.note(event)
            self.places.note(event)
            if isinstance(event, RoomPromised):
                self.on_promise(event)
            if isinstance(event, AttemptStarted):
                self.started_at = self._world.now
        if events:
            self.barrier.end_of_batch()
            self.promises.end_of_batch(events[-1].at)
            self.restarts.end_of_batch()
            self.dependencies.end_of_batch()
            self.workflows.end_of_batch()
            self.elastic.end_of_batch()

    # What goes over the wire.

    def sent(self, seat: str, message: wire.Message) -> None:
        self.fences.sent(seat, message)

    def ordered(self, node: str, orders: list[Order]) -> None:
        """Durable before sent: no order goes to a runner before the log has the event behind it."""
        for order in orders:
            match order:
                case Brief():
                    self.environments.told(order)
                case Start() if not self.chronicle.was_placed(order.key):
                    raise Violation(
                        "durable", f"{node} is ordered to start {order.key}, which was never placed"
                    )
                case Go() if not self.barrier.may_go(order.key):
                    raise Violation("durable", f"{order.key} is ordered to go, but its gang was not released")
                case Stop(why=Why.EVICTED) if not self.promises.was_evicted(order.key):
                    raise Violation(
                        "durable", f"{order.key} is ordered to stop as evicted, but no event evicts it"
                    )
                case Stop(why=Why.RECALLED) if not self.barrier.is_recalled(order.key):
                    raise Violation("durable", f"{order.key} is recalled, but its formation was not")

    # What nodes do.

    def process_ready(self, node: str, key: AttemptKey) -> None:
        self._world.trace(f"{node}: {_spell(key)} is ready")
        self.floor.ready.add(key)
        self.on_ready(node)

    def process_started(self, node: str, start: Start) -> None:
        self._world.trace(f"{node}: {_spell(start.key)} starts in lane {start.lane}")
        self.floor.started(node, start, self._world.now)
        self.sweeps.started(start)
        if start.formation:
            self.barrier.started(node, start)

    def process_ended(self, node: str, key: AttemptKey, end: ProcessEnd) -> None:
        self._world.trace(f"{node}: {_spell(key)} ends: code {end.code}, signal {end.signal}")
        self.floor.ended(node, key, end)
        self.limits.ended(key)

    def end_seen(self, node: str, key: AttemptKey, by_itself: bool) -> None:
        self.floor.seen(key, by_itself, self._world.now)

    def keeper_stopped(self, place: str) -> None:
        self.standstill.begins(place)

    def keeper_resumed(self, place: str) -> None:
        self.standstill.ends(place)

    def journal_lost(self, node: str) -> None:
        self.floor.journal_lost(node)

    def heard(self, runner: SimulatedRunner, message: wire.Message, obeyed: bool) -> None:
        """No order of an older epoch is obeyed once a newer one was served."""
        served = self._epochs.get(runner.name, 0)
        if isinstance(message, wire.Welcome):
            self._epochs[runner.name] = max(served, message.epoch)
        elif isinstance(message, wire.Rejected) and message.code == "StaleEpoch":
            self.count("refused coordinator")
        elif isinstance(message, wire.Orders) and message.epoch < served:
            self.count("refused order")
            if obeyed:
                text = (
                    f"{runner.name} obeyed an order of epoch {message.epoch} after it served epoch {served}"
                )
                raise Violation("epochs", text)

    # What coordinators do.

    def turned(self, coordinator: SimulatedCoordinator, turn: Turn) -> None:
        """Called after every durable turn: the invariants of the state must hold."""
        for event in turn.events:
            if type(event) not in VOLATILE:
                self._world.trace(f"{coordinator.name}: {_subject(event)}{sentence(event)}")
        self._latest = max(self._latest, coordinator.engine.turned_at)
        for failed in turn.failures:
            raise Violation("plan", f"no plan can be made: {failed}") from failed
        if turn.events:
            self.numbers.check(coordinator.state)
            if coordinator.state.epoch == self.chronicle.epoch:  # one that was replaced has not noticed yet
                self.logins.check(coordinator.state)
            check_state(coordinator.state)
            self._settled_down(coordinator)
        if not turn.more and all(type(event) in VOLATILE for event in turn.events):
            self._look_at_queue(coordinator)

    def _look_at_queue(self, coordinator: SimulatedCoordinator) -> None:
        """Nothing happened in this turn, so every unit that still waits must have a reason."""
        state, now = coordinator.state, coordinator.engine.turned_at
        engine = coordinator.engine
        view = state.snapshot(now, engine.memory)
        moment = (state.epoch, state.revision, view.gain)
        if moment != self._quiet:
            self._quiet, self._patient_until = moment, now + PATIENCE_S
            check_waits(view)
            self.queue_limits.check_waits(view, state)
        elif now > self._patient_until:
            self._patient_until = now + PATIENCE_S
            check_patience(view, engine.policy)

    def _settled_down(self, coordinator: SimulatedCoordinator) -> None:
        """Every few turns: what a restart would read equals what is in memory."""
        if coordinator.state.epoch == self.chronicle.epoch:
            self.promises.compare(set(coordinator.state.promised))
        self._settled += 1
        if self._settled % REPLAY_EVERY == 0:
            self.compare(coordinator, self._load())
        if self._settled % REPLAY_ALL_EVERY == 0:
            self.compare(coordinator, self._whole_log())

    def compare(self, coordinator: SimulatedCoordinator, loaded: Loaded) -> None:
        if coordinator.state.epoch != self.chronicle.epoch:
            return  # it has been replaced and has not noticed yet
        found = differences(coordinator.state, loaded, coordinator.engine.turned_at, self._latest)
        if found:
            raise Violation("replay", f"a restart of {coordinator.name} would read another state: {found[0]}")

    def _whole_log(self) -> Loaded:
        return Loaded(None, 0, self.chronicle.batches)

    def _load(self) -> Loaded:
        """Read the state as a restart would."""
        assert self.outside is not None
        return drive(self.outside.load())

    def _remembers(self, coordinator: SimulatedCoordinator, job: str) -> bool:
        """Whether the job can still be shown: from memory, or from the history and the story."""
        assert self.outside is not None
        if job in coordinator.state.jobs:
            return True
        story = drive(self.outside.story(job, 0, 1))
        return drive(self.outside.history(job)) is not None and (bool(story) or not self.keeps_stories)

    def opened(self, coordinator: SimulatedCoordinator) -> None:
        """A coordinator believes that it leads."""
        self.count("term")

    # At the end.

    def finish(self, coordinator: SimulatedCoordinator) -> None:
        self.compare(coordinator, self._load())
        self.compare(coordinator, self._whole_log())
        check_state(coordinator.state)
        self.chronicle.finish(coordinator.state, lambda job: self._remembers(coordinator, job))
        self.barrier.finish()
        self.promises.finish()
        self.workflows.finish()


def check_state(state: ClusterState) -> None:
    for sentence_of in invariants.SENTENCES:
        for broken in sentence_of(state):
            about_gangs = sentence_of is invariants.gangs_are_whole
            raise Violation("gang-whole" if about_gangs else "ledger", broken)
    if state.skipped:
        raise Violation("replay", f"{state.skipped} events named something unknown")
    for job in state.jobs.values():
        if job.by_task or not job.counts[Status.PENDING]:  # the invariants have compared the counts
            continue
        for position, status in enumerate(job.status):
            if status != Status.PENDING or position in job.delayed:
                continue
            group = job.group_of(position)
            if position not in group.again and position < group.fresh:
                raise Violation("heals", f"task {position} of {job.job.id} is pending and is in no queue")


def why_not_healed(leader: SimulatedCoordinator, floor: Floor, nodes: int) -> str | None:
    """The first thing that has not healed, or None."""
    state = leader.state
    for job in state.jobs.values():
        for position, status in enumerate(job.status):
            if not Status(status).is_final:
                word, live = Status(status).word, job.live.get(position)
                where = f" on {live.node}" if live else ""
                return f"task {position} of {job.job.id} is still {word}{where}"
        if job.live:
            return f"{job.job.id} still holds {sorted(job.live)}"
    for id, flow in state.workflows.items():
        if not flow.is_over:
            return f"{flow.unfinished} stages of workflow {id} have not ended"
    if floor.alive:
        return f"{_spell(next(iter(floor.alive)))} still runs"
    if len(state.nodes) < nodes:
        return f"only {len(state.nodes)} of {nodes} nodes are known"
    for node in state.nodes.values():
        by_hand = node.disabled_reason is not None and not node.disabled_automatically
        if (
            not node.is_fit or by_hand
        ):  # a node that is only excluded for a while, or is not needed, has healed
            return f"{node.name} takes no work (lost: {node.lost}, connected: {node.connected}, {node.drain_reason})"
        if not state.table.ledgers[node.row].is_empty:
            return f"{node.name} is not wholly free"
    if len(state.waiting):
        return f"{len(state.waiting)} jobs wait"
    return None if leader.is_at_rest else f"{leader.name} is writing, or cannot write"


def ignore(what: object) -> None:
    """The default listener: does nothing."""


def _subject(event: Event) -> str:
    key: AttemptKey | None = getattr(event, "key", None)
    if key is not None:
        return f"{_spell(key)}: "
    job, node = event.own_job, event.on_node
    return f"{(job or '')[-6:] or node or ''}: " if job or node else ""


def _spell(key: AttemptKey) -> str:
    return f"{key[0][-6:]}.{key[1]}#{key[2]}"
