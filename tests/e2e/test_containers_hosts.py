"""Containers with addresses of the overlay network: two hosts as network namespaces, each with a podman of its own."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_names import SEEDS, finished
from tests.e2e.test_overlay import ON
from tests.e2e.test_port_forward import forwarded
from tests.support.network_hosts import HostCluster, network_hosts, running
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "never"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None,
        reason="an overlay network takes root and nftables",
    ),
    pytest.mark.timeout(300),
]
PLACES = sorted(path for path in {sys.base_prefix, "/usr", "/lib", "/lib64"} if Path(path).exists())
PYTHON = f"{sys.base_prefix}/bin/python3"
SERVER = "echo up; while true; do hostname | nc -l -p 7777; done"


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[str]]:
    with network_hosts(2) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def podmen(hosts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Podman]]:
    """One in each host: a container without an address is in the network of the service that made it."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(a_podman(tmp_path_factory.mktemp("podman"), host=host)) for host in hosts
        ]
        for podman in found:
            podman.busybox()
        yield found


@pytest.fixture(scope="module")
def cluster(
    hosts: list[str], podmen: list[Podman], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostCluster]:
    cluster = HostCluster(tmp_path_factory.mktemp("hosts"), lost_after_s=60.0, settings=ON)
    for number, podman in enumerate(podmen, 1):
        cluster.node_settings[f"n{number}"] = {
            "runner.container_socket": str(podman.socket),
            "runner.container_mounts": ";".join([*PLACES, str(SEEDS)]),
        }
    with running(cluster, hosts):
        yield cluster


def group(name: str, tasks: int, script: str) -> dict[str, object]:
    """Members in containers with addresses, more of them than one host has room for."""
    mounts = [f"{path}:{path}:ro" for path in PLACES]
    return {
        "name": name,
        "tasks": tasks,
        "replicas": tasks,
        "image": IMAGE,
        "network": "overlay",
        "mounts": [*mounts, f"{SEEDS}:/data:ro"],
        "command": [PYTHON, f"/data/{script}"],
    }


def hosts_of(cluster: HostCluster, id: str) -> set[str]:
    return {task.node for task in cluster.client.tasks(id).items}


def test_seed_002s_scripts_run_in_containers_over_two_hosts(cluster: HostCluster, podmen: list[Podman]):
    peers = group("worker", 4, "002-decentralized.txt")
    first = cluster.client.apply({"name": "exp", "gang": True, "groups": [peers]}).jobs[0].id
    wait_until(lambda: [len(podman.containers()) for podman in podmen] == [2, 2], 60.0, "two on each host")
    assert len({task.address for task in cluster.client.tasks(first).items} - {""}) == 4
    written = finished(cluster, first, 90.0)
    assert hosts_of(cluster, first) == {"n1", "n2"}
    assert all(each.count(" ready") == 3 and each.endswith("[peers] done\n") for each in written)
    roles = [group("coordinator", 1, "002-coordinator.txt"), group("worker", 2, "002-coordinator.txt")]
    led = cluster.client.apply({"name": "led", "gang": True, "groups": roles}).jobs[0].id
    written = finished(cluster, led, 90.0)
    assert hosts_of(cluster, led) == {"n1", "n2"}
    assert "all workers up, begin coordination" in written[0]
    assert all("coordinator is up, proceed" in each for each in written[1:])


def test_a_container_is_reached_at_its_address_and_by_port_forward(
    cluster: HostCluster, podmen: list[Podman]
):
    fields = {"image": IMAGE, "network": "overlay", "cores": 0.5, "max_retries": 0}
    shell = ["/bin/sh", "-c"]
    server = cluster.client.submit(command=[*shell, SERVER], targets=["n1"], **fields).task_ids[0]  # type: ignore[arg-type]
    wait_until(lambda: cluster.output(server) == "up\n", 30.0, "it listens")
    address = cluster.client.task(server).address
    ask = f"until nc -w 5 {address} 7777; do sleep 0.2; done"
    client = cluster.client.submit(command=[*shell, ask], targets=["n2"], **fields).task_ids[0]  # type: ignore[arg-type]
    cluster.wait_task(client, "Completed", "Failed", within_s=40.0)
    name = cluster.output(client).strip()
    assert name
    with (
        forwarded(cluster, server, "0:7777") as (_, (port,)),
        socket.create_connection(("127.0.0.1", port), 5) as link,
    ):
        assert link.makefile().readline().strip() == name
    cluster.client.cancel(server)
    cluster.wait_task(server, "Cancelled")
    wait_until(lambda: not any(podman.containers() for podman in podmen), 10.0, "the containers are removed")
    wait_until(lambda: cluster.spaces() == [], 10.0, "their networks are gone")
