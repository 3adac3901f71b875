"""A cluster in memory: the real engine, real runner states, and connections that may be cut at any moment.

What the machines really run is recorded beside what both sides believe, so that a law can be checked on the machines:
no device serves two processes, no task runs twice at once. Time passes only by `wait`.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.restore import restore
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.decision import Accepted, Answer, Disposed, Effect, Send, brief, roll
from phalanx.core.cluster.events import (
    AttemptEnded,
    AttemptReady,
    Event,
    GangReleased,
    TaskPlaced,
    TermOpened,
    encode,
)
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Disconnect, Heartbeat, Hello, Input, Tell, Tick
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.health import NodeHealth
from phalanx.core.model.orders import AttemptKey, Order, Ready, Report, Start, Started, Why
from phalanx.core.model.resources import Capacity, Grant
from phalanx.core.runner.state import RunnerState
from phalanx.store.protocol import Batch, Loaded
from tests.support.fake_keeper import FakeKeeper


class Machine:
    """One node: its keeper, which outlives the runner, and the current runner."""

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.capacity = capacity
        self.life = 1
        self.generation = 0  # of its lease, as the welcome said
        self.health: NodeHealth | None = None  # as its checks found
        self.connected = False
        self.frozen = False  # a machine that hangs cannot even stop its own processes
        self.overslept: set[AttemptKey] = set()  # processes that outlived their lease in that way
        self.spawned: set[AttemptKey] = set()
        self.wakes: Callable[[AttemptKey], None] = lambda key: None  # called at every start
        self.keeper = FakeKeeper(self._seen)
        self.runner = RunnerState()
        self.keeper.attach(self.runner)

    @property
    def incarnation(self) -> str:
        return f"{self.name}/{self.life}"

    @property
    def grants(self) -> dict[AttemptKey, Grant]:
        return {key: start.grant for key, (start, _) in self.keeper.running.items()}

    @property
    def awake(self) -> set[AttemptKey]:
        return set(self.keeper.running) - self.overslept

    def welcome(self, epoch: int, lease_until: float, generation: int) -> None:
        self.connected, self.generation = self.runner.welcome(epoch, lease_until), generation
        self.keeper.lease_until = self.runner.lease_until

    def renew(self, lease_until: float) -> None:
        self.runner.renew(lease_until)
        self.keeper.lease_until = self.runner.lease_until

    def thaw(self, now: float) -> None:
        self.frozen = False
        if now > self.keeper.lease_until:
            self.overslept |= set(self.keeper.running)

    def pass_time(self, now: float) -> None:
        if not self.frozen:
            for key in [each for each in self.keeper.running if each not in self.keeper.announced]:
                self.keeper.announce(key, now)  # a start is known at the latest by then
            self.keeper.fence(now)
            self.keeper.do(self.runner.tick(now), now)

    def restart_runner(self) -> None:
        """The runner dies and comes back; its keeper kept the processes and how they ended."""
        self.life += 1
        self.connected = False
        self.runner = RunnerState()
        self.keeper.attach(self.runner)

    def crash(self) -> None:
        """The machine dies with all that runs on it."""
        self.frozen = False
        self.keeper.lose_everything()
        self.restart_runner()

    def _seen(self, deed: str, key: AttemptKey) -> None:
        if deed == "spawns":
            assert key not in self.spawned, "an attempt is started at most once"
            self.spawned.add(key)
            self.wakes(key)


class WatchedEngine(Engine):
    """An engine that checks where tasks are placed at that moment, and shows every event before it is applied."""

    def __init__(self, state: ClusterState, sees: Callable[[Event], None]) -> None:
        super().__init__(state)
        self._sees = sees

    def _applied(self, event: Event) -> list[Effect]:
        self._sees(event)
        if isinstance(event, TaskPlaced):
            node = self.state.nodes[event.node]
            others = [
                each for each in self.state.nodes.values() if each.could_work and not each.excluded_until
            ]
            assert node.could_work
            assert node.excluded_until is None or not others, (
                f"{event.node} is excluded, and others take work"
            )
        return super()._applied(event)


class SimulatedCluster:
    """The coordinator, its log, and the machines."""

    def __init__(self, rules: Timers) -> None:
        self.rules = rules
        self.engine = WatchedEngine(ClusterState(rules), self._watch_gangs)
        self.now = 1000.0
        self.log: list[Batch] = []
        self.history: dict[str, bytes] = {}
        self.images: list[tuple[int, bytes]] = []
        self.machines: dict[str, Machine] = {}
        self.told: list[Tell] = []  # reports that were delivered, to be sent again
        self.turns: list[Turn] = []
        self.recorder = Recorder()
        self.formations: dict[tuple[str, int], set[AttemptKey]] = {}  # as they were decided
        self.released: set[tuple[str, int]] = set()
        self.ready: set[AttemptKey] = set()
        self.evicted: set[AttemptKey] = set()
        self.early: list[AttemptKey] = []  # members that ran before their formation was released
        self.open_term()

    @property
    def state(self) -> ClusterState:
        return self.engine.state

    def open_term(self) -> None:
        """As Loop.open does: read everything back and begin a new epoch. Every connection is gone."""
        epoch = self.state.epoch + 1
        restored = restore(Loaded(None, 0, list(self.log)), self.rules)
        self.engine = WatchedEngine(restored, self._watch_gangs)
        opened = TermOpened(at=self.now, cause="start", epoch=epoch)
        apply(self.state, opened)
        self.log.append(Batch(self.state.revision, encode([opened])))
        for machine in self.machines.values():
            machine.connected = False

    def turn(self, *inputs: Input) -> list[Answer | None]:
        """One turn, made durable and carried out, and those that it asks for."""
        turn = self.decide(*inputs)
        self.carry_out(turn)
        self._go_on()
        return turn.answers

    def _go_on(self) -> None:
        """The turns that the last one asks for."""
        for _ in range(20):
            if not self.turns[-1].more:
                return
            self.carry_out(self.decide())
        raise AssertionError("the coordinator turns in circles")

    def decide(self, *inputs: Input) -> Turn:
        """A turn that is durable and whose effects are not sent yet."""
        turn = self.engine.turn(list(inputs), self.now)
        self.turns.append(turn)
        self.recorder.observe(turn, self.state)
        if (batch := turn.batch()) is not None:
            self.log.append(batch)
        self.history.update((record.job, record.body) for record in turn.history)
        return turn

    def carry_out(self, turn: Turn) -> None:
        for effect in turn.effects:
            if isinstance(effect, Send):
                self._deliver(effect.node, effect.order)

    def take_image(self) -> None:
        self.images.append((self.state.revision, encode_state(self.state)))

    def hello(self, machine: Machine) -> None:
        held = machine.runner.listing()
        origin = f"origin {machine.name}"
        given = Hello(
            machine.name, machine.incarnation, origin, machine.capacity, held, health=machine.health
        )
        turn = self.decide(given)
        assert isinstance(turn.answers[0], Accepted)
        lease_until, generation = (
            self.now + self.rules.self_fence_s,
            self.state.nodes[machine.name].generation,
        )
        machine.welcome(self.state.epoch, lease_until, generation)  # before the orders of this turn
        self.carry_out(turn)
        self._go_on()

    def beat(self, machine: Machine) -> None:
        """A heartbeat; reports that were never answered go out again after it."""
        machine.runner.resend()
        listing = machine.runner.listing()
        given = Heartbeat(
            machine.name, machine.incarnation, listing, machine.generation, health=machine.health
        )
        answer = self.turn(given)[0]
        if isinstance(answer, Accepted):
            machine.renew(self.now + self.rules.self_fence_s)
            self.report(machine)
        else:
            machine.connected = False

    def report(self, machine: Machine) -> None:
        """Send the reports; the coordinator's answers come back at once."""
        reports: list[Report] = machine.runner.take_fresh()
        if not reports:
            return
        epoch, generation = machine.runner.epoch, machine.generation
        tells = [Tell(machine.name, machine.incarnation, epoch, each, generation) for each in reports]
        self.told = [*self.told, *tells][-30:]
        for report, answer in zip(reports, self.turn(*tells), strict=True):
            assert isinstance(answer, Disposed)
            if not isinstance(report, Started | Ready):
                machine.keeper.do(machine.runner.disposed(answer.key, answer.disposition), self.now)

    def cut(self, machine: Machine, noticed: bool) -> None:
        """The wire is cut; perhaps the coordinator does not even notice."""
        machine.connected = False
        if noticed:
            self.turn(Disconnect(machine.name, machine.incarnation))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for machine in self.machines.values():
            machine.pass_time(self.now)
        self.turn(Tick())

    def _watch_gangs(self, event: Event) -> None:
        if isinstance(event, TaskPlaced) and event.formation:
            self.formations.setdefault((event.key[0], event.formation), set()).add(event.key)
        elif isinstance(event, GangReleased):
            self.released.add((event.job, event.formation))
            self._look_at_places(event)
        elif isinstance(event, AttemptReady):
            self.ready.add(event.key)
        elif isinstance(event, AttemptEnded) and event.exit.why is Why.EVICTED:
            self.evicted.add(event.key)

    def _look_at_places(self, released: GangReleased) -> None:
        """At the moment of release all that a gang cannot do without wait on machines that are alive.

        Of those that it can do without, only the evicted may be missing.
        """
        members = self.formations[released.job, released.formation]
        newest = {key[:2]: key for key in sorted(members)}  # one that was lost may have been placed again
        job = self.state.jobs[released.job].job
        needed = [group.needed for group in job.groups]
        missing = list[tuple[int, AttemptKey]]()
        for key in newest.values():
            attempt, group = self.state.attempt(key), job.group_at(key[1])[0]
            if attempt is None or attempt.ending not in (None, Why.EVICTED) or key not in self.ready:
                missing.append((group, key))
            else:
                needed[group] -= 1
        self.early += [key for group, key in missing if needed[group] > 0 or key not in self.evicted]

    def watch(self, machine: Machine) -> None:
        machine.wakes = self._started

    def _started(self, key: AttemptKey) -> None:
        for name, members in self.formations.items():
            if key in members and name not in self.released:
                self.early.append(key)

    def _deliver(self, node: str, order: Order) -> None:
        """Orders for a node that is away are lost; a start comes with the brief of its job."""
        machine = self.machines[node]
        late = isinstance(order, Start) and self.state.attempt(order.key) is None
        if late or not machine.connected:
            return
        if isinstance(order, Start):
            job = self.state.jobs[order.key[0]]
            machine.runner.order(self.state.epoch, brief(job.job, order.group), self.now)
            if order.formation:
                machine.runner.order(self.state.epoch, roll(self.state, job, order.formation), self.now)
        machine.keeper.do(machine.runner.order(self.state.epoch, order, self.now), self.now)


def loaded(batches: list[Batch], image: tuple[int, bytes] | None = None) -> Loaded:
    """What a store would load for a new term."""
    revision, body = image or (0, None)
    return Loaded(body, revision, [batch for batch in batches if batch.revision > revision])
