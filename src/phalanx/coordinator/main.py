"""A coordinator process: its parts wired together, its signals, and its memory.

The store is opened, two ports are opened (REST for clients, frames for runners), and the leadership between them
follows, takes part in elections and serves until the process is stopped. It goes on when another takes over. Python's
collector of garbage is kept short meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from msgspec import Struct

from phalanx.api.server.app import build_app
from phalanx.clock import Clock, SteadyClock
from phalanx.coordinator import lookup
from phalanx.coordinator.audit import AuditFile
from phalanx.coordinator.commands import CoordinatorCommands
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.damage import AskedStore
from phalanx.coordinator.descriptors import Shares, raise_limit, shares
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.file_retention import FileRetention
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.leadership import Leadership, LeadershipConfig
from phalanx.coordinator.link import Links, RunnerChannel
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.loop import Retention
from phalanx.coordinator.server import RestServer, RunnerConnections, rest_server, serve
from phalanx.coordinator.tls import TlsPorts
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.uploads import Uploads
from phalanx.core.cluster.decision import Settle
from phalanx.core.cluster.events import BrakeReleased, BrakeSet, NodeLost, NodeRested
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.explain.story import sentence
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
ALARMS = (BrakeSet, BrakeReleased, NodeRested, NodeLost)  # what an operator should find in the log
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what to beware of
COLLECT_AFTER = (2_000, 5, 5)  # a full collection looks at some 50,000 objects, which takes 15 ms
MEMORY_LOOK_S = 1.0
MEMORY_GROWTH = 2
MEMORY_SMALL = 64 << 20  # bytes
BUSY = 0.5  # of a core: then what takes long waits,
OVERDUE = 2  # until there is so many times as much memory as had been enough
PAGE = os.sysconf("SC_PAGE_SIZE")


class FilesConfig(Struct, frozen=True):
    """Where files of attempts are kept, how long, and how many bytes of all and of one."""

    store: FileStore
    keep_s: float = 30 * 86_400.0
    keep_bytes: int = 20 << 30
    max_bytes: int = 10 << 30


class Coordinator:
    """The parts of one coordinator, wired together. `run` and `phalanx.local()` use the same."""

    def __init__(
        self,
        store: Store,
        config: LeadershipConfig,
        keys: Credentials,
        retries: int,
        clock: Clock | None = None,
        candidate: Candidate = ALONE,
        files: FilesConfig | None = None,
    ) -> None:
        clock = clock or SteadyClock()
        self.keys = keys
        self.store = store
        self.leadership = Leadership(store, candidate, config, clock, self, keys)
        self.feed = Feed()
        self.retention: FileRetention | None = None
        uploads: Uploads | None = None
        if files is not None:
            self.retention = FileRetention(
                files.store, files.keep_s, files.keep_bytes, clock, self._has_ended
            )
            uploads = Uploads(files.store, self.retention, self._node_of, files.max_bytes)
        self.log_links = LogLinks(keys, self.leadership.require_active, self._is_online, uploads)
        self.links = Links(lambda: self.leadership.state, keys)
        keys.follow(lambda: self.leadership.state)
        self.addresses = RunnerConnections()
        self.streams: set[RunnerChannel] = set()  # the same, over gRPC
        self.commands = CoordinatorCommands(
            self.leadership,
            AskedStore(store),
            self.feed,
            self.log_links,
            clock,
            retries,
            None if files is None else files.store,
        )

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

    def _has_ended(self, job: str) -> bool:
        found = self.leadership.state.jobs.get(job)
        return found is None or found.is_over

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
        for connection in (*self.addresses, *self.streams):
            connection.close()

    def turned(self, turn: Turn) -> None:
        """The turn is durable: send and publish it."""
        self.links.dispatch(turn.effects)
        self.feed.publish(turn)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self.links.forget(effect.job)
        for event in turn.events:
            if type(event) in ALARMS:
                log.warning(sentence(event))

    def followed(self, batch: Batch, turn: Turn) -> None:
        self.feed.publish(turn)

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        self.keys.check()
        self.feed.resume(loaded, state)

    async def keep_keys(self) -> None:
        """Read token files again, and end what has lost its right, as long as the process lives."""
        await self.keys.keep(self.leadership.post, (self.links.recheck, self.log_links.recheck))

    async def keep_files(self) -> None:
        """Remove old files, as long as the process lives."""
        if self.retention is not None:
            await self.retention.keep(self.leadership.require_active)


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


def rules_of(settings: Settings) -> Timers:
    """The rules that follow from the settings: a runner stops its tasks well before it may be declared lost."""
    section = settings.coordinator
    return Timers(
        heartbeat_s=section.heartbeat_s,
        lost_after_s=section.lost_after_s,
        self_fence_s=section.lost_after_s * 2 / 3,
        loss_limit=section.loss_limit,
        aging_s=float(section.aging_s),
        stuck_after_s=3 * section.lost_after_s,
        breaker_failures=section.breaker_failures,
        breaker_pause_s=section.breaker_pause_s,
        brake_share=section.brake_share,
        pending_max=section.pending_limit,
    )


def candidate_of(section: Section) -> Candidate:
    """This coordinator as a candidate: its name, and where clients and runners reach it."""
    is_known = section.advertise and section.link_advertise
    if section.bind in EVERYWHERE and not is_known and section.store.startswith(("etcd", "redis")):
        raise ConfigError(
            f"coordinator.bind = {section.bind!r} is no address that others could be sent to",
            hint="give coordinator.advertise (https://host:port) and coordinator.link_advertise (host:port)",
        )
    host = f"[{section.bind}]" if ":" in section.bind else section.bind
    scheme = "https" if section.tls_cert_file else "http"
    address = section.advertise or f"{scheme}://{host}:{section.port}"
    return Candidate(section.name, address, section.link_advertise or f"{host}:{section.link_port}")


def files_of(section: Section) -> FilesConfig:
    """The place for files that the settings name. A folder of one coordinator's own is not there for the others."""
    if section.files is None and section.store.startswith(("etcd", "redis")):
        log.warning(
            "files are kept in a folder of this coordinator: others have none of them, give coordinator.files"
        )
    return FilesConfig(
        FileStore.open(section), section.files_keep_s, section.files_keep_bytes, section.files_max_bytes
    )


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
    store = await _opened(section)
    try:
        coordinator = Coordinator(
            store,
            config_of(settings),
            keys,
            section.max_task_retries,
            clock,
            candidate=candidate_of(section),
            files=files_of(section),
        )
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
        app = build_app(coordinator.commands, keys, tls_files.hosts(), audit=keys.audit)
        rest = rest_server(app, section.bind, section.port, tls_files.rest, room)
        rpc = (
            None if section.grpc_port is None else await _rpc(coordinator, app, section, tls_files.pem, room)
        )
        renewing = asyncio.gather(tls_files.keep(), keep_short(), coordinator.keep_files())
        log.info("coordinator starts", name=section.name, address=coordinator.leadership.candidate.address)
        try:
            return await _until_stopped(coordinator, rest)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            server.close()
            if rpc is not None:
                await rpc.close()
    finally:
        await store.close()


