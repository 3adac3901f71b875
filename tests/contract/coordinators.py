"""Coordinators for the cases C31-C43: whole ones on a store of any kind, and runners that the test plays.

A coordinator is what `coordinator/main.py` wires together, behind the port that real runners use. A runner here obeys
nothing: it sends what the test has it send, under whatever epoch, lease and attempt, and keeps what it receives. The
test moves the time of the cluster's rules; the coordinators' own leases take their real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator.credentials import Credentials, TokenSet
from phalanx.coordinator.executors import SubmitDefaults
from phalanx.coordinator.leadership import LeadershipConfig, Role
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.secret import ClusterSecret
from phalanx.core.cluster.events import Event, decode
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import (
    AttemptKey,
    Disposition,
    Ended,
    Exit,
    Order,
    Phase,
    Report,
    Start,
    Started,
    Status,
    Stop,
    Why,
)
from phalanx.link import wire
from phalanx.store.protocol import Candidate, Store
from tests.contract.backends import Backend
from tests.contract.lines import Entrance, Way, an_entrance
from tests.support.builders import a_capacity
from tests.support.clocks import ForwardClock
from tests.support.waiting import found, until

M = TypeVar("M", bound=wire.Message)
RETRIES = 3
LONG_LEASE_S = 60.0  # never waited for: a leader that leaves resigns
STEP_S = 10.0  # less than the silence for which a node is lost
NODE_TOKEN = "a-token-of-runners"


class Runner(asyncio.Protocol):
    """One runner. Its orders and the answers to it are in `heard`, its attempts in `held`."""

    def __init__(self, node: str, life: str = "a", token: str = NODE_TOKEN, **has: int) -> None:
        self.node, self.life, self.token = node, life, token
        self.capacity = a_capacity(**has)  # type: ignore[arg-type]  # what a node has is all numbers
        self.epoch = self.generation = 0  # as it was welcomed last
        self.heard: list[wire.Message] = []
        self.held: dict[AttemptKey, Phase] = {}
        self.is_open = False
        self._beats = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._unpacker, self.is_open = transport, wire.Unpacker(), True

    def data_received(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            self.heard.append(message)
            if isinstance(message, wire.Welcome):
                self.epoch, self.generation = message.epoch, message.generation
            elif isinstance(message, wire.Orders):
                self.held.update((each.key, Phase.QUEUED) for each in message.orders if type(each) is Start)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False

    def say(self, message: wire.Message) -> None:
        self._transport.write(wire.pack(message))

    async def ask(self, message: wire.Message, *kinds: type[M]) -> M:
        """Send something, and wait for the first answer of one of these types."""
        before = len(self.heard)
        self.say(message)
        return await found(
            lambda: next((each for each in self.heard[before:] if isinstance(each, kinds)), None)
        )

    async def hello(self, version: int = wire.VERSION) -> wire.Welcome | wire.Rejected:
        held = list(self.held.items())
        hello = wire.HelloMessage(
            version, self.token, self.node, self.life, f"of {self.node}", self.capacity, self.epoch, held
        )
        return await self.ask(hello, wire.Welcome, wire.Rejected)

    async def beat(self, generation: int | None = None) -> wire.BeatAck | wire.Dispositions:
        self._beats += 1
        lease = self.generation if generation is None else generation
        beat = wire.Beat(self.epoch, self._beats, list(self.held.items()), lease)
        return await self.ask(beat, wire.BeatAck, wire.Dispositions)

    async def tell(
        self, report: Report, epoch: int | None = None, generation: int | None = None
    ) -> wire.Dispositions:
        """Send a report, under the epoch and lease of its welcome unless others are given."""
        under = self.epoch if epoch is None else epoch
        lease = self.generation if generation is None else generation
        return await self.ask(wire.Reports(under, [report], lease), wire.Dispositions)

    async def begin(self, key: AttemptKey) -> None:
        self.held[key] = Phase.RUNNING
        await self.tell(Started(key, 1.0))

    async def end(
        self, key: AttemptKey, code: int = 0, epoch: int | None = None, generation: int | None = None
    ) -> Disposition:
        """Report an end; returns its disposition."""
        answer = await self.tell(ended(key, code), epoch, generation)
        ((about, disposition),) = answer.items
        assert about == key
        if disposition is Disposition.ACCEPTED:
            self.held.pop(key, None)
        return disposition

    async def started(self, job: str, number: int = 1) -> AttemptKey:
        """Wait for the order to start this attempt; returns the attempt's key."""
        key = (job, 0, number)
        await self.ordered(Start, key)
        return key

    async def ordered(self, kind: type[Start | Stop], key: AttemptKey) -> None:
        await until(lambda: key in self.told_to(kind))

    def told_to(self, kind: type[Start | Stop]) -> list[AttemptKey]:
        orders: list[Order] = [
            order for message in self.heard if isinstance(message, wire.Orders) for order in message.orders
        ]
        return [order.key for order in orders if isinstance(order, kind)]


