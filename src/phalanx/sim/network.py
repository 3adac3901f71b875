"""The network between runners and coordinators: connections that delay, break, repeat and fall silent.

Within a connection bytes keep their order, as TCP guarantees, so a lost message means a broken connection, with all
that was in flight. Between connections there is no order: what an old one carried may arrive after a newer one's
hello. A partition holds messages back, one way or both, until it heals. Unlike TCP, frames may come twice, because a
repeated order or report must change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from phalanx.core.model.orders import Order
from phalanx.link import wire
from phalanx.sim.life import Life
from phalanx.sim.world import World

DELAY_MAX_S = 2.0
ORDERS_KEPT = 50
_REPEATED_LATE = (wire.Reports, wire.BeatAck, wire.Dispositions)
_REPEATED_AT_ONCE = (*_REPEATED_LATE, wire.Beat, wire.Orders)


class LinkReceiver(Protocol):
    """Receives what arrives at one end of a connection."""

    def arrived(self, data: bytes) -> None: ...

    def closed(self) -> None: ...


class LinkListener(Protocol):
    """A coordinator that runners can dial."""

    name: str

    def call(self, effect: Callable[..., None], *args: object) -> None: ...

    def accept(self, socket: Socket) -> None: ...


class Socket:
    """One end of a connection, owned by a process. `Links` sends orders through it."""

    def __init__(self, life: Life, out: Pipe) -> None:
        self._life = life
        self._out = out
        self._written = wire.Unpacker()
        self.receiver: LinkReceiver | None = None
        self.is_open = True

    def send(self, messages: list[wire.Message]) -> None:
        if self.is_open and self._life.is_alive:
            self._out.send(messages, b"".join(map(wire.pack, messages)))

    def write(self, data: bytes) -> None:
        """Send whole frames."""
        if self.is_open and self._life.is_alive:
            self._out.send(self._written.feed(data), data)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._out.finish()

    def vanish(self) -> None:
        """The machine is gone: the other end is not notified, and nothing answers."""
        self.is_open = False
        self._out.cut()

    def arrive(self, pieces: list[bytes] | None) -> None:
        """Bytes, or None for the end of the connection."""
        if self.is_open:
            self._life.call(self._hand_over, pieces)

    def _hand_over(self, pieces: list[bytes] | None) -> None:
        if not self.is_open or self.receiver is None:
            return
        if pieces is None:
            self.close()
            self.receiver.closed()
            return
        for piece in pieces:
            if self.is_open:
                self.receiver.arrived(piece)


class Pipe:
    """One direction of a connection: first in, first out."""

    def __init__(self, network: Network, node: str, seat: str, direction: str) -> None:
        self._network = network
        self._node = node
        self._seat = seat
        self._direction = direction
        self._stuck: list[list[bytes] | None] = []
        self._arrives_at = 0.0
        self._is_cut = False
        self.far_end: Socket | None = None

    def send(self, messages: list[wire.Message], data: bytes) -> None:
        network = self._network
        if self._direction == "down":
            network.note_messages(self._node, self._seat, messages)
        at = network.dice.randrange(len(data))
        pieces = [data[:at], data[at:]] if network.dice.random() < 0.1 else [data]
        if network.repeats():
            if all(isinstance(message, _REPEATED_AT_ONCE) for message in messages):
                pieces.append(data)
                network.count("repeated frame")
            if all(isinstance(message, _REPEATED_LATE) for message in messages):
                network.world.after(network.dice.uniform(0.0, DELAY_MAX_S), self._arrive, [data])
        self._carry(pieces)
        if network.breaks():
            network.reset(self)

    def finish(self) -> None:
        self._carry(None)

    def cut(self) -> None:
        """Lose what is in flight and all that would follow."""
        self._is_cut = True
        self._stuck.clear()

    def flush(self) -> None:
        """The partition is over: deliver what was held back."""
        stuck, self._stuck = self._stuck, []
        for pieces in stuck:
            self._carry(pieces)

    def _carry(self, pieces: list[bytes] | None) -> None:
        if self._is_cut:
            return
        network = self._network
        if network.is_blocked(self._node, self._seat, self._direction):
            self._stuck.append(pieces)
            return
        self._arrives_at = max(self._arrives_at, network.world.now + network.delay_s())
        network.world.after(self._arrives_at - network.world.now, self._arrive, pieces)

    def _arrive(self, pieces: list[bytes] | None) -> None:
        if self._is_cut or self.far_end is None:
            return
        if self._network.is_blocked(self._node, self._seat, self._direction):
            self._stuck.append(pieces)
        else:
            self.far_end.arrive(pieces)


class SimulatedLink:
    """Both ends and both directions."""

    def __init__(self, network: Network, node: str, seat: str, client: Life, server: Life) -> None:
        self.node = node
        self.seat = seat
        self.up, self.down = Pipe(network, node, seat, "up"), Pipe(network, node, seat, "down")
        self.client, self.server = Socket(client, self.up), Socket(server, self.down)
        self.up.far_end, self.down.far_end = self.server, self.client

    @property
    def is_over(self) -> bool:
        return not (self.client.is_open or self.server.is_open)


class NetworkWatcher(Protocol):
    """Sees what goes over the network."""

    def count(self, what: str) -> None: ...

    def ordered(self, node: str, orders: list[Order]) -> None: ...

    def sent(self, seat: str, message: wire.Message) -> None: ...


class Network:
    """All connections and the faults of the network."""

    def __init__(self, world: World, watcher: NetworkWatcher) -> None:
        self.world = world
        self.dice = world.dice("network")
        self.count = watcher.count
        self._watcher = watcher
        self.is_stormy = False
        self.listener: Callable[[str], LinkListener | None] = (
            _no_listener  # finds the process at a seat's address
        )
        self._blocked: set[tuple[str, str]] = set()  # node and direction
        self._isolated: set[str] = set()  # seats that no runner reaches
        self._connections: list[SimulatedLink] = []
        self._orders: dict[str, deque[tuple[int, bytes]]] = {}

    def dial(self, node: str, client: Life, seat: str, done: Callable[[Socket | None], None]) -> None:
        """Connect a runner to the process at a seat; `done` gets its end, or None if nothing listens there.

        If the network is cut, `done` is never called.
        """
        if not self._is_away(node) and seat not in self._isolated:
            client.later(self.delay_s(), self._reached, node, client, seat, done)

    def _reached(self, node: str, client: Life, seat: str, done: Callable[[Socket | None], None]) -> None:
        if self._is_away(node) or seat in self._isolated:
            return
        found = self.listener(seat)
        if found is None:
            done(None)
            return
        assert isinstance(found, Life)
        connection = SimulatedLink(self, node, seat, client, found)
        self._connections = [each for each in self._connections if not each.is_over]
        self._connections.append(connection)
        found.call(found.accept, connection.server)  # the kernel accepts, even for a paused process
        done(connection.client)

    def delay_s(self) -> float:
        if self.is_stormy and self.dice.random() < 0.3:
            return self.dice.uniform(0.0, DELAY_MAX_S)
        return self.dice.uniform(0.0005, 0.015)

    def repeats(self) -> bool:
        return self.dice.random() < (0.1 if self.is_stormy else 0.01)

    def breaks(self) -> bool:
        return self.is_stormy and self.dice.random() < 0.02

    def block(self, node: str, *directions: str) -> None:
        self._blocked.update((node, direction) for direction in directions)

    def heal(self, node: str, *directions: str) -> None:
        self._blocked.difference_update((node, direction) for direction in directions)
        self._flush()

    def isolate(self, seat: str) -> None:
        """Cut this coordinator off from all runners, both ways."""
        self._isolated.add(seat)

    def rejoin(self, seat: str) -> None:
        self._isolated.discard(seat)
        self._flush()

    def _flush(self) -> None:
        for connection in list(self._connections):
            connection.up.flush()
            connection.down.flush()

    def is_blocked(self, node: str, seat: str, direction: str) -> bool:
        return (node, direction) in self._blocked or seat in self._isolated

    def reset(self, pipe: Pipe | None = None, node: str | None = None) -> None:
        """Break connections: what was in flight is lost, and both ends are notified."""
        for each in self._connections:
            if pipe in (each.up, each.down) or each.node == node:
                self.count("broken connection")
                each.up.cut()
                each.down.cut()
                for socket in (each.client, each.server):
                    self.world.after(self.delay_s(), socket.arrive, None)

    def deliver_late(self, node: str, before: int) -> None:
        """Deliver an order that a coordinator sent to this runner in an epoch before this one."""
        carriers = [each for each in self._connections if each.node == node and each.client.is_open]
        orders = [data for epoch, data in self._orders.get(node, ()) if epoch < before]
        if carriers and orders:
            carriers[-1].client.arrive([self.dice.choice(orders)])

    def note_messages(self, node: str, seat: str, messages: list[wire.Message]) -> None:
        """Show the watcher what a coordinator sends, and keep some orders, so that they can arrive late."""
        for message in messages:
            self._watcher.sent(seat, message)
            if isinstance(message, wire.Orders):
                self._watcher.ordered(node, message.orders)
                kept = self._orders.setdefault(node, deque(maxlen=ORDERS_KEPT))
                kept.append((message.epoch, wire.pack(message)))

    def _is_away(self, node: str) -> bool:
        return (node, "up") in self._blocked or (node, "down") in self._blocked


def _no_listener(seat: str) -> None:
    """Used before there are coordinators."""
