"""A runner process under virtual time: what `runner/shell.py` and `link.py` do with asyncio, done here.

The agent and its state machine are the real ones. A runner dies without a word and its successor, with a new
incarnation, adopts what the keeper has kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from phalanx.api import wire
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity
from phalanx.core.runner import Deed, Forget, Freeze, Halt, Release, Retract, Spawn
from phalanx.core.verdict import ProcessEnd
from phalanx.runner.agent import Agent
from phalanx.runner.doors import Doors
from phalanx.runner.link import ANSWER_WITHIN_S, PAUSE_FIRST_S, PAUSE_MAX_S
from phalanx.sim.coordinator import TOKEN
from phalanx.sim.keeper import Keeper
from phalanx.sim.life import Life
from phalanx.sim.network import Network, Socket
from phalanx.sim.world import World

TICK_S = 0.2


class Watcher(Protocol):
    """Who sees what a runner obeys."""

    def heard(self, runner: Runner, message: wire.Message, obeyed: bool) -> None: ...


class Runner(Life):
    """One life of the runner of a node."""

    def __init__(
        self,
        world: World,
        incarnation: str,
        capacity: Capacity,
        keeper: Keeper,
        network: Network,
        doors: list[str],
        watcher: Watcher,
    ) -> None:
        super().__init__(world, incarnation)
        self.agent = Agent(
            keeper.node, incarnation, f"origin-{keeper.node}", TOKEN, capacity, f"{keeper.node}.sim"
        )
        self.keeper = keeper
        self._clock = keeper.clock
        self._network = network
        self._doors = Doors(doors)
        self._watcher = watcher
        self._socket: Socket | None = None
        self._connected_at = 0.0
        self._sent_away: wire.Rejected | None = None  # by a standby
        self._has_heard = False  # anything at all on this connection
        self._pause_s = PAUSE_FIRST_S
        self._dice = world.dice(f"runner {incarnation}")

    def begin(self) -> None:
        """Attach to the keeper, adopt what it kept, and dial."""
        self.keeper.runner = self
        for key, process in self.keeper.table.items():
            self.agent.state.adopt(key, process.start.lane, process.end, process.started_at)
        for spawn in [*self.keeper.held.values(), *self.keeper.waiting]:
            start = spawn.start
            self.agent.state.adopt(start.key, start.lane, None, None, start.key in self.keeper.ready)
        self._dial()
        self._beat()
        self._tick()

    def reattach(self, keeper: Keeper) -> None:
        """The keeper died and there is a new one, which knows no lease yet."""
        self.keeper = keeper
        keeper.runner = self
        keeper.lease(max(0.0, self.agent.state.lease_until - self._clock.now()))
        for key, process in keeper.table.items():
            if process.end is not None:
                self._do(self.agent.state.process_ended(key, process.end))
        self._news(lambda: self.agent.state.keeper_lost(self._clock.now()))

    def end(self) -> None:
        super().end()
        if self._socket is not None:
            self._socket.close()

    def vanish(self) -> None:
        """The machine lost its power: nobody is told, and what it still had to send is gone."""
        if self._socket is not None:
            self._socket.vanish()
        self.end()

    # The connection.

    def _dial(self) -> None:
        self._sent_away, self._has_heard = None, False
        self._network.dial(self.keeper.node, self, self._doors.at, self._doors.is_alone, self._dialled)

    def _dialled(self, socket: Socket | None) -> None:
        if socket is None:
            self._dial_again()
            return
        self._socket, self._connected_at = socket, self.world.now
        socket.speaker = self
        self._send(self.agent.hello(self._clock.now()))
        if not self._doors.is_alone:
            self.later(ANSWER_WITHIN_S, self._give_up_unless_heard, socket)

    def _give_up_unless_heard(self, socket: Socket) -> None:
        if socket is self._socket and not self._has_heard:
            socket.close()
            self.closed()

    def _dial_again(self) -> None:
        """As `keep_connected` does: at another door at once if that is worth it, else after a pause."""
        now = self._clock.now()
        if self._sent_away is not None:
            at_once = self._doors.standby(self._sent_away.leader, now)
        else:
            at_once = self._doors.failed(now, silent=not self._has_heard)
        if at_once:
            self._dial()
            return
        self.later(self._pause_s * (0.5 + self._dice.random()), self._dial)
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * 2)

    def received(self, message: wire.Message) -> None:
        self._has_heard = True
        if isinstance(message, wire.Rejected) and message.code == "NotActive":
            self._sent_away = message
            self._watcher.heard(self, message, False)
            if self._socket is not None:
                self._socket.close()
                self.closed()
            return
        now, state = self._clock.now(), self.agent.state
        before = (len(state.held), len(state.fresh), len(state.tombstones))
        deeds = self.agent.receive(message, now)
        after = (len(state.held), len(state.fresh), len(state.tombstones))
        self._watcher.heard(self, message, bool(deeds) or before != after)
        self._do(deeds)
        if isinstance(message, wire.Welcome):
            self._doors.welcomed()
        if isinstance(message, wire.Welcome | wire.BeatAck):
            self.keeper.lease(max(0.0, state.lease_until - now))

    def settled(self) -> None:
        self._flush()

    def closed(self) -> None:
        if self.agent.welcomed and self.world.now - self._connected_at > 1.0:
            self._pause_s = PAUSE_FIRST_S
        self._socket = None
        self.agent.welcomed = False
        self._dial_again()

    # What time brings.

    def _beat(self) -> None:
        if self.agent.welcomed:
            self._send(self.agent.beat(self._clock.now()))
            self._flush()
        self.later(self.agent.heartbeat_s, self._beat)

    def _tick(self) -> None:
        now = self._clock.now()
        self._do(self.agent.state.tick(now))
        self._flush()
        if self._socket is not None and self.agent.is_deserted(now):
            self.world.tell(f"{self.name} gives up a silent connection")
            self._socket.close()
            self.closed()
        self.later(TICK_S, self._tick)

    # What the keeper brings.

    def ready(self, key: AttemptKey) -> None:
        self.call(self._news, lambda: self.agent.state.process_ready(key))

    def started(self, key: AttemptKey, at: float) -> None:
        self.call(self._news, lambda: self.agent.state.process_started(key, at))

    def ended(self, key: AttemptKey, end: ProcessEnd) -> None:
        self.call(self._news, lambda: self.agent.state.process_ended(key, end))

    def refused(self, key: AttemptKey, code: str, message: str) -> None:
        self.call(self._news, lambda: self.agent.state.process_refused(key, code, message, self._clock.now()))

    def _news(self, tell: Callable[[], list[Deed]]) -> None:
        self._do(tell())
        self._flush()

    # What the state machine wants done.

    def _do(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            match deed:
                case Spawn() if not self.keeper.is_alive:
                    self.refused(deed.start.key, "fenced", "the keeper is not there")
                case Forget():
                    self.keeper.forget(deed.key)
                case _ if not self.keeper.is_alive:
                    pass  # the request is lost with the keeper
                case Spawn():
                    self.keeper.start(deed)
                case Release():
                    self.keeper.go(deed.key)
                case Halt():
                    self.keeper.stop(deed.key, deed.grace_s)
                case Retract():
                    self.keeper.retract(deed.key)
                case Freeze():
                    self.keeper.freeze(deed.key, deed.frozen)

    def _flush(self) -> None:
        if (reports := self.agent.reports()) is not None and reports.reports:
            self._send(reports)

    def _send(self, message: wire.Message) -> None:
        if self._socket is not None:
            self._socket.send([message])
