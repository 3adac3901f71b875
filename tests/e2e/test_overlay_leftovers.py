"""What the overlay network leaves in a host's kernel: nothing of ours after a crash and a stop, all of others.

One host as a network namespace with a runner; beside it a namespace in which a coordinator meets a route of its host.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.runner import state_files
from phalanx.runner.overlay import mark_of
from tests.e2e.test_overlay import ON, process_of
from tests.support.network_hosts import NETNS, OURS, HostCluster, a_host_cluster, host_name, ip
from tests.support.real_cluster import _RUN, free_ports
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None,
        reason="an overlay network takes root and nftables",
    ),
    pytest.mark.timeout(200),
]
HOST = host_name(1)
# Of somebody else, and of a runner with another mark: one that shares the host.
FOREIGN_TABLES = {"foreign", "phalanx_0fffff"}
FOREIGN_LINKS = {"foreign0", "phx0fffffv"}
RULES = "chain input { type filter hook input priority 0; tcp dport 9 drop; }; "
SLEEP = ["/bin/sleep", "300"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    with a_host_cluster(tmp_path_factory.mktemp("leftovers"), 1, ON) as started:
        for name in FOREIGN_TABLES:
            nft(f"table inet {name} {{ {RULES} }}")
        for name in FOREIGN_LINKS:
            ip("-n", HOST, "link", "add", name, "type", "bridge")
        ip("netns", "add", f"{OURS}-foreign")
        try:
            yield started
        finally:
            ip("netns", "del", f"{OURS}-foreign")


def nft(*words: str) -> str:
    """nft in the host."""
    command = ["nsenter", f"--net={NETNS / HOST}", "nft", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tables() -> dict[str, str]:
    """The tables of nftables in the host, with what is in each."""
    listed = [line.split()[-1] for line in nft("list", "tables").splitlines()]
    return {name: nft("list", "table", "inet", name) for name in listed}


def links() -> set[str]:
    """The links of the host."""
    return {link["ifname"] for link in json.loads(ip("-n", HOST, "-j", "link"))}


def mark(cluster: HostCluster) -> str:
    return mark_of(state_files.origin(cluster.folder / "n1"))


def foreign() -> tuple[dict[str, str], set[str], bool]:
    """What others have in the host, and whether their namespace is there."""
    of_others = {name: text for name, text in tables().items() if name in FOREIGN_TABLES}
    return of_others, links() & FOREIGN_LINKS, f"{OURS}-foreign" in ip("netns", "list").split()


def a_task_with_an_address(cluster: HostCluster) -> str:
    id = cluster.client.submit(
        command=SLEEP, targets=["n1"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    cluster.wait_task(id, "Running")
    return id


def of_tasks(cluster: HostCluster) -> list[str]:
    """Namespaces and links of tasks."""
    return cluster.spaces() + [name for name in links() if name.startswith(f"phx{mark(cluster)}t")]


def test_what_ended_while_no_runner_was_there_is_cleaned_up_at_the_next_start(cluster: HostCluster) -> None:
    before = foreign()
    assert ({*before[0]}, before[1], before[2]) == (FOREIGN_TABLES, FOREIGN_LINKS, True)
    id = a_task_with_an_address(cluster)
    assert len(of_tasks(cluster)) == 2, "a namespace and a link"
    cluster.kill("n1")
    os.kill(process_of(id), signal.SIGKILL)
    cluster.start_runner("n1")
    cluster.wait_online("n1")
    wait_until(lambda: of_tasks(cluster) == [], 20.0, "nothing of the task is left")
    assert foreign() == before, "and nothing of others is touched"


def test_a_runner_that_stops_takes_its_table_and_its_vxlan_link_with_it(cluster: HostCluster) -> None:
    before = foreign()
    cluster.client.cancel(a_task_with_an_address(cluster))
    wait_until(lambda: of_tasks(cluster) == [], 20.0, "the task has left nothing")
    table, link = f"phalanx_{mark(cluster)}", f"phx{mark(cluster)}v"
    assert table in tables()
    assert link in links()
    assert "vxlan" in ip("-n", HOST, "-d", "link", "show", link)
    cluster.kill("n1", signal.SIGTERM)
    assert {*tables()} == FOREIGN_TABLES
    assert {name for name in links() if name.startswith("phx")} == {"phx0fffffv"}
    assert foreign() == before, "and nothing of others is touched"
    cluster.start_runner("n1")
    cluster.wait_online("n1")


def test_a_coordinator_whose_subnet_hides_a_route_of_its_host_does_not_start(tmp_path: Path) -> None:
    space = f"{OURS}-routes"
    port, link_port = free_ports(2)
    settings = {
        "coordinator.store": "memory:",
        "coordinator.state_dir": str(tmp_path),
        "coordinator.port": port,
        "coordinator.link_port": link_port,
        "overlay.mode": "enabled",
        "overlay.subnet": "10.128.0.0/12",
    }
    start = [sys.executable, "-c", _RUN.format(part="coordinator"), json.dumps(settings)]
    ip("netns", "add", space)
    try:
        ip("-n", space, "link", "add", "office0", "type", "bridge")
        ip("-n", space, "addr", "add", "10.130.7.1/16", "dev", "office0")
        ip("-n", space, "link", "set", "office0", "up")
        done = subprocess.run(
            ["nsenter", f"--net={NETNS / space}", *start],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        ip("netns", "del", space)
    said = done.stdout + done.stderr
    assert done.returncode not in (0, -signal.SIGKILL), said
    assert "it would hide this machine's route to 10.130.0.0/16 through office0" in said
