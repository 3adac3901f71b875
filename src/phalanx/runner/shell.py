"""The shell round a runner's state machine: it carries out deeds and brings the news.

Deeds become requests to the keeper; what the keeper says becomes news for the state machine; reports gather
for a moment and travel together. A report is urgent only when a lane would otherwise stand idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from phalanx.api import wire
from phalanx.clock import Clock
from phalanx.core.model.orders import AttemptKey, Brief, Phase, Start, key_from_text, key_text
from phalanx.core.model.resources import Grant
from phalanx.core.runner import Deed, Forget, ForgetBrief, Freeze, Halt, Release, Retract, Spawn
from phalanx.core.verdict import ProcessEnd
from phalanx.diary import diary
from phalanx.runner import logs, processes
from phalanx.runner.agent import Agent
from phalanx.runner.cgroups import Cgroup, Cgroups
from phalanx.runner.environment import attempt_environment, group_environment
from phalanx.runner.link import Wire
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Machine, Processes
from phalanx.runner.standing import Peer, standing

log = diary("runner")
TICK_S = 0.2
GATHER_S = 0.02
START_GATHER_S = 0.005
LOOPBACK = "127.0.0.1"
OLD_KEEPER = "its keeper is of an older version and cannot hold back a member of a gang; stop the runner with its tasks"


class Shell:
    """One runner: its agent, its keeper, and the connection of the moment."""

    def __init__(
        self,
        agent: Agent,
        state_dir: Path,
        clock: Clock,
        base_env: dict[str, str],
        log_max_bytes: int,
        cgroups: Cgroups,
        machine: Machine | None = None,
    ) -> None:
        self.agent = agent
        self.clock = clock
        self._refusal: wire.Message | None = None  # what we were told last, instead of a welcome
        self.joined = asyncio.Event()
        self._log_root = state_dir / "logs"
        self._checkpoints = state_dir / "checkpoints"
        self._machine = machine or LocalMachine(state_dir)
        self._base_env = base_env
        self._log_max_bytes = log_max_bytes
        self._cgroups = cgroups
        self._held_cgroups: dict[AttemptKey, Cgroup] = {}
        self._keys: dict[AttemptKey, str] = {}  # the keeper's word for an attempt carries its lane
        self._briefed: set[str] = set()
        self._wire: Wire | None = None
        self._keeper: Processes | None = None
        self._flush_at: asyncio.TimerHandle | None = None
        self._finds_address = not agent.address  # unless it was given
        self._early: list[processes.Event] | None = None  # what happens while we still read what there is

    @property
    def log_root(self) -> Path:
        return self._log_root

    async def open(self) -> None:
        """Find the keeper of this folder, or start one, and adopt what it kept."""
        self._early = []
        self._keeper = await Processes.open(self._machine, self._news)
        unstarted: set[str] = set()  # their cgroups are empty, and wait for them
        for row in (await self._keeper.listing()).attempts:
            text, _, lane = row.key.rpartition("/")
            key = key_from_text(text)
            self._keys[key] = row.key
            self._held_cgroups[key] = self._cgroups.named(_cgroup_name(key))
            end, started_at = _end_of(row.exit) if row.exit else None, row.started_at if row.pid else None
            self.agent.state.adopt(key, int(lane), end, started_at, row.state == "ready")
            if not row.pid:
                unstarted.add(_cgroup_name(key))
        self._cgroups.sweep(unstarted)
        early, self._early = self._early, None
        for event in early:
            self._news(event)
        log.info("keeper attached", attempts=len(self.agent.state.held))

    async def close(self, stop_tasks: bool) -> None:
        """Leave; the tasks go on unless they are to be stopped."""
        if self._keeper is None:
            return
        if stop_tasks:
            if (
                self._wire is not None
            ):  # so that nothing new is placed here; the ends are told at the next start
                self._wire.close()
                self._wire = None
            await self._keeper.shutdown(5.0)
            await self._cgroups.leave()
        else:
            await self._keeper.close()

    # What the connection brings.

    def connected(self, wire_out: Wire) -> None:
        self._wire = wire_out
        if self._finds_address:
            self.agent.address = wire_out.local_address or LOOPBACK
        wire_out.send(self.agent.hello(self.clock.now()))

    def received(self, message: wire.Message) -> None:
        now = self.clock.now()
        was_welcomed = self.agent.welcomed
        self._do(self.agent.receive(message, now), now)
        if isinstance(message, wire.BeatAck | wire.Welcome) and self._keeper is not None:
            self._renew_lease(self._keeper)
        if isinstance(message, wire.Rejected):
            self._turned_away(
                message, "the coordinator refused us", code=message.code, message=message.message
            )
        elif self.agent.welcomed and not was_welcomed:
            self._refusal = None
            log.info("joined", node=self.agent.node, epoch=self.agent.state.epoch)
            self.joined.set()
        elif isinstance(message, wire.Welcome) and not self.agent.welcomed and self._wire is not None:
            what = "a coordinator of an older epoch than we have served; is its store the right one?"
            self._turned_away(message, what, epoch=message.epoch, served=self.agent.state.epoch)
            self._wire.close()

    def _turned_away(self, refusal: wire.Message, what: str, **fields: object) -> None:
        """Say why nobody has us, once: we ask again and again."""
        if refusal != self._refusal:
            log.error(what, **fields)
        self._refusal = refusal

    def settled(self) -> None:
        self._flush_soon()

    def disconnected(self) -> None:
        self._wire = None
        self.agent.welcomed = False

    def _renew_lease(self, keeper: Processes) -> None:
        left_s = self._lease_left_s()
        keeper.lease(left_s, self.clock.monotonic() + left_s)

    def _lease_left_s(self) -> float:
        return max(0.0, self.agent.state.lease_until - self.clock.now())

    # What time brings.

    async def beat(self) -> None:
        """Heartbeats, as long as the runner lives. How often is said in the first welcome."""
        await self.joined.wait()
        while True:
            if self.agent.welcomed and self._wire is not None:
                self._wire.send(self.agent.beat(self.clock.now()))
                self._flush()
            await asyncio.sleep(self.agent.heartbeat_s)

    async def tick(self) -> None:
        """Time limits, lanes whose first attempt takes long, and a coordinator that is silent."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.now()
            self._do(self.agent.state.tick(now), now)
            self._flush()
            if self._wire is not None and self.agent.is_deserted(now):
                log.warning("the coordinator is silent, dialling again")
                self._wire.abort()

    # What the keeper brings.

    def _news(self, event: processes.Event) -> None:
        if self._early is not None:
            self._early.append(event)
            return
        now, state = self.clock.now(), self.agent.state
        match event:
            case processes.Ready():
                self._do(state.process_ready(_key(event.key)), now)
            case processes.Started():
                self._do(state.process_started(_key(event.key), event.started_at), now)
            case processes.Ended():
                self._release_cgroup(_key(event.key))
                self._do(state.process_ended(_key(event.key), _end_of(event.exit)), now)
            case processes.Refused():
                self._release_cgroup(_key(event.key))
                self._do(state.process_refused(_key(event.key), event.code, event.message, now), now)
            case processes.KeeperLost():
                log.error("the keeper was lost", message=event.message)
                self._keeper = None
                asyncio.get_running_loop().create_task(self._reopen())
            case processes.Misunderstood():
                log.error("the keeper did not understand", text=event.text)
        self._flush_soon()

    async def _reopen(self) -> None:
        """A new keeper reads the journal of the old one and tells us what became of its attempts."""
        self._briefed.clear()
        self._keeper = await Processes.open(self._machine, self._news)
        # It knows no lease until it is told one, and without a lease it would stop nothing.
        self._renew_lease(self._keeper)
        for row in (await self._keeper.listing()).attempts:
            if row.exit is not None:
                self._news(processes.Ended(row.key, row.exit))
        now = self.clock.now()
        self._do(self.agent.state.keeper_lost(now), now)
        for key in [each for each in self._held_cgroups if not self.is_live(each)]:
            self._release_cgroup(key)
        self._flush_soon()

    # What the state machine wants done.

    def _do(self, deeds: list[Deed], now: float) -> None:
        for deed in deeds:
            match deed:
                case Spawn():
                    self._spawn(deed, now)
                case Release():
                    self._with_keeper(deed.key, Processes.go)
                case Forget():
                    self._forget(deed.key)
                case ForgetBrief():
                    self._forget_brief(_brief_id(deed.job, deed.group))
                case Halt():
                    self._halt(deed)
                case Retract():
                    self._with_keeper(deed.key, Processes.retract)
                case Freeze():
                    freeze = Processes.pause if deed.frozen else Processes.resume
                    self._with_keeper(deed.key, freeze)

    def _halt(self, deed: Halt) -> None:
        if self._keeper is not None and deed.key in self._keys:
            self._keeper.stop(self._keys[deed.key], deed.grace_s)

    def _with_keeper(self, key: AttemptKey, request: Callable[[Processes, str], None]) -> None:
        if self._keeper is not None and key in self._keys:
            request(self._keeper, self._keys[key])

    def _spawn(self, deed: Spawn, now: float) -> None:
        start, brief, keeper = deed.start, deed.brief, self._keeper
        if keeper is None or (deed.held and not keeper.can_hold):
            no = "the keeper is not there" if keeper is None else OLD_KEEPER
            self._do(self.agent.state.process_refused(start.key, "fenced", no, now), now)
            return
        self._brief(keeper, brief)
        name = self._keys[start.key] = f"{key_text(start.key)}/{start.lane}"
        job, position, number = start.key
        cgroup = self._cgroup(start)
        place = standing(start, brief, deed.roll, Peer(self.agent.node, self.agent.address or LOOPBACK))
        launch = processes.Launch(
            out=str(logs.log_path(self._log_root, job, position, number, "stdout")),
            err=str(logs.log_path(self._log_root, job, position, number, "stderr")),
            env=attempt_environment(brief, start, place, self.agent.capacity, self.agent.state.epoch),
            cpus=self._cpus(start.grant),
            cgroups=cgroup.folders if cgroup else None,
            log_max_bytes=self._log_max_bytes,
            lane=start.lane,
            limit_s=brief.time_limit_s,
            held=deed.held,
            not_after=self.clock.monotonic() + self._lease_left_s(),
        )
        keeper.start(name, _brief_id(job, brief.group), launch)

    def _brief(self, keeper: Processes, brief: Brief) -> None:
        """Tell the keeper what a group's attempts share, once, and make the folder of the job's logs."""
        id = _brief_id(brief.job, brief.group)
        if id in self._briefed:
            return
        self._briefed.add(id)
        checkpoints = self._checkpoints / brief.job
        self._machine.make_folder(self._log_root / brief.job)
        env = self._base_env | group_environment(brief, self.agent.node, str(checkpoints))
        keeper.brief(id, brief.command.argv, env, brief.command.cwd, self._cgroups.tracking)

    def _cpus(self, grant: Grant) -> list[int] | None:
        """The kernel CPUs of the NUMA node a task is bound to."""
        if grant.numa is None:
            return None
        return (
            next((list(numa.cpus) for numa in self.agent.capacity.numa if numa.id == grant.numa), None)
            or None
        )

    def _cgroup(self, start: Start) -> Cgroup | None:
        if not start.grant.memory_bytes:
            return None
        cgroup = self._cgroups.create(_cgroup_name(start.key), start.grant.memory_bytes, start.grant.cores)
        if cgroup is not None:
            self._held_cgroups[start.key] = cgroup
        return cgroup

    def _release_cgroup(self, key: AttemptKey) -> None:
        if (cgroup := self._held_cgroups.pop(key, None)) is not None:
            self._cgroups.remove(cgroup)

    def _forget(self, key: AttemptKey) -> None:
        if self._keeper is not None and (name := self._keys.pop(key, None)) is not None:
            self._keeper.forget([name])

    def _forget_brief(self, id: str) -> None:
        if self._keeper is not None and id in self._briefed:
            self._briefed.discard(id)
            self._keeper.forget_brief(id)

    def is_live(self, key: AttemptKey) -> bool:
        """Whether more may be written to this attempt's logs."""
        held = self.agent.state.held.get(key)
        return held is not None and held.phase != Phase.ENDED

    def live_keys(self) -> set[AttemptKey]:
        return {key for key, held in self.agent.state.held.items() if held.phase != Phase.ENDED}

    # Reports gather for a moment.

    def _flush_soon(self) -> None:
        """An end is told at once if a lane stands idle; a start may wait a little, its end may come with it."""
        state, loop = self.agent.state, asyncio.get_running_loop()
        if not state.fresh:
            return
        if state.is_urgent:
            self._flush()
        elif self._flush_at is None:
            delay_s = GATHER_S if state.is_busy else START_GATHER_S
            self._flush_at = loop.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        if self._wire is not None and (reports := self.agent.reports()) is not None and reports.reports:
            self._wire.send(reports)


def _brief_id(job: str, group: int) -> str:
    return f"{job}/{group}"


def _cgroup_name(key: AttemptKey) -> str:
    return "-".join(map(str, key))


def _key(name: str) -> AttemptKey:
    return key_from_text(name.rpartition("/")[0])


def _end_of(exit: processes.Exit) -> ProcessEnd:
    return ProcessEnd(
        exit.code, exit.signal, exit.oom, exit.reason, exit.started_at, exit.ended_at, exit.stderr_tail
    )
