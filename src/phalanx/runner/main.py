"""A runner process: wiring, and nothing else.

It finds out what the node has, attaches to the keeper of its folder, and keeps two connections to the coordinator. On
SIGTERM it informs the coordinator and leaves its tasks to the keeper for as long as the lease lasts, unless it is to
end them (`phalanx runner stop --drain`; `phalanx up` always does).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
from pathlib import Path
from typing import Any

import uvloop
from msgspec import structs

from phalanx.clock import SteadyClock
from phalanx.config import task_environment
from phalanx.core.model.resources import Capacity
from phalanx.errors import ConfigError, Conflict, PhalanxError
from phalanx.link import wire
from phalanx.logger import logger, open_log, told
from phalanx.runner import state_files, stopping
from phalanx.runner.accounts import Accounts
from phalanx.runner.addresses import LinkAddresses
from phalanx.runner.artifacts import ArtifactLimits
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.containers.cdi import CdiDevices
from phalanx.runner.containers.found import find_runtime
from phalanx.runner.containers.launching import ContainerLaunches, parse_folders
from phalanx.runner.containers.looking import RuntimeLook
from phalanx.runner.credential import NodeCredential
from phalanx.runner.device_nodes import DeviceNodes, find_nodes
from phalanx.runner.devices import discover
from phalanx.runner.health.monitor import HealthMonitor
from phalanx.runner.keepers import places, usual_count
from phalanx.runner.labels import parse_labels
from phalanx.runner.limits import AttemptLimits, WithoutRights, isolating
from phalanx.runner.link import Dialler, keep_beside, keep_connected
from phalanx.runner.logs import RunnerLogLink
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.overlay_setup import take_part
from phalanx.runner.peers import can_set_names
from phalanx.runner.pretend import parse_pretend
from phalanx.runner.processes import KeeperFailed
from phalanx.runner.retention import Limits, keep_swept
from phalanx.runner.rlimits import processes_of_tasks
from phalanx.runner.scratch import ScratchFolders
from phalanx.runner.sessions import RunnerSessions
from phalanx.runner.stopping import StopOutcome, StopRequest
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.usage.idle import IdleRule
from phalanx.runner.usage.sampler import UsageRules
from phalanx.settings import RunnerSettings, Settings
from phalanx.settings_types import is_loopback
from phalanx.tls import ClientTls, TlsFiles

log = logger("runner")
COPY_WITHIN_S = 3.0  # how long a runner that stops may take for the last logs


def run(settings: Settings, drain: bool = False) -> int:
    """Run a runner until it is stopped; returns the exit code. With `drain` its tasks end with it."""
    open_log()
    try:
        return uvloop.run(_run(settings, drain))
    except Conflict as error:
        log.error("the runner cannot start", **told(error))
        return error.exit_code
    except (KeeperFailed, PhalanxError, ValueError, OSError) as error:
        log.error("the runner cannot start", **told(error))
        return 1


def capacity_of(
    name: str,
    pretend: str | None,
    labels: str | None = None,
    cost_per_hour: float | None = None,
    slots: int = 0,
) -> Capacity:
    """What the node has, real or simulated, with its labels, its price, and how many tasks it takes."""
    has = parse_pretend(pretend, name) if pretend else discover()
    carried = has.labels | parse_labels(labels or "")
    return structs.replace(has, labels=carried, cost_per_hour=cost_per_hour, slots=slots)


def check_addresses(join: tuple[str, ...], tls_files: TlsFiles) -> None:
    """A node's token is sent without TLS on this machine only."""
    for address in join:
        if not tls_files.are_there and not is_loopback(address.rpartition(":")[0].strip("[]")):
            raise ConfigError(
                f"runner.join = {address!r} would send the node's token unencrypted: expected TLS, or a"
                " loopback address",
                hint="give --tls DIR (`phalanx ca issue` makes it) or runner.tls_ca_file, or use a tunnel:"
                " `ssh -L 7434:127.0.0.1:7434 HOST` and 127.0.0.1:7434",
            )


