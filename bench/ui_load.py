"""A large cluster at work, for what is measured of the dashboard, and a browser that is logged in to it.

1,000 nodes of eight devices (engines without processes, `bench/agents.py`), an array of 100,000 tasks of which 8,000
run, jobs that wait behind it, and at least 60 changes a second: tasks end and others start.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cluster import Cluster, until
from bench.keepalive import Connection

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

SETTINGS: dict[str, int | str] = {"heartbeat_s": 5, "lost_after_s": 120}
ROOT = Path(__file__).parent.parent
CHROMIUM = "/usr/bin/chromium"
TASKS = 100_000
STARTS_PER_S = 40.0
FILL_S = 300.0


def ask(rest: Connection, method: str, path: str, body: Any = None) -> Any:
    return json.loads(rest.ask(method, path, b"" if body is None else json.dumps(body).encode()))


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


def fill(cluster: Cluster, nodes: int, jobs: int) -> None:
    """The array first, so that it is job 1; then jobs that wait behind it. All devices are held afterwards."""
    rest = cluster.connect()
    array: dict[str, Any] = {"command": ["sleep", "1"], "gpus": 1, "array": f"1-{TASKS}", "name": "sweep"}
    ask(rest, "POST", "/v1/jobs", array)
    for number in range(jobs):
        waits = {"command": ["sleep", "1"], "gpus": 8, "priority": -1, "name": f"waits-{number}"}
        ask(rest, "POST", "/v1/jobs", waits)
    full = nodes * 8
    until(
        lambda: ask(rest, "GET", "/v1/cluster")["tasks"]["running"] >= full * 0.98,
        FILL_S,
        "all devices are held",
        0.5,
    )


@contextmanager
def at_work(nodes: int, jobs: int) -> Iterator[Cluster]:
    """A cluster that is full, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), SETTINGS)
        cluster.start_coordinator()
        try:
            with agents(cluster, nodes, nodes * 8 / STARTS_PER_S):
                fill(cluster, nodes, jobs)
                yield cluster
        finally:
            cluster.stop()


def revision(rest: Connection) -> int:
    return int(ask(rest, "GET", "/v1/cluster")["revision"])


def logged_in(browser: Browser, cluster: Cluster) -> BrowserContext:
    ticket = ask(cluster.connect(), "POST", "/v1/logins/tickets", {})["ticket"]
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{cluster.port}/ui/#ticket={ticket}")
    page.get_by_role("navigation", name="Pages").wait_for()
    page.close()
    return context


def options_of(about: str | None) -> argparse.ArgumentParser:
    """The options that all of these measurements have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2000, help="jobs of one task, besides the array")
    return parser
