"""What open pages of the dashboard cost the coordinator: its CPU with none and with twenty, in turns, in one run.

    .venv/bin/python -m bench.ui_pages [--nodes 1000] [--pages 20] [--seconds 15] [--rounds 3]

1,000 nodes of eight devices (engines without processes, `bench/agents.py`), an array of 100,000 tasks of which 8,000
run, and at least 60 changes a second: tasks end and others start. A page holds the stream of changes; a busy one also
reads its list of jobs and the overview every five seconds. Times are CPU time of the coordinator's process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.cluster import Cluster, until
from bench.keepalive import Connection

SETTINGS: dict[str, int | str] = {"heartbeat_s": 5, "lost_after_s": 120}
REFRESH_S = 5.0
ROOT = Path(__file__).parent.parent


class Page:
    """A page that reads the stream of changes, and its list now and then if it is busy."""

    def __init__(self, port: int, token: str, *, is_busy: bool) -> None:
        self._port = port
        self._token = token
        self._is_busy = is_busy
        self.messages = self.bytes = 0
        self._over = threading.Event()
        self._socket = self._asked("/v1/pages/changes")
        self._threads = [threading.Thread(target=self._read)]
        if is_busy:
            self._threads.append(threading.Thread(target=self._refresh))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _asked(self, path: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port))
        head = (
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\nauthorization: Bearer {self._token}\r\n"
        )
        connection.sendall(f"{head}accept-encoding: gzip\r\n\r\n".encode())
        return connection

    def _read(self) -> None:
        while data := self._socket.recv(1 << 20):
            self.bytes += len(data)
            self.messages += data.count(b"event: changes")

    def _refresh(self) -> None:
        while not self._over.wait(REFRESH_S):
            for path in ("/v1/pages/jobs?limit=100&sort=-submitted", "/v1/pages/overview"):
                with self._asked(path) as connection:
                    connection.settimeout(10.0)
                    connection.recv(1 << 20)


@contextmanager
def agents(cluster: Cluster, nodes: int, run_s: float) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.agents"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    options = {"port": cluster.link_port, "token": cluster.node_token, "first": 0, "runners": nodes}
    process.stdin.write(json.dumps(options | {"run_s": run_s, "gpus": 8}).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def cpu_share(pid: int, seconds: float) -> float:
    """Of one core."""
    process = psutil.Process(pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    return float((sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began))


def measure(cluster: Cluster, pages: int, seconds: float, *, is_busy: bool) -> tuple[float, float, float]:
    """The share of a core, messages a second of one page, and kilobytes a second of one page."""
    token = (cluster.folder / "credentials").read_text().strip()
    opened = [Page(cluster.port, token, is_busy=is_busy) for _ in range(pages)]
    time.sleep(2.0)
    counted = [(page.messages, page.bytes) for page in opened]
    share = cpu_share(cluster.coordinator_pid, seconds)
    messages = sum(page.messages - before for page, (before, _) in zip(opened, counted, strict=True))
    size = sum(page.bytes - before for page, (_, before) in zip(opened, counted, strict=True))
    for page in opened:
        page.close()
    many = max(1, pages) * seconds
    return share, messages / many, size / many / 1000


def tell_sizes(cluster: Cluster) -> None:
    """How large the answers are, and how long the first one takes."""
    rest = cluster.connect()
    paths = ("map", "overview", "jobs?limit=100", "jobs?limit=100&search=sleep&sort=name", "times?limit=5000")
    for path in paths:
        began = time.perf_counter()
        answer = rest.ask("GET", f"/v1/pages/{path}")
        took_ms = 1000 * (time.perf_counter() - began)
        packed = len(gzip.compress(answer, 1))
        print(f"{path:45} {took_ms:7.0f} ms {len(answer) / 1000:8.0f} kB {packed / 1000:7.0f} kB packed")


def _ask(rest: Connection, method: str, path: str, body: Any = None) -> Any:
    return json.loads(rest.ask(method, path, b"" if body is None else json.dumps(body).encode()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2000, help="jobs of one task, besides the array")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), SETTINGS)
        cluster.start_coordinator()
        try:
            run_s = options.nodes * 8 / 40
            with agents(cluster, options.nodes, run_s):
                report(cluster, options)
        finally:
            cluster.stop()


def report(cluster: Cluster, options: argparse.Namespace) -> None:
    rest = cluster.connect()
    for _ in range(options.jobs):
        _ask(rest, "POST", "/v1/jobs", {"command": ["sleep", "1"], "gpus": 8, "priority": -1})
    _ask(rest, "POST", "/v1/jobs", {"command": ["sleep", "1"], "gpus": 1, "array": "1-100000"})
    full = options.nodes * 8
    until(lambda: _ask(rest, "GET", "/v1/cluster")["tasks"]["running"] >= full * 0.98, 300.0, "all run", 0.5)
    tell_sizes(cluster)
    shares: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, pages, is_busy in (
            ("no page", 0, False),
            (f"{options.pages} pages", options.pages, False),
            (f"{options.pages} busy pages", options.pages, True),
        ):
            before = _ask(rest, "GET", "/v1/cluster")["revision"]
            began = time.monotonic()
            share, messages, size = measure(cluster, pages, options.seconds, is_busy=is_busy)
            events = (_ask(rest, "GET", "/v1/cluster")["revision"] - before) / (time.monotonic() - began)
            shares.setdefault(name, []).append(share)
            told = f"{events:5.0f} events/s; each page {messages:.1f} messages/s, {size:.1f} kB/s"
            print(f"{name:16} {100 * share:5.1f} % of a core; {told}", flush=True)
    base = statistics.median(shares["no page"])
    for name, found in shares.items():
        middle = statistics.median(found)
        print(f"{name:16} median {100 * middle:5.1f} %, {100 * (middle - base):+5.1f} against none")


if __name__ == "__main__":
    main()
