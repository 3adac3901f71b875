"""A real cluster for tests: processes on free loopback ports, started here and stopped here.

Tests wait on conditions with `eventually`; nothing sleeps for luck.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import phalanx
from phalanx.api.schema import TaskView
from phalanx.errors import PhalanxError
from phalanx.tokenfile import ensure_token

T = TypeVar("T")
_RUN = (
    "import sys, json; from phalanx.config import load; from phalanx.{part}.main import run; "
    "sys.exit(run(load(json.loads(sys.argv[1]))))"
)
TWO_NODES = {"n1": "cpus=8,numa=2,gpus=2,type=h100,memory=80GiB,ram=16GiB", "n2": "cpus=4,ram=32GiB"}


def eventually(condition: Callable[[], T | None], within_s: float = 15.0, what: str = "") -> T:
    """The first true answer of `condition`, asked again and again until the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or condition}")
        select.select([], [], [], 0.01)  # a breath between two looks


class RealCluster:
    """A coordinator and its runners, each a process of its own."""

    def __init__(self, folder: Path, heartbeat_s: float = 1.0, lost_after_s: float = 6.0) -> None:
        self.folder = folder
        self.port, self.link_port = _free_ports(2)
        self.heartbeat_s, self.lost_after_s = heartbeat_s, lost_after_s
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.pretends: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.user_token = ensure_token(folder / "token")
        self.node_token = ensure_token(folder / "node-token")
        self.client = phalanx.Client(f"http://127.0.0.1:{self.port}", self.user_token)

    def start_coordinator(self) -> None:
        self._start(
            "coordinator",
            "coordinator",
            {
                "coordinator.state_dir": str(self.folder / "coordinator"),
                "coordinator.token_file": str(self.folder / "token"),
                "coordinator.node_token_file": str(self.folder / "node-token"),
                "coordinator.port": self.port,
                "coordinator.link_port": self.link_port,
                "coordinator.heartbeat_s": self.heartbeat_s,
                "coordinator.lost_after_s": self.lost_after_s,
            },
        )

    def start_runner(self, name: str, pretend: str | None = None) -> None:
        self.pretends[name] = pretend or self.pretends[name]
        self._start(
            name,
            "runner",
            {
                "runner.name": name,
                "runner.state_dir": str(self.folder / name),
                "runner.token_file": str(self.folder / "node-token"),
                "runner.join": f"127.0.0.1:{self.link_port}",
                "runner.pretend": self.pretends[name],
            },
        )

    def start(self, nodes: dict[str, str]) -> None:
        """The coordinator, the nodes, and the moment when all are there."""
        self.start_coordinator()
        eventually(self.is_ready, 20.0, "the coordinator is ready")
        for name, pretend in nodes.items():
            self.start_runner(name, pretend)
        self.wait_online(*nodes)

    def is_ready(self) -> bool:
        try:
            self.client.ready()
        except PhalanxError:
            return False
        return True

    def wait_online(self, *names: str, within_s: float = 20.0) -> None:
        eventually(lambda: self._online() >= set(names), within_s, f"{names} online")

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
            if name != "coordinator" and process.poll() is None:
                process.terminate()
        for name, process in self.processes.items():
            if name != "coordinator":
                _end(process)
        for name in self.pretends:
            _end_keeper(self.folder / name)
        if "coordinator" in self.processes:
            self.processes["coordinator"].terminate()
            _end(self.processes["coordinator"])
        self.client.close()

    def wait_task(self, id: str, *statuses: str, within_s: float = 20.0) -> TaskView:
        """The task once it has one of these statuses."""

        def there() -> TaskView | None:
            view = self.client.task(id)
            return view if view.status in statuses else None

        return eventually(there, within_s, f"{id} {statuses}")

    def output(self, id: str, stream: str = "stdout") -> str:
        return b"".join(self.client.logs(id, stream=stream)).decode()  # type: ignore[arg-type]

    def _online(self) -> set[str]:
        try:
            return {node.name for node in self.client.nodes() if node.status == "Online"}
        except PhalanxError:
            return set()

    def _start(self, name: str, part: str, settings: dict[str, object]) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
        env |= {"XDG_STATE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "none")}
        log = (self.folder / f"{name}.log").open("ab")
        argv = [sys.executable, "-c", _RUN.format(part=part), json.dumps(settings)]
        self.processes[name] = subprocess.Popen(
            argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env
        )
        log.close()


@contextmanager
def a_real_cluster(
    folder: Path, nodes: dict[str, str] | None = None, **timing: float
) -> Iterator[RealCluster]:
    """A cluster for one test."""
    cluster = RealCluster(folder, **timing)
    try:
        cluster.start(TWO_NODES if nodes is None else nodes)
        yield cluster
    except BaseException:
        for log in folder.glob("*.log"):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
        raise
    finally:
        cluster.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def _end_keeper(folder: Path) -> None:
    """A runner killed with -9 leaves its keeper; end it and what it keeps."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder).encode() in words:
            os.kill(int(entry.name), signal.SIGTERM)
