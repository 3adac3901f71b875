"""A coordinator under virtual time: what `coordinator/loop.py` and `server.py` do with asyncio, done here.

The heart, the links and the store are the real ones. A turn that is being written holds its effects and
answers; whatever arrives meanwhile goes into the next one. Death loses the memory and the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from phalanx.api import wire
from phalanx.coordinator.heart import Heart, Turn, confirm_every_s, leases_only, recalled, restore
from phalanx.coordinator.links import Letter, Links, Session
from phalanx.core.cluster.apply import apply
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.effects import Settle
from phalanx.core.cluster.events import TermOpened, encode
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Input, Tick
from phalanx.core.cluster.state import ClusterState, Rules
from phalanx.core.model.plan import Policy
from phalanx.sim.disk import Disk, drive
from phalanx.sim.life import Life
from phalanx.sim.network import Socket
from phalanx.sim.world import LocalClock, World
from phalanx.store.protocol import Batch, Fenced, Loaded, StoreError

TICK_S = 0.25
GATHER_S = 0.001
TOKEN = "node-token"  # noqa: S105 - a made-up one


class Watcher(Protocol):
    """Who looks at a coordinator from outside."""

    def count(self, what: str) -> None: ...

    def turned(self, coordinator: Coordinator, turn: Turn) -> None: ...

    def settled(self, coordinator: Coordinator) -> None: ...


class Coordinator(Life):
    """One process: it opens a term, turns until it is replaced or dies, and never comes back."""

    def __init__(
        self,
        world: World,
        name: str,
        disk: Disk,
        watcher: Watcher,
        clock: LocalClock,
        rules: Rules,
        policy: Policy,
        image_every: int,
    ) -> None:
        super().__init__(world, name)
        self.clock = clock
        self.heart = Heart(ClusterState(rules), policy)
        self.links = Links(lambda: self.state, lambda token: token == TOKEN)
        self.is_open = False
        self.turned_at = 0.0  # the time that the state has seen pass
        self._disk = disk
        self._store = disk.open()
        self._watcher = watcher
        self._rules, self._policy, self._image_every = rules, policy, image_every
        self._sockets: list[Socket] = []
        self._letters: list[Letter] = []
        self.is_busy = False  # a batch is being written
        self._is_awake = False  # a turn is about to begin
        self._ticked_at = 0.0
        self._imaged = 0
        self._confirmed_at = 0.0
        self._trouble: StoreError | None = None

    @property
    def state(self) -> ClusterState:
        return self.heart.state

    @property
    def is_at_rest(self) -> bool:
        """True when all that is in memory is durable."""
        return not self.is_busy and self._trouble is None

    def load(self) -> Loaded:
        """What a restart would read."""
        return drive(self._store.load())

    def remembers(self, job: str) -> bool:
        """Whether a job can still be told about: from memory, or from the history and the story."""
        if job in self.state.jobs:
            return True
        return drive(self._store.history(job)) is not None and bool(drive(self._store.story(job, 0, 1)))

    # The term.

    def begin(self) -> None:
        """Mint an epoch; read the state back a moment later, when another may already have minted a higher one."""
        try:
            epoch = self._disk.open_term(self._store)
        except StoreError as error:
            self._stop(str(error))
        else:
            self.world.tell(f"{self.name} takes epoch {epoch}")
            self.later(0.002, self._read, epoch)

    def _read(self, epoch: int) -> None:
        try:
            loaded = self._disk.load(self._store)
        except StoreError as error:
            self._stop(str(error))
            return
        self.heart = Heart(restore(loaded, self._rules), self._policy)
        self._imaged = loaded.image_revision
        opened = TermOpened(at=self.clock.now(), cause="start", epoch=epoch)
        apply(self.state, opened)
        batch = Batch(self.state.revision, encode([opened]))
        self._disk.append(self, self._store, epoch, batch, [], self._opened)

    def _opened(self, error: StoreError | None) -> None:
        if error is not None:
            self._stop(str(error))
            return
        self.is_open = True
        self._tick()

    def _stop(self, why: str) -> None:
        self.world.tell(f"{self.name} stops: {why}")
        self.end()

    def end(self) -> None:
        """Death. The kernel closes the connections, unless the machine is gone as well."""
        super().end()
        for socket in self._sockets:
            socket.close()

    def vanish(self) -> None:
        """The machine lost its power: its connections are never closed."""
        for socket in self._sockets:
            socket.vanish()
        self.end()

    # Turns.

    def post(self, letter: Letter) -> None:
        self._letters.append(letter)
        self._wake()

    def ask(self, inputs: list[Input], reply: Callable[[list[Answer | None]], None]) -> None:
        """A user's wish. No answers mean that the coordinator cannot write just now."""
        if self._trouble is not None:
            reply([])
        else:
            self.post((inputs, reply))

    def _tick(self) -> None:
        self._wake()
        self.later(TICK_S, self._tick)

    def _wake(self) -> None:
        if not self._is_awake and not self.is_busy and self.is_open:
            self._is_awake = True
            self.later(GATHER_S, self._breathe)

    def _breathe(self) -> None:
        self._is_awake = False
        letters, self._letters = self._letters, []
        if self._trouble is not None:
            self._try_to_recover(letters)
        else:
            self._turn(letters)

    def _turn(self, letters: list[Letter]) -> None:
        now = self.clock.now()
        inputs = [given for inputs, _ in letters for given in inputs]
        if now - self._ticked_at >= TICK_S:
            self._ticked_at = now
            inputs.append(Tick())
        turn = self.heart.turn(inputs, now)
        self.turned_at = now
        self._watcher.turned(self, turn)
        batch = turn.batch()
        if batch is None:
            self._finish(letters, turn, self._unless_confirmed(now))
            return
        self.is_busy = True
        done = partial(self._written, letters, turn)
        self._disk.append(self, self._store, self.state.epoch, batch, turn.history, done)

    def _unless_confirmed(self, now: float) -> StoreError | None:
        """A turn that writes nothing still asks now and then whether somebody else took over."""
        if now - self._confirmed_at < confirm_every_s(self._rules):
            return None
        try:
            self._disk.confirm(self._store, self.state.epoch)
        except StoreError as error:
            return error
        self._confirmed_at = now
        return None

    def _written(self, letters: list[Letter], turn: Turn, error: StoreError | None) -> None:
        if error is None:
            self._confirmed_at = self.turned_at
        self._finish(letters, turn, error)

    def _finish(self, letters: list[Letter], turn: Turn, error: StoreError | None) -> None:
        """The turn is durable: say it. Or it is not: then nothing of it was ever true."""
        self.is_busy = False
        if error is not None:
            self._fail(letters, error)
            return
        self._answer(letters, turn)
        self._dispatch(turn)
        if turn.events:
            self._watcher.settled(self)
        self._save_image()
        if turn.more or self._letters:
            self._wake()

    def _answer(self, letters: list[Letter], turn: Turn) -> None:
        at = 0
        for inputs, reply in letters:
            reply(turn.answers[at : at + len(inputs)])
            at += len(inputs)

    def _dispatch(self, turn: Turn) -> None:
        self.links.dispatch(turn.effects)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self.links.forget(effect.job)

    def _save_image(self) -> None:
        if self.state.revision - self._imaged < self._image_every:
            return
        self._imaged = self.state.revision
        try:
            self._disk.save_image(self._store, self.state.epoch, self._imaged, encode_state(self.state))
        except StoreError as error:
            self._fail([], error)

    # Trouble with the store.

    def _fail(self, letters: list[Letter], error: StoreError) -> None:
        if isinstance(error, Fenced):
            self._watcher.count("fenced append")
            self._stop(str(error))
            return
        self.world.tell(f"{self.name} cannot write: {error}")
        self._watcher.count("failed append")
        self._throw_away(letters, error)

    def _throw_away(self, letters: list[Letter], error: StoreError) -> None:
        self._trouble = error
        try:
            loaded = self._disk.load(self._store)
            self.heart = Heart(recalled(self.state, loaded, self.clock.now()), self._policy)
        except StoreError as worse:
            self._stop(str(worse))
            return
        for _, reply in letters:
            reply([])

    def _try_to_recover(self, letters: list[Letter]) -> None:
        self.is_busy = True
        self.state.revision += 1
        batch = Batch(self.state.revision, encode([]))
        done = partial(self._tried, letters)
        self._disk.append(self, self._store, self.state.epoch, batch, [], done)

    def _tried(self, letters: list[Letter], error: StoreError | None) -> None:
        self.is_busy = False
        if isinstance(error, Fenced):
            self._fail(letters, error)
        elif error is not None:
            is_ours = self._is_ours()
            for inputs, reply in letters:
                reply(leases_only(self.state, inputs, self.clock.now()) if is_ours else [])
        else:
            self.world.tell(f"{self.name} can write again")
            self._trouble = None
            self._turn(letters)

    def _is_ours(self) -> bool:
        """Whether the office is still ours; if that cannot be known, no lease may be renewed."""
        try:
            self._disk.confirm(self._store, self.state.epoch)
        except StoreError:
            return False
        return True

    # Runners.

    def accept(self, socket: Socket) -> None:
        """A runner dialled."""
        socket.speaker = Door(self, socket)
        self._sockets = [each for each in self._sockets if each.is_open]
        self._sockets.append(socket)


class Door:
    """One connection of a runner, as `coordinator/server.py` keeps it."""

    def __init__(self, coordinator: Coordinator, socket: Socket) -> None:
        self._coordinator = coordinator
        self._socket = socket
        self._session = Session(self)

    def send(self, messages: list[wire.Message]) -> None:
        self._socket.send(messages)

    def close(self) -> None:
        if self._socket.is_open:
            self._socket.close()
            self._coordinator.later(0.0, self.closed)  # as asyncio does, in the next turn of its loop

    def received(self, message: wire.Message) -> None:
        if not self._session.node and not isinstance(message, wire.HelloMessage):
            self.close()  # the first message must be a hello
        elif (letter := self._coordinator.links.receive(self._session, message)) is not None:
            self._coordinator.post(letter)

    def settled(self) -> None:
        """Answers go out when they are durable, not before."""

    def closed(self) -> None:
        if (letter := self._coordinator.links.closed(self._session)) is not None:
            self._coordinator.post(letter)