class StartedCoordinator:
    """One coordinator process."""

    def __init__(
        self, name: str, store: Store, clock: ForwardClock, lease_s: float = LONG_LEASE_S, way: Way = "pipe"
    ) -> None:
        users, nodes = TokenSet("users", ["a-token-of-users"]), TokenSet("runners", [NODE_TOKEN])
        keys = Credentials(users, nodes, ClusterSecret("of this cluster"), clock)
        candidate = Candidate(name, f"http://{name}:7433", f"{name}:7434")
        self.parts = Coordinator(
            store, LeadershipConfig(lease_s=lease_s), keys, SubmitDefaults(RETRIES), clock, candidate
        )
        self.commands = self.parts.commands
        self.way = way
        self._store = store
        self._entrance: Entrance | None = None
        self._life: asyncio.Task[None] | None = None

    @property
    def state(self) -> ClusterState:
        return self.parts.leadership.state

    @property
    def is_active(self) -> bool:
        return self.parts.leadership.role is Role.ACTIVE

    async def open(self) -> None:
        await self.parts.leadership.open()
        self._entrance = await an_entrance(self.way, self.parts)
        self._life = asyncio.ensure_future(self.parts.leadership.run())

    def connect(self, runner: Runner) -> None:
        """Over the way of this stage."""
        assert self._entrance is not None
        self._entrance.connect(runner)

    async def resign(self) -> None:
        """As at SIGTERM."""
        assert self._life is not None
        self.parts.leadership.stop()
        await asyncio.wait_for(self._life, 10.0)

    async def kill(self) -> None:
        """As at SIGKILL: nothing more is sent, and the leadership is not given up."""
        if self._entrance is not None:
            self._entrance.mute()
        await self.end()
        await self._store.close()

    async def end(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self._entrance is not None:
            await self._entrance.close()
            self._entrance = None

    async def submit(self, node: str | None = None, user: str = "ada", **fields: object) -> str:
        """Submit a job of one task, for one node if that is given; returns its id."""
        request = SubmitRequest(command=["/bin/true"], targets=[node] if node else [], **fields)  # type: ignore[arg-type]
        (id,) = (await self.commands.submit(request, user)).task_ids
        return id

    def status(self, job: str) -> Status:
        return Status(self.state.jobs[job].status[0])


class CoordinatorGroup:
    """Coordinators on one store, with one time."""

    def __init__(self, backend: Backend, lease_s: float) -> None:
        self.clock = ForwardClock()
        self._backend = backend
        self._lease_s = lease_s
        self._coordinators: list[StartedCoordinator] = []

    async def coordinator(self, name: str) -> StartedCoordinator:
        """A coordinator that has just started: active if the leadership was vacant or its own."""
        made = StartedCoordinator(
            name, await self._backend.store(), self.clock, self._lease_s, self._backend.way
        )
        self._coordinators.append(made)
        await made.open()
        await until(lambda: made.state.keyring.secret)  # what every cluster starts with is written
        return made

    async def runner(self, coordinator: StartedCoordinator, node: str, life: str = "a", **has: int) -> Runner:
        """A runner that was welcomed."""
        made = Runner(node, life, **has)  # type: ignore[arg-type]
        await self.join(coordinator, made)
        return made

    async def join(self, coordinator: StartedCoordinator, runner: Runner) -> None:
        coordinator.connect(runner)
        assert isinstance(await runner.hello(), wire.Welcome)

    async def hand_over(self, old: StartedCoordinator, new: StartedCoordinator) -> None:
        await old.resign()
        await until(lambda: new.is_active)

    async def killed(self, old: StartedCoordinator, new: StartedCoordinator) -> None:
        """The old one is gone without notice: the new one waits for its lease to end."""
        await old.kill()
        if self._backend.place.kind in ("memory", "sqlite"):  # there the test ends the lease
            await self._backend.lease_over(self._coordinators[-1]._store)
        await until(lambda: new.is_active)

    async def pass_time(self, seconds: float, *alive: Runner) -> None:
        """Let time pass during which only these send heartbeats."""
        while seconds > 0:
            self.clock.ahead_s += min(STEP_S, seconds)
            seconds -= STEP_S
            for runner in alive:
                assert isinstance(await runner.beat(), wire.BeatAck)

    async def log(self) -> list[Event]:
        """Every event in the log, whichever coordinator wrote it."""
        loaded = await (await self._backend.store()).load()
        assert loaded.image is None
        return [event for batch in loaded.batches for event in decode(batch.body)]

    async def close(self) -> None:
        for coordinator in self._coordinators:
            await coordinator.end()


@asynccontextmanager
async def a_coordinator_group(
    backend: Backend, lease_s: float = LONG_LEASE_S
) -> AsyncIterator[CoordinatorGroup]:
    group = CoordinatorGroup(backend, lease_s)
    try:
        yield group
        for coordinator in group._coordinators:
            assert not coordinator.is_active or check(coordinator.state) == []
    finally:
        await group.close()


def ended(key: AttemptKey, code: int = 0) -> Ended:
    return Ended(key, Exit(Why.EXITED if code else Why.NONE, code, 1.0, 2.0))


def kept(coordinator: StartedCoordinator) -> bytes:
    """All state of a coordinator that has to be durable."""
    return encode_state(coordinator.state)
