"""The rig: a real cluster, honest work, and an attacker beside it, held to one core. The table shows the effects.

`scripts/hostile --minutes 5` runs the user and the stranger for five minutes each; a few seconds show that it works.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from phalanx.api.schema.apply import ApplyRequest
from phalanx.api.schema.cluster import TokenRequest
from tests.hostile.cores import held_to_one_core
from tests.hostile.honest import Honest, Sample, p
from tests.hostile.target import Target
from tests.support.real_cluster import RealCluster, a_real_cluster

P99_MS = 100.0
NODES = {"n1": "cpus=2,ram=4GiB", "n2": "cpus=2,ram=4GiB"}


class Row(NamedTuple):
    """The effect of one attack on the honest user."""

    who: str
    attack: str
    submits: int
    submit_ms: tuple[float, float]  # p50 and p99
    cancels: int
    cancel_ms: tuple[float, float]
    refused: int
    offline: int  # times that a node was not Online when it was looked at
    rss_mib: float
    did: dict[str, int]

    @property
    def is_good(self) -> bool:
        return max(self.submit_ms[1], self.cancel_ms[1]) <= P99_MS and not self.refused and not self.offline


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for each attacker")
    parser.add_argument("--jobs", type=int, default=20_000, help="that are there before the attack")
    parser.add_argument("--only", choices=("user", "stranger"))
    asked = parser.parse_args()
    rows: list[Row] = []
    for who in ("user", "stranger") if asked.only is None else (asked.only,):
        with tempfile.TemporaryDirectory(prefix="phalanx-hostile-") as folder:
            rows += beside(who, Path(folder), asked.minutes * 60, asked.jobs)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    sys.stdout.write(f"{table(rows)}\nload of the machine at the end: {load}\n")
    return 0 if all(row.is_good for row in rows) else 1


def beside(who: str, folder: Path, seconds: float, jobs: int) -> list[Row]:
    """One attacker for so long; a row for each attack."""
    with a_real_cluster(folder, NODES, lost_after_s=15.0) as cluster:
        tokens = {name: _token(cluster, name) for name in ("mallory", "ada")}
        _fill(cluster, jobs)
        target = Target(cluster.port, cluster.link_port, tokens["mallory"] if who == "user" else "")
        honest = Honest(cluster.address("coordinator"), tokens["ada"])
        honest.start()
        watch = Watch(cluster)
        watch.start()
        argv = [
            sys.executable,
            "-m",
            "tests.hostile.attacker",
            who,
            json.dumps(target._asdict()),
            str(seconds),
        ]
        with (
            subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as attacker,
            held_to_one_core(attacker.pid, f"phalanx-hostile-{attacker.pid}"),
        ):
            did = _told(attacker, honest, watch)
            attacker.wait(60)
        honest.stop()
        watch.stop()
        return [_row(who, name, honest.samples, watch, did.get(name, {})) for name in did]


class Watch(threading.Thread):
    """Looks at the nodes and at the coordinator's memory once in a while, as an admin."""

    def __init__(self, cluster: RealCluster) -> None:
        super().__init__(daemon=True)
        self.phase = "before"
        self.offline: collections.Counter[str] = collections.Counter()
        self.rss_mib: dict[str, float] = {}
        self._cluster = cluster
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.5):
            nodes = self._cluster.client.nodes()
            self.offline[self.phase] += sum(node.status != "Online" for node in nodes)
            pid = self._cluster.processes["coordinator"].pid
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.rss_mib[self.phase] = max(self.rss_mib.get(self.phase, 0.0), pages / 256)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


def _told(attacker: subprocess.Popen[str], honest: Honest, watch: Watch) -> dict[str, dict[str, int]]:
    """Follow the attacker's output until it is done; returns the result of each attack."""
    did: dict[str, dict[str, int]] = {}
    assert attacker.stdout is not None
    for line in attacker.stdout:
        said = json.loads(line)
        if "begins" in said:
            honest.phase = watch.phase = said["begins"]
        else:
            did[said["ended"]] = said["counts"]
    return did


def _row(who: str, attack: str, samples: list[Sample], watch: Watch, did: dict[str, int]) -> Row:
    mine = [each for each in samples if each.phase == attack]
    took = {
        what: [each.took_s for each in mine if each.what == what and not each.trouble]
        for what in ("submit", "cancel")
    }
    return Row(
        who,
        attack,
        len(took["submit"]),
        (p(took["submit"], 0.5), p(took["submit"], 0.99)),
        len(took["cancel"]),
        (p(took["cancel"], 0.5), p(took["cancel"], 0.99)),
        sum(bool(each.trouble) for each in mine),
        watch.offline[attack],
        watch.rss_mib.get(attack, 0.0),
        did,
    )


def table(rows: list[Row]) -> str:
    names = "who, attack, submits, p50 ms, p99 ms, cancels, p50 ms, p99 ms, refused, node away, RSS MiB, what it got"
    lines = [f"| {names.replace(', ', ' | ')} |", "|---" * 12 + "|"]
    for row in rows:
        did = ", ".join(f"{key}: {value}" for key, value in sorted(row.did.items())) or "-"
        lines.append(
            f"| {row.who} | {row.attack} | {row.submits} | {row.submit_ms[0]:.1f} | {row.submit_ms[1]:.1f} "
            f"| {row.cancels} | {row.cancel_ms[0]:.1f} | {row.cancel_ms[1]:.1f} | {row.refused} "
            f"| {row.offline} | {row.rss_mib:.0f} | {did} |"
        )
    return "\n".join(lines)


def _token(cluster: RealCluster, name: str) -> str:
    return cluster.client.create_token(TokenRequest(name=name, role="user")).token


def _fill(cluster: RealCluster, jobs: int) -> None:
    """Jobs that wait for what no node has, so that lists are long."""
    spec = {"groups": [{"command": ["/bin/true"], "gpus": 997}]}
    for done in range(0, jobs, 1000):
        body = {"specs": [spec] * min(1000, jobs - done), "allow_infeasible": True}
        cluster.client.apply(msgspec.convert(body, ApplyRequest))
