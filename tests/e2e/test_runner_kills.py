"""A runner that is killed again and again, with everything that isolates its tasks at once, leaves nothing behind.

The node is a network namespace of its own, so that what it makes there is counted exactly. Its twenty tasks have parts
of CPUs, limits of memory and processes, scratch folders of a size, addresses of the overlay network, and, being members
of gangs, host names and hosts files; some are in containers. They write all the time, and their logs miss nothing.
RUNNER_KILLS says how often it is killed: 30 in `make soak`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from phalanx.errors import Unavailable
from phalanx.runner import scratch
from phalanx.runner.overlay import mark_of
from tests.support.keeper_node import alive
from tests.support.network_hosts import NETNS, Carrier, ip
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.real_cluster import _RUN, RealCluster
from tests.support.waiting import wait_until

KILLS = int(os.environ.get("RUNNER_KILLS", "2"))
HOST = f"phxkill{os.getpid()}"
ADDRESS = "192.168.78.1"
MIB = 1 << 20
GANGS, MEMBERS, ALONE = 2, 5, 10
CONTAINERS = 3 if KILLS <= 2 else 8  # of those that are alone
SCRIPT = (
    "import os, socket, time\n"
    "print(os.getpid(), socket.gethostname(), os.environ['PHALANX_IP'], flush=True)\n"
    "for number in range(30_000):\n    print(number, flush=True)\n    time.sleep(0.02)"
)
IN_CONTAINER = (
    "echo $$ $(hostname) $PHALANX_IP; n=0; while [ $n -lt 6000 ]; do echo $n; n=$((n + 1)); sleep 0.1; done"
)
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None,
        reason="limits that hold and an overlay network take root and nftables",
    ),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "never"),
    pytest.mark.timeout(120 + 20 * KILLS),
]


class OneHostCluster(RealCluster):
    """The coordinator is on this machine, the runner in a network namespace of its own."""

    def _start(self, name: str, part: str, settings: Mapping[str, object]) -> None:
        if part != "runner":
            super()._start(name, part, settings)
            return
        wanted = {**settings, "runner.pretend": None, "runner.address": ADDRESS}
        argv = [sys.executable, "-c", self.prelude + _RUN.format(part=part), json.dumps(wanted)]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["nsenter", f"--net={NETNS / HOST}", *argv], stdout=log, stderr=log, env=env
            )


@contextmanager
def a_host() -> Iterator[None]:
    ip("netns", "add", HOST)
    try:
        ip("-n", HOST, "link", "set", "lo", "up")
        ip("-n", HOST, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        yield
    finally:
        ip("netns", "del", HOST)


@pytest.fixture
def host() -> Iterator[str]:
    with a_host():
        yield HOST


@pytest.fixture
def podman(host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with a_podman(tmp_path_factory.mktemp("podman"), host=host) as podman:
        podman.busybox()
        yield podman


@pytest.fixture
def cluster(podman: Podman, tmp_path: Path) -> Iterator[OneHostCluster]:
    settings = {"overlay.mode": "enabled", "overlay.quarantine_s": 1.0}
    cluster = OneHostCluster(tmp_path / "c", lost_after_s=60.0, settings=settings)
    runner = {"runner.scratch_max_bytes": MIB, "runner.keepers": 2}
    cluster.node_settings = {"n1": {**runner, "runner.container_socket": str(podman.socket)}}
    carrier = Carrier(HOST, cluster.link_port)
    try:
        cluster.start({"n1": "real"})
        yield cluster
    finally:
        left = ours(cluster.folder)
        cluster.stop()
        carrier.close()
        scratch.unmount(cluster.folder)
        for name in left:
            if name.startswith("phalanx-"):
                with suppress(subprocess.CalledProcessError):
                    ip("netns", "del", name)


def ours(folder: Path) -> list[str]:
    """All that tasks of the node have of the machine: namespaces, links, rules, cgroups, mounts and folders."""
    node = folder / "n1"
    if not (node / "origin").exists():
        return []
    origin = (node / "origin").read_text()
    mark = mark_of(origin)
    spaces = [path.name for path in NETNS.glob(f"phalanx-{mark}-*")]
    links = [line.split(": ")[1] for line in ip("-n", HOST, "-o", "link").splitlines()]
    rules = subprocess.run(
        ["ip", "netns", "exec", HOST, "nft", "list", "ruleset"], capture_output=True, text=True, check=True
    ).stdout
    inner = [path for base in bases_of(folder) for path, _, _ in os.walk(base) if path != base]
    return [
        *spaces,
        *(link for link in links if link.startswith(f"phx{mark}t")),
        *(line.strip() for line in rules.splitlines() if f"phx{mark}t" in line and "*" not in line),
        # Slots are used again, also those of an owner; they go with the runner.
        *(path for path in inner if not path.endswith("/keeper") and "/phalanx-slots" not in path),
        *scratch.mounted_below(node),
        *map(str, (node / "scratch").glob("*")),
        *map(str, (node / "logs" / "hosts").glob("*")),
    ]


def bases_of(folder: Path) -> list[str]:
    """The folders of the node in all hierarchies of cgroups."""
    name = f"/phalanx-n1-{(folder / 'n1' / 'origin').read_text()[:8]}"
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if path.endswith((name, f"{name}.1"))]


def kinds(left: list[str]) -> Counter[str]:
    """What is there, by kind."""
    marks = {"phalanx-": "namespaces", "phx": "links", "/sys/": "cgroups", '"phx': "rules"}
    found = [next((kind for mark, kind in marks.items() if each.startswith(mark)), each) for each in left]
    return Counter("rules" if "elements" in each else each for each in found)


def start_tasks(cluster: RealCluster) -> list[str]:
    fields: dict[str, object] = {"network": "overlay", "max_retries": 0, "cores": 0.05}
    command = [sys.executable, "-I", "-S", "-c", SCRIPT]
    contained = {"command": ["/bin/sh", "-c", IN_CONTAINER], "image": IMAGE}
    ids: list[str] = []
    for _ in range(GANGS):
        job = cluster.client.gang(command, MEMBERS, **fields).task_ids[0]  # type: ignore[arg-type]
        ids += [f"{job}.{position}" for position in range(MEMBERS)]
    for number in range(ALONE):
        memory = 32 * MIB if number % 2 else 0
        runs = contained if number < CONTAINERS else {"command": command}
        ids += cluster.client.submit(memory=memory, **runs, **fields).task_ids  # type: ignore[arg-type]
    return ids


def output(cluster: RealCluster, id: str) -> str:
    """What a task has written; nothing while its runner's connection for logs is not there yet."""
    try:
        return cluster.output(id)
    except Unavailable:
        return ""


