"""A coordinator under virtual time: the real leadership, loop, links and store, in a process that may pause or die.

The coroutines of `coordinator/leadership.py` run unchanged on an event loop of the simulator; this module does what
`server.py` and `main.py` do with sockets and signals. Death loses the memory and the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from phalanx.coordinator.leadership import Leadership, LeadershipConfig, Role
from phalanx.coordinator.link import Envelope, Links, RunnerSession
from phalanx.coordinator.link_auth import SharedToken
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.decision import Answer, Settle
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState
from phalanx.errors import Unavailable
from phalanx.link import wire
from phalanx.sim.eventloop import an_event_loop
from phalanx.sim.life import Life
from phalanx.sim.network import Socket
from phalanx.sim.watched import Watched
from phalanx.sim.world import LocalClock, World
from phalanx.store.protocol import Batch, Candidate, Loaded, LogHole, StoreError

TOKEN = "node-token"  # noqa: S105 - a made-up one
Reply = Callable[[list[Answer | None]], None]


class CoordinatorWatcher(Protocol):
    """Sees what a coordinator does, from outside."""

    def count(self, what: str) -> None: ...

    def turned(self, coordinator: SimulatedCoordinator, turn: Turn) -> None: ...

    def opened(self, coordinator: SimulatedCoordinator) -> None: ...


class SimulatedCoordinator(Life):
    """One process: it follows, leads or stands by until it dies. Its successor is another object."""

    def __init__(
        self,
        world: World,
        name: str,
        seat: str,
        open_store: Callable[[Life], Watched],
        watcher: CoordinatorWatcher,
        clock: LocalClock,
        config: LeadershipConfig,
    ) -> None:
        super().__init__(world, name)
        self.seat = seat
        self.clock = clock
        self.events = an_event_loop(self, clock)
        self._store = open_store(self)
        self._watcher = watcher
        candidate = Candidate(seat, f"http://{seat}", f"{seat}:7434")
        self._leadership = Leadership(self._store, candidate, config, clock, self)
        self.links = Links(lambda: self.state, SharedToken(TOKEN))
        self._sockets: list[Socket] = []

    @property
    def engine(self) -> Engine:
        return self._leadership.engine

    @property
    def state(self) -> ClusterState:
        return self._leadership.state

    @property
    def is_open(self) -> bool:
        """Whether it believes that it leads, and accepts runners and requests."""
        return self._leadership.role is Role.ACTIVE

    @property
    def is_at_rest(self) -> bool:
        """True when all that is in memory is durable."""
        loop = self._leadership.loop
        return loop is not None and not self._store.is_writing and loop.trouble is None

    # The process.

    def begin(self) -> None:
        self.events.begin(self._live())

    async def _live(self) -> None:
        try:
            await self._leadership.open()
        except StoreError as error:
            self.world.trace(f"{self.name} stops: {error}")
            if isinstance(error, LogHole):
                self._watcher.count("damaged log refused")
            self.end()
        else:
            await self._leadership.run()
            self.world.trace(f"{self.name} has ended well")
            self.end()

    def retire(self) -> None:
        """As SIGTERM does: it resigns and ends."""
        self.call(self._leadership.stop)

    def end(self) -> None:
        """The process dies. The kernel closes its connections, unless the machine is gone as well."""
        super().end()
        for socket in self._sockets:
            socket.close()

    def vanish(self) -> None:
        """The machine lost its power: its connections are never closed."""
        for socket in self._sockets:
            socket.vanish()
        self.end()

    # What leadership tells its listener.

    def opened(self) -> None:
        self.links.not_active = None
        self.world.trace(f"{self.name} takes epoch {self.state.epoch}")
        self._watcher.opened(self)

    def closed(self) -> None:
        """Stop answering first: connected runners have to find another coordinator."""
        leader = self._leadership.leader
        other = leader.candidate.link if leader and leader.candidate.name != self.seat else ""
        self.links.not_active = wire.Rejected("NotActive", "this coordinator is a standby", True, other)
        self.links.dismiss()
        for socket in self._sockets:
            socket.close()

    def turned(self, turn: Turn) -> None:
        """The turn is durable: send its effects."""
        self.links.dispatch(turn.effects)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self.links.forget(effect.job)
        self._watcher.turned(self, turn)

    def followed(self, batch: Batch, turn: Turn) -> None:
        """A standby applied another coordinator's turn."""

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        """The state was read anew."""

    # Users.

    def ask(self, inputs: list[Input], reply: Reply) -> None:
        """A user's request. An empty list of answers means: ask again, here or elsewhere."""
        self.events.begin(self._ask(inputs, reply))

    async def _ask(self, inputs: list[Input], reply: Reply) -> None:
        try:
            reply(await self._leadership.ask(inputs))
        except Unavailable:
            reply([])

    # Runners.

    def accept(self, socket: Socket) -> None:
        """A runner connected."""
        socket.receiver = SimulatedConnection(self, socket)
        self._sockets = [each for each in self._sockets if each.is_open]
        self._sockets.append(socket)

    def post(self, envelope: Envelope) -> bool:
        return self._leadership.post(envelope)


class SimulatedConnection:
    """One connection of a runner, as `coordinator/server.py` keeps it."""

    def __init__(self, coordinator: SimulatedCoordinator, socket: Socket) -> None:
        self._coordinator = coordinator
        self._socket = socket
        self._session = RunnerSession(self)
        self._unpacker = wire.Unpacker()

    def send(self, messages: list[wire.Message]) -> None:
        self._socket.send(messages)

    def close(self) -> None:
        if self._socket.is_open:
            self._socket.close()
            self._coordinator.later(0.0, self.closed)  # as asyncio does, in the next turn of its loop

    def arrived(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            if self._socket.is_open:
                self._received(message)

    def _received(self, message: wire.Message) -> None:
        links = self._coordinator.links
        if links.not_active is not None:
            self.send([links.not_active])
            self.close()
        elif not self._session.node and not isinstance(message, wire.HelloMessage):
            self.close()  # the first message must be a hello
        elif (envelope := links.receive(self._session, message)) is not None and not self._coordinator.post(
            envelope
        ):
            self.close()  # the other end is closed

    def closed(self) -> None:
        if (envelope := self._coordinator.links.closed(self._session)) is not None:
            self._coordinator.post(envelope)
