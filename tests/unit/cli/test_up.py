"""`phalanx up` and `down`: what they decide, and one real cluster from its start to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phalanx.cli import up
from phalanx.cli.keepers import left_in
from phalanx.cli.shape import ClusterShape, remember, remembered
from phalanx.cli.state import owner
from phalanx.config import load
from phalanx.endpoint import ProcessOwner
from phalanx.errors import Conflict
from phalanx.settings import Settings
from tests.support.waiting import wait_until


def settings(folder: Path, **flags: object) -> Settings:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load({"state_dir": folder, **named}, environment={}, folder=folder, system=folder)


def test_one_real_node_has_the_name_of_the_host(tmp_path: Path):
    (name, own), *others = up._members(settings(tmp_path, runner__name="box"), 1, []).items()
    assert (name, own.runner.pretend, others) == ("box", None, [])


def test_pretended_nodes_are_numbered(tmp_path: Path):
    members = up._members(settings(tmp_path), 3, ["gpus=8"])
    assert list(members) == ["n1", "n2", "n3"]
    assert {own.runner.pretend for own in members.values()} == {"gpus=8"}
    assert members["n2"].runner.state_dir == tmp_path / "runners" / "n2"
    assert members["n2"].runner.token_file == tmp_path / "node-credentials"
    assert members["n2"].runner.join == ("127.0.0.1:7434",)


def test_several_nodes_share_one_machine_instead_of_counting_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    (pretend,) = {own.runner.pretend for own in up._members(settings(tmp_path), 4, []).values()}
    assert pretend is not None
    assert pretend.startswith("cpus=2,ram=")


def test_a_port_that_is_taken_is_replaced_unless_it_was_asked_for(tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert up._port("127.0.0.1", taken, False, but_not=0) != taken
        with pytest.raises(Conflict, match=f"port {taken} of 127.0.0.1 cannot be used") as caught:
            up._port("127.0.0.1", taken, True, but_not=0)
        assert "--port" in caught.value.hint
        flags = {"coordinator__port": taken}
        with pytest.raises(Conflict):
            up._with_ports(settings(tmp_path, **flags))


def test_two_ports_are_never_the_same(tmp_path: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert up._port("127.0.0.1", free, False, but_not=free) != free


@pytest.mark.parametrize(("nodes", "is_told"), [(1, False), (2, True)])
def test_that_nodes_which_share_a_machine_have_simulated_addresses_is_said(
    tmp_path: Path, nodes: int, is_told: bool
):
    given = settings(tmp_path, **{"overlay.mode": "enabled"})
    said = up._welcome(given, up._members(given, nodes, []))
    assert ("Overlay addresses are simulated" in said) == is_told
    assert "Overlay" not in up._welcome(settings(tmp_path), up._members(settings(tmp_path), nodes, []))


def test_the_welcome_says_where_and_what_next(tmp_path: Path):
    text = up._welcome(settings(tmp_path), {f"n{number}": settings(tmp_path) for number in range(1, 12)})
    assert text.startswith(
        "Phalanx is up at http://127.0.0.1:7433 with 11 nodes: n1 n2 n3 n4 n5 n6 n7 n8 …\n"
    )
    assert f"export PHALANX_STATE_DIR={tmp_path}" in text
    assert "phalanx run -- echo hello" in text
    assert "whoever submits them" in text
    mapped = up._welcome(settings(tmp_path, **{"runner.accounts": "same-name"}), {"n1": settings(tmp_path)})
    assert "Tasks run as the accounts of their users." in mapped


def phalanx(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("PHALANX_")}
    command = [sys.executable, "-m", "phalanx", *args]
    return subprocess.run(
        command, env=env | {"PHALANX_STATE_DIR": str(folder)}, capture_output=True, text=True, check=False
    )


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.timeout(120)
def test_clusters_that_start_at_the_same_moment_do_not_take_each_others_ports(tmp_path: Path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    try:
        with ThreadPoolExecutor(len(folders)) as pool:
            started = list(pool.map(lambda folder: phalanx(folder, "up", "--detach"), folders))
        assert [(each.returncode, each.stderr) for each in started if each.returncode] == []
    finally:
        for folder in folders:
            phalanx(folder, "down")


@pytest.mark.timeout(120)
def test_a_cluster_from_its_start_to_its_end(tmp_path: Path):
    folder = tmp_path / "state"
    try:
        started = phalanx(folder, "up", "--nodes", "2", "--pretend", "cpus=2", "--detach")
        assert (started.returncode, started.stderr) == (0, "")
        assert "2 nodes: n1 n2" in started.stdout
        told = re.search(r"The dashboard is at (http://\S+/ui/) and `phalanx ui` opens it", started.stdout)
        assert told is not None
        with urllib.request.urlopen(told[1], timeout=10) as page:
            assert page.status == 200 and "text/html" in page.headers["content-type"]
        supervisor = json.loads((folder / "up.pid").read_text())["pid"]
        before = children(supervisor)
        assert len(before) == 3

        refused = phalanx(folder, "up", "--detach")
        assert refused.returncode == 6
        assert f"already up in {folder} (pid {supervisor})" in refused.stderr

        said = phalanx(folder, "run", "--", "sh", "-c", "echo hello; exit 5")
        assert (said.returncode, said.stdout) == (5, "hello\n")

        os.kill(min(before), signal.SIGKILL)  # the coordinator, which was started first
        wait_until(lambda: len(children(supervisor) - before) == 1, what="another one is started")
        wait_until(lambda: phalanx(folder, "cluster").returncode == 0, what="it answers")
        assert phalanx(folder, "run", "--", "true").returncode == 0
    finally:
        ended = phalanx(folder, "down")
    assert ended.returncode == 0
    assert owner(folder) is None
    assert not (folder / "endpoint.json").exists()
    assert "no cluster is up" in phalanx(folder, "down").stderr


@pytest.mark.timeout(120)
def test_when_the_supervisor_is_killed_nothing_of_it_stays(tmp_path: Path):
    folder = tmp_path / "state"
    try:
        assert phalanx(folder, "up", "--detach").returncode == 0
        supervisor = json.loads((folder / "up.pid").read_text())["pid"]
        parts = [ProcessOwner.of(pid) for pid in children(supervisor)]
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not any(part and part.is_alive for part in parts), what="its parts are gone")
        said = phalanx(folder, "ps")
        assert said.returncode == 69
        assert "was killed" in said.stderr
        assert phalanx(folder, "up", "--detach").returncode == 0
    finally:
        assert phalanx(folder, "down").returncode == 0


def test_the_nodes_of_last_time_are_remembered(tmp_path: Path):
    assert remembered(tmp_path) == ClusterShape()
    shape = ClusterShape(4, ("gpus=8",), "rack=r1", ("n1", "n2"))
    remember(tmp_path, shape)
    assert remembered(tmp_path) == shape
    assert (
        shape.told == "4 simulated nodes with labels rack=r1 as last time; --nodes 1 for this machine alone"
    )
    remember(tmp_path, ClusterShape(names=("box",)))
    assert remembered(tmp_path) == ClusterShape(names=("box", "n1", "n2"))
    (tmp_path / "up.json").write_text("{")
    assert remembered(tmp_path).is_plain


@pytest.mark.timeout(120)
def test_down_ends_what_a_killed_cluster_left_and_up_brings_the_same_nodes_back(tmp_path: Path):
    folder = tmp_path / "state"
    try:
        port = ("--port", str(up._port("127.0.0.1", 0, False, but_not=0)))  # others may want the usual one
        assert phalanx(folder, "up", "--nodes", "2", "--pretend", "cpus=2", "--detach", *port).returncode == 0
        supervisor = json.loads((folder / "up.pid").read_text())["pid"]
        begun = tmp_path / "pid"
        phalanx(
            folder,
            "submit",
            "--",
            "sh",
            "-c",
            f"echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 300",
        )
        wait_until(begun.exists, what="the task runs")
        task = ProcessOwner.of(int(begun.read_text()))
        parts = [ProcessOwner.of(pid) for pid in children(supervisor)]
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not any(part and part.is_alive for part in parts), what="its parts are gone")
        assert task is not None
        assert ProcessOwner.of(task.pid) == task, "tasks outlive a kill"
        ended = phalanx(folder, "down")
        assert (ended.returncode, "was killed; stopping 2 keepers" in ended.stderr) == (0, True), ended.stderr
        assert ProcessOwner.of(task.pid) != task
        assert left_in(folder).is_nothing
        again = phalanx(folder, "up", "--detach", *port)
        assert again.stderr == "2 simulated nodes as last time; --nodes 1 for this machine alone\n"
        assert "2 nodes: n1 n2" in again.stdout
    finally:
        phalanx(folder, "down")