def has_all(text: str, before: list[str]) -> bool:
    """Whether a task has gone on with its numbers, and the log misses none of what it wrote."""
    first, *numbers = text.splitlines()
    assert (first, numbers) == (before[0], list(map(str, range(len(numbers)))))
    return len(numbers) > len(before)


def joins(cluster: RealCluster) -> int:
    """How often a runner of the node was welcomed: killed before, none of them would prolong the lease of its tasks."""
    return (cluster.folder / "n1.log").read_text().count(" joined ")


def test_twenty_isolated_tasks_outlive_their_runner_and_leave_nothing(
    cluster: OneHostCluster, podman: Podman
):
    ids = start_tasks(cluster)
    assert len(ids) == 20
    texts = {id: wait_until(lambda id=id: output(cluster, id), 60.0, f"{id} runs") for id in ids}  # type: ignore[misc]
    said = {id: text.splitlines() for id, text in texts.items()}
    there, held = kinds(ours(cluster.folder)), podman.held()
    assert sum(each.startswith("container ") for each in held) == CONTAINERS
    assert {each.split()[0] for each in held} == {"container", "mount", "monitor", "cgroup"}
    assert (there["namespaces"], there["links"]) == (20, 20)
    assert there["cgroups"] >= 20
    assert len(scratch.mounted_below(cluster.folder / "n1")) == 20
    assert len(list((cluster.folder / "n1" / "logs" / "hosts").glob("*"))) == GANGS * MEMBERS
    for _ in range(KILLS):
        before = joins(cluster)
        cluster.kill("n1")
        cluster.start_runner("n1")
        wait_until(lambda before=before: joins(cluster) > before, 60.0, "the runner is back")  # type: ignore[misc]
    for id, lines in said.items():
        now = wait_until(lambda id=id: output(cluster, id), 60.0, f"the log of {id}")  # type: ignore[misc]
        assert has_all(now, lines), [line.text for line in cluster.client.story(id).items]
    numbers = [int(lines[0].split()[0]) for lines in said.values()]
    assert numbers.count(1) == CONTAINERS, "it is the first process of its container"
    assert all(map(alive, numbers))
    assert (kinds(ours(cluster.folder)), podman.held()) == (there, held)
    for job in {id.partition(".")[0] for id in ids}:
        cluster.client.cancel(job)
    with suppress(TimeoutError):
        wait_until(lambda: not ours(cluster.folder) and not podman.held(), 60.0)
    assert (ours(cluster.folder), podman.held()) == ([], [])
    cluster.kill("n1", signal.SIGTERM)
    assert (ours(cluster.folder), bases_of(cluster.folder)) == ([], [])
