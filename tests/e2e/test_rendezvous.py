"""Tasks meet over real sockets where their environment says: gangs with one another, tasks of an array alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import local
from phalanx.embedded import LocalCluster

# Each trial listens, and holds its port until all three do: if two got the same one, the second could not.
TRIAL = """
import os, socket, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
door = socket.create_server(("127.0.0.1", int(os.environ["PET_MASTER_PORT"])))
(folder / os.environ["PHALANX_ARRAY_INDEX"]).write_text(os.environ["PET_RDZV_ID"])
until = time.monotonic() + 20
while len(list(folder.iterdir())) < 3 and time.monotonic() < until:
    time.sleep(0.01)
"""
# What a process group does at its start: rank 0 listens, the others connect and send their rank, all get an answer.
MEMBER = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as door:
        door.settimeout(20)
        peers = [door.accept()[0] for _ in range(size - 1)]
        came = sorted(int(peer.recv(16)) for peer in peers)
        for peer in peers:
            peer.sendall(b"all here")
    print("met", came)
    sys.exit(came != list(range(1, size)))
until = time.monotonic() + 20
while True:
    try:
        with socket.create_connection(place, timeout=20) as peer:
            peer.sendall(str(rank).encode())
            sys.exit(peer.recv(16) != b"all here")
    except ConnectionRefusedError:
        if time.monotonic() > until:
            raise
        time.sleep(0.01)
"""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local(2, "cpus=4,ram=8GiB") as cluster:
        yield cluster


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def ended(cluster: LocalCluster, id: str) -> list[tuple[str, str]]:
    """How each task of a job ended, and its last output."""
    cluster.wait(id, timeout=30)
    return [(task.status, task.stderr_tail) for task in cluster.tasks(id).items]


def test_trials_of_an_array_on_one_node_listen_at_ports_of_their_own(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    argv = [sys.executable, script(tmp_path, TRIAL), str(seen)]
    id = cluster.submit(command=argv, array="1-3", targets=["n1"], max_retries=0).batch_id
    assert ended(cluster, id) == [("Completed", "")] * 3
    assert {path.read_text() for path in seen.iterdir()} == {f"{id}.{number}" for number in (1, 2, 3)}


def test_members_without_devices_meet_where_rank_0_listens(cluster: LocalCluster, tmp_path: Path) -> None:
    argv = [sys.executable, script(tmp_path, MEMBER)]
    id = cluster.gang(argv, 3, cores=2, max_retries=0).batch_id
    assert ended(cluster, id) == [("Completed", "")] * 3
