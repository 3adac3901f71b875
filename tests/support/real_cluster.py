"""A real cluster for tests: processes on free loopback ports, started here and stopped here.

Tests wait on conditions with `wait_until`; nothing sleeps for luck.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import phalanx
from phalanx.api.schema.jobs import TaskView
from phalanx.client.http import HttpTransport
from phalanx.errors import PhalanxError
from phalanx.tokenfile import ensure_token
from tests.support.forked import ForkedProcess, start_forked
from tests.support.waiting import wait_until

T = TypeVar("T")
_RUN = (
    "import sys, json; from phalanx.config import load; from phalanx.{part}.main import run; "
    "sys.exit(run(load(json.loads(sys.argv[1]))))"
)
SERVER_PORTS = range(12_000, 20_000)  # tasks and VPSs take theirs from 20,000 on, connections from 32,768 on
TWO_NODES = {"n1": "cpus=8,numa=2,gpus=2,type=h100,memory=80GiB,ram=16GiB", "n2": "cpus=4,ram=32GiB"}


class RealCluster:
    """One coordinator or several, and their runners, each a process of its own."""

    def __init__(
        self,
        folder: Path,
        heartbeat_s: float = 1.0,
        lost_after_s: float = 6.0,
        coordinators: tuple[str, ...] = ("coordinator",),
        store: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.coordinators = coordinators
        self.store = store or ("sqlite:" if len(coordinators) == 1 else f"sqlite:{folder}/shared.db")
        self.settings = dict(settings or {})  # of every coordinator, besides those given here
        ports = free_ports(2 * len(coordinators))
        self.ports = {name: (ports[2 * at], ports[2 * at + 1]) for at, name in enumerate(coordinators)}
        self.port, self.link_port = self.ports[coordinators[0]]
        self.heartbeat_s, self.lost_after_s = heartbeat_s, lost_after_s
        self.processes: dict[str, subprocess.Popen[bytes] | ForkedProcess] = {}
        self.pretends: dict[str, str] = {}
        self.environment: dict[str, str] = {}  # of every process, besides what it inherits
        self.prelude = ""  # what every process does first
        self.node_settings: dict[str, dict[str, object]] = {}  # of single runners
        folder.mkdir(parents=True, exist_ok=True)
        self.user_token = ensure_token(folder / "token")
        self.node_token = ensure_token(folder / "node-token")
        self.client = phalanx.Client([self.address(name) for name in coordinators], self.user_token)
        self.clients = {name: self._client_of(name) for name in coordinators}  # each asks only this one, once

    def _client_of(self, name: str) -> phalanx.Client:
        exchange = HttpTransport(self.address(name), patience_s=0.0)
        return phalanx.Client(token=self.user_token, exchange=exchange)

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name][0]}"

    def start_coordinator(self, name: str | None = None) -> None:
        name = name or self.coordinators[0]
        port, link_port = self.ports[name]
        self._start(
            name,
            "coordinator",
            {
                "coordinator.name": name,
                "coordinator.store": self.store,
                "coordinator.state_dir": str(self.folder / name),
                "coordinator.secret_file": str(self.folder / "cluster-secret"),
                "coordinator.token_file": str(self.folder / "token"),
                "coordinator.node_token_file": str(self.folder / "node-token"),
                "coordinator.port": port,
                "coordinator.link_port": link_port,
                "coordinator.heartbeat_s": self.heartbeat_s,
                "coordinator.lost_after_s": self.lost_after_s,
            }
            | self.settings,
        )

    def leader(self, within_s: float = 20.0) -> str:
        """The name of the coordinator that says it leads, and of whom no other says so."""

        def only_one() -> str | None:
            found = [name for name in self.coordinators if self.status_of(name, "/leaderz") == 200]
            return found[0] if len(found) == 1 else None

        return wait_until(only_one, within_s, "one coordinator leads")

    def standbys(self) -> list[str]:
        leader = self.leader()
        return [name for name in self.coordinators if name != leader]

    def status_of(self, name: str, path: str) -> int:
        """What one coordinator answers at a path; 0 if it does not answer."""
        request = urllib.request.Request(self.address(name) + path)
        request.add_header("Authorization", f"Bearer {self.user_token}")
        try:
            with urllib.request.urlopen(request, timeout=2.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def start_runner(self, name: str, pretend: str | None = None) -> None:
        self.pretends[name] = pretend or self.pretends[name]
        self._start(
            name,
            "runner",
            {
                "runner.name": name,
                "runner.state_dir": str(self.folder / name),
                "runner.token_file": str(self.folder / "node-token"),
                "runner.join": ",".join(f"127.0.0.1:{link}" for _, link in self.ports.values()),
                "runner.pretend": self.pretends[name],
            }
            | self.node_settings.get(name, {}),
        )

    def start(self, nodes: dict[str, str]) -> None:
        """The coordinators, the nodes, and the moment when all are there."""
        for name in self.coordinators:
            self.start_coordinator(name)
        wait_until(self.is_ready, 60.0, "the coordinator is ready")
        for name in self.coordinators:
            self.wait_ready(name)
        for name, pretend in nodes.items():
            self.start_runner(name, pretend)
        self.wait_online(*nodes)

    def is_ready(self) -> bool:
        try:
            self.client.ready()
        except PhalanxError:
            return False
        return True

    def wait_ready(self, name: str) -> None:
        """Until a coordinator leads, or follows whoever does."""
        wait_until(lambda: self.status_of(name, "/readyz") == 200, 60.0, f"{name} is ready")

    def wait_online(self, *names: str, within_s: float = 20.0) -> None:
        wait_until(lambda: self._online() >= set(names), within_s, f"{names} online")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal one process; for SIGKILL and SIGTERM, wait until it is gone."""
        process = self.processes[name]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(20)

    def stop(self) -> None:
        """Runners first, so that their tasks and keepers end too."""
        for name, process in self.processes.items():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
            if name not in self.coordinators and process.poll() is None:
                process.terminate()
        for name, process in self.processes.items():
            if name not in self.coordinators:
                _end(process)
        for name in self.pretends:
            end_keeper(self.folder / name)
        started = [self.processes[name] for name in self.coordinators if name in self.processes]
        for process in started:
            process.terminate()
        for process in started:
            _end(process)
        for client in (self.client, *self.clients.values()):
            client.close()

    def wait_task(self, id: str, *statuses: str, within_s: float = 20.0) -> TaskView:
        """The task once it has one of these statuses."""

        def there() -> TaskView | None:
            view = self.client.task(id)
            return view if view.status in statuses else None

        return wait_until(there, within_s, f"{id} {statuses}")

    def kept_files(self) -> list[Path]:
        """What stands in the coordinator's own folder of files: copies of logs, results, artifacts."""
        folder = self.folder / "coordinator" / "files"
        return [each for each in folder.rglob("*") if each.is_file()]

    def output(self, id: str, stream: str = "stdout") -> str:
        return b"".join(self.client.logs(id, stream=stream)).decode()  # type: ignore[arg-type]

    def _online(self) -> set[str]:
        try:
            return {node.name for node in self.client.nodes() if node.status == "Online"}
        except PhalanxError:
            return set()

    def _start(self, name: str, part: str, settings: Mapping[str, object]) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
        env |= {"XDG_STATE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "none")}
        log, code = self.folder / f"{name}.log", self.prelude + _RUN.format(part=part)
        log.touch()  # tests read it at once
        if not self.environment and not self.prelude:
            self.processes[name] = start_forked(code, json.dumps(settings), env, log)
            return
        argv = [sys.executable, "-c", code, json.dumps(settings)]
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env | self.environment
            )


