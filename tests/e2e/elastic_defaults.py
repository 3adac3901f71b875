"""Five real runners with the defaults of automatic scaling: the pool shrinks when idle, and grows when work arrives.

`python -m tests.e2e.elastic_defaults` takes four minutes, nearly all of it waiting, and is part of `make soak`. Only
`ENABLE_ELASTIC_SCALING=true` is set. Every time in the verdict is one that the stories of the nodes tell.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.elastic import ElasticRules
from tests.support.real_cluster import RealCluster
from tests.support.waiting import pause, wait_until

NODES = {f"n{number}": "cpus=1,ram=2GiB" for number in range(1, 6)}
DEFAULTS = ElasticRules(mode="auto")
SLOW_S = 15.0  # how much later than planned a poll and what follows it may be, on a machine under load


class Verdict(Struct):
    """How long the pool took, and what was not as it has to be."""

    shrunk_s: float = 0.0  # from when the last node joined
    grown_s: float = 0.0  # from when the tasks were submitted
    wrong: list[str] = []


def run(folder: Path) -> Verdict:
    cluster = RealCluster(folder, heartbeat_s=5.0, lost_after_s=30.0)  # the defaults as well
    cluster.environment = {"ENABLE_ELASTIC_SCALING": "true"}
    try:
        cluster.start(NODES)
        within_s = DEFAULTS.idle_s + DEFAULTS.poll_s + SLOW_S
        wait_until(lambda: len(_disabled(cluster)) == len(NODES) - 1, within_s, "four of five are disabled")
        job = cluster.client.submit(command=["sleep", "600"], array="0-4", cores=1)
        # The pool has just shrunk, so the first poll that may enable a node is one cooldown away.
        within_s = DEFAULTS.cooldown_s + len(NODES) * DEFAULTS.poll_s + SLOW_S
        wait_until(lambda: _nodes_at_work(cluster, job.id) == set(NODES), within_s, "all five work")
        found = judge(cluster, job.id)
        cluster.client.cancel(job.id)
        return found
    finally:
        cluster.stop()


def judge(cluster: RealCluster, job: str) -> Verdict:
    """What the stories say: who was disabled and enabled when, and when the tasks started."""
    toggles = {name: node_times(cluster, name) for name in NODES}
    joined = max(times["NodeJoined"][0] for times in toggles.values())
    off = {name: times["NodeDisabled"] for name, times in toggles.items() if "NodeDisabled" in times}
    on = {name: times["NodeEnabled"] for name, times in toggles.items() if "NodeEnabled" in times}
    lines = cluster.client.story(job).items
    submitted = next(line.at for line in lines if line.event == "JobSubmitted")
    started = max(line.at for line in lines if line.event == "AttemptStarted")
    found = Verdict(max(map(max, off.values())) - joined, started - submitted, [])
    if len(off) != len(NODES) - 1 or on.keys() != off.keys():
        found.wrong.append(f"disabled: {sorted(off)}, enabled: {sorted(on)}")
    if any(len(times) != 1 for times in (*off.values(), *on.values())):
        found.wrong.append(f"toggled more than once: disabled {off}, enabled {on}")
    found.wrong += broken_waits(off, on, DEFAULTS.cooldown_s, DEFAULTS.poll_s)
    return found


def broken_waits(
    off: dict[str, list[float]], on: dict[str, list[float]], cooldown_s: float, poll_s: float
) -> list[str]:
    """Nodes that were enabled before they had cooled down, and those that were enabled in one poll."""
    wrong = [
        f"{name} was enabled {on[name][0] - off[name][0]:.1f} s after it was disabled"
        for name in sorted(on.keys() & off.keys())
        if on[name][0] - off[name][0] < cooldown_s
    ]
    times = sorted(at for each in on.values() for at in each)
    # A poll is a whole interval after the one before, but for the time that the turns before them take.
    close = [b - a for a, b in pairwise(times) if b - a < poll_s / 2]
    return wrong + [f"two nodes were enabled {gap:.1f} s after each other" for gap in close]


def node_times(cluster: RealCluster, name: str) -> dict[str, list[float]]:
    """When each kind of event happened to a node."""
    found: dict[str, list[float]] = {}
    for line in cluster.client.story(name, of="nodes").items:
        found.setdefault(line.event, []).append(line.at)
    return found


def _disabled(cluster: RealCluster) -> list[str]:
    pause(0.5)  # the stories have the times, so there is no need to ask often
    return [node.name for node in cluster.client.nodes() if node.elastic_disabled]


def _nodes_at_work(cluster: RealCluster, job: str) -> set[str]:
    pause(0.5)
    return {task.node or "" for task in cluster.client.tasks(job).items if task.status == "Running"}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="phalanx-elastic-") as folder:
        found = run(Path(folder) / "cluster")
    sys.stdout.write(
        f"five idle nodes were down to one after {found.shrunk_s:.0f} s,"
        f" and back to five {found.grown_s:.0f} s after five tasks arrived\n"
    )
    for each in found.wrong:
        sys.stdout.write(f"wrong: {each}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
