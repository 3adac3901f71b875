"""A runner process under virtual time: the real loop, its keeper's connection and its link, in a process that may die.

The coroutines of `runner/loop.py`, `processes.py` and `link.py` run unchanged on an event loop of the simulator; this
module does what `runner/main.py` does with signals. A runner dies without notice and its successor, with a new
incarnation, adopts what the keeper has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from msgspec import structs

from phalanx.core.model.orders import Start
from phalanx.core.model.resources import Capacity
from phalanx.core.runner.effects import Prepare, RunnerEffect, Spawn
from phalanx.link import wire
from phalanx.runner.addresses import LinkAddresses
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.link import Dialler, keep_connected
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.processes import KeeperFailed, Machine
from phalanx.runner.turn import RunnerEngine
from phalanx.sim.coordinator import TOKEN
from phalanx.sim.eventloop import EventLoop
from phalanx.sim.images import SimulatedImages
from phalanx.sim.keeper_socket import KeeperSocket
from phalanx.sim.life import Life
from phalanx.sim.network import Network, Socket
from phalanx.sim.world import LocalClock, VirtualClock, World

STATE_DIR = Path("/nowhere")
P = TypeVar("P", bound=asyncio.Protocol)


class RunnerWatcher(Protocol):
    """Sees which messages a runner obeys."""

    def heard(self, runner: SimulatedRunner, message: wire.Message, obeyed: bool) -> None: ...


class Host(Protocol):
    """The machine that a runner runs on."""

    name: str
    capacity: Capacity
    clock: LocalClock

    @property
    def places(self) -> Sequence[Machine]:
        """Where its keepers work."""
        ...

    loses_starts: str  # "runner" while a runner here ignores orders to start

    def given(self, start: Start) -> None:
        """Keep an order to start, for the model of the processes."""
        ...


class SimulatedRunner(Life):
    """One incarnation of a node's runner."""

    def __init__(
        self,
        world: World,
        incarnation: str,
        host: Host,
        network: Network,
        addresses: list[str],
        watcher: RunnerWatcher,
    ) -> None:
        super().__init__(world, incarnation)
        self.host = host
        self.engine = WatchedEngine(self, host, watcher)
        self.events = RunnerEventLoop(self, network)  # type: ignore[abstract]
        self.keeper_sockets: list[KeeperSocket] = []
        self.sockets: list[Socket] = []
        self._addresses = addresses
        self._dice = world.dice(f"runner {incarnation}")

    def begin(self, failed: Callable[[], None]) -> None:
        """Run. If no keeper can be started at first, the process ends and calls `failed`."""
        self.events.begin(self._live(failed))

    async def _live(self, failed: Callable[[], None]) -> None:
        clock, cgroups = VirtualClock(self.host.clock), Cgroups((), "not simulated", False)
        places = [(each, cgroups) for each in self.host.places]
        limits = AttemptLimits(cgroups, self.engine.capacity)
        images = SimulatedImages(self.world.dice(f"images {self.name}"))
        loop = RunnerLoop(self.engine, STATE_DIR, clock, {}, 0, places, limits, images=images)
        try:
            await loop.open()
        except KeeperFailed as error:
            self.world.trace(f"{self.name} cannot start: {error}")
            self.end()
            failed()
            return
        self.world.trace(f"{self.name} starts with {len(self.engine.state.held)} attempts adopted")
        self.events.begin(loop.beat())
        self.events.begin(loop.tick())
        await keep_connected(Dialler(LinkAddresses(self._addresses)), loop, self._dice.random)
        self.world.trace(f"{self.name} gives up: it was refused for good")
        self.end()

    def end(self) -> None:
        """The process dies: the kernel closes the connections."""
        super().end()
        for keeper_socket in self.keeper_sockets:
            keeper_socket.runner_died()
        for socket in self.sockets:
            socket.close()

    def vanish(self) -> None:
        """The machine lost its power: the other ends are not notified, and unsent data is lost."""
        for socket in self.sockets:
            socket.vanish()
        self.end()


class WatchedEngine(RunnerEngine):
    """An engine that reports what it obeys, and keeps orders to start for the model of the processes."""

    def __init__(self, runner: SimulatedRunner, host: Host, watcher: RunnerWatcher) -> None:
        node = host.name
        super().__init__(node, runner.name, f"origin-{node}", TOKEN, host.capacity, f"{node}.sim")
        self.has_overlay = True
        self._runner = runner
        self._host = host
        self._watcher = watcher

    def receive(self, message: wire.Message, now: float) -> list[RunnerEffect]:
        if isinstance(message, wire.Orders) and self._host.loses_starts == "runner":
            message = structs.replace(
                message, orders=[each for each in message.orders if type(each) is not Start]
            )
        state = self.state
        before = (len(state.held), len(state.fresh), len(state.tombstones))
        effects = super().receive(message, now)
        after = (len(state.held), len(state.fresh), len(state.tombstones))
        self._watcher.heard(self._runner, message, bool(effects) or before != after)
        for effect in effects:
            if isinstance(effect, Spawn | Prepare):
                self._host.given(effect.start)
        return effects


class RunnerEventLoop(EventLoop):
    """An event loop whose connections go over the simulated network."""

    def __init__(self, runner: SimulatedRunner, network: Network) -> None:
        super().__init__(runner, runner.host.clock)
        self._runner = runner
        self._network = network

    async def create_connection(  # type: ignore[override]
        self, make: Callable[[], P], host: str, port: int, *, ssl: Any = None
    ) -> tuple[asyncio.Transport, P]:
        answer: asyncio.Future[Socket | None] = self.create_future()

        def done(socket: Socket | None) -> None:
            if not answer.done():
                answer.set_result(socket)
            elif socket is not None:  # the caller waits no longer
                socket.close()

        self._network.dial(self._runner.host.name, self._runner, host, done)
        socket = await answer
        if socket is None:
            raise ConnectionRefusedError(f"nothing listens at {host}")
        self._runner.sockets = [each for each in self._runner.sockets if each.is_open]
        self._runner.sockets.append(socket)
        protocol = make()
        transport = cast(asyncio.Transport, NetworkTransport(self, socket, protocol))
        protocol.connection_made(transport)
        return transport, protocol


class NetworkTransport:
    """The transport that asyncio gives to a protocol."""

    def __init__(self, loop: RunnerEventLoop, socket: Socket, protocol: asyncio.Protocol) -> None:
        self._loop = loop
        self._socket = socket
        self._protocol = protocol
        socket.receiver = self

    def write(self, data: bytes) -> None:
        self._socket.write(data)

    def is_closing(self) -> bool:
        return not self._socket.is_open

    def close(self) -> None:
        if self._socket.is_open:
            self._socket.close()
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # What the network calls.

    def arrived(self, data: bytes) -> None:
        self._loop.call_soon(self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        if self._socket.is_open:
            self._protocol.data_received(data)

    def closed(self) -> None:
        self._loop.call_soon(self._protocol.connection_lost, None)
