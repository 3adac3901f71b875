"""A thousand runners: what their heartbeats cost the coordinator, and how long a submit takes meanwhile.

    .venv/bin/python -m bench.runners [--runners 1000] [--seconds 60] [--store URL]

One real coordinator, and a thousand engines in a few processes that use the real protocol, two connections each. First
only heartbeats, every 5 s; then jobs as well, so many a second, each task ten seconds long on one of the nodes. At
last the coordinator is killed and started again, and all of them reconnect at once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.cluster import Cluster, until
from bench.figures import number, quantile
from bench.keepalive import Connection
from bench.machine import Machine, Span
from bench.partner import Partner

CPU_MAX = 0.5
SUBMIT_P99_S = 0.1
PROCESSES = 4
RUN_S = 10.0


def main() -> int:
    given = _options()
    folder = Path(tempfile.mkdtemp(prefix="phalanx-runners-"))
    settings = {} if given.store is None else {"store": given.store}
    cluster = Cluster(folder, settings)
    machine = Machine()
    try:
        with ExitStack() as stack:
            stack.callback(cluster.stop)
            cluster.start_coordinator()
            crowd = _crowd(cluster, given.runners, stack)
            parts = {"coordinator": [cluster.coordinator_pid]}
            machine.own(parts | {"crowd": [each.pid for each in crowd]})
            rest = stack.enter_context(cluster.connect())
            print(f"{_online(rest)} runners joined in {len(crowd)} processes", flush=True)
            time.sleep(6.0)  # the first heartbeats come spread over five seconds
            with machine.span(parts) as idle:
                time.sleep(given.seconds / 2)
            _report("heartbeats alone", idle)
            with machine.span(parts) as busy:
                taken = _submits(rest, given.seconds, given.rate)
            _report(f"heartbeats and {given.rate:g} jobs/s", busy)
            print(
                f"killed and started again: {_back(cluster, given.runners):.1f} s until all runners are back",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cpu, p99 = busy.cpu_s / busy.wall_s, quantile(taken, 0.99)
    shown = [
        f"{name} {quantile(taken, share) * 1000:.1f} ms" for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
    print(f"submit: {', '.join(shown)}, max {max(taken) * 1000:.1f} ms over {len(taken)}")
    print(f"CPU below {CPU_MAX:.0%} of a core: {'met' if cpu < CPU_MAX else 'MISSED'}", end="; ")
    print(f"p99 of a submit ≤ {SUBMIT_P99_S * 1000:.0f} ms: {'met' if p99 <= SUBMIT_P99_S else 'MISSED'}")
    return int(cpu >= CPU_MAX or p99 > SUBMIT_P99_S)


def _crowd(cluster: Cluster, runners: int, stack: ExitStack) -> list[Partner]:
    """Started one after another, so that a thousand hellos do not come in one artificial moment."""
    crowd = []
    share = -(-runners // PROCESSES)
    for at in range(PROCESSES):
        many = min(share, runners - at * share)
        partner = Partner([sys.executable, "-m", "bench.agents"], cluster.folder, f"crowd-{at}")
        stack.callback(partner.stop)
        told = {"port": cluster.link_port, "token": cluster.node_token, "first": at * share}
        partner.ask(told | {"runners": many, "run_s": RUN_S})
        crowd.append(partner)
    return crowd


def _back(cluster: Cluster, runners: int) -> float:
    """Seconds from `kill -9` of the coordinator, which is started again at once, until every runner is online."""
    began = time.perf_counter()
    process = cluster.processes["coordinator"]
    process.kill()
    process.wait()
    cluster.start_coordinator()
    with cluster.connect() as rest:
        until(lambda: _online(rest) == runners, 120.0, "all runners are back", look_s=0.05)
    return time.perf_counter() - began


def _online(rest: Connection) -> int:
    return int(json.loads(rest.ask("GET", "/v1/cluster"))["nodes_online"])


def _submits(rest: Connection, seconds: float, rate: float) -> list[float]:
    """Submit at an even pace; returns the seconds each answer took. A late one delays only itself."""
    body = json.dumps({"command": ["/bin/true"]}).encode()
    taken: list[float] = []
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        due = began + len(taken) / rate
        if now < due:
            time.sleep(due - now)
        asked = time.perf_counter()
        rest.ask("POST", "/v1/jobs", body)
        taken.append(time.perf_counter() - asked)
    return taken


def _report(what: str, span: Span) -> None:
    share, weather = span.cpu_s / span.wall_s, span.weather
    print(
        f"{what}: coordinator {share:.1%} of a core over {number(span.wall_s)} s"
        f" (others used {weather.foreign:.0%} of the machine, load {weather.load:.1f})",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runners", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs a second")
    parser.add_argument("--store", help="another store than SQLite, such as etcd://127.0.0.1:2379/bench")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
