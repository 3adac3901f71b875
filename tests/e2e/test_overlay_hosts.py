"""The overlay network over three hosts and two coordinators: failover, restart and loss of a node.

No address is ever held twice: after every step the links of all tasks in all hosts are counted.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import Conflict
from tests.e2e.test_names import SEEDS, finished
from tests.e2e.test_overlay import ON, process_of
from tests.support.network_hosts import HostCluster, a_host_cluster
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None,
        reason="an overlay network takes root and nftables",
    ),
    pytest.mark.timeout(300),
]
MASTER = (
    "import socket, sys; s = socket.create_server((sys.argv[1], 29500)); print('up', flush=True)\n"
    "for _ in range(2):\n"
    "    peer, where = s.accept(); print(peer.recv(100).decode(), flush=True); peer.sendall(b'weights')\n"
)
WORKER = (
    "import socket, sys, time\n"
    "for _ in range(50):\n"
    "    try: link = socket.create_connection((sys.argv[1], 29500), timeout=5); break\n"
    "    except OSError: time.sleep(0.2)\n"
    "link.sendall(sys.argv[2].encode()); print(link.recv(100).decode())\n"
)
# Both go on for as long as it takes: the worker steps again and again, and looks for the master when it is gone.
TRAIN = """\
import argparse, os, socket, time
words = argparse.ArgumentParser()
for word in ("role", "ip", "master-ip"):
    words.add_argument(f"--{word}")
asked = words.parse_args()
if asked.role == "master":
    server = socket.create_server((asked.ip, 29500))
    while True:
        peer, where = server.accept()
        while peer.recv(100):
            peer.sendall(os.environ["PHALANX_ATTEMPT"].encode())
