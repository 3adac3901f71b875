"""The overlay network for real: two hosts as network namespaces, each with a runner, and TCP between their tasks."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from tests.e2e.test_gangs_cli import phalanx as run_cli
from tests.support.network_hosts import HostCluster, Wiretap, a_host_cluster, host_name, ip
from tests.support.waiting import wait_until

ON = {"overlay.mode": "enabled", "overlay.quarantine_s": 1.0}
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nft", path="/usr/sbin:/usr/bin") is None,
        reason="an overlay network takes root and nftables",
    ),
    pytest.mark.timeout(300),
]
TRAIN = """\
import argparse, socket, sys, time
words = argparse.ArgumentParser()
for word in ("role", "ip", "master-ip"):
    words.add_argument(f"--{word}")
asked = words.parse_args()
if asked.role == "master":
    server = socket.create_server((asked.ip, 29500))
    server.settimeout(60)
    peer, where = server.accept()
    print("master got", peer.recv(100).decode(), "from", where[0], flush=True)
    peer.sendall(b"weights")
else:
    for _ in range(200):
        try:
            link = socket.create_connection((asked.master_ip, 29500), timeout=5)
            break
        except OSError:
            time.sleep(0.2)
    else:
        sys.exit("no master")
    link.sendall(b"gradients")
    print("worker got", link.recv(100).decode(), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    folder = tmp_path_factory.mktemp("overlay")
    (folder / "train.py").write_text(TRAIN)
    with a_host_cluster(folder, 2, ON) as started:
        yield started


def done(cluster: HostCluster, id: str) -> str:
    wait_until(lambda: cluster.client.task(id).status in ("Completed", "Failed"), 60.0, f"{id} has ended")
    task = cluster.client.task(id)
    written = cluster.output(id)
    assert task.status == "Completed", (task, written)
    return written


def test_the_walk_through_of_seed_000_with_real_tcp(cluster: HostCluster) -> None:
    train = [sys.executable, str(cluster.folder / "train.py")]
    free = "10.128.0.5 has rested since other tests used it"
    wait_until(lambda: "10.128.0.5" in cluster.client.node_addresses("n1").available, 20.0, free)
    made = json.loads(
        run_cli(cluster, "node", "ip-reserve", "n1", "--ip", "10.128.0.5", "--ttl", "300", "-o", "json")
    )
    assert made["ip"] == "10.128.0.5"
    master = run_cli(
        cluster, "task", "submit", "-t", "n1", "--ip-token", made["token"], "-c", "0.5", "--",
        *train, "--role", "master", "--ip", made["ip"],
    ).strip()  # fmt: skip
    worker = run_cli(
        cluster, "task", "submit", "-t", "n2", "-c", "0.5", "--", *train, "--role", "worker", "--master-ip", made["ip"]
    ).strip()  # fmt: skip
    assert done(cluster, worker) == "worker got weights\n"
    assert "master got gradients from" in done(cluster, master)


def test_a_restart_of_the_coordinator_in_the_middle_changes_nothing(cluster: HostCluster) -> None:
    train = [sys.executable, str(cluster.folder / "train.py")]
    made = cluster.client.reserve_address("n2")
    master = cluster.client.submit(
        command=[*train, "--role", "master", "--ip", made.ip], targets=["n2"], ip_token=made.token, cores=0.5
    ).task_ids[0]
    cluster.wait_task(master, "Running")
    cluster.kill("coordinator")
    cluster.start_coordinator()
    wait_until(cluster.is_ready, 30.0, "the coordinator is back")
    cluster.wait_online("n1", "n2")
    worker = cluster.client.submit(
        command=[*train, "--role", "worker", "--master-ip", made.ip],
        targets=["n1"],
        network="overlay",
        cores=0.5,
    ).task_ids[0]
    assert done(cluster, worker) == "worker got weights\n"
    assert "master got gradients from 10.128.0." in done(cluster, master), "the worker's own address"


def test_members_of_a_gang_on_two_hosts_talk_to_each_other_by_name(cluster: HostCluster) -> None:
    script = (
        "import os, socket, time\n"
        "rank = int(os.environ['PHALANX_RANK'])\n"
        "if rank == 0:\n"
        "    server = socket.create_server((os.environ['PHALANX_IP'], 7000))\n"
        "    peer, where = server.accept()\n"
        "    print(where[0] == dict(p.split('=') for p in os.environ['PHALANX_PEERS'].split(','))['ring-ring-0-1'])\n"
        "else:\n"
        "    for _ in range(100):\n"
        "        try:\n"
        "            socket.create_connection(('ring-ring-0-0.ring', 7000), timeout=3); break\n"
        "        except OSError: time.sleep(0.2)\n"
        "    else: raise SystemExit('no peer')\n"
        "    print('connected')\n"
    )
    reply = cluster.client.gang(
        [sys.executable, "-c", script], 2, network="overlay", cores=1.5, name="ring", max_retries=0
    )
    id = reply.task_ids[0]
    wait_until(lambda: cluster.client.job(id).status in ("Completed", "Failed"), 60.0, "the gang has ended")
    written = [cluster.output(f"{id}.{position}") for position in range(2)]
    assert written == ["True\n", "connected\n"]
    assert {task.node for task in cluster.client.tasks(id).items} == {"n1", "n2"}


LISTEN = (
    "import os, socket; s = socket.create_server((os.environ['PHALANX_IP'], 7001)); print('up', flush=True);"
    "s.settimeout(120)\n"
    "while True: s.accept()"
)


def reach(address: str, port: int = 7001, tries: int = 1) -> list[str]:
    """A command that says whether an address is reached; a node learns of new addresses as soon as its runner is up."""
    code = (
        f"import socket\nfor _ in range({tries}):\n"
        f"    try: socket.create_connection(({address!r}, {port}), timeout=3); print('reached'); break\n"
        "    except OSError: pass\n"
        "else: print('not reached')"
    )
    return [sys.executable, "-c", code]


@pytest.fixture
def listening(cluster: HostCluster) -> Iterator[str]:
    """The address of a task of the admin's on n1 that listens."""
    id = cluster.client.submit(
        command=[sys.executable, "-c", LISTEN], targets=["n1"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    cluster.wait_task(id, "Running")
    wait_until(lambda: cluster.output(id) == "up\n", 30.0, "it listens")
    yield str(cluster.client.task(id).address)
    cluster.client.cancel(id)
    wait_until(lambda: cluster.client.task(id).status == "Cancelled", 20.0, "it is gone")


def outcomes(
    cluster: HostCluster, client: phalanx.Client, address: str, *asked: dict[str, object]
) -> list[str]:
    """What tasks on both nodes say of an address, with each of these fields."""
    ids = [
        client.submit(command=reach(address), targets=[node], cores=0.1, max_retries=0, **fields).task_ids[0]  # type: ignore[arg-type]
        for fields in asked
        for node in ("n1", "n2")
    ]
    return [done(cluster, id) for id in ids]


def test_tasks_of_one_owner_reach_each_other_and_those_of_others_do_not(
    cluster: HostCluster, listening: str
) -> None:
    assert outcomes(cluster, cluster.client, listening, {"network": "overlay"}) == ["reached\n"] * 2
    made = cluster.client.create_token(TokenRequest("user", "eve", "user"))
    with phalanx.Client(cluster.address("coordinator"), made.token) as eve:
        assert outcomes(cluster, eve, listening, {"network": "overlay"}) == ["not reached\n"] * 2


def test_a_task_without_an_address_reaches_its_owners_addresses_and_no_others(
    cluster: HostCluster, listening: str
) -> None:
    own = outcomes(cluster, cluster.client, listening, {}, {"memory": "64MiB"})
    assert own == ["reached\n"] * 4
    made = cluster.client.create_token(TokenRequest("user", "eve", "user"))
    with phalanx.Client(cluster.address("coordinator"), made.token) as eve:
        assert outcomes(cluster, eve, listening, {}, {"memory": "64MiB"}) == ["not reached\n"] * 4
    shell = ["nsenter", f"--net=/run/netns/{host_name(1)}", *reach(listening)]
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout == "not reached\n"
    assert "overlay addresses of others (cgroup)" in run_cli(cluster, "node", "show", "n1")


SAY = (
    "import socket; s = socket.create_connection(({address!r}, 7001), timeout=10)\n"
    "s.sendall({text!r}); s.close(); print('said')"
)


def say(cluster: HostCluster, address: str, text: bytes) -> bytes:
    """What passes the wire of the first host while a task on the second one says this to a task there."""
    tap = Wiretap(1)
    try:
        code = SAY.format(address=address, text=text)
        id = cluster.client.submit(
            command=[sys.executable, "-c", code], targets=["n2"], network="overlay", cores=0.1, max_retries=0
        ).task_ids[0]
        assert done(cluster, id) == "said\n"
    finally:
        heard = tap.close()
    return heard


def test_without_encryption_what_tasks_say_is_on_the_wire(cluster: HostCluster, listening: str) -> None:
    assert b"only between us" in say(cluster, listening, b"only between us")


@contextmanager
def a_server_on(host: str, port: int) -> Iterator[None]:
    """Something that listens at every address of a host, as a control plane may."""
    inside = ["nsenter", f"--net=/run/netns/{host}", sys.executable]
    serve = f"import socket; s = socket.create_server(('0.0.0.0', {port}))\nwhile True: s.accept()"
    server = subprocess.Popen([*inside, "-c", serve])

    def answers() -> bool:
        look = f"import socket; socket.create_connection(('192.168.77.1', {port}), timeout=2)"
        return subprocess.run([*inside, "-c", look], capture_output=True, check=False).returncode == 0

    try:
        wait_until(answers, 20.0, "it listens")
        yield
    finally:
        server.kill()
        server.wait()


def test_a_task_network_reaches_neither_its_node_nor_the_control_plane(cluster: HostCluster) -> None:
    with a_server_on(host_name(1), 7777):
        for node, address in itertools.product(("n1", "n2"), ("192.168.77.1", "10.128.0.1")):
            id = cluster.client.submit(
                command=reach(address, 7777), targets=[node], network="overlay", cores=0.1, max_retries=0
            ).task_ids[0]
            assert done(cluster, id) == "not reached\n", (node, address)


def test_a_task_cannot_forge_its_address_or_open_a_raw_socket(cluster: HostCluster) -> None:
    code = (
        "import socket, subprocess\n"
        "try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('raw')\n"
        "except PermissionError: print('refused')\n"
        "forge = ['ip', 'addr', 'add', '10.128.0.99/32', 'dev', 'eth0']\n"
        "print(subprocess.run(forge, capture_output=True).returncode != 0)"
    )
    id = cluster.client.submit(
        command=[sys.executable, "-c", code], targets=["n1"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    assert done(cluster, id) == "refused\nTrue\n"


def test_no_account_but_root_can_send_packets_into_the_network_by_hand(cluster: HostCluster) -> None:
    """A VXLAN packet in a plain datagram would come from whatever address is written into it."""
    code = (
        "import socket, sys\n"
        "for port in (8473, 8474):\n"
        "    for host in ('192.168.77.2', '192.168.77.1', '127.0.0.1'):\n"
        "        try: socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (host, port)); print('sent')\n"
        "        except PermissionError: print('refused')"
    )
    as_other = ["setpriv", "--reuid", "1", "--clear-groups", "/usr/bin/python3", "-c", code]
    inside = ["nsenter", f"--net=/run/netns/{host_name(1)}", *as_other]
    said = subprocess.run(inside, capture_output=True, text=True, check=True, cwd="/").stdout.split()
    assert said == ["refused"] * 3 + ["sent"] * 3


def ours(cluster: HostCluster) -> list[str]:
    """What tasks' networks leave behind while they last: namespaces, and links in the hosts."""
    links = [
        line.split(": ")[1]
        for host in (host_name(1), host_name(2))
        for line in ip("-n", host, "-o", "link").splitlines()
        if "phx" in line.split(": ")[1] and "t" in line.split(": ")[1][9:10]
    ]
    return cluster.spaces() + links


def process_of(id: str) -> int:
    """The process of a task, by its environment."""
    mark = f"PHALANX_TASK_ID={id}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
    raise AssertionError(f"no process of {id}")


def test_a_runner_that_was_killed_takes_its_networks_on_and_leaves_nothing_behind(
    cluster: HostCluster,
) -> None:
    wait_until(lambda: ours(cluster) == [], 20.0, "earlier tasks have left nothing")
    id = cluster.client.submit(
        command=[sys.executable, "-c", LISTEN], targets=["n2"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    cluster.wait_task(id, "Running")
    wait_until(lambda: cluster.output(id) == "up\n", 30.0, "it listens")
    address = cluster.client.task(id).address
    cluster.kill("n2")
    cluster.start_runner("n2")
    cluster.wait_online("n2")
    other = cluster.client.submit(
        command=reach(address or "", tries=5), targets=["n1"], network="overlay", cores=0.1, max_retries=0
    ).task_ids[0]
    assert done(cluster, other) == "reached\n", "it is still the same task, with its network"
    cluster.client.cancel(id)
    wait_until(lambda: ours(cluster) == [], 20.0, "nothing is left")


ANSWER = (
    "import os, socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.bind((os.environ['PHALANX_IP'], 9000))\n"
    "print('up', flush=True)\n"
    "while True: s.sendto(sys.argv[1].encode(), s.recvfrom(99)[1]); print('asked', flush=True)"
)
ASK = (
    "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(0.1); heard = set()\n"
    "while True:\n"
    "    try: s.sendto(b'ask', (sys.argv[1], 9000)); word = s.recv(99).decode()\n"
    "    except OSError: continue\n"
    "    heard.add(word) or print(word, flush=True) if word not in heard else None"
)


def test_a_flow_does_not_go_on_to_the_next_owner_of_an_address(cluster: HostCluster) -> None:
    fields = {"targets": ["n1"], "cores": 0.1, "max_retries": 0}
    made = cluster.client.reserve_address("n1")
    command = [sys.executable, "-c", ANSWER, "own"]
    first = cluster.client.submit(command=command, ip_token=made.token, **fields).task_ids[0]  # type: ignore[arg-type]
    asking = cluster.client.submit(
        command=[sys.executable, "-c", ASK, made.ip],
        network="overlay",
        **fields,  # type: ignore[arg-type]
    ).task_ids[0]
    cluster.wait_task(asking, "Running")
    wait_until(lambda: cluster.output(asking) == "own\n", 30.0, "it has an answer")
    cluster.client.cancel(first)
    cluster.wait_task(first, "Cancelled")
    token = cluster.client.create_token(TokenRequest("user", "mallory", "user")).token
    with phalanx.Client(cluster.address("coordinator"), token) as other:

        def again() -> str | None:
            with suppress(phalanx.Conflict):
                return other.reserve_address("n1", ip=made.ip).token
            return None

        next_token = wait_until(again, 20.0, "the address has rested")
        next_one = other.submit(
            command=[*command[:-1], "another's"],
            ip_token=next_token,
            **fields,  # type: ignore[arg-type]
        ).task_ids[0]
        cluster.wait_task(next_one, "Running")
        wait_until(lambda: cluster.output(next_one).startswith("up\n"), 30.0, "it listens")
        control = other.submit(
            command=[sys.executable, "-c", ASK, made.ip],
            network="overlay",
            **fields,  # type: ignore[arg-type]
        ).task_ids[0]
        cluster.wait_task(control, "Running")
        wait_until(lambda: cluster.output(control) == "another's\n", 30.0, "its own owner has an answer")
    assert cluster.output(asking) == "own\n", "and asks several times a second"
    for task in (asking, next_one, control):
        cluster.client.cancel(task)
        cluster.wait_task(task, "Cancelled")
