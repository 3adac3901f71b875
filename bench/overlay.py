"""What a task's network costs: names and addresses above a plain spawn, 200 of them at once, and TCP between tasks.

Spawns are interleaved, one keeper, one process at a time, in a network namespace of their own: a plain spawn, one with
a host name and a hosts file, and one with an address (firewall, namespace, links and routes, and removing them again).
Then two hosts as network namespaces, each with a real runner: 200 tasks with addresses from submit to running, and TCP
from a task to a task against TCP between the hosts, with the wire shaped to 1 Gbit/s and without; CPU time is that of
both processes. Medians. It takes root and nftables.

    .venv/bin/python -m bench.overlay [--rounds 100] [--tasks 200] [--seconds 3] [--encryption wireguard]
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.isolation import ENV, PROGRAM, Spawner
from phalanx.core.model.orders import AttemptKey
from phalanx.link.overlay import OverlayMap
from phalanx.runner.keeper_messages import Launch
from phalanx.runner.overlay import TaskNetworks, mark_of
from phalanx.runner.overlay_kernel import OverlayKernel
from phalanx.runner.peers import Member, hosts_text, write_hosts
from tests.support.network_hosts import HostCluster, a_host_cluster, host_address, host_link, host_name
from tests.support.waiting import wait_until

NAMES_MS, ADDRESS_MS, STARTED_S, SHARE = 5.0, 20.0, 10.0, 0.7  # what is allowed
BLOCK = "10.128.0.0/22"
SHAPE = ["rate", "1gbit", "burst", "256kb", "latency", "50ms"]
Spaces = Callable[[AttemptKey], tuple[dict[str, str], Callable[[], object]]]
RECEIVE = """\
import json, os, resource, socket, sys, time
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
peer, _ = server.accept()
total, buffer, began = 0, bytearray(1 << 20), time.perf_counter()
while count := peer.recv_into(buffer):
    total += count
peer.close()
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([total, time.perf_counter() - began, used.ru_utime + used.ru_stime]), flush=True)
"""
SEND = """\
import json, resource, socket, sys, time
for _ in range(100):
    try:
        link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
chunk, until = b"x" * (1 << 20), time.perf_counter() + float(sys.argv[3])
while time.perf_counter() < until:
    link.sendall(chunk)