answered, master = [], None
while "2" not in answered:
    try:
        master = master or socket.create_connection((asked.master_ip, 29500), timeout=2)
        master.sendall(b"gradients")
        answer = master.recv(100).decode()
        assert answer
    except (OSError, AssertionError):
        master = None
        time.sleep(0.1)
        continue
    if answer not in answered:
        answered.append(answer)
        print("answered by attempt", answer, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    folder = tmp_path_factory.mktemp("hosts")
    with a_host_cluster(folder, 3, ON, ("c1", "c2"), lost_after_s=15.0) as started:
        yield started


def none_is_held_twice(cluster: HostCluster) -> list[str]:
    held = sorted(cluster.task_addresses())
    assert len(held) == len(set(held)), held
    return held


def fail_over(cluster: HostCluster) -> None:
    """The leader dies, the other one leads, and the first is back as its standby."""
    former = cluster.leader()
    cluster.kill(former)
    cluster.leader(within_s=40.0)
    cluster.start_coordinator(former)
    cluster.wait_ready(former)
    cluster.wait_online("n1", "n2", "n3", within_s=40.0)


def test_the_walk_through_over_three_hosts_with_a_failover_in_the_middle(cluster: HostCluster) -> None:
    free = "10.128.0.5 is free, also if another test came first"
    wait_until(lambda: "10.128.0.5" in cluster.client.node_addresses("n1").available, 20.0, free)
    made = cluster.client.reserve_address("n1", ip="10.128.0.5", ttl=300)
    command = [sys.executable, "-c", MASTER, made.ip]
    master = cluster.client.submit(command=command, targets=["n1"], ip_token=made.token, cores=0.5).task_ids[
        0
    ]
    cluster.wait_task(master, "Running")
    wait_until(lambda: cluster.output(master) == "up\n", 30.0, "it listens")
    kept = cluster.client.reserve_address("n3", ip="10.128.8.7")
    fail_over(cluster)
    assert none_is_held_twice(cluster) == ["10.128.0.5"]
    with pytest.raises(Conflict):
        cluster.client.reserve_address("n1", ip="10.128.0.5")
    workers = [
        cluster.client.submit(
            command=[sys.executable, "-c", WORKER, made.ip, name], cores=0.5, max_retries=0, **fields
        ).task_ids[0]
        for name, fields in (
            ("plain", {"targets": ["n2"]}),
            ("reserved", {"targets": ["n3"], "ip_token": kept.token}),
        )
    ]
    for id in (*workers, master):
        cluster.wait_task(id, "Completed", within_s=60.0)
        none_is_held_twice(cluster)
    assert sorted(cluster.output(master).split()) == ["plain", "reserved", "up"]
    assert [cluster.output(id) for id in workers] == ["weights\n"] * 2


def test_a_worker_finds_its_master_again_at_the_same_address_after_the_loss_of_its_node(
    cluster: HostCluster,
) -> None:
    wait_until(lambda: none_is_held_twice(cluster) == [], 20.0, "earlier tasks have left nothing")
    script = cluster.folder / "train.py"
    script.write_text(TRAIN)
    train = [sys.executable, str(script), "--role"]
    made = cluster.client.reserve_address("n3", ip="10.128.8.5")
    id = cluster.client.submit(
        command=[*train, "master", "--ip", made.ip],
        targets=["n3"],
        ip_token=made.token,
        cores=0.1,
        max_retries=2,
    ).task_ids[0]
    worker = cluster.client.submit(
        command=[*train, "worker", "--master-ip", made.ip], targets=["n2"], cores=0.1, max_retries=0
    ).task_ids[0]
    wait_until(lambda: cluster.output(worker) == "answered by attempt 1\n", 30.0, "they talk")
    assert none_is_held_twice(cluster) == ["10.128.8.5"]
    before = process_of(id)
    cluster.kill("n3")
    wait_until(lambda: not Path(f"/proc/{before}").exists(), 40.0, "its task ends with the lease")
    fail_over_without_n3(cluster)
    with pytest.raises(Conflict):
        cluster.client.reserve_address("n3", ip="10.128.8.5")
    cluster.start_runner("n3")
    wait_until(lambda: cluster.client.task(id).status == "Running", 60.0, "it runs again, on its node")
    task = cluster.client.task(id)
    assert (task.address, task.node, task.attempt) == ("10.128.8.5", "n3", 2)
    assert none_is_held_twice(cluster) == ["10.128.8.5"], "what the first attempt left is gone"
    cluster.wait_task(worker, "Completed", within_s=30.0)
    assert cluster.client.task(worker).attempt == 1
    assert cluster.output(worker) == "answered by attempt 1\nanswered by attempt 2\n"
    cluster.client.cancel(id)
    wait_until(lambda: none_is_held_twice(cluster) == [], 20.0, "it is gone")


def fail_over_without_n3(cluster: HostCluster) -> None:
    cluster.kill(cluster.leader(), signal.SIGTERM)
    leader = cluster.leader(within_s=40.0)
    (other,) = [name for name in cluster.coordinators if name != leader]
    cluster.start_coordinator(other)
    cluster.wait_ready(other)
    wait_until(
        lambda: {node.name: node.status for node in cluster.client.nodes()}["n3"] == "Offline",
        40.0,
        "n3 is lost",
    )


def test_seed_002s_scripts_run_as_gangs_over_two_hosts(cluster: HostCluster) -> None:
    command = [sys.executable, str(SEEDS / "002-decentralized.txt")]
    groups = [{"name": "worker", "tasks": 4, "replicas": 4, "network": "overlay", "command": command}]
    first = cluster.client.apply({"name": "exp", "gang": True, "groups": groups}).jobs[0].id
    written = finished(cluster, first, 90.0)
    assert len({task.node for task in cluster.client.tasks(first).items}) >= 2
    assert all(each.count(" ready") == 3 and each.endswith("[peers] done\n") for each in written)
    command = [sys.executable, str(SEEDS / "002-coordinator.txt")]
    roles = [
        {"name": name, "tasks": tasks, "replicas": tasks, "network": "overlay", "command": command}
        for name, tasks in (("coordinator", 1), ("worker", 2))
    ]
    led = cluster.client.apply({"name": "led", "gang": True, "groups": roles}).jobs[0].id
    written = finished(cluster, led, 90.0)
    assert len({task.node for task in cluster.client.tasks(led).items}) >= 2
    assert "all workers up, begin coordination" in written[0]
    assert all("coordinator is up, proceed" in each for each in written[1:])
