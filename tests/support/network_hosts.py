"""Hosts for tests of the network: network namespaces of this machine on one wire, each with a runner of its own.

A runner in a host reaches the coordinator at the host's loopback: what connects there is carried over to the
coordinator's own port. All names begin with `phxt` and the number of this process, so that several can run side by
side; what one has left that is gone is removed first.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socket import (
    AF_INET,
    AF_PACKET,
    SO_REUSEADDR,
    SOCK_RAW,
    SOCK_STREAM,
    SOL_SOCKET,
    create_connection,
    ntohs,
    socket,
)

from phalanx.runner import state_files
from phalanx.runner.overlay import mark_of
from tests.support.real_cluster import _RUN, RealCluster

OURS = f"phxt{os.getpid()}"
WIRE = f"{OURS}br"
NETNS = Path("/run/netns")
_ALL_PROTOCOLS = 3


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def host_name(number: int) -> str:
    return f"{OURS}-{number}"


def host_link(number: int) -> str:
    """The end of a host's link that is on the wire."""
    return f"{OURS}v{number}"


def host_address(number: int) -> str:
    return f"192.168.77.{number}"


@contextmanager
def network_hosts(count: int) -> Iterator[list[str]]:
    """So many hosts, 192.168.77.1 and on, that reach each other and nothing else."""
    _remove_left()
    try:
        ip("link", "add", WIRE, "type", "bridge")
        ip("link", "set", WIRE, "up")
        for number in range(1, count + 1):
            name, end = host_name(number), host_link(number)
            ip("netns", "add", name)
            ip("link", "add", end, "type", "veth", "peer", "name", "under0", "netns", name)
            ip("link", "set", end, "master", WIRE, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{host_address(number)}/24", "dev", "under0")
            ip("-n", name, "link", "set", "under0", "up")
        yield [host_name(number) for number in range(1, count + 1)]
    finally:
        _tear_down([host_name(number) for number in range(1, count + 1)], WIRE)


def _tear_down(hosts: Iterable[str], wire: str) -> None:
    """Links go first: a program that makes one ends with it, and would keep the namespace."""
    for host in hosts:
        with suppress(subprocess.CalledProcessError):
            for link in (*_links_in(host), "under0"):
                with suppress(subprocess.CalledProcessError):  # it may have gone with another
                    ip("-n", host, "link", "del", link)
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", host)
    with suppress(subprocess.CalledProcessError):
        ip("link", "del", wire)


def _remove_left() -> None:
    """What processes have left that are gone."""
    left: dict[str, list[str]] = {}
    for path in NETNS.glob("phxt*-*"):
        left.setdefault(path.name.partition("-")[0], []).append(path.name)
    for ours, hosts in left.items():
        if not Path(f"/proc/{ours.removeprefix('phxt')}").exists():
            _tear_down(hosts, f"{ours}br")


def host_links(number: int) -> list[str]:
    """The links of runners in a host."""
    return _links_in(host_name(number))


def _links_in(host: str) -> list[str]:
    lines = ip("-n", host, "-o", "link").splitlines()
    names = [line.split(": ")[1].partition("@")[0] for line in lines]
    return [name for name in names if name.startswith("phx")]


class HostCluster(RealCluster):
    """Runners by the number of their host: n1 is in the first."""

    def _start(self, name: str, part: str, settings: Mapping[str, object]) -> None:
        if part != "runner":
            super()._start(name, part, settings)
            return
        number = int(name.removeprefix("n"))
        wanted = {**settings, "runner.pretend": None, "runner.address": host_address(number)}
        log = (self.folder / f"{name}.log").open("ab")
        argv = [sys.executable, "-c", self.prelude + _RUN.format(part=part), json.dumps(wanted)]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
        with log:
            self.processes[name] = subprocess.Popen(
                ["nsenter", f"--net={NETNS / host_name(number)}", *argv], stdout=log, stderr=log, env=env
            )

    def task_addresses(self) -> list[str]:
        """The address of every link that a task has in a host, as the link itself says."""
        links = [
            link for path in NETNS.glob(f"{OURS}-*") for link in json.loads(ip("-n", path.name, "-j", "link"))
        ]
        return [link["ifalias"].split()[-1] for link in links if re.match(r"phx\w{6}t", link["ifname"])]

    def spaces(self) -> list[str]:
        """The network namespaces of this cluster's tasks: other clusters of this machine have theirs."""
        marks = [mark_of(state_files.origin(folder)) for folder in self.folder.glob("n*") if folder.is_dir()]
        names = [path.name for path in NETNS.glob("phalanx-*")]
        return [name for name in names if any(name.startswith(f"phalanx-{mark}-") for mark in marks)]


@contextmanager
def a_host_cluster(
    folder: Path,
    count: int,
    settings: Mapping[str, object],
    coordinators: tuple[str, ...] = ("coordinator",),
    lost_after_s: float = 60.0,
) -> Iterator[HostCluster]:
    """Coordinators on this machine, and a real runner in each host.

    Usually a runner that was killed has to be back within the lease, also on a busy machine.
    """
    cluster = HostCluster(folder, lost_after_s=lost_after_s, coordinators=coordinators, settings=settings)
    with network_hosts(count) as hosts, running(cluster, hosts):
        yield cluster


@contextmanager
def running(cluster: HostCluster, hosts: list[str]) -> Iterator[None]:
    """The coordinators and the runners of these hosts, one after another, so that the first has the first block."""
    carriers = [Carrier(host, link) for host in hosts for _, link in cluster.ports.values()]
    try:
        cluster.start({"n1": "real"})
        for number in range(2, len(hosts) + 1):
            cluster.start_runner(f"n{number}", "real")
            cluster.wait_online(f"n{number}")
        yield
    except BaseException:
        for log in cluster.folder.glob("*.log"):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
        raise
    finally:
        cluster.stop()
        for carrier in carriers:
            carrier.close()
        for left in cluster.spaces():  # of tasks that were still running
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", left)


class Carrier:
    """Carries connections to a port of a host's loopback over to the same port of this machine's."""

    def __init__(self, host: str, port: int) -> None:
        self._port = port
        self._listener = self._listen(host)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _listen(self, host: str) -> socket:
        """A socket belongs to the network in which it was made, whoever uses it."""

        def make() -> socket:
            listener = socket(AF_INET, SOCK_STREAM)
            listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen()
            return listener

        return _made_in(host, make)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = create_connection(("127.0.0.1", self._port), timeout=5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            threading.Thread(target=_carry, args=(near, far), daemon=True).start()


class Wiretap:
    """All that passes the wire of a host while it is open, as bytes."""

    def __init__(self, number: int) -> None:
        self.heard = bytearray()
        self._socket = _made_in(host_name(number), self._listen)
        self._socket.settimeout(0.2)
        self._open = True
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    @staticmethod
    def _listen() -> socket:
        listener = socket(AF_PACKET, SOCK_RAW, ntohs(_ALL_PROTOCOLS))
        listener.bind(("under0", 0))
        return listener

    def _hear(self) -> None:
        while self._open:
            with suppress(TimeoutError):
                self.heard += self._socket.recv(1 << 16)

    def close(self) -> bytes:
        self._open = False
        self._thread.join()
        self._socket.close()
        return bytes(self.heard)


def _made_in(host: str, make: Callable[[], socket]) -> socket:
    """A socket belongs to the network in which it was made, whoever uses it."""
    made: list[socket] = []

    def there() -> None:
        with (NETNS / host).open() as space:
            _setns(space.fileno())
        made.append(make())

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    return made[0]


def _carry(near: socket, far: socket) -> None:
    """Both ways, until one side has ended."""
    with near, far, DefaultSelector() as ready, suppress(OSError):
        ready.register(near, EVENT_READ, far)
        ready.register(far, EVENT_READ, near)
        while True:
            for found, _ in ready.select():
                data = found.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    return
                found.data.sendall(data)


def _setns(fd: int) -> None:
    """Of this thread alone; Python has it from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")
