"""Real servers for tests: etcd members and clusters, and Redis, on free loopback ports and in folders of their own.

`scripts/servers` fetches the programs. A server can be killed (as by `kill -9`), paused (SIGSTOP), resumed and started
again on what it wrote. All end with the process that started them, also when that one is killed itself.

    with an_etcd_cluster() as etcd:        # three members
        etcd.members[0].kill()
        etcd.members[0].start()

`shared_etcd()` is one cluster for the whole run: use a fresh prefix in it (`a_prefix()`), and do not kill its members.
"""

from __future__ import annotations

import atexit
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from phalanx.store.etcd.client import EtcdClient
from phalanx.store.etcd.store import EtcdStore
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
_START_S = 30.0
_PORTS = range(20_000, 32_000)  # below those that the kernel gives to outgoing connections
_numbers = itertools.count(1)
# The kernel ends a server with the thread that started it, so one that lives as long as we do starts them all.
_spawner = ThreadPoolExecutor(1)


def program(name: str) -> str:
    """Where a server's program is."""
    path = ROOT / ".venv/servers/bin" / name
    if path.exists():
        return str(path)
    found = shutil.which(name)
    assert found, f"{name} is not there: run `make install-test` or scripts/servers"
    return found


_given: set[int] = set()  # none is given twice by one process


def a_free_port() -> int:
    """A loopback port that nobody listens on, and that no outgoing connection will take meanwhile."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port


class Server:
    """One process of a server, and what one can do to it."""

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name = name
        self.folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, or start it again on what it wrote. It may take a while until it answers."""
        assert not self.is_running, f"{self.name} is running"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            command = [*_dies_with_us(), *self._command]
            self._process = _spawner.submit(
                subprocess.Popen, command, stdout=log, stderr=log, cwd=self.folder
            ).result()

    def kill(self) -> None:
        """As by `kill -9`, or when the machine loses its power."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ask it to end; insist after a while."""
        if self._process is None or not self.is_running:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Not dead, only silent: its connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


class EtcdMember(Server):
    """One member of an etcd cluster."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, [])
        self.port, self.peer_port, self.metrics_port = (a_free_port() for _ in range(3))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def is_healthy(self) -> bool:
        """Whether it can answer a linearizable read."""
        return b'"true"' in self._get("/health")

    @property
    def leads(self) -> bool:
        return b"\netcd_server_is_leader 1" in self._get("/metrics")

    def wait_healthy(self) -> None:
        wait_until(lambda: self.is_healthy or not self.is_running, _START_S, f"etcd {self.name} answers")
        if not self.is_running:
            raise TimeoutError(f"etcd {self.name} ended: {self.log()[-500:]}")

    def prepare(self, peers: list[EtcdMember], options: list[str], scheme: str) -> None:
        cluster = ",".join(f"{each.name}={each.peer}" for each in peers)
        self._command = [program("etcd"), "--name", self.name, "--data-dir", str(self.folder / "data")]
        self._command += ["--listen-client-urls", f"{scheme}://{self.address}"]
        self._command += ["--advertise-client-urls", f"{scheme}://{self.address}"]
        self._command += ["--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer]
        self._command += ["--initial-cluster", cluster, "--initial-cluster-state", "new"]
        self._command += ["--initial-cluster-token", peers[0].peer]
        self._command += ["--listen-metrics-urls", f"http://127.0.0.1:{self.metrics_port}", *options]

    def _get(self, path: str) -> bytes:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=2.0) as answer:
                return answer.read()
        except (OSError, urllib.error.URLError):
            return b""


class EtcdCluster:
    """Members that form one cluster. `options` go to each; with TLS give `scheme="https"`."""

    def __init__(
        self, folder: Path, size: int = 3, options: list[str] | None = None, scheme: str = "http"
    ) -> None:
        self.members = [EtcdMember(f"m{at}", folder / f"m{at}") for at in range(1, size + 1)]
        for member in self.members:
            member.prepare(self.members, options or [], scheme)

    @property
    def hosts(self) -> tuple[str, ...]:
        """host:port of each member, for clients."""
        return tuple(member.address for member in self.members)

    @property
    def url(self) -> str:
        """What `--store` takes, with a prefix that nobody used before."""
        return f"etcd://{','.join(self.hosts)}/{a_prefix()}"

    def start(self) -> None:
        """Start all that do not run, and wait until every one of them answers."""
        for member in self.members:
            if not member.is_running:
                member.start()
        self.wait_healthy()

    def wait_healthy(self) -> None:
        for member in self.members:
            member.wait_healthy()

    def leader(self) -> EtcdMember:
        """The member that etcd's own election chose."""
        found: list[EtcdMember] = []

        def is_led() -> bool:
            found[:] = [each for each in self.members if each.is_running and each.leads]
            return len(found) == 1

        wait_until(is_led, _START_S, "etcd has a leader")
        return found[0]

    def stop(self) -> None:
        for member in self.members:
            member.kill()  # what it wrote is thrown away, so nothing is gained by asking


class RedisServer(Server):
    """One Redis that writes every command to its disk before it answers."""

    def __init__(self, folder: Path, options: list[str] | None = None) -> None:
        self.port = a_free_port()
        command = [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        super().__init__("redis", folder, command + (options or []))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """What `--store` takes, with a prefix that nobody used before."""
        return f"redis://{self.address}/{a_prefix()}"

    def wait_ready(self) -> None:
        wait_until(self._answers, _START_S, f"Redis answers at {self.address}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as asked:
                asked.sendall(b"PING\r\n")
                return not asked.recv(100).startswith(b"-LOADING")
        except OSError:
            return False


@contextmanager
def an_etcd_cluster(
    size: int = 3, options: list[str] | None = None, scheme: str = "http", fsync: bool = True
) -> Iterator[EtcdCluster]:
    """A cluster of its own, for a test that kills its members. Without fsync it only survives killed processes."""
    with _a_folder("etcd") as folder:
        more = (options or []) + ([] if fsync else ["--unsafe-no-fsync"])
        cluster = EtcdCluster(folder / "first", size, more, scheme)
        try:
            try:
                cluster.start()
            except TimeoutError:  # others may have taken one of its ports meanwhile
                cluster.stop()
                cluster = EtcdCluster(folder / "second", size, more, scheme)
                cluster.start()
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def a_redis(options: list[str] | None = None) -> Iterator[RedisServer]:
    """A Redis of its own."""
    with _a_folder("redis") as folder:
        server = RedisServer(folder, options)
        try:
            server.start()
            server.wait_ready()
            yield server
        finally:
            server.kill()


@cache
def shared_etcd() -> EtcdCluster:
    """Three members for the whole run of this process. Whoever uses it takes a prefix of their own."""
    held = an_etcd_cluster()
    atexit.register(held.__exit__, None, None, None)
    return held.__enter__()


@cache
def shared_redis() -> RedisServer:
    """One Redis for the whole run of this process. Whoever uses it takes a prefix of their own."""
    held = a_redis()
    atexit.register(held.__exit__, None, None, None)
    return held.__enter__()


def a_prefix() -> str:
    """A prefix that nobody in this run used before."""
    return f"test-{os.getpid()}-{next(_numbers)}"


async def an_etcd_store(prefix: str | None = None, cluster: EtcdCluster | None = None) -> EtcdStore:
    """A store on a fresh prefix of the shared cluster. Several on one prefix are several coordinators."""
    client = EtcdClient((cluster or shared_etcd()).hosts)
    return await EtcdStore.open(client, prefix or a_prefix())


@contextmanager
def _a_folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"phalanx-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _dies_with_us() -> list[str]:
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--"] if found else []
