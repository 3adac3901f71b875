"""A runner's side of the link, without I/O: messages and process events in; messages and effects out.

Two loops use it: asyncio in `main.py`, virtual time in `sim/`. The lease counts from the moment a heartbeat was
*sent*, on the runner's own clock, so that it is always over here before it is over there.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.model.health import NodeHealth
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Dismiss, Phase, Roll
from phalanx.core.model.resources import Capacity
from phalanx.core.runner.effects import RunnerEffect
from phalanx.core.runner.state import RunnerState
from phalanx.link import wire
from phalanx.link.overlay import OverlayMap
from phalanx.link.usage import IdleDevice
from phalanx.runner.overlay import TaskNetworks

ANSWER_WITHIN_S = 3.0  # answer to a heartbeat


class RunnerEngine:
    """One incarnation of a runner: its name, its state, and the session it is in."""

    def __init__(
        self,
        node: str,
        incarnation: str,
        origin: str,
        token: str | Callable[[], str],
        capacity: Capacity,
        address: str = "",
        keep: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.origin = origin
        self._token = token
        self._keep = keep  # where the node's own credential goes
        self.capacity = capacity
        self.address = address  # where other nodes reach this one; empty while unknown
        self.state = RunnerState()
        self.heartbeat_s = 5.0
        self.self_fence_s = 20.0
        self.generation = 0  # of our lease, from the welcome
        self.welcomed = False
        self.rejected: wire.Rejected | None = None
        self.trouble = ""  # what keeps us from starting tasks, if anything
        self.health: NodeHealth | None = None  # checks of the node that fail, if any
        self.has_overlay = False  # whether we can give tasks addresses of the overlay network
        self.introduce: Callable[[Roll], None] = lambda _: None  # to members that run: who else does
        self.homes: Callable[[], list[JobId]] = list  # jobs that have a home folder here
        self.vps_addresses: tuple[str, ...] = ()  # of this node, where VPSs listen besides loopback
        self.remove_home: Callable[[JobId], None] = lambda _: None
        self.networks: TaskNetworks | None = None  # of tasks with addresses; None: they are simulated
        self.sets_names = False  # whether tasks can have a host name and a hosts file of their own
        self.starts_expire = False  # whether the keeper starts nothing after its instant
        self.idle: list[IdleDevice] = []  # devices that tasks hold and hardly use
        self.preparing: Callable[[], list[tuple[AttemptKey, str]]] = list  # whose images are got ready
        self.left: wire.LeaveAck | None = None  # the coordinator knows that we leave
        self._hello_at = 0.0
        self._seen_at = 0.0  # the coordinator's time of the last acknowledgement

    @property
    def token(self) -> str:
        """The token to show; it may have changed since last time."""
        return str(self._token() if callable(self._token) else self._token)

    def hello(self, now: float) -> wire.HelloMessage:
        """The first message on a new connection."""
        self.welcomed, self.rejected, self._hello_at = False, None, now
        self._seen_at = 0.0
        return wire.HelloMessage(
            wire.VERSION,
            self.token,
            self.node,
            self.incarnation,
            self.origin,
            self.capacity,
            self.state.epoch,
            self.state.listing(),
            self.address,
            self.trouble,
            self.has_overlay,
            self.health,
        )

    def receive(self, message: wire.Message, now: float) -> list[RunnerEffect]:
        """Take one message; what it asks for comes back as effects."""
        match message:
            case wire.Orders():
                for order in message.orders:
                    if type(order) is Roll and not order.formation and message.epoch >= self.state.epoch:
                        self.introduce(order)
                    if type(order) is Dismiss and message.epoch >= self.state.epoch:
                        self._remove_home(order.job)
                return [
                    effect
                    for order in message.orders
                    for effect in self.state.order(message.epoch, order, now)
                ]
            case wire.Dispositions():
                return [effect for key, what in message.items for effect in self.state.disposed(key, what)]
            case wire.BeatAck():
                if message.epoch >= self.state.epoch:
                    self.state.renew(message.sent_at + self.self_fence_s)
                    self._seen_at = message.at
            case wire.LeaveAck():
                if message.epoch >= self.state.epoch:
                    self.state.renew(message.sent_at + self.self_fence_s + message.keep_s)
                    self.left = message
            case OverlayMap():
                if self.networks is not None and self.networks.update(message) and not self.networks.is_on:
                    self.has_overlay = False  # it was never possible here: the next hello says so
            case wire.Welcome():
                self.heartbeat_s, self.self_fence_s = message.heartbeat_s, message.self_fence_s
                self.state.start_within_s = message.self_fence_s
                self.generation = message.generation
                if message.credential:
                    self._keep(message.credential)
                self.welcomed = self.state.welcome(message.epoch, self._hello_at + message.self_fence_s)
                return self.state.prune() if self.welcomed else []
            case wire.Rejected():
                self.rejected = message
            case _:
                raise wire.WireError(f"a coordinator does not send {type(message).__name__}")
        return []

    def _remove_home(self, job: JobId) -> None:
        """The job is over. While an attempt of it is held its files stay, and we are told again."""
        if not any(key[0] == job for key in self.state.held):
            self.remove_home(job)

    def is_live(self, key: AttemptKey) -> bool:
        """Whether more may be written to this attempt's logs."""
        return (held := self.state.held.get(key)) is not None and held.phase != Phase.ENDED

    def live_keys(self) -> set[AttemptKey]:
        return {key for key, held in self.state.held.items() if held.phase != Phase.ENDED}

    def is_deserted(self, now: float) -> bool:
        """True when a heartbeat was not answered in time: the connection may be dead, and another may not.

        The answer takes milliseconds, so a leader that is silent for seconds most likely leads no more.
        """
        heard_at = self.state.lease_until - self.self_fence_s if self.welcomed else self._hello_at
        return now - heard_at > self.heartbeat_s + min(self.heartbeat_s, ANSWER_WITHIN_S)

    def beat(self, now: float) -> wire.Beat:
        """A heartbeat. Ends that were never answered go out again after it."""
        self.state.resend()
        return wire.Beat(
            self.state.epoch,
            now,
            self.state.listing(),
            self.generation,
            self.trouble,
            self._seen_at,
            self.starts_expire,
            self.idle,
            self.preparing(),
            self.homes(),
            self.health,
        )

    def leave(self, now: float, keep_s: float) -> wire.LeavingMessage:
        """We stop, and leave our tasks to the keeper; `keep_s` asks for that much beyond the usual lease."""
        self.left = None
        return wire.LeavingMessage(self.state.epoch, now, self.generation, keep_s)

    def reports(self, everything: bool = True) -> wire.Reports | None:
        """The unsent reports, if the session is up and there are any; else those that are not to wait for others."""
        if not self.welcomed or not self.state.fresh:
            return None
        return wire.Reports(self.state.epoch, self.state.take_fresh(everything), self.generation)