async def _run(settings: Settings, drain: bool) -> int:
    section = settings.runner
    tls_files = TlsFiles(section.tls_ca_file, section.tls_cert_file, section.tls_key_file)
    check_addresses(section.join, tls_files)
    state_dir = Path(section.state_dir)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with stopping.on_duty(state_dir):
        containers = _containers(section, state_dir)
        loop = _loop(settings, state_dir, containers)
        idle = IdleRule(section.idle_device_use, section.idle_device_after_s)
        loop.usage.set_rules(UsageRules(section.usage_interval_s, idle))
        loop.usage.read()
        tls = ClientTls(tls_files) if tls_files.are_there else None
        dialler = Dialler(LinkAddresses(section.join, vouched=tls_files.ca_file is not None), tls)
        if not await _opened(loop, stopped):
            stopping.write_outcome(
                state_dir, StopOutcome(0, drained=False, told=False, lease_s=0.0, knew=False)
            )
            return 0
        if loop.engine.networks is not None:
            loop.engine.networks.clean(loop.engine.live_keys())
        await containers.sweep(loop.engine.live_keys)
        limits = Limits(section.log_keep_s, section.log_keep_bytes)
        look = RuntimeLook(section.container_socket, containers, loop.engine, dialler.hello_again)
        looking = asyncio.ensure_future(look.keep())
        health = _health(section, loop, state_dir)
        await health.check(with_command=False)
        checking = asyncio.ensure_future(health.keep())
        try:
            return await _until_stopped(loop, dialler, limits, state_dir, StopRequest(drain=drain), stopped)
        finally:
            looking.cancel()
            checking.cancel()
            await asyncio.wait({looking, checking})
            containers.close()
            await containers.settled()
            if (networks := loop.engine.networks) is not None:
                if not loop.engine.state.held:
                    networks.withdraw()
                networks.close()


def _health(section: RunnerSettings, loop: RunnerLoop, state_dir: Path) -> HealthMonitor:
    """The checks of this node. Its devices may be simulated, which NVML does not know; its disks are real."""
    folders = [state_dir, state_dir / "scratch"]
    return HealthMonitor(section, folders, loop.engine, loop.clock, task_environment(), loop.beat_now)


def _containers(section: RunnerSettings, state_dir: Path) -> ContainerLaunches:
    """The containers of this node, if it has a runtime for them."""
    found = find_runtime(section.container_socket)
    log.info("containers", runtime=found.text)
    allowed = parse_folders(section.container_mounts or "")
    cdi = CdiDevices(section.cdi_kind)
    return ContainerLaunches(
        found, state_files.origin(state_dir), state_dir, allowed, section.image_limit_s, cdi
    )


def _loop(settings: Settings, state_dir: Path, containers: ContainerLaunches) -> RunnerLoop:
    section = settings.runner
    credential, origin = NodeCredential(settings), state_files.origin(state_dir)
    credential.shown()  # a token that cannot be used ends the start, not the first connection
    has = capacity_of(section.name, section.pretend, section.labels, section.cost_per_hour, section.slots)
    accounts = Accounts.read(section.accounts, section.allow_root, state_dir)
    has = structs.replace(has, accounts=accounts.told)
    nodes = find_nodes(has, section.device_nodes)
    containers.nodes, containers.devices = nodes, has.devices
    containers.has_accounts = accounts.are_mapped
    every = section.cgroups == "every-task"

    def cgroups(suffix: str) -> Cgroups:
        name = f"{section.name}-{origin[:8]}{suffix}"
        return Cgroups.find(name, track=every, isolate=every, devices=bool(nodes))

    found = places(state_dir, section.keepers or usual_count(len(os.sched_getaffinity(0))), cgroups)
    limits = _limits(section, has, [each for _, each in found], nodes, state_dir)
    engine = RunnerEngine(
        section.name,
        secrets.token_hex(8),
        origin,
        credential.shown,
        containers.described(isolating(has, limits.isolation)),
        section.address or "",
        credential.keep,
    )
    engine.sets_names = can_set_names()
    engine.vps_addresses = (section.vps_address,) if section.vps_address else ()
    take_part(engine, state_dir, [each for _, each in found], accounts, simulated=section.pretend is not None)
    return RunnerLoop(
        engine,
        state_dir,
        SteadyClock(),
        task_environment()
        | ({"PHALANX_TASK_CA_FILE": str(section.tls_ca_file)} if section.tls_ca_file else {}),
        section.log_max_bytes,
        found,
        limits,
        ArtifactLimits(section.artifacts_max_count, section.artifacts_max_bytes),
        accounts,
        containers,
    )


