"""A whole cluster of real processes: etcd members, coordinators, runners, and the certificates between them.

Without etcd members the coordinators share one SQLite file, which is enough on one machine.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.client.http import HttpTransport
from phalanx.errors import PhalanxError, Unavailable
from phalanx.tls import client_context
from phalanx.tokenfile import ensure_token
from tests.chaos.certificates import Authority
from tests.chaos.network import Network, ServiceAddress
from tests.chaos.parts import Node, Part
from tests.support.servers import program
from tests.support.waiting import wait_until
from tests.support.wall_clock import WallClock, build, has_compiler

PHALANX = Path(sys.executable).with_name("phalanx")
_RUN = "from phalanx.cli.main import main; sys.exit(main())"
CORES, DEVICES = 4, 4  # of each node
START_S = 60.0
TRIES = 10
PATIENCE_S = 5.0  # then a user counts a failed answer, and asks again


@dataclass(frozen=True)
class Shape:
    """How many of each, and their timeouts."""

    coordinators: int = 3
    members: int = 3  # of etcd
    runners: int = 8
    lease_s: float = 3.0
    heartbeat_s: float = 1.0
    lost_after_s: float = 9.0


class ChaosCluster:
    """The parts by name: e1… of etcd, c1… coordinators, n1… nodes."""

    def __init__(
        self, folder: Path, shape: Shape, network: Network, planted: list[str] | None = None
    ) -> None:
        self.folder, self.shape, self.network = folder, shape, network
        self._program = planted or [str(PHALANX)]  # of the coordinators
        folder.mkdir(parents=True, exist_ok=True)
        self.token = ensure_token(folder / "token")
        self._node_token_file = folder / "node-token"
        ensure_token(self._node_token_file)
        self.members = self._etcd()
        self._rest, self._link = self._addresses()
        self._authority = Authority(folder / "tls") if network.needs_tls else None
        self.coordinators = {name: self._coordinator(name) for name in self._rest}
        names = self._names("n", shape.runners)
        self.clocks = self._clocks(names)  # of nodes that can be set; none without a compiler
        self.nodes = {name: self._node(name) for name in names}

    @property
    def parts(self) -> dict[str, Part]:
        return {**self.members, **self.coordinators, **self.nodes}

    @property
    def addresses(self) -> dict[str, str]:
        """Where REST is, by coordinator."""
        scheme = "https" if self._authority else "http"
        return {name: f"{scheme}://{service.address}" for name, service in self._rest.items()}

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        return client_context(self._authority.tls_files) if self._authority else None

    @property
    def ca_file(self) -> Path | None:
        return self._authority.tls_files.ca_file if self._authority else None

    def client(self, patience_s: float = PATIENCE_S, token: str = "") -> phalanx.Client:
        """A client that follows the leader; an admin's, unless a token is given."""
        exchange = HttpTransport([*self.addresses.values()], self.tls, vouched=True, patience_s=patience_s)
        return phalanx.Client(token=token or str(self.token), exchange=exchange)

    def token_of(self, user: str) -> str:
        """A token of role `user` for a user that competes with the admin and with the others."""
        with self.client() as client:
            for _ in range(TRIES):  # a token whose answer was lost is not used, and does no harm
                with suppress(Unavailable):
                    return client.create_token(TokenRequest(name=user, role="user")).token
        raise RuntimeError(f"no token for {user} can be had")

    def start(self) -> None:
        """Start all, and wait until every node is online."""
        for part in self.parts.values():
            part.start()
        with self.client() as client:
            wait_until(lambda: self._is_up(client), START_S, "every node is online")

    def _is_up(self, client: phalanx.Client) -> bool:
        for part in self.parts.values():
            if not part.is_running:
                raise RuntimeError(f"{part.name} ended: {part.log_path.read_text()[-2000:]}")
        return self.is_whole(client)

    def is_whole(self, client: phalanx.Client) -> bool:
        try:
            online = {node.name for node in client.nodes() if node.status == "Online"}
        except PhalanxError:
            return False
        return online >= set(self.nodes)

    def is_ready(self, coordinator: str) -> bool:
        """Whether it leads, or follows closely enough to."""
        request = urllib.request.Request(f"{self.addresses[coordinator]}/readyz")
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=2.0, context=self.tls) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def damages(self) -> list[str]:
        """What `phalanx store check` reports: it reads and replays the whole store."""
        words = [str(PHALANX), "store", "check", self._store()]
        done = subprocess.run(
            words, env=self._env("rig", "CLIENT", {}), capture_output=True, text=True, check=False
        )
        return [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()

    def stop(self) -> None:
        """Runners first, then their keepers; what those left running is killed."""
        for part in self.parts.values():
            if part.is_running:
                part.resume()
        for node in self.nodes.values():
            node.signal_keeper(signal.SIGCONT)
            node.signal_watchdogs(signal.SIGCONT)
            node.signal_tasks(signal.SIGCONT)
            if node.is_running:
                os.kill(node.pid, 15)
        for node in self.nodes.values():
            node.stop()
            node.end_keeper()
            node.signal_tasks(signal.SIGKILL)
        for part in [*self.coordinators.values(), *self.members.values()]:
            part.kill()

    # The settings of each part.

    def _etcd(self) -> dict[str, Part]:
        names = self._names("e", self.shape.members)
        clients = {name: self.network.service_address(name, "client", 2379) for name in names}
        peers = {name: self.network.service_address(name, "peer", 2380) for name in names}
        self._hosts = [service.address for service in clients.values()]
        all_members = ",".join(f"{name}=http://{service.address}" for name, service in peers.items())
        return {name: self._member(name, clients[name], peers[name], all_members) for name in names}

    def _member(self, name: str, client: ServiceAddress, peer: ServiceAddress, all_members: str) -> Part:
        words = [program("etcd"), "--name", name, "--data-dir", str(self.folder / name / "data")]
        words += ["--listen-client-urls", f"http://{client.bind}"]
        words += ["--advertise-client-urls", f"http://{client.address}"]
        words += ["--listen-peer-urls", f"http://{peer.bind}"]
        words += ["--initial-advertise-peer-urls", f"http://{peer.address}"]
        words += ["--initial-cluster", all_members, "--initial-cluster-state", "new"]
        return Part(name, self.folder / name, self.network, words, dict(os.environ))

    def _addresses(self) -> tuple[dict[str, ServiceAddress], dict[str, ServiceAddress]]:
        names = self._names("c", self.shape.coordinators)
        rest = {name: self.network.service_address(name, "rest", 7433) for name in names}
        return rest, {name: self.network.service_address(name, "link", 7434) for name in names}

    def _coordinator(self, name: str) -> Part:
        rest, link = self._rest[name], self._link[name]
        settings: dict[str, object] = {
            "NAME": name,
            "STORE": self._store(),
            "BIND": rest.host,
            "PORT": rest.port,
            "LINK_PORT": link.port,
            "ADVERTISE": self.addresses[name],
            "LINK_ADVERTISE": link.address,
            "HOSTS": rest.address,
            "TOKEN_FILE": self.folder / "token",
            "NODE_TOKEN_FILE": self._node_token_file,
            "SECRET_FILE": self.folder / "secret",
            "LEASE_S": self.shape.lease_s,
            "HEARTBEAT_S": self.shape.heartbeat_s,
            "LOST_AFTER_S": self.shape.lost_after_s,
            "LOSS_LIMIT": 1_000_000,  # no fault of a node counts against the task
        }
        if self._authority:
            settings |= self._authority.coordinator(name, rest.reached_host)
        env = self._env(name, "COORDINATOR", settings)
        return Part(name, self.folder / name, self.network, [*self._program, "coordinator"], env)

    def _node(self, name: str) -> Node:
        settings: dict[str, object] = {
            "NAME": name,
            "STATE_DIR": self.folder / name,
            "JOIN": ",".join(service.address for service in self._link.values()),
            "TOKEN_FILE": self._node_token_file,
            "PRETEND": f"cpus={CORES},gpus={DEVICES},type=h100,ram=64GiB",
        }
        if self._authority:
            settings |= self._authority.node(name)
        env, clock = self._env(name, "RUNNER", settings), self.clocks.get(name)
        if clock is None:
            return Node(name, self.folder / name, self.network, [str(PHALANX), "runner"], env)
        words = [sys.executable, "-P", "-c", clock.prelude + _RUN, "runner"]
        return Node(name, self.folder / name, self.network, words, env | clock.environment)

    def _clocks(self, names: list[str]) -> dict[str, WallClock]:
        if not has_compiler():
            return {}
        library = build(self.folder / "clocks")
        return {name: WallClock(self.folder / "clocks" / name, library) for name in names}

    def _store(self) -> str:
        if self.members:
            return f"etcd://{','.join(self._hosts)}/chaos"
        return f"sqlite:{self.folder / 'phalanx.db'}"

    def _env(self, name: str, section: str, settings: dict[str, object]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
        given = {f"PHALANX_{section}_{key}": str(value) for key, value in settings.items()}
        folder = str(self.folder / name)
        return kept | given | {"PHALANX_STATE_DIR": folder, "XDG_CONFIG_HOME": folder}

    @staticmethod
    def _names(envelope: str, count: int) -> list[str]:
        return [f"{envelope}{number}" for number in range(1, count + 1)]
