"""`phalanx port-forward`, end to end: connections to ports of a task, several at once, and what is said if not."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.errors import Conflict
from tests.support.real_cluster import RealCluster, a_real_cluster, free_ports
from tests.support.terminal import command_environment, phalanx_words, run_phalanx
from tests.support.waiting import wait_until

SERVER = """
import socketserver, sys, hashlib
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        word = self.rfile.readline().strip()
        if word == b"name":
            self.wfile.write(b"the task\\n")
        elif word == b"digest":
            digest = hashlib.sha256()
            while piece := self.rfile.read(65536):
                digest.update(piece)
            self.wfile.write(digest.hexdigest().encode())
        elif word == b"flood":
            for _ in range(1600):
                self.wfile.write(bytes(65536))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("forward"), {"n1": "cpus=4,ram=4GiB"}) as found:
        yield found


@pytest.fixture(scope="module")
def served(cluster: RealCluster) -> tuple[str, int]:
    """A task that listens, and its port."""
    (port,) = free_ports(1)
    id = cluster.client.submit(command=["python3", "-c", SERVER, str(port)]).task_ids[0]
    cluster.wait_task(id, "Running")
    wait_until(lambda: _listens(port), what="the task listens")
    return id, port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def forwarded(cluster: RealCluster, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """`phalanx port-forward`, and the ports that it says."""
    process = subprocess.Popen(
        phalanx_words(cluster, "port-forward", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    try:
        assert process.stdout is not None
        pairs = [word for word in words[1:] if not word.startswith("-")]
        lines = [process.stdout.readline().decode() for _ in pairs]
        assert all(line.startswith("127.0.0.1:") for line in lines), lines
        yield process, [int(line.partition(":")[2].partition(" ")[0]) for line in lines]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def ask(port: int, word: bytes, data: bytes = b"") -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(word + b"\n" + data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def test_a_port_of_a_task_is_reached_and_a_free_one_is_said(cluster: RealCluster, served: tuple[str, int]):
    id, port = served
    with forwarded(cluster, id, f"0:{port}") as (_, (local,)):
        assert local not in (0, port)
        assert ask(local, b"name") == b"the task\n"
        open_ones = [socket.create_connection(("127.0.0.1", local), 30) for _ in range(8)]
        for each in reversed(open_ones):
            each.sendall(b"name\n")
            assert each.makefile("rb").readline() == b"the task\n"
            each.close()
        data = os.urandom(1 << 20) * 20
        assert ask(local, b"digest", data).decode() == hashlib.sha256(data).hexdigest()
        assert len(ask(local, b"flood")) == 1600 * 65_536


def test_a_slow_reader_of_one_connection_holds_up_no_other(cluster: RealCluster, served: tuple[str, int]):
    id, port = served
    with (
        forwarded(cluster, id, f"0:{port}") as (process, (local,)),
        socket.create_connection(("127.0.0.1", local)) as slow,
    ):
        slow.sendall(b"flood\n")
        slow.recv(1)
        assert ask(local, b"name") == b"the task\n"
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.partition("VmRSS:")[2].split()[0]) < 200_000


def test_a_port_that_is_refused_in_the_task_is_said(cluster: RealCluster, served: tuple[str, int]):
    id, _ = served
    (closed,) = free_ports(1)
    with (
        cluster.client.forward_session(id, closed) as session,
        pytest.raises(Conflict, match="nothing listens") as no,
    ):
        session.read()
    assert no.value.reason == "PortRefused"
    with forwarded(cluster, id, f"0:{closed}") as (process, (local,)):
        assert ask(local, b"name") == b""
        assert process.stderr is not None
        assert b"nothing listens" in process.stderr.readline()


def test_wrong_words_and_a_taken_port_are_refused(cluster: RealCluster, served: tuple[str, int]):
    id, port = served
    for wrong in ("x", "1:2:3", "0", "70000", "80:0"):
        refused = run_phalanx(cluster, "port-forward", id, wrong)
        assert (refused.returncode, wrong.encode() in refused.stderr) == (2, True)
    both = run_phalanx(cluster, "forward", id, "1:80", "-l", "8000")
    assert (both.returncode, b"LOCAL:PORT" in both.stderr) == (2, True)
    taken = run_phalanx(cluster, "port-forward", id, str(port))
    assert (taken.returncode, b"cannot listen" in taken.stderr) == (69, True)


def test_it_ends_with_its_task(cluster: RealCluster):
    (port,) = free_ports(1)
    id = cluster.client.submit(command=["python3", "-c", SERVER, str(port)]).task_ids[0]
    cluster.wait_task(id, "Running")
    wait_until(lambda: _listens(port), what="the task listens")
    with forwarded(cluster, id, f"0:{port}") as (process, (local,)):
        cluster.client.cancel(id)
        cluster.wait_task(id, "Cancelled")
        assert ask(local, b"name") == b""
        assert process.wait(20) == 6