async def _rpc(
    coordinator: Coordinator, app: App, section: Section, pem: Callable[[], Pem] | None, room: Shares
) -> RpcServer:
    """Listen for gRPC. It is loaded only if it is configured."""
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
    await server.open(section.bind, section.grpc_port or 0, pem)
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


async def keep_short() -> None:
    """Keep collections short while the state grows: what survived a full one is not looked through again.

    The state has no cycles, and a full collection looks at all of it: half a second with some hundred thousand jobs, in
    which nobody is answered. So survivors are set aside (frozen). Garbage among them is found when the memory has
    doubled, in a quiet moment.
    """
    gc.set_threshold(*COLLECT_AFTER)
    survivors = _Survivors()
    gc.callbacks.append(survivors.collected)
    try:
        while True:
            used = time.process_time()
            await asyncio.sleep(MEMORY_LOOK_S)
            is_busy = time.process_time() - used > BUSY * MEMORY_LOOK_S
            if survivors.growth > (OVERDUE if is_busy else 1):
                survivors.look_through()
    finally:
        gc.callbacks.remove(survivors.collected)


class _Survivors:
    """What was set aside. To count it takes as long as to look through it, so its growth is that of the memory."""

    def __init__(self) -> None:
        self.look_through()

    @property
    def growth(self) -> float:
        """1.0 when there is so much that it should be looked through."""
        return _resident() / (MEMORY_GROWTH * self._known + MEMORY_SMALL)

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector, in whichever thread it runs."""
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()

    def look_through(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        gc.collect()  # of the few that are left; the collector waits longer after it has seen many
        self._known = _resident()


def _resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
