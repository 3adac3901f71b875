"""The cluster of a transcript: a whole cluster in one thread, with the code of both shells but none of their I/O.

Commands and links are the coordinator's own, agents the runners' own. Processes are played by the script, and
time passes only when the script says so. Whatever happens becomes a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar, cast

from phalanx.coordinator import requests
from phalanx.coordinator.commands import CoordinatorCommands
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.link import Envelope, Links, RunnerSession
from phalanx.coordinator.link_auth import SharedToken
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.restore import restore
from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.events import VOLATILE, Event, TermOpened, encode
from phalanx.core.cluster.inputs import Input, SubmitWorkflow, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.stage_inputs import FetchInputs, needs_in_words
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import ulid
from phalanx.core.model.orders import AttemptKey, Brief, Dismiss, Order, Roll, Stop
from phalanx.core.model.resources import Capacity
from phalanx.core.model.workflow import Workflow, stage_job_id
from phalanx.core.runner.effects import RunnerEffect
from phalanx.link import wire
from phalanx.runner.turn import RunnerEngine
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch
from tests.support.fake_keeper import FakeKeeper

T = TypeVar("T")
BEGINNING_S = 1000.0
RETRIES_NAMED = 3  # of each stage
GHOST = "ghost"  # a job that no coordinator has ever heard of


class ScriptedCluster:
    """Coordinator, runners and clock."""

    def __init__(self) -> None:
        self.now_s = BEGINNING_S
        self.lines: list[str] = []
        self.names: dict[str, str] = {"0" * 26: GHOST}  # what the script calls a job, by id
        self.fetches: dict[str, FetchInputs] = {}  # what stages wait for, by their jobs
        self.store = MemoryStore()
        self.rules = Timers()
        self.engine = Engine(ClusterState(self.rules))
        self.links = Links(lambda: self.state, SharedToken())
        self.players: dict[str, Player] = {}
        log_links = LogLinks(SharedToken())  # no logs are read here
        self.commands = NamedCommands(
            cast(requests.Requests, self), self.store, Feed(), log_links, self, SubmitDefaults()
        )
        self.commands.names = self.names
        self.open_term()

    # As a Loop and as a Clock, for the coordinator's own code.

    @property
    def state(self) -> ClusterState:
        return self.engine.state

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        for given in inputs:
            if isinstance(given, SubmitWorkflow):
                self._know(given.workflow)
        return self.turn(inputs)

    def _know(self, flow: Workflow) -> None:
        """A stage's job is called flow:stage, and flow:stage~ if the stage was retried."""
        self.names[flow.id] = flow.name
        for number, stage in enumerate(flow.stages):
            for retries in range(RETRIES_NAMED):
                self.names[stage_job_id(flow.id, number, retries)] = (
                    f"{flow.name}:{stage.name}" + "~" * retries
                )

    async def catch_up(self) -> bool:
        return False

    def open_term(self) -> None:
        epoch = finish(self.store.open_term())
        self.engine = Engine(restore(finish(self.store.load()), self.rules))
        opened = TermOpened(at=self.now_s, cause="start", epoch=epoch)
        apply(self.state, opened)
        finish(self.store.append(epoch, Batch(self.state.revision, encode([opened])), []))
        self.links.sessions.clear()
        for player in self.players.values():
            player.wire.close()

    def turn(self, inputs: list[Input], envelope: Envelope | None = None) -> list[Answer | None]:
        """Decide, write down, answer, dispatch: one turn of the coordinator."""
        turn = self.engine.turn(inputs, self.now_s)
        if (batch := turn.batch()) is not None:
            finish(self.store.append(self.state.epoch, batch, turn.history))
        self.lines += [self.told(event) for event in turn.events if type(event) not in VOLATILE]
        if envelope is not None:
            envelope[1](turn.answers)
        self.links.dispatch(turn.effects)
        for effect in turn.effects:
            if isinstance(effect, FetchInputs):
                self.fetches[effect.job] = effect
                flow = self.state.workflows[effect.workflow]
                self.lines.append(f"{self.names[effect.job]} {needs_in_words(flow, effect.needs)}")
        assert check(self.state) == []
        if turn.more:
            self.turn([])
        return turn.answers

    def receive(self, session: RunnerSession, message: wire.Message) -> None:
        envelope = self.links.receive(session, message)
        if envelope is not None:
            self.turn(envelope[0], envelope)

    def settle(self) -> None:
        """Reports travel until there is nothing more to tell."""
        while [player for player in self.players.values() if player.report()]:
            pass

    def pass_time(self, seconds: float) -> None:
        """Second by second, with a heartbeat of everyone connected every five."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + 1.0)
            mark = len(self.lines)
            for player in self.players.values():
                player.pass_time()
            self.turn([Tick()])
            self.settle()
            clock = f"{seconds - (end_s - self.now_s):g}s"
            self.lines[mark:] = [f"after {clock}: {line}" for line in self.lines[mark:]]

    # Names for the reader.

    def told(self, event: Event) -> str:
        job = event.own_job
        text = self.named(sentence(event, inspects=True))
        if job is None:
            return text
        key = getattr(event, "key", None)
        return f"{self.task(key) if key else self.names[job]}: {text}"

    def named(self, text: str) -> str:
        for id, name in self.names.items():
            text = text.replace(id, name)
        return text

    def task(self, key: AttemptKey) -> str:
        job = self.state.jobs.get(key[0])
        return self.named(job.job.task_id(key[1]) if job else key[0])

    def attempt(self, key: AttemptKey) -> str:
        return f"{self.task(key)}#{key[2]}"

    def id_of(self, name: str) -> str:
        """`train.3` as the id that the coordinator knows."""
        job, dot, index = name.partition(".")
        known = [id for id, name in self.names.items() if name == job]
        return (known[-1] if known else job) + dot + index

    def key_of(self, text: str) -> AttemptKey:
        """`train.3#2`: the second attempt at index 3 of train."""
        task, _, number = text.partition("#")
        id, _, index = self.id_of(task).partition(".")
        position = self.state.jobs[id].job.position(int(index)) if index and id in self.state.jobs else 0
        assert position is not None
        return id, position, int(number or 1)


class Player:
    """One machine: its engine, its keeper, and the wire to the coordinator."""

    def __init__(self, cluster: ScriptedCluster, name: str, capacity: Capacity) -> None:
        self.cluster = cluster
        self.name = name
        self.capacity = capacity
        self.life = 0
        self.deaf = False  # orders to it are lost on the way
        self.wire = Wire(self)
        self.wire.close()
        self.keeper = FakeKeeper(self._seen)
        self.frozen: set[AttemptKey] = set()
        self.engine = self._new_life()

    def _new_life(self) -> RunnerEngine:
        self.life += 1
        engine = RunnerEngine(
            self.name, f"{self.name}/{self.life}", f"machine {self.name}", "", self.capacity
        )
        self.keeper.attach(engine.state)
        return engine

    @property
    def connected(self) -> bool:
        return self.wire.is_open

    def connect(self) -> None:
        self.wire.close()
        self.wire = Wire(self)
        self.session = RunnerSession(self.wire)
        self.cluster.receive(self.session, self.engine.hello(self.cluster.now_s))
        if self.engine.rejected is not None:
            self.cluster.lines.append(f"{self.name} is rejected: {self.engine.rejected.message}")

    def receive(self, message: wire.Message) -> list[RunnerEffect]:
        """One message; the keeper is given the lease and does the deeds."""
        deeds = self.engine.receive(message, self.cluster.now_s)
        self.keeper.lease_until = self.engine.state.lease_until
        self.keeper.do(deeds, self.cluster.now_s)
        return deeds

    def restart(self, crash: bool) -> None:
        if crash:
            self.keeper.lose_everything()
        self.wire.close()
        self.engine = self._new_life()

    def forget(self, key: AttemptKey) -> None:
        """It no longer knows an attempt that it had, as if its disk had been replaced."""
        start, _ = self.keeper.running.pop(key)
        del self.engine.state.held[key]
        del self.engine.state.lanes[start.lane]

    def report(self) -> bool:
        reports = self.engine.reports() if self.connected else None
        if reports is None or not reports.reports:
            return False
        self.cluster.receive(self.session, reports)
        return True

    def beat(self) -> None:
        self.cluster.receive(self.session, self.engine.beat(self.cluster.now_s))

    def pass_time(self) -> None:
        """A second: by then it is known what has started."""
        now = self.cluster.now_s
        for key in [each for each in self.keeper.running if each not in self.keeper.announced]:
            self.keeper.announce(key, now)
        for key in self.keeper.fence(now):
            self.cluster.lines.append(f"{self.name} lost touch and ends {self.cluster.attempt(key)}")
        self.keeper.do(self.engine.state.tick(now), now)
        if self.connected and now % self.engine.heartbeat_s == 0:
            self.beat()

    def _seen(self, effect: str, key: AttemptKey) -> None:
        """Pauses are repeated with every heartbeat; only what changes something becomes a line."""
        if effect in ("freezes", "thaws"):
            if (effect == "freezes") == (key in self.frozen):
                return
            self.frozen ^= {key}
        self.cluster.lines.append(f"{self.name} {effect} {self.cluster.attempt(key)}")


class Wire:
    """One connection to a machine, as the coordinator's links see it."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.is_open = True

    def send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            if not self.is_open:
                return
            if isinstance(message, wire.Orders):
                for order in message.orders:
                    self._order(message.epoch, order)
            else:
                self.player.receive(message)

    def close(self) -> None:
        self.is_open = False

    def _order(self, epoch: int, order: Order) -> None:
        """An order becomes a line only if nothing that follows from it does."""
        player, cluster = self.player, self.player.cluster
        key = None if isinstance(order, Brief | Roll | Dismiss) else order.key
        what = f"{type(order).__name__.lower()} {cluster.attempt(key)}" if key else ""
        if player.deaf:
            cluster.lines += [f"lost on the way to {player.name}: {what}"] if what else []
            return
        deeds = player.receive(wire.Orders(epoch, [order]))
        if isinstance(order, Stop) and not deeds:
            cluster.lines.append(f"{player.name} is told to {what}")


class NamedCommands(CoordinatorCommands):
    """The coordinator's commands, with ids that are the same in every run and known by name from the start."""

    names: dict[str, str]
    upcoming: Iterator[str]

    def _new_id(self) -> str:
        id = ulid(len(self.names), 0)
        self.names[id] = next(self.upcoming)
        return id


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Nothing waits here, so a coroutine ends at its first step; but some want to know their loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    raise AssertionError("it waited for something")
