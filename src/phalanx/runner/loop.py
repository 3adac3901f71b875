"""The loop round a runner's state machine: it carries out effects and passes events in.

Effects become requests to the keeper, its answers events of the state machine. Reports gather for a moment and travel
together; one is urgent only when a lane would otherwise be idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from phalanx.clock import Clock
from phalanx.core.model.orders import AttemptKey, Phase
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.state import Forget, ForgetBrief, Freeze, Halt, Release, Retract, RunnerEffect, Spawn
from phalanx.link import wire
from phalanx.logger import logger
from phalanx.runner import environment
from phalanx.runner import keeper_messages as messages
from phalanx.runner.artifacts import USUAL_LIMITS, ArtifactLimits
from phalanx.runner.endings import AttemptEndings
from phalanx.runner.launches import Launches, read_key
from phalanx.runner.leaving import Leaving
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.link import Wire
from phalanx.runner.machine import LOOK_S, Connecting, KeeperHealth, LocalMachine
from phalanx.runner.processes import Machine, Processes
from phalanx.runner.stopping import StopOutcome, StopRequest
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.uploads import RunnerUploads

log = logger("runner")
REOPEN_PAUSE_FIRST_S, REOPEN_PAUSE_MAX_S = 0.2, 10.0
GATHER_S, START_GATHER_S = 0.02, 0.005
DRAIN_GRACE_S = 5.0
OLD_KEEPER = "its keeper is of an older version and cannot hold back a gang; stop the runner with its tasks"


class RunnerLoop:
    """One runner: its engine, its keeper, and the current connection."""

    def __init__(
        self,
        engine: RunnerEngine,
        state_dir: Path,
        clock: Clock,
        base_env: dict[str, str],
        log_max_bytes: int,
        limits: AttemptLimits,
        machine: Machine | None = None,
        artifacts: ArtifactLimits = USUAL_LIMITS,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self._refusal: wire.Message | None = None  # the last refusal, instead of a welcome
        self.joined = asyncio.Event()
        self._machine = machine or LocalMachine(state_dir, limits.cgroups.bases)
        self.watch = limits.watch
        self._launches = Launches(engine, state_dir, base_env, log_max_bytes, limits, self._machine)
        self.uploads = RunnerUploads(self._launches.log_root, log_max_bytes)
        self.endings = AttemptEndings(self._launches, self.uploads, artifacts, clock, engine, self._ended)
        self._wire: Wire | None = None
        self._keeper: Processes | None = None
        self._health = KeeperHealth()
        self._connecting = Connecting(self._machine, self._health, engine, self._news)
        self._reopening: asyncio.Task[None] | None = None
        self._is_closed = False
        self._flush_at: asyncio.TimerHandle | None = None
        self._finds_address = not engine.address  # unless it was given
        self._early: list[messages.Event] | None = None  # events that arrive while we still read the listing

    @property
    def log_root(self) -> Path:
        return self._launches.log_root

    async def open(self) -> None:
        """Find the keeper of this folder, or start one, and adopt what it kept."""
        self._early = []
        self._keeper = await self._connecting.first()
        self.engine.starts_expire = self._keeper.starts_expire
        for row in self._keeper.found.attempts:
            if (named := read_key(row.key)) is None:
                self._keeper.forget([row.key])
                continue
            key, lane = named
            self._launches.adopt(key, lane, row)
            started_at, since = row.started_at if row.pid else None, self._since(row.born)
            exit = row.exit and self.endings.finish(key, self._launches.ended(key, row.exit))
            self.engine.state.adopt(key, lane, exit, started_at, row.state == "ready", since)
        self._launches.sweep()
        early, self._early = self._early, None
        for event in early:
            self._news(event)
        log.info("keeper attached", attempts=len(self.engine.state.held))

    async def leave(self, request: StopRequest) -> StopOutcome:
        """Announce to the coordinator that we stop. Then end the tasks and report, or leave them to the keeper."""
        ending = len(self.live_keys())
        leaving = Leaving(self.engine, self.clock, lambda: self._wire, self._flush)
        is_announced = await leaving.announce_stop(request.keep_s)
        if request.drain and self._keeper is not None:
            await self._end_tasks(self._keeper)
            await self.endings.settled(DRAIN_GRACE_S)
            await leaving.reported()
        left, unreported = len(self.live_keys()), len(self.engine.state.outbox)
        drained = request.drain and not left
        outcome = StopOutcome(
            ending if drained else left, drained, is_announced, self._lease_left_s(), unreported
        )
        log.info("the runner stops", **structs.asdict(outcome))
        return outcome

    async def close(self, stop_tasks: bool) -> None:
        """Disconnect; the tasks go on unless they are to be stopped."""
        self._is_closed = True
        if (reopening := self._reopening) is not None:
            reopening.cancel()
            await asyncio.wait({reopening})
        if self._keeper is None:
            return
        if stop_tasks:
            if self._wire is not None:  # a caller that wants the ends reported has called `leave` first
                self._wire.close()
                self._wire = None
            await self._end_tasks(self._keeper)
            await self._launches.leave()
        else:
            await self._keeper.close()

    async def _end_tasks(self, keeper: Processes) -> None:
        with suppress(TimeoutError):  # a frozen keeper ends nothing; its watchdog does, with the lease
            await asyncio.wait_for(keeper.shutdown(DRAIN_GRACE_S), 2 * DRAIN_GRACE_S)

    # What the connection delivers.

    def connected(self, wire_out: Wire) -> None:
        self._wire = wire_out
        if self._finds_address:
            self.engine.address = wire_out.local_address or environment.LOOPBACK
        wire_out.send(self.engine.hello(self.clock.now()))

    def received(self, message: wire.Message) -> None:
        now = self.clock.now()
        was_welcomed = self.engine.welcomed
        self._do(self.engine.receive(message, now), now)
        if isinstance(message, wire.BeatAck | wire.Welcome | wire.LeaveAck) and self._keeper is not None:
            self._renew_lease(self._keeper)
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
        self._flush_soon()

    def disconnected(self) -> None:
        self._wire = None
        self.engine.welcomed = False

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
                self._wire.send(self.engine.beat(self.clock.now()))
                self._flush()
            await asyncio.sleep(self.engine.heartbeat_s)

    async def tick(self) -> None:
        """Time limits, lanes whose first attempt takes long, and a coordinator that is silent."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self.clock.now()
            self._do(self.engine.state.tick(now), now)
            self._look(now)
            self._flush()
            if self._wire is not None and self.engine.is_deserted(now):
                log.warning("the coordinator does not answer, connecting again")
                self._wire.abort()

    # What the keeper delivers.

    def _news(self, event: messages.Event) -> None:
        if self._early is not None:
            self._early.append(event)
            return
        match event:
            case messages.KeeperLost():
                log.error("the keeper was lost", message=event.message)
                self._keeper = None
                if self._reopening is None and not self._is_closed:
                    self._reopening = asyncio.get_running_loop().create_task(self._reopen())
            case messages.Misunderstood():
                log.error("the keeper could not read a request", text=event.text)
            case _ if (named := read_key(event.key)) is not None:
                self._news_of(named[0], event)
        self._flush_soon()

    def _news_of(self, key: AttemptKey, event: messages.News) -> None:
        now, state = self.clock.now(), self.engine.state
        match event:
            case messages.ProcessReady():
                self._do(state.process_ready(key), now)
            case messages.ProcessStarted():
                self._do(state.process_started(key, event.started_at, self._since(event.born)), now)
            case messages.ProcessEnded():
                ended = self._launches.ended(key, event.exit)
                if (end := self.endings.finish(key, ended)) is not None:
                    self._do(state.process_ended(key, end), now)
            case messages.ProcessRefused():
                self._launches.release(key)
                self._launches.close_artifacts(key)
                self._do(state.process_refused(key, event.code, event.message, now), now)

    def _ended(self, key: AttemptKey, end: ProcessEnd) -> None:
        """The files of an attempt that has ended are where they belong."""
        self._do(self.engine.state.process_ended(key, end), self.clock.now())
        self._flush_soon()

    async def _reopen(self) -> None:
        """Find or start another keeper, for as long as it takes. Without one nothing starts here, and we report it."""
        pause_s = REOPEN_PAUSE_FIRST_S
        try:
            while True:
                try:
                    await self._attach()
                    return
                except (RuntimeError, OSError) as error:  # KeeperFailed, or no thread, process or descriptor
                    self._keeper = None
                    self._health.failed(error)
                    log.error("no keeper, trying again", error=str(error), pause_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, REOPEN_PAUSE_MAX_S)
        finally:
            self._reopening = None

    async def _attach(self) -> None:
        """A new keeper reads the journal of the old one and reports the end of its attempts."""
        keeper = await self._connecting.again()
        self._launches.new_keeper()
        # It has no lease until it gets one, and without a lease it would stop nothing.
        self._renew_lease(keeper)
        rows = keeper.found.attempts
        self._keeper = keeper
        self.engine.starts_expire = keeper.starts_expire
        for row in rows:
            named = read_key(row.key)
            if row.exit is not None and (named is None or named[0] not in self.engine.state.held):
                keeper.forget([row.key])  # disposed of while there was no keeper, or unknown
            elif row.exit is not None:
                self._news(messages.ProcessEnded(row.key, row.exit))
        now, listed = self.clock.now(), {named[0] for row in rows if (named := read_key(row.key)) is not None}
        self._do(self.engine.state.keeper_lost(now, listed), now)
        self._launches.release_all_but(self.live_keys())
        self._flush_soon()

    def _look(self, now: float) -> None:
        """Check whether the keeper works. A failure is reported before anything is given back, or it would return."""
        trouble = self._health.look(self._keeper)
        if trouble != self.engine.trouble:
            self.engine.trouble = trouble
            log.error("cannot start tasks", trouble=trouble) if trouble else log.info("tasks can start again")
            if self.engine.welcomed and self._wire is not None:
                self._wire.send(self.engine.beat(now))
        if trouble and self._keeper is not None and self._health.is_past(self.engine.self_fence_s):
            self._connecting.end_keeper()
            self._keeper.abort()  # it may be gone already, and its connection held by another
        overdue = self.engine.state.overdue(now) if trouble and self.engine.starts_expire else []
        if overdue:
            self._give_back(overdue, now)

    def _give_back(self, overdue: list[AttemptKey], now: float) -> None:
        """Give back attempts that the keeper does not list and that can start no more, unless it recorded a start."""
        begun = self._machine.begun()
        for key in overdue:
            started = begun.get(self._launches.names.get(key, ""))
            if started is None:
                self.engine.state.give_back(key, now)
            else:
                self._do(self.engine.state.process_started(key, started[0], self._since(started[1])), now)

    def _since(self, born: messages.Ticks) -> float | None:
        """A start in ticks since boot, by our own clock: the wall clock may have been set since."""
        if not born[1]:
            return None
        ago_s = self.clock.monotonic() - (born[1] + 1) / messages.TICKS_PER_S
        return self.clock.now() - max(0.0, ago_s)

    # Effects of the state machine.

    def _do(self, effects: list[RunnerEffect], now: float) -> None:
        for effect in effects:
            match effect:
                case Spawn():
                    self._spawn(effect, now)
                case Release():
                    self._go(effect)
                case Forget():
                    self._launches.forget(self._keeper, effect.key)
                case ForgetBrief():
                    self._launches.forget_brief(self._keeper, effect.job, effect.group)
                case Halt():
                    self._halt(effect)
                case Retract():
                    self._with_keeper(effect.key, Processes.retract)
                case Freeze():
                    freeze = Processes.pause if effect.frozen else Processes.resume
                    self._with_keeper(effect.key, freeze)

    def _halt(self, effect: Halt) -> None:
        self.endings.hurry(effect.key)
        if self._keeper is not None and effect.key in self._launches.names:
            held = self.engine.state.held.get(effect.key)
            why = None if held is None or held.stopping is None else held.stopping.word
            self._keeper.stop(self._launches.names[effect.key], effect.grace_s, why)

    def _go(self, effect: Release) -> None:
        if self._keeper is not None and effect.key in self._launches.names:
            self._keeper.go(self._launches.names[effect.key], self._instant(effect.not_after))

    def _instant(self, at: float | None) -> float:
        """An instant of our clock as seconds since boot, which is how the keeper counts; None: the end of the lease."""
        left_s = self._lease_left_s() if at is None else at - self.clock.now()
        return self.clock.monotonic() + left_s

    def _with_keeper(self, key: AttemptKey, request: Callable[[Processes, str], None]) -> None:
        if self._keeper is not None and key in self._launches.names:
            request(self._keeper, self._launches.names[key])

    def _spawn(self, effect: Spawn, now: float) -> None:
        start, keeper = effect.start, self._keeper
        if self.engine.trouble:
            self.engine.state.give_back(start.key, now)
            return
        if keeper is None:
            return  # the next one is sent whatever has not started
        if effect.held and not keeper.can_hold:
            self._do(self.engine.state.process_refused(start.key, "fenced", OLD_KEEPER, now), now)
            return
        try:
            self._launches.start(keeper, effect, self._instant(effect.not_after))
        except OSError as error:  # nothing is wrong with the task, and another node may have space
            message = f"its node cannot make its folders or cgroups: {error.strerror or error}"
            self._do(self.engine.state.process_refused(start.key, "exhausted", message, now), now)

    def is_live(self, key: AttemptKey) -> bool:
        """Whether more may be written to this attempt's logs."""
        held = self.engine.state.held.get(key)
        return held is not None and held.phase != Phase.ENDED

    def live_keys(self) -> set[AttemptKey]:
        return {key for key, held in self.engine.state.held.items() if held.phase != Phase.ENDED}

    # Reports gather for a moment.

    def _flush_soon(self) -> None:
        """An end is sent at once if a lane is idle; a start may wait a little, its end may come with it."""
        state, loop = self.engine.state, asyncio.get_running_loop()
        if not state.fresh:
            return
        if state.is_urgent:
            self._flush()
        elif self._flush_at is None:
            self._flush_at = loop.call_later(GATHER_S if state.is_busy else START_GATHER_S, self._flush)

    def _flush(self) -> None:
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        if self._wire is not None and (reports := self.engine.reports()) is not None and reports.reports:
            self._wire.send(reports)