def _limits(
    section: RunnerSettings, has: Capacity, cgroups: list[Cgroups], nodes: DeviceNodes, state_dir: Path
) -> AttemptLimits:
    """What tasks are held to here. The cores of simulated hardware are no CPUs, so nobody gets one of its own."""
    own = section.cgroups == "every-task" and section.cpus == "own" and not section.pretend
    return AttemptLimits(
        cgroups[0],
        has,
        sorted(os.sched_getaffinity(0)) if own else (),
        section.pids_max,
        nodes,
        ScratchFolders(
            state_dir / "scratch", section.scratch_max_bytes or 0, has_accounts=section.accounts is not None
        ),
        cgroups[1:],
        WithoutRights(processes_of_tasks(), section.watch_memory),
    )


async def _opened(loop: RunnerLoop, stopped: asyncio.Event) -> bool:
    """Wait for the keeper, which may take long; False if we are stopped before it has answered."""
    opening, waiting = asyncio.ensure_future(loop.open()), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({opening, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if opening.done():
        opening.result()
        return True
    opening.cancel()
    await asyncio.wait({opening})
    return False


async def _until_stopped(
    loop: RunnerLoop,
    dialler: Dialler,
    log_limits: Limits,
    state_dir: Path,
    usual: StopRequest,
    stopped: asyncio.Event,
) -> int:
    """Serve until SIGTERM or SIGINT, or until the coordinator will never accept us."""
    engine = loop.engine
    sessions = RunnerSessions(
        engine.node, lambda: engine.token, loop.leader, dialler.dial_beside, loop.inputs
    )
    refused = asyncio.Event()

    async def control() -> None:
        await keep_connected(dialler, loop, random.random)
        refused.set()
        stopped.set()

    jobs = [
        control(),
        keep_beside(dialler, _log_link(loop, sessions), random.random),
        loop.beat(),
        loop.tick(),
        keep_swept(loop.log_root, log_limits, loop.engine.live_keys, loop.clock),
        loop.uploads.keep(loop.engine.live_keys, loop.clock.now()),
        loop.watch(),
        loop.usage.keep(loop.clock),
    ]
    loop.endings.resume(loop.engine.live_keys())
    tasks = [asyncio.ensure_future(job) for job in jobs]
    waiting: asyncio.Task[Any] = asyncio.ensure_future(stopped.wait())
    done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    outcome: StopOutcome | None = None
    if waiting in done and not refused.is_set():  # while the connection is still there
        outcome = await loop.leave(stopping.asked(state_dir) or usual)
        if not await loop.uploads.drained(COPY_WITHIN_S):
            log.warning("some logs were not copied to the place for files; they are when the runner is back")
        stopping.write_outcome(state_dir, outcome)
    loop.usage.write()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, waiting, sessions.close(), return_exceptions=True)
    # A keeper without attempts is of no use.
    is_drained = outcome is not None and outcome.drained
    await loop.close(stop_tasks=is_drained or not loop.engine.state.held)
    for task in done - {waiting}:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the runner failed", exc_info=error)
            return 1
    return 77 if refused.is_set() else 0


def _log_link(loop: RunnerLoop, sessions: RunnerSessions) -> RunnerLogLink:
    """The connection for logs, files, samples of usage, and requests to open sessions."""
    engine = loop.engine
    return RunnerLogLink(
        lambda: wire.LogHello(
            wire.VERSION,
            engine.token,
            engine.node,
            engine.incarnation,
            files=True,
            usage=True,
            sessions=True,
            snapshots=True,
            times=True,
            holds=True,
            inputs=True,
        ),
        loop.log_root,
        loop.engine.is_live,
        loop.uploads,
        lambda asked: loop.usage.answer(asked, loop.clock.now()),
        sessions.open,
        loop.snapshots.answer,
        loop.readers,
    )
