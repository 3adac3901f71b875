"""A Phalanx cluster as users start one: `phalanx coordinator` and `phalanx runner`, each a process.

Its state is SQLite on the session's disk and every task's output is captured. The parts are known by pid, so that
their CPU and memory can be distinguished.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from bench.keepalive import Connection

PHALANX = Path(sys.executable).with_name("phalanx")
START_S = 30.0
_LOOK_S = 0.005


class Cluster:
    """One coordinator and its runners, in their own folder."""

    runner_settings: ClassVar[dict[str, str]] = {}  # for every runner of this process: see bench.part

    def __init__(self, folder: Path, settings: Mapping[str, int | str]) -> None:
        self.folder = folder
        self.port, self.link_port = _free_ports(2)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pretends: dict[str, str] = {}
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PHALANX_")}
        given = {f"PHALANX_COORDINATOR_{name.upper()}": str(value) for name, value in settings.items()}
        given |= {f"PHALANX_RUNNER_{name.upper()}": value for name, value in self.runner_settings.items()}
        self.env = kept | given | {"PHALANX_STATE_DIR": str(folder), "XDG_CONFIG_HOME": str(folder)}

    @property
    def coordinator_pid(self) -> int:
        return self.processes["coordinator"].pid

    @property
    def node_token(self) -> str:
        return (self.folder / "node-credentials").read_text().strip()

    def connect(self) -> Connection:
        """A kept-alive connection to REST."""
        return Connection(self.port, (self.folder / "credentials").read_text().strip())

    def start_coordinator(self) -> None:
        words = ["coordinator", "--port", str(self.port), "--link-port", str(self.link_port)]
        self._start("coordinator", words)
        until(self._is_ready, START_S, "the coordinator is ready")

    def start_runner(self, name: str, pretend: str = "") -> None:
        """Start a runner, or start it again after it was killed."""
        self._pretends[name] = pretend or self._pretends[name]
        words = ["runner", "--name", name, "--join", f"127.0.0.1:{self.link_port}"]
        self._start(name, [*words, "--pretend", self._pretends[name]])
        with self.connect() as rest:
            until(lambda: node_status(rest, name) == "Online", START_S, f"{name} is online")

    def parts(self) -> dict[str, list[int]]:
        """Every process of the cluster by its part."""
        runners = list(self._pretends)
        return {
            "coordinator": [self.coordinator_pid],
            "agent": [self.processes[name].pid for name in runners],
            "keeper": [pid for name in runners for pid in self.keeper_pids(name)],
        }

    def keeper_pid(self, runner: str) -> int:
        """The first keeper of a runner."""
        return self.keeper_pids(runner)[0]

    def keeper_pids(self, runner: str) -> list[int]:
        """All keepers of a runner, the first one before the others; RuntimeError if there is none."""
        folder = str(self.folder / "runners" / runner).encode()
        found: dict[bytes, int] = {}
        for entry in Path("/proc").iterdir():
            words = _words(entry) if entry.name.isdecimal() else []
            if any(word.endswith(b"/keeper/__main__.py") for word in words[:-1]):
                own = next((word for word in words if word == folder or word.startswith(folder + b"/")), b"")
                found |= {own: int(entry.name)} if own else {}
        if not found:
            raise RuntimeError(f"no keeper of {runner} is running")
        return [found[own] for own in sorted(found)]

    def stop(self) -> None:
        """Runners first: they stop their tasks and their keeper."""
        for name, process in reversed(self.processes.items()):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if name in self._pretends:
                self._end_keeper(name)

    def _end_keeper(self, runner: str) -> None:
        try:
            for pid in self.keeper_pids(runner):
                os.kill(pid, signal.SIGTERM)
        except (RuntimeError, ProcessLookupError):
            return

    def _start(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [PHALANX, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.folder,
            )

    def _is_ready(self) -> bool:
        if self.processes["coordinator"].poll() is not None:
            raise RuntimeError(
                f"the coordinator ended: {(self.folder / 'coordinator.log').read_text()[-2000:]}"
            )
        try:
            with self.connect() as rest:
                return bool(rest.ask("GET", "/v1/nodes"))
        except OSError:
            return False


def submit(rest: Connection, *command: str, **fields: Any) -> str:
    """Submit a job; returns its id once it is durable."""
    body = json.dumps({"command": command, **fields}).encode()
    return str(json.loads(rest.ask("POST", "/v1/jobs", body))["task_ids"][0])


def wait(rest: Connection, job: str, within_s: float = 600.0) -> dict[str, Any]:
    """The job once it has ended; anything but success is an error, because a failed task costs less."""
    deadline = time.monotonic() + within_s
    while True:
        view: dict[str, Any] = json.loads(rest.ask("GET", f"/v1/jobs/{job}/wait?timeout_s=30"))
        if view["status"] == "Completed":
            return view
        if view["status"] in ("Failed", "Cancelled") or time.monotonic() > deadline:
            raise RuntimeError(f"job {job} is {view['status']}: {view['counts']}")


def look(cluster: Cluster) -> float:
    """The seconds that `phalanx ps` of 100 jobs takes, as on a terminal, from the start of the command to its end."""
    began = time.perf_counter()
    words = [str(PHALANX), "ps", "--limit", "100"]
    subprocess.run(words, env=cluster.env, cwd=cluster.folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def node_status(rest: Connection, name: str) -> str:
    nodes = json.loads(rest.ask("GET", "/v1/nodes"))
    rows = nodes["items"] if isinstance(nodes, dict) else nodes
    return next((str(row["status"]) for row in rows if row["name"] == name), "")


def until(condition: Callable[[], object], within_s: float, what: str, look_s: float = _LOOK_S) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(look_s)


def _words(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
