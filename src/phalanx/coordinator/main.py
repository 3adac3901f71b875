"""A coordinator process: its parts wired together, its signals, and its memory.

The store is opened, two ports are opened (REST for clients, frames for runners), and the leadership between them
follows, takes part in elections and serves until the process is stopped. It goes on when another takes over. Python's
collector of garbage is kept short meanwhile.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from phalanx.api.server.app import build_app
from phalanx.api.server.limits import ServerLimits
from phalanx.clock import Clock, SteadyClock
from phalanx.coordinator import lookup
from phalanx.coordinator.audit import AuditFile
from phalanx.coordinator.commands import CoordinatorCommands
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.damage import AskedStore
from phalanx.coordinator.descriptors import Shares, raise_limit, shares
from phalanx.coordinator.executors import SubmitDefaults, read_executors
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.file_retention import FileRetention, FileUse, use_of_files
from phalanx.coordinator.files_config import FilesConfig, files_of
from phalanx.coordinator.forwarding import LeaderForwarder
from phalanx.coordinator.garbage import keep_short
from phalanx.coordinator.leadership import Leadership, LeadershipConfig
from phalanx.coordinator.link import EVERYWHERE, Links, RunnerChannel
from phalanx.coordinator.log_lines import log_events
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.loop import Retention
from phalanx.coordinator.metrics.board import MetricsBoard
from phalanx.coordinator.metrics.density import Density
from phalanx.coordinator.metrics.files import MetricsFiles
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.task_events import TaskEvents
from phalanx.coordinator.notices import Notices
from phalanx.coordinator.numbers import keep_numbers
from phalanx.coordinator.page import page_access
from phalanx.coordinator.rules import rules_of
from phalanx.coordinator.server import RestServer, RunnerConnections, rest_server, serve
from phalanx.coordinator.stage_inputs import StageInputFetcher
from phalanx.coordinator.tls import TlsPorts
from phalanx.coordinator.traces.exporter import TraceExporter, trace_exporter
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.uploads import Uploads, own_attempt
from phalanx.core.cluster.decision import Settle
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.plan import Policy
from phalanx.errors import ConfigError, PhalanxError
from phalanx.link import wire
from phalanx.logger import logger, open_log, told
from phalanx.settings import CoordinatorSettings as Section
from phalanx.settings import Settings
from phalanx.store.address import read_address
from phalanx.store.open import open_store
from phalanx.store.protocol import Batch, Candidate, Loaded, Store, StoreError, StoreFull
from phalanx.store.verified import EpochsSeen, VerifiedStore

if TYPE_CHECKING:
    from phalanx.api.server.messages import App
    from phalanx.coordinator.rpc import RpcServer
    from phalanx.tls import Pem

log = logger("coordinator")
ALONE = Candidate("alone")
FULL_PAUSE_S = 5.0  # before a store that had no room is tried again


class Coordinator:
    """The parts of one coordinator, wired together. `run` and `phalanx.local()` use the same."""

    def __init__(
        self,
        store: Store,
        config: LeadershipConfig,
        keys: Credentials,
        defaults: SubmitDefaults,
        clock: Clock | None = None,
        candidate: Candidate = ALONE,
        recorder: Recorder | None = None,
        files: FilesConfig | None = None,
    ) -> None:
        clock = clock or SteadyClock()
        self.clock = clock
        self.recorder = recorder or Recorder()
        self.keys = keys
        self.store = store
        self.leadership = Leadership(store, candidate, config, clock, self, keys)
        self.feed = Feed()
        self.retention: FileRetention | None = None
        uploads: Uploads | None = None
        if files is not None:
            self.retention = FileRetention(
                files.store, files.keep_s, files.keep_bytes, clock, self._use_of_files
            )
            part_of = partial(own_attempt, lambda: self.leadership.state)
            uploads = Uploads(files.store, self.retention, self._node_of, part_of, files.max_bytes)
        self.log_links = LogLinks(keys, self.leadership.require_active, self._is_online, uploads)
        self.links = Links(lambda: self.leadership.state, keys, candidate.address)
        keys.follow(lambda: self.leadership.state)
        self.addresses = RunnerConnections()
        self.streams: set[RunnerChannel] = set()  # the same, over gRPC
        self.notices: Notices | None = None  # for whoever starts and stops machines
        self.traces: TraceExporter | None = None
        self.commands = CoordinatorCommands(
            self.leadership,
            AskedStore(store),
            self.feed,
            self.log_links,
            clock,
            defaults,
            self.recorder,
            None if files is None else files.store,
        )
        self.links.idle, self.links.images = self.commands.idle, self.commands.images
        self.inputs = StageInputFetcher(self.commands.attempt_files, self.leadership)

    def _is_online(self, node: str) -> bool:
        found = self.leadership.state.nodes.get(node)
        return found is not None and found.connected

    async def _node_of(self, key: AttemptKey) -> str | None:
        """The node that had an attempt, of a job in memory or in the history."""
        job = await lookup.find_job(self.leadership, self.store, key[0])
        if not 0 <= key[1] < len(job.attempts):
            return None
        names, at = self.leadership.state.known_names, job.node_number(key[1], key[2])
        return None if at is None or at >= len(names) else names[at]

    def _use_of_files(self, job: str) -> FileUse:
        return use_of_files(self.leadership.state, job)

    # As a Listener, for the leadership.

    def opened(self) -> None:
        self.links.not_active = None

    def closed(self) -> None:
        leader = self.leadership.leader
        other = leader.candidate if leader and leader.candidate != self.leadership.candidate else None
        where = f", {other.name} is active" if other else ""
        self.links.not_active = wire.Rejected(
            "NotActive", f"this coordinator is a standby{where}", True, other.link if other else ""
        )
        self.links.dismiss()
        self.inputs.stop()
        for connection in (*self.addresses, *self.streams):
            connection.close()

    def turned(self, turn: Turn) -> None:
        """The turn is durable: send and publish it."""
        self.links.dispatch(turn.effects)
        self.feed.publish(turn)
        self.commands.pages.note(turn, self.leadership.state)
        self.recorder.observe(turn, self.leadership.state)
        self.inputs.note(turn)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self.links.forget(effect.job)
        log_events(turn.events)
        if self.notices is not None:
            self.notices.note(turn, self.leadership.state)
        if self.traces is not None:
            self.traces.observe(turn, self.leadership.state)

    def followed(self, batch: Batch, turn: Turn) -> None:
        self.feed.publish(turn)
        self.commands.pages.note(turn, self.leadership.state)
        self.recorder.observe(turn, self.leadership.state)
        if self.traces is not None:
            self.traces.follow(turn, self.leadership.state)

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        self.keys.check()
        self.feed.resume(loaded, state)
        self.commands.pages.reset(state)
        self.recorder.resume(loaded, state, self.clock.now())
        if self.traces is not None:
            self.traces.resume(state)

    async def keep_keys(self) -> None:
        """Read token files again, and end what has lost its right, as long as the process lives."""
        rechecks = (self.links.recheck, self.log_links.recheck)
        await self.keys.keep(self.leadership.post, rechecks, self.commands.login_access.inputs)

    async def keep_files(self) -> None:
        """Remove old files, as long as the process lives."""
        if self.retention is not None:
            await self.retention.keep(self.leadership.require_active)

    async def number_history(self) -> None:
        """Keep the numbers of jobs that ended under an older version."""
        await keep_numbers(self.store, self._epoch)

    def _epoch(self) -> int:
        self.leadership.require_active()
        return self.leadership.state.epoch


def run(settings: Settings) -> int:
    """Run a coordinator until it is stopped; the exit code."""
    open_log()
    try:
        return uvloop.run(_serve(settings))
    except (StoreError, PhalanxError, OSError) as error:
        log.error("the coordinator stops after an error", **told(error))
        return 1


def config_of(settings: Settings) -> LeadershipConfig:
    """By which rules this coordinator serves."""
    section = settings.coordinator
    keep = Retention(section.keep_events, section.keep_jobs)
    return LeadershipConfig(rules_of(settings), section.lease_s, Policy(score=settings.scheduler.score), keep)


def candidate_of(section: Section) -> Candidate:
    """This coordinator as a candidate: its name, and where clients and runners reach it."""
    is_known = section.advertise and section.link_advertise
    if section.bind in EVERYWHERE and not is_known and section.store.startswith(("etcd", "redis")):
        raise ConfigError(
            f"coordinator.bind = {section.bind!r} is not an address that others can be sent to",
            hint="give coordinator.advertise (https://host:port) and coordinator.link_advertise (host:port)",
        )
    host = f"[{section.bind}]" if ":" in section.bind else section.bind
    scheme = "https" if section.tls_cert_file else "http"
    address = section.advertise or f"{scheme}://{host}:{section.port}"
    return Candidate(section.name, address, section.link_advertise or f"{host}:{section.link_port}")


def defaults_of(section: Section) -> SubmitDefaults:
    """What is taken for submissions that do not say."""
    executors = read_executors(section.executors_file)
    return SubmitDefaults(section.max_task_retries, executors, section.not_exported)


async def _opened(section: Section) -> Store:
    """The store, as soon as there is room to open it. It may be mistaken for ours, or have forgotten."""
    store: Store | None = None
    while store is None:
        try:
            store = await open_store(section)
        except StoreFull as error:
            log.error(
                "the store cannot be opened yet, it is tried again", every_s=FULL_PAUSE_S, **told(error)
            )
            await asyncio.sleep(FULL_PAUSE_S)
    if section.store == "memory:":
        return store
    return VerifiedStore(store, EpochsSeen(section.state_dir, read_address(section.store, section.state_dir)))


async def _serve(settings: Settings) -> int:
    section = settings.coordinator
    Path(section.state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    room = shares(raise_limit(), with_rpc=section.grpc_port is not None)
    clock, tls_files = SteadyClock(), TlsPorts(section)
    keys = Credentials.open(settings, clock)
    keys.audit = AuditFile(section.audit_file, clock)
    traces = trace_exporter(section.traces, section.name)
    store = await _opened(section)
    try:
        coordinator = Coordinator(
            store,
            config_of(settings),
            keys,
            defaults_of(section),
            clock,
            candidate=candidate_of(section),
            recorder=recorder_of(section),
            files=files_of(section),
        )
        files = metrics_files(section, coordinator.commands.board, clock)
        coordinator.closed()
        server, coordinator.addresses = await serve(
            section.bind,
            section.link_port,
            coordinator.links,
            coordinator.log_links,
            coordinator.leadership.post,
            tls_files.link,
            room,
        )
        limits = ServerLimits(session_idle_s=section.session_idle_s)
        forwards = LeaderForwarder(section.name, section.tls_ca_file or settings.client.ca_file)
        page = page_access(section, coordinator.commands.login_access, forwards, keys)
        app = build_app(coordinator.commands, keys, tls_files.hosts(), limits, keys.audit, page)
        rest = rest_server(app, section.bind, section.port, tls_files.rest, room)
        rpc = await _rpc(coordinator, app, section, tls_files.pem, room)
        coordinator.notices, coordinator.traces = Notices(settings.elastic), traces
        kept = (coordinator.keep_files(), coordinator.links.homes.keep(store), coordinator.number_history())
        use = coordinator.commands.pages.use.keep(Path(section.state_dir) / "use.msgpack")
        told = (coordinator.notices.deliver(), use)
        renewing = asyncio.gather(tls_files.keep(), keep_short(), *told, *kept)
        writing = asyncio.ensure_future(files.keep()) if files is not None else None
        log.info("coordinator starts", name=section.name, address=coordinator.leadership.candidate.address)
        try:
            return await _until_stopped(coordinator, rest)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await _end(writing)
            if traces is not None:
                await asyncio.to_thread(traces.close)
            server.close()
            await forwards.close()
            if rpc is not None:
                await rpc.close()
    finally:
        await store.close()


def recorder_of(section: Section) -> Recorder:
    """What is counted: always, with the series and the lines of files only where there are files."""
    density = Density(section.metrics_density_bucket_s) if section.metrics_density else None
    return Recorder(density, TaskEvents() if section.metrics_dir or density else None)


def metrics_files(section: Section, board: MetricsBoard, clock: Clock) -> MetricsFiles | None:
    """The files of metrics, if any are wanted."""
    if section.metrics_dir is None and not section.metrics_density:
        return None
    folder = section.metrics_dir or Path(section.state_dir) / "metrics"
    return MetricsFiles(folder, board, clock)


async def _end(writing: asyncio.Future[None] | None) -> None:
    """Cancel what writes the files of metrics, and wait for its last words."""
    if writing is not None:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _rpc(
    coordinator: Coordinator, app: App, section: Section, pem: Callable[[], Pem] | None, room: Shares
) -> RpcServer | None:
    """Listen for gRPC. It is loaded only if it is configured."""
    if section.grpc_port is None:
        return None
    from phalanx.coordinator.rpc import RpcServer
    from phalanx.coordinator.rpc_clients import ClientsService
    from phalanx.coordinator.rpc_runners import RunnersService

    leadership = coordinator.leadership
    runners = RunnersService(
        coordinator.links,
        coordinator.log_links,
        leadership.post,
        coordinator.keys,
        coordinator.streams,
        room.rpc,
    )
    server = RpcServer(runners, ClientsService(app, coordinator.keys), room.rpc)
    await server.open(section.bind, section.grpc_port, pem)
    return server


async def _until_stopped(coordinator: Coordinator, rest: RestServer) -> int:
    """Serve until SIGTERM or SIGINT: what was accepted is answered, it resigns, then the ports close."""
    leadership = coordinator.leadership
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leadership.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, coordinator.keys.reload_soon)
    keeping = asyncio.ensure_future(coordinator.keep_keys())
    living = asyncio.ensure_future(leadership.run())
    serving = asyncio.ensure_future(rest.serve())
    await asyncio.wait({living, serving, keeping}, return_when=asyncio.FIRST_COMPLETED)
    leadership.stop()
    coordinator.feed.close()
    rest.should_exit = True
    keeping.cancel()
    ends = await asyncio.gather(living, serving, keeping, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end
    return 0
