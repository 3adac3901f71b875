"""The loop round a runner's state machine: it carries out effects and passes events in.

Effects become requests to the keepers (`keepers.py`), their answers events of the state machine. How reports travel is
left to `reports.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from phalanx.clock import Clock
from phalanx.core.model.orders import AttemptKey, Why
from phalanx.core.runner.attempts import ProcessEnd, told_refusal
from phalanx.core.runner.effects import (
    Forget,
    ForgetBrief,
    Freeze,
    Halt,
    Prepare,
    Release,
    Retract,
    RunnerEffect,
    Spawn,
    StopPreparing,
)
from phalanx.link import wire
from phalanx.link.overlay import OverlayMap
from phalanx.logger import logger
from phalanx.runner import environment
from phalanx.runner import keeper_messages as messages
from phalanx.runner.accounts import Accounts, NoAccount
from phalanx.runner.artifacts import USUAL_LIMITS, ArtifactLimits
from phalanx.runner.containers.launching import ContainerLaunches
from phalanx.runner.containers.preparing import ImagePreparer
from phalanx.runner.endings import AttemptEndings
from phalanx.runner.images import AttemptImages
from phalanx.runner.inputs import AttemptInputs
from phalanx.runner.keeper_health import KeeperLook
from phalanx.runner.keeper_keys import read_key
from phalanx.runner.keeper_versions import refusal
from phalanx.runner.keepers import NodeKeeper, NodeKeepers, Place
from phalanx.runner.launches import Launches
from phalanx.runner.leaving import Leaving
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.link import Wire
from phalanx.runner.machine import LOOK_S
from phalanx.runner.processes import Processes
from phalanx.runner.readers import OutputReaders
from phalanx.runner.reports import ReportSender
from phalanx.runner.stopping import StopOutcome, StopRequest
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.uploads import RunnerUploads
from phalanx.runner.usage.memory_watch import MemoryWatch
from phalanx.runner.vps_snapshots import VpsSnapshots

log = logger("runner")
DRAIN_GRACE_S = 5.0
OWN_ACCOUNT = Accounts(None)


class RunnerLoop:
    """One runner: its engine, its keepers, and the current connection."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that `main` wires
        self,
        engine: RunnerEngine,
        state_dir: Path,
        clock: Clock,
        base_env: dict[str, str],
        log_max_bytes: int,
        places: Sequence[Place],
        limits: AttemptLimits,
        artifacts: ArtifactLimits = USUAL_LIMITS,
        accounts: Accounts = OWN_ACCOUNT,
        containers: ContainerLaunches | None = None,
        images: ImagePreparer | None = None,
    ) -> None:
        """`images` gets images ready, if not the containers' own part does."""
        self.engine = engine
        self.clock = clock
        self._refusal: wire.Message | None = None  # the last refusal, instead of a welcome
        self.joined = asyncio.Event()
        self._wire: Wire | None = None
        self._reports = ReportSender(engine, lambda: self._wire)
        self._keepers = NodeKeepers(
            [NodeKeeper(each, engine, self._news, self._reports.flush_soon, self._attach) for each in places]
        )
        self._launches = Launches(
            engine, state_dir, base_env, log_max_bytes, limits, places[0][0], accounts, containers
        )
        images = images or (containers.images if containers is not None else None)
        self._images = AttemptImages(
            engine, self._launches, images, clock, self._do, self._reports.flush_soon
        )
        self._look = KeeperLook(engine, self._keepers, self._launches.names, self.beat_now, self._begun)
        self.leader, self.watch = self._launches.leaders.find, limits.watch
        self.inputs = AttemptInputs(state_dir / "inputs", self._close_input, self._end_without_input)
        self.readers = OutputReaders(engine, self._keepers, self._launches.names)
        self.snapshots = VpsSnapshots(self._launches.homes, containers)
        self.log_root, self.usage = self._launches.log_root, self._launches.usage
        self.usage.memory_watch = MemoryWatch(limits.watched_bytes, self._end_for_memory)
        self.uploads = RunnerUploads(self.log_root, log_max_bytes, clock)
        self.endings = AttemptEndings(self._launches, self.uploads, artifacts, clock, engine, self._ended)
        self._finds_address = not engine.address  # unless it was given

    async def open(self) -> None:
        """Find the keepers of this node, or start them, and adopt what they kept."""
        for keeper in self._keepers:
            await keeper.open()
        for keeper in self._keepers:
            self._adopt(keeper)
        self._launches.sweep()
        self._note_versions()
        for keeper in self._keepers:
            keeper.deliver()
        self.inputs.sweep()
        log.info("keepers attached", keepers=len(list(self._keepers)), attempts=len(self.engine.state.held))

    def _adopt(self, keeper: NodeKeeper) -> None:
        """Take over what a keeper that we have just connected to has."""
        if (connection := keeper.connection) is None:
            return
        for row in connection.found.attempts:
            if (named := read_key(row.key)) is None:
                connection.forget([row.key])
                continue
            key, lane = named
            self._launches.adopt(keeper, key, lane, row)
            self._keepers.adopt(keeper, key, lane)
            started_at, since = row.started_at if row.pid else None, self._since(row.born)
            exit = row.exit and self.endings.finish(key, self._launches.ended(key, row.exit))
            self.engine.state.adopt(key, lane, exit, started_at, row.state == "ready", since)

    def _note_versions(self) -> None:
        self.engine.starts_expire = all(each.starts_expire for each in self._keepers.connections)

    async def leave(self, request: StopRequest) -> StopOutcome:
        """Announce to the coordinator that we stop. Then end the tasks and report, or leave them to the keeper."""
        now = self.clock.now()
        self._do(self.engine.state.give_back_unprepared(now), now)
        ending = len(self.engine.live_keys())
        leaving = Leaving(self.engine, self.clock, lambda: self._wire, self._reports.flush)
        is_announced = await leaving.announce_stop(request.keep_s)
        if request.drain and self._keepers.connections:
            await self._end_tasks()
            await self.endings.settled(DRAIN_GRACE_S)
            await leaving.reported()
        left, unreported = len(self.engine.live_keys()), len(self.engine.state.outbox)
        drained = request.drain and not left
        outcome = StopOutcome(
            ending if drained else left, drained, is_announced, self._lease_left_s(), unreported
        )
        log.info("the runner stops", **structs.asdict(outcome))
        return outcome

    async def close(self, stop_tasks: bool) -> None:
        """Disconnect; the tasks go on unless they are to be stopped."""
        await asyncio.gather(*(keeper.stop_reopening() for keeper in self._keepers))
        if not stop_tasks:
            await asyncio.gather(*(each.close() for each in self._keepers.connections))
            return
        if self._keepers.connections and self._wire is not None:  # to have ends reported, call `leave` first
            self._wire.close()
            self._wire = None
        await self._end_tasks()
        await self._launches.leave()

    async def _end_tasks(self) -> None:
        ending = [each.shutdown(DRAIN_GRACE_S) for each in self._keepers.connections]
        with suppress(TimeoutError):  # a frozen keeper ends nothing; its watchdog does, with the lease
            await asyncio.wait_for(asyncio.gather(*ending), 2 * DRAIN_GRACE_S)

    # What the connection delivers.

    def connected(self, wire_out: Wire) -> None:
        self._wire = wire_out
        if self._finds_address:
            self.engine.address = wire_out.local_address or environment.LOOPBACK
        wire_out.send(self.engine.hello(self.clock.now()))

    def received(self, message: wire.Message) -> None:
        now, was_welcomed = self.clock.now(), self.engine.welcomed
        self._do(self.engine.receive(message, now), now)
        if isinstance(message, OverlayMap) and not self.engine.has_overlay and self._wire is not None:
            self._wire.close()  # the next hello says that we have no part in it
        if isinstance(message, wire.BeatAck | wire.Welcome | wire.LeaveAck):
            for connection in self._keepers.connections:
                self._renew_lease(connection)
        if isinstance(message, wire.Rejected):
            what = "registration rejected by the coordinator"
            self._turned_away(message, what, code=message.code, message=message.message)
        elif self.engine.welcomed and not was_welcomed:
            self._refusal = None
            log.info("joined", node=self.engine.node, epoch=self.engine.state.epoch)
            self.joined.set()
        elif isinstance(message, wire.Welcome) and not self.engine.welcomed and self._wire is not None:
            what = "the coordinator has an older epoch than we have served; is its store the right one?"
            self._turned_away(message, what, epoch=message.epoch, served=self.engine.state.epoch)
            self._wire.close()

    def _turned_away(self, refusal: wire.Message, what: str, **fields: object) -> None:
        """Log why we are refused, once: we ask again and again."""
        if refusal != self._refusal:
            log.error(what, **fields)
        self._refusal = refusal

    def settled(self) -> None:
        self._reports.flush_soon()

    def disconnected(self) -> None:
        self._wire, self.engine.welcomed = None, False

    def _renew_lease(self, keeper: Processes) -> None:
        left_s = self._lease_left_s()
        keeper.lease(left_s, self.clock.monotonic() + left_s)

    def _lease_left_s(self) -> float:
        return max(0.0, self.engine.state.lease_until - self.clock.now())

    # What time triggers.

    async def beat(self) -> None:
        """Heartbeats, as long as the runner lives. The first welcome has their interval."""
        await self.joined.wait()
        while True:
            if self.engine.welcomed and self._wire is not None:
                self.beat_now()
                self._reports.flush()
            await asyncio.sleep(self.engine.heartbeat_s)

    def beat_now(self) -> None:
        if self.engine.welcomed and self._wire is not None:
            self._wire.send(self.engine.beat(self.clock.now()))

    async def tick(self) -> None:
        """Time limits, lanes whose first attempt takes long, and a coordinator that is silent."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self.clock.now()
            self._do(self.engine.state.tick(now), now)
            self._look.look(now)
            if self._images.has_news:
                self.beat_now()
            self._reports.flush()
            if self._wire is not None and self.engine.is_deserted(now):
                log.warning("the coordinator does not answer, connecting again")
                self._wire.abort()

    # What the keepers deliver.

    def _news(self, keeper: NodeKeeper, event: messages.Event) -> None:
        if isinstance(event, messages.News):  # the most frequent first
            if key := self._launches.key_of(event.key):
                self._news_of(key, event)
        elif isinstance(event, messages.Misunderstood):
            log.error("the keeper could not read a request", text=event.text)
        elif isinstance(event, messages.ProcessInput) and (key := self._launches.key_of(event.key)):
            self.inputs.opened(key, event)

    def _news_of(self, key: AttemptKey, event: messages.News) -> None:
        state, effects = self.engine.state, list[RunnerEffect]()
        match event:
            case messages.ProcessEnded():
                self.inputs.ended(key)
                ended = self._launches.ended(key, event.exit)
                if (end := self.endings.finish(key, ended)) is not None:
                    effects = state.process_ended(key, end)
            case messages.ProcessStarted():
                self._launches.started(key, event.pid, event.born, self.clock.monotonic())
                effects = state.process_started(key, event.started_at, self._since(event.born))
            case messages.ProcessReady():
                effects = state.process_ready(key)
            case messages.ProcessRefused():
                self._launches.release(key)
                message, now = told_refusal(event.code, event.message, self.engine.node), self.clock.now()
                effects = state.process_refused(key, event.code, message, now)
        if effects:
            self._do(effects, self.clock.now())

    def _end_for_memory(self, key: AttemptKey) -> None:
        held = self.engine.state.held.get(key)
        if held is not None and held.is_to_stop(Why.OOM):
            self._do([Halt(key, 0.0)], self.clock.now())

    def _end_without_input(self, key: AttemptKey) -> None:
        held = self.engine.state.held.get(key)
        if held is not None and held.is_to_stop(Why.NO_INPUT):
            self._do([Halt(key, held.grace_s)], self.clock.now())

    def _close_input(self, key: AttemptKey) -> None:
        self._with_keeper(key, Processes.end_input)

    def _ended(self, key: AttemptKey, end: ProcessEnd) -> None:
        """The files of an attempt that has ended are where they belong."""
        self._do(self.engine.state.process_ended(key, end), self.clock.now())
        self._reports.flush_soon()

    def _attach(self, keeper: NodeKeeper, connection: Processes) -> None:
        """A new keeper reads the journal of the old one and reports the end of its attempts."""
        # It has no lease until it gets one, and without a lease it would stop nothing.
        self._renew_lease(connection)
        rows = connection.found.attempts
        keeper.connection = connection
        self._note_versions()
        for row in rows:
            named = read_key(row.key)
            if row.exit is not None and (named is None or named[0] not in self.engine.state.held):
                connection.forget([row.key])  # disposed of while there was no keeper, or unknown
            elif row.exit is not None:
                self._news(keeper, messages.ProcessEnded(row.key, row.exit))
        now, listed = self.clock.now(), {named[0] for row in rows if (named := read_key(row.key)) is not None}
        state = self.engine.state
        own = [key for key in state.held if self._keepers.of(key) is keeper]
        self._do(state.keeper_lost(now, listed, own), now)
        self._launches.release_all([key for key in own if not self.engine.is_live(key)])
        self._reports.flush_soon()

    def _begun(self, key: AttemptKey, started: tuple[float, messages.Ticks]) -> None:
        """A keeper that does not answer has recorded the start of this one."""
        now = self.clock.now()
        self._do(self.engine.state.process_started(key, started[0], self._since(started[1])), now)

    def _since(self, born: messages.Ticks) -> float | None:
        return messages.instant_of(born, self.clock.now(), self.clock.monotonic())

    # Effects of the state machine.

    def _do(self, effects: list[RunnerEffect], now: float) -> None:
        for effect in effects:
            match effect:
                case Prepare():
                    self._images.prepare(effect)
                case StopPreparing():
                    self._images.abandon(effect.key)
                case Spawn():
                    self._spawn(effect, now)
                case Release():
                    self._go(effect)
                case Forget():
                    self._forget(effect.key)
                case ForgetBrief():
                    for keeper in self._keepers:
                        self._launches.forget_brief(keeper, effect.job, effect.group)
                case Halt():
                    self._halt(effect)
                case Retract():
                    self._with_keeper(effect.key, Processes.retract)
                case Freeze():
                    freeze = Processes.pause if effect.frozen else Processes.resume
                    self._with_keeper(effect.key, freeze)

    def _forget(self, key: AttemptKey) -> None:
        self.inputs.ended(key)
        self._launches.forget(self._keepers.connection_of(key), key)
        self._keepers.forget(key, self.engine.state.lanes)

    def _halt(self, effect: Halt) -> None:
        self.endings.hurry(effect.key)
        held = self.engine.state.held.get(effect.key)
        why = None if held is None or held.stopping is None else held.stopping.word
        self._with_keeper(effect.key, lambda keeper, name: keeper.stop(name, effect.grace_s, why))

    def _go(self, effect: Release) -> None:
        instant = self._instant(effect.not_after)
        self._with_keeper(effect.key, lambda keeper, name: keeper.go(name, instant))

    def _instant(self, at: float | None) -> float:
        """An instant of our clock as seconds since boot, which is how the keeper counts; None: the end of the lease."""
        left_s = self._lease_left_s() if at is None else at - self.clock.now()
        return self.clock.monotonic() + left_s

    def _with_keeper(self, key: AttemptKey, request: Callable[[Processes, str], None]) -> None:
        keeper = self._keepers.connection_of(key)
        if keeper is not None and key in self._launches.names:
            request(keeper, self._launches.names[key])

    def _spawn(self, effect: Spawn, now: float) -> None:
        start = effect.start
        if self.engine.trouble:
            self.engine.state.give_back(start.key, now)
            return
        keeper = self._keepers.assign(start.key, start.lane)
        if keeper.connection is None:
            return  # the next one is sent whatever has not started
        if (no := refusal(keeper.connection.version, effect)) is not None:
            self._do(self.engine.state.process_refused(start.key, *no, now), now)
            return
        try:
            self._launches.start(keeper, effect, self._instant(effect.not_after))
        except (NoAccount, environment.Withheld) as error:
            self._do(self.engine.state.process_refused(start.key, "no_account", str(error), now), now)
        except OSError as error:  # nothing is wrong with the task, and another node may have space
            message = f"its node cannot make its folders, cgroups or network: {error.strerror or error}"
            self._do(self.engine.state.process_refused(start.key, "exhausted", message, now), now)
