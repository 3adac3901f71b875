"""`python -m tests.dashboard`: every query of the Grafana dashboard against a Prometheus that scrapes a real cluster.

A small cluster works for some minutes while a real Prometheus reads its metrics. Then each query of the dashboard is
asked over a range of time, as Grafana would; those without data are named, and the panels are drawn into one picture.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from phalanx.clock import SystemClock
from tests.dashboard.panels import Panel, read_panels
from tests.dashboard.picture import draw
from tests.dashboard.prometheus import Prometheus
from tests.dashboard.workload import WorkingCluster
from tests.support.real_cluster import free_ports
from tests.support.waiting import wait_until
from tests.tidy.source import ROOT

DASHBOARD = ROOT / "deploy/grafana/phalanx.json"
PICTURE = ROOT / "docs/operations/dashboard.png"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/dashboard", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360.0, help="how long the cluster works")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where the picture goes")
    options = parser.parse_args()
    if shutil.which("prometheus") is None:
        _say("prometheus is not installed: apt install prometheus")
        return 2
    with tempfile.TemporaryDirectory(prefix="phalanx-dashboard-") as folder:
        panels, began, ended = _measured(Path(folder), options.seconds)
    for panel in panels:
        _say(panel.told())
    draw(panels, began, ended, options.picture)
    empty = [query.expr for panel in panels for query in panel.queries if not query.has_data]
    asked = sum(len(panel.queries) for panel in panels)
    _say(f"{asked} queries, {len(empty)} without data; {options.picture}")
    return 1 if empty else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _measured(folder: Path, seconds: float) -> tuple[list[Panel], float, float]:
    """The panels with their answers, and from when to when they are."""
    clock = SystemClock()
    panels = read_panels(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    cluster = WorkingCluster(folder / "cluster")
    try:
        cluster.begin()
        (port,) = free_ports(1)
        targets = [f"127.0.0.1:{cluster.ports[name][0]}" for name in cluster.coordinators]
        with Prometheus(folder / "prometheus", port, targets, cluster.user_token) as prometheus:
            wait_until(lambda: prometheus.up() == len(targets), 60.0, "both coordinators are scraped")
            began = clock.now()
            cluster.work(seconds)
            ended = clock.now()
            for panel in panels:
                for query in panel.queries:
                    query.series = prometheus.range(query.expr, began, ended)
    finally:
        cluster.stop()
        for line in cluster.errors():
            _say(line)
    return panels, began, ended


if __name__ == "__main__":
    sys.exit(main())