@contextmanager
def a_real_cluster(
    folder: Path,
    nodes: dict[str, str] | None = None,
    heartbeat_s: float = 1.0,
    lost_after_s: float = 6.0,
    coordinators: tuple[str, ...] = ("coordinator",),
    store: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[RealCluster]:
    """A cluster for one test."""
    cluster = RealCluster(folder, heartbeat_s, lost_after_s, coordinators, store, settings)
    try:
        cluster.start(TWO_NODES if nodes is None else nodes)
        yield cluster
    except BaseException:
        for log in folder.glob("*.log"):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
        raise
    finally:
        cluster.stop()


def free_ports(count: int) -> list[int]:
    """Ports for servers that start later: outside the range from which connections take theirs meanwhile."""
    return [next(_PORTS) for _ in range(count)]


def _free_ports_at_random() -> Iterator[int]:
    for port in random.SystemRandom().sample(SERVER_PORTS, len(SERVER_PORTS)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        yield port


_PORTS = _free_ports_at_random()  # none is given twice by one process


def _end(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def end_keeper(folder: Path) -> None:
    """A runner killed with -9 leaves its keepers; end them and what they keep."""
    own = str(folder).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word == own or word.startswith(own + b"/keepers/") for word in words):
            os.kill(int(entry.name), signal.SIGTERM)
