"""What a user who floods sessions with output does to the API calls of others: `python -m bench.session_flood`.

    python -m bench.session_flood [--sessions 4] [--seconds 10]

One coordinator and one runner. A user runs a command in so many sessions that writes as fast as it can; another submits
trivial jobs and asks for nodes, one call every few milliseconds on one connection. First without the flood, then with
it, in large pieces of output, then in single bytes. Quantiles of the calls in ms, and what got through to the user.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import phalanx
from bench.cluster import PHALANX, Cluster
from bench.figures import quantile
from bench.keepalive import Connection
from bench.machine import Machine
from phalanx.api.schema.cluster import TokenRequest

ALLOWED_MS = 100.0
PAUSE_S = 0.005
LARGE, SMALL = "yes", "import os\nwhile True: os.write(1, b'x')"


class Flood:
    """Sessions of one user, each a command that writes and a client that reads it."""

    def __init__(self, env: dict[str, str], task: str, words: list[str], sessions: int) -> None:
        command = [str(PHALANX), "exec", task, "--", *words]
        self._counting: list[subprocess.Popen[bytes]] = []
        self._running: list[subprocess.Popen[bytes]] = []
        for _ in range(sessions):
            counter = subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._counting.append(counter)
            self._running.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=counter.stdin, env=env)
            )
            assert counter.stdin is not None
            counter.stdin.close()

    def stop(self) -> int:
        """End it; the bytes that arrived."""
        for each in self._running:
            each.terminate()
            each.wait()
        return sum(int(each.stdout.read()) for each in self._counting if each.stdout is not None)


def calls_ms(rest: Connection, seconds: float) -> list[float]:
    """How long calls take, one after another with a pause between."""
    body = json.dumps({"command": ["/bin/true"]}).encode()
    took, until, number = [], time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        rest.ask("POST", "/v1/jobs", body) if number % 2 else rest.ask("GET", "/v1/nodes")
        took.append(1000 * (time.perf_counter() - began))
        number += 1
        time.sleep(PAUSE_S)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as open_now:
        cluster = Cluster(Path(folder), {})
        open_now.callback(cluster.stop)
        cluster.start_coordinator()
        cluster.start_runner("n1", "cpus=8,ram=8GiB")
        task, env = _another_user(cluster)
        machine = Machine()
        machine.own(cluster.parts())
        rest = open_now.enter_context(cluster.connect())
        for what, words in (
            ("no flood", None),
            ("large pieces", [LARGE]),
            ("single bytes", [sys.executable, "-c", SMALL]),
        ):
            flood = None if words is None else Flood(env, task, words, options.sessions)
            with machine.span(cluster.parts()) as span:
                took = calls_ms(rest, options.seconds)
            through = 0 if flood is None else flood.stop()
            p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
            worst = max(worst, p99)
            used = span.used["coordinator"].own_s / span.wall_s
            sys.stdout.write(
                f"{what:14} p50 {p50:6.1f}  p99 {p99:6.1f}  most {max(took):6.1f} ms of {len(took)} calls;"
                f" {through / span.wall_s / 1e6:.1f} MB/s got through; coordinator {used:.0%} of a core;"
                f" load {os.getloadavg()[0]:.1f}\n"
            )
            sys.stdout.flush()
    said = "holds" if worst <= ALLOWED_MS else "DOES NOT HOLD"
    sys.stdout.write(f"p99 of others within {ALLOWED_MS:g} ms: {said}\n")
    return 0 if worst <= ALLOWED_MS else 1


def _another_user(cluster: Cluster) -> tuple[str, dict[str, str]]:
    """A task of another user that stays, and the environment in which its user runs commands."""
    address = f"http://127.0.0.1:{cluster.port}"
    with phalanx.Client(address, (cluster.folder / "credentials").read_text().strip()) as admin:
        token = admin.create_token(TokenRequest("user", "eve", "user")).token
    env = cluster.env | {"PHALANX_ADDRESS": address, "PHALANX_TOKEN": token}
    with phalanx.Client(address, token) as eve:
        task = eve.submit(command=["/bin/sleep", "600"]).task_ids[0]
        while eve.task(task).status != "Running":
            time.sleep(0.05)
    return task, env


if __name__ == "__main__":
    raise SystemExit(main())
