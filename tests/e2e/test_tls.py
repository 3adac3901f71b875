"""A cluster over mutual TLS, with real processes: which clients are accepted, and what the others are answered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.client import Client
from phalanx.errors import Unavailable
from phalanx.tls import NO_TLS, TlsFiles
from tests.support.certificate_authority import Authority
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

HOST = "127.0.0.2"
NODE = "cpus=2,ram=4GiB"


class TlsCluster(RealCluster):
    """A coordinator with TLS on its own address, and runners with certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ca")
        tls_files = self.authority.coordinator("c1", HOST)
        super().__init__(
            folder,
            coordinators=("c1",),
            settings={
                "coordinator.bind": HOST,
                "coordinator.auth_reload_interval_s": 0.2,
                "coordinator.tls_ca_file": str(tls_files.ca_file),
                "coordinator.tls_cert_file": str(tls_files.cert_file),
                "coordinator.tls_key_file": str(tls_files.key_file),
            },
        )
        self.client.close()
        self.client = self.a_client(self.authority.alone)

    def address(self, name: str) -> str:
        return f"https://{HOST}:{self.ports[name][0]}"

    def a_client(self, tls_files: TlsFiles) -> Client:
        return phalanx.Client(self.address("c1"), self.user_token, tls_files=tls_files)

    def start_coordinators(self) -> None:
        self.start_coordinator("c1")
        wait_until(self.is_ready, 20.0, "the coordinator is ready")

    def run_node(self, name: str, tls_files: TlsFiles) -> None:
        self.pretends[name] = NODE
        files = {
            "ca_file": tls_files.ca_file,
            "cert_file": tls_files.cert_file,
            "key_file": tls_files.key_file,
        }
        self._start(
            name,
            "runner",
            {
                "runner.name": name,
                "runner.state_dir": str(self.folder / name),
                "runner.token_file": str(self.folder / "node-token"),
                "runner.join": f"{HOST}:{self.link_port}",
                "runner.pretend": NODE,
            }
            | {f"runner.tls_{key}": str(path) for key, path in files.items() if path is not None},
        )

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def command(self, *words: str, tls_files: TlsFiles = NO_TLS) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
        env |= {"XDG_CONFIG_HOME": str(self.folder / "none"), "PHALANX_ADDRESS": self.address("c1")}
        env |= {"PHALANX_TOKEN_FILE": str(self.folder / "token")}
        if tls_files.ca_file is not None:
            env["PHALANX_CA_FILE"] = str(tls_files.ca_file)
        argv = [sys.executable, "-m", "phalanx", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def a_cluster(folder: Path) -> Iterator[TlsCluster]:
    cluster = TlsCluster(folder)
    try:
        cluster.start_coordinators()
        yield cluster
    except BaseException:
        for log in folder.glob("*.log"):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
        raise
    finally:
        cluster.stop()


def test_a_cluster_over_mutual_tls_runs_a_job(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.node("n1"))
        cluster.wait_online("n1")
        done = cluster.command("run", "--", "echo", "over TLS", tls_files=cluster.authority.alone)
        assert (done.stdout, done.returncode) == ("over TLS\n", 0)


def test_sessions_go_over_tls(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.node("n1"))
        cluster.wait_online("n1")
        id = cluster.client.submit(command=["sleep", "1000"]).task_ids[0]
        cluster.wait_task(id, "Running")
        shown = cluster.command("exec", id, "--", "echo", "over TLS", tls_files=cluster.authority.alone)
        assert (shown.stdout, shown.stderr, shown.returncode) == ("over TLS\n", "", 0)
        data = os.urandom(1 << 20) * 8
        done = cluster.client.exec(id, ["cat"], input=data)
        assert (done.exit_code, done.stdout == data, done.stderr) == (0, True, b"")


def test_calls_of_an_executor_go_over_tls(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.node("n1"))
        cluster.wait_online("n1")
        with phalanx.Executor(cluster.client, max_workers=1) as executor:
            assert list(executor.map(abs, [-1, -2])) == [1, 2]


def test_a_nodes_certificate_does_not_speak_for_another_node(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n2", cluster.authority.node("n1"))
        assert cluster.processes["n2"].wait(20) == 77
        assert "certificate is for node 'n1'" in cluster.log_of("n2")
        assert cluster.client.nodes() == []


def test_a_clients_certificate_speaks_for_no_node(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.client("n1"))
        assert cluster.processes["n1"].wait(20) == 77
        assert cluster.client.nodes() == []


def test_a_runner_without_a_certificate_is_refused_and_told_so(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.alone)
        wait_until(lambda: "asks for a certificate" in cluster.log_of("n1"), 20.0, "the runner is told")
        assert cluster.client.nodes() == []


def test_a_runner_that_speaks_no_tls_is_refused_and_told_so(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", NO_TLS)
        assert cluster.processes["n1"].wait(20) == 77
        assert "this port speaks TLS" in cluster.log_of("n1")


def test_a_runner_does_not_talk_to_a_coordinator_of_another_authority(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        other = Authority(tmp_path / "other")
        cluster.run_node("n1", other.node("n1"))
        wait_until(lambda: "not from an authority you trust" in cluster.log_of("n1"), 20.0, "it is told")
        assert cluster.client.nodes() == []


def test_a_client_without_the_authority_is_told_which_file_it_needs(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        told = cluster.command("ps")
        assert told.returncode == 69
        assert "not from an authority you trust" in told.stderr
        assert "PHALANX_CA_FILE" in told.stderr


def test_plain_http_to_the_tls_port_is_told_to_use_https(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        plain = phalanx.Client(cluster.address("c1").replace("https", "http"), cluster.user_token)
        with plain, pytest.raises(phalanx.errors.BadRequest, match="speaks TLS") as caught:
            plain.cluster()
        assert "https://" in caught.value.hint


def test_a_renewed_certificate_is_taken_up_without_a_restart(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        cluster.run_node("n1", cluster.authority.node("n1"))
        cluster.wait_online("n1")
        before = cluster.client.cluster().epoch
        cluster.authority.coordinator("c1", HOST, "localhost")
        renewed = f"https://localhost:{cluster.port}"
        with pytest.raises(Unavailable):
            phalanx.Client(renewed, cluster.user_token, tls_files=cluster.authority.alone).cluster()
        wait_until(lambda: "certificate reloaded" in cluster.log_of("c1"), 10.0, "it is reloaded")
        assert _names_shown_at(cluster) >= {"localhost", HOST}
        assert cluster.client.cluster().epoch == before
        assert {node.status for node in cluster.client.nodes()} == {"Online"}


def test_strangers_who_say_nothing_do_not_keep_others_out(tmp_path: Path):
    with a_cluster(tmp_path) as cluster:
        silent = [socket.create_connection((HOST, port)) for port in (cluster.port, cluster.link_port)]
        half = socket.create_connection((HOST, cluster.port))
        half.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake, and no more
        cluster.run_node("n1", cluster.authority.node("n1"))
        cluster.wait_online("n1")
        began = time.monotonic()
        for each in [*silent, half]:
            each.settimeout(20)
            assert each.recv(1) == b""
            each.close()
        assert time.monotonic() - began < 15


def _names_shown_at(cluster: TlsCluster) -> set[str]:
    """The names in the certificate that the coordinator presents now."""
    from phalanx.tls import client_context

    with socket.create_connection((HOST, cluster.port), timeout=5) as raw:
        context = client_context(cluster.authority.alone)
        with context.wrap_socket(raw, server_hostname=HOST) as secure:
            shown: dict[str, Any] = dict(secure.getpeercert() or {})
    return {value for _, value in shown["subjectAltName"]}