link.shutdown(socket.SHUT_WR)
link.settimeout(60)
link.recv(1)  # until the other side has it all: what is on its way when a task ends is lost
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime]), flush=True)
"""


class NetworkSpawner(Spawner):
    """Processes in namespaces of their own."""

    async def spawn_in(self, key: AttemptKey, spaces: Spaces) -> float:
        """Seconds from the request to the end, with what the runner does before and after."""
        name = "/".join(map(str, key))
        out, err = (str(self._folder / f"{key[1]}.{kind}") for kind in ("out", "err"))
        self._ended = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        made, release = spaces(key)
        self.processes.start(name, "plain", Launch(out, err, spaces=made or None))
        await asyncio.wait_for(self._ended, 30.0)
        release()
        took = time.perf_counter() - began
        self.processes.forget([name])
        for path in (out, err):
            os.unlink(path)  # noqa: PTH108 - thousands of them
        return took


async def spawns(folder: Path, rounds: int) -> dict[str, list[float]]:
    mark = mark_of(str(folder))
    networks = TaskNetworks(lambda: OverlayKernel(mark), mark, lambda: "127.0.0.1")
    others = [(f"10.128.1.{number}", "ada") for number in range(1, 101)]
    networks.update(OverlayMap("10.128.0.0/12", BLOCK, [], others))
    hosts = folder / "hosts"

    def plain(_key: AttemptKey) -> tuple[dict[str, str], Callable[[], object]]:
        return {}, lambda: None

    def named(_key: AttemptKey) -> tuple[dict[str, str], Callable[[], object]]:
        write_hosts(str(hosts), hosts_text([], "job", Member(0, "job-job-0-0", "127.0.0.1")))
        return {"hostname": "job-job-0-0", "hosts": str(hosts)}, hosts.unlink

    def addressed(key: AttemptKey) -> tuple[dict[str, str], Callable[[], object]]:
        address = f"10.128.0.{2 + key[1] % 200}"
        networks.update(OverlayMap("10.128.0.0/12", BLOCK, [], sorted([*others, (address, "ada")])))
        space = networks.add(key, address)
        return {"net": space, "confined": "yes"}, lambda: networks.remove(key)

    spawner = NetworkSpawner(folder, ())
    await spawner.open(None)
    spawner.processes.brief("plain", PROGRAM, ENV, None, None)
    ways: dict[str, Spaces] = {"plain spawn": plain, "host name and hosts": named, "address": addressed}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    dice, number = random.Random(1), 0
    for turn in range(rounds + 5):
        for way in dice.sample(sorted(ways), len(ways)):
            number += 1
            took = await spawner.spawn_in(("job", number, 1), ways[way])
            if turn >= 5:  # until all is warm
                taken[way].append(took)
    await spawner.processes.shutdown(1.0)
    networks.close()
    return taken


def cost_of_spawns(folder: Path, rounds: int) -> dict[str, list[float]]:
    """In a process and a network namespace of its own: nothing of the machine's network is changed."""
    code = (
        "import asyncio, json, sys; from pathlib import Path; from bench.overlay import spawns, leave_network;"
        "leave_network(); sys.stdout.write(json.dumps(asyncio.run(spawns(Path(sys.argv[1]), int(sys.argv[2])))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(rounds)], stdout=subprocess.PIPE, check=True
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def leave_network() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def many(cluster: HostCluster, tasks: int) -> float:
    """Seconds from the submit of so many tasks with addresses until all of them run."""
    began = time.perf_counter()
    id = cluster.client.submit(
        command=["/bin/sleep", "600"], array=f"0-{tasks - 1}", network="overlay", cores=0, max_retries=0
    ).task_ids[0]
    wait_until(lambda: cluster.client.job(id).counts.running == tasks, 120.0, "all run")
    took = time.perf_counter() - began
    cluster.client.cancel(id)
    wait_until(lambda: cluster.client.job(id).status == "Cancelled", 60.0, "all are gone")
    return took


def underlay(_cluster: HostCluster, port: int, seconds: float) -> tuple[float, float]:
    """Gbit/s between the hosts, and CPU seconds for a GiB."""
    inside = ["nsenter", "--net=/run/netns/{}", sys.executable, "-c"]
    receiver = subprocess.Popen(
        [word.format(host_name(1)) for word in inside] + [RECEIVE, host_address(1), str(port)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sent = subprocess.run(
        [word.format(host_name(2)) for word in inside] + [SEND, host_address(1), str(port), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return _speed(receiver.communicate()[0], sent.stdout)


def overlay(cluster: HostCluster, port: int, seconds: float) -> tuple[float, float]:
    """The same from a task on the second host to a task on the first."""
    fields = {"network": "overlay", "cores": 0.1, "max_retries": 0}
    command = [sys.executable, "-c", RECEIVE, "", str(port)]
    server = cluster.client.submit(command=command, targets=["n1"], **fields).task_ids[0]  # type: ignore[arg-type]
    cluster.wait_task(server, "Running")
    wait_until(lambda: cluster.output(server).startswith("up"), 60.0, "it listens")
    at = str(cluster.client.task(server).address)
    command = [sys.executable, "-c", SEND, at, str(port), str(seconds)]
    client = cluster.client.submit(command=command, targets=["n2"], **fields).task_ids[0]  # type: ignore[arg-type]
    for id in (server, client):
        wait_until(lambda id=id: cluster.client.task(id).status == "Completed", 60.0, f"{id} is done")  # type: ignore[misc]
    return _speed(cluster.output(server).partition("\n")[2], cluster.output(client))


def _speed(received: str, sent: str) -> tuple[float, float]:
    total, took, cpu_s = json.loads(received)
    cpu_s += json.loads(sent)[0]
    return 8 * total / took / 1e9, cpu_s / (total / (1 << 30))


def tcp(cluster: HostCluster, seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    port = 7200
    for shaped in (True, False):
        for number in (1, 2):
            device = ["dev", host_link(number), "root"]
            words = ["add", *device, "tbf", *SHAPE] if shaped else ["del", *device]
            subprocess.run(["tc", "qdisc", *words], check=True)
        for _ in range(rounds):
            for name, way in (("hosts", underlay), ("tasks", overlay)):
                port += 1
                found.setdefault(f"{name}, {'1 Gbit/s' if shaped else 'unshaped'}", []).append(
                    way(cluster, port, seconds)
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--encryption", choices=["off", "wireguard"], default="off")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("an overlay network takes root")
    say = sys.stdout.write
    settings: dict[str, object] = {"overlay.mode": "enabled", "overlay.quarantine_s": 1.0}
    if asked.encryption != "off":
        settings["overlay.encryption"] = asked.encryption
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        say(f"load {Path('/proc/loadavg').read_text().split()[0]}\n")
        taken = cost_of_spawns(Path(folder), asked.rounds)
        base = statistics.median(taken["plain spawn"])
        say(f"{'medians in ms':28}{'time':>9}{'above':>9}{'p90':>9}\n")
        for way, times in taken.items():
            median, p90 = statistics.median(times), sorted(times)[int(0.9 * len(times))]
            say(f"{way:28}{1e3 * median:9.2f}{1e3 * (median - base):9.2f}{1e3 * p90:9.2f}\n")
        with a_host_cluster(Path(folder) / "cluster", 2, settings) as cluster:
            took = [many(cluster, asked.tasks) for _ in range(3)]
            say(
                f"{asked.tasks} tasks with addresses, two nodes, s: {', '.join(f'{each:.1f}' for each in took)}\n"
            )
            found = tcp(cluster, asked.seconds, 3)
        say(f"{'TCP':28}{'Gbit/s':>9}{'CPU s/GiB':>12}\n")
        for name, speeds in found.items():
            rate, cpu = (statistics.median(each[at] for each in speeds) for at in (0, 1))
            say(f"{name:28}{rate:9.2f}{cpu:12.2f}\n")
        say(f"load {Path('/proc/loadavg').read_text().split()[0]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
