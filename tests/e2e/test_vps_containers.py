"""VPSs in containers, end to end: a real podman of our own, an image with nothing but busybox, OpenSSH's programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import BadRequest, Conflict, NotFound
from tests.e2e.test_vps import direct, new_key, running, ssh
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with a_podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.busybox()
        yield podman


@pytest.fixture(scope="module")
def cluster(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("vps")
    cluster = RealCluster(folder, heartbeat_s=0.5, lost_after_s=12.0)
    socket: dict[str, object] = {"runner.pretend": None, "runner.container_socket": str(podman.socket)}
    cluster.node_settings = {"n1": socket}
    try:
        cluster.start({"n1": "real"})
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def key(cluster: RealCluster) -> Path:
    return new_key(cluster.folder / "id_ed25519")


@pytest.fixture(scope="module")
def vps(cluster: RealCluster, key: Path) -> str:
    public = key.with_suffix(".pub").read_text()
    made = cluster.client.create_vps(public_key=public, image=IMAGE, cores=0)
    return running(cluster, made.id).id


def test_a_session_is_in_the_container_with_its_rights_and_its_home(
    cluster: RealCluster, vps: str, key: Path
):
    view = cluster.client.vps(vps)
    done = ssh(view, key, "pwd; echo $HOME; ls /; grep CapEff /proc/self/status; echo kept >kept; exit 4")
    folder, home, *rest = done.stdout.decode().splitlines()
    assert (folder, home, done.returncode) == ("/home/vps", "/home/vps", 4), done.stderr
    inside = cluster.client.exec(vps, ["/bin/sh", "-c", "ls /; grep CapEff /proc/1/status"]).stdout.decode()
    assert rest == inside.splitlines()
    assert (cluster.folder / "n1" / "vps" / vps / "home" / "kept").read_text() == "kept\n"


def test_files_and_terminals_are_the_containers(cluster: RealCluster, vps: str, key: Path, tmp_path: Path):
    view = cluster.client.vps(vps)
    data = tmp_path / "data"
    data.write_bytes(os.urandom(100_000))
    words = [*direct(view, key, "scp"), "-q"]
    subprocess.run([*words, data, "x@127.0.0.1:/sent"], check=True, timeout=30)
    assert not Path("/sent").exists()
    back = tmp_path / "back"
    subprocess.run([*words, "x@127.0.0.1:/sent", back], check=True, timeout=30)
    assert back.read_bytes() == data.read_bytes()
    words = [*direct(view, key), "-tt", "x@127.0.0.1", "test -t 0 && echo a terminal; exit 3"]
    done = subprocess.run(words, input=b"", capture_output=True, check=False, timeout=30)
    assert (done.returncode, b"a terminal" in done.stdout) == (3, True)


def test_it_goes_on_while_the_runner_is_killed_and_a_restart_keeps_the_home_only(
    cluster: RealCluster, vps: str, key: Path
):
    before = cluster.client.vps(vps)
    assert ssh(before, key, "echo kept >kept; touch /made-here").returncode == 0
    cluster.kill("n1")
    cluster.start_runner("n1")
    cluster.wait_online("n1")
    assert ssh(before, key, "cat kept; ls /made-here").stdout == b"kept\n/made-here\n"
    assert cluster.client.vps(vps).attempt == before.attempt
    cluster.client.restart_vps(vps)
    after = running(cluster, vps, before.attempt + 1)
    assert after.host_key == before.host_key
    done = ssh(after, key, "cat kept; ls /made-here")
    assert (done.stdout, done.returncode) == (b"kept\n", 1), done.stderr


def test_a_snapshot_has_what_is_in_the_container_and_a_restore_starts_from_it(
    cluster: RealCluster, vps: str, key: Path
):
    client = cluster.client
    view = running(cluster, vps)
    assert ssh(view, key, "echo one >/state; echo home >home").returncode == 0
    made = client.snapshot_vps(vps, "one")
    assert (made.name, made.current) == ("one", False)
    with pytest.raises(Conflict):
        client.snapshot_vps(vps, "one")
    assert ssh(view, key, "echo two >/state; echo later >home").returncode == 0
    with pytest.raises(NotFound):
        client.restore_vps(vps, "two")
    client.restore_vps(vps, "one")
    after = running(cluster, vps, view.attempt + 1)
    assert ssh(after, key, "cat /state home").stdout == b"one\nlater\n"
    assert [(each.name, each.current) for each in client.vps_snapshots(vps)] == [("one", True)]
    assert client.snapshot_vps(vps).name.startswith("at-")
    with pytest.raises(Conflict):
        client.remove_snapshot(vps, "one")
    other = client.vps_snapshots(vps)[-1].name
    assert [each.name for each in client.remove_snapshot(vps, other)] == ["one"]
    with pytest.raises(BadRequest, match="only that VPS"):
        client.submit(command=["true"], image=f"localhost/phalanx-vps/{vps}:one")


def test_stop_removes_the_container_and_the_files(cluster: RealCluster, podman: Podman, key: Path):
    public = key.with_suffix(".pub").read_text()
    id = running(cluster, cluster.client.create_vps(public_key=public, image=IMAGE, cores=0).id).id
    cluster.client.snapshot_vps(id)

    def containers() -> list[str]:
        return [name for name in podman.containers() if id in name]

    assert containers() and f"phalanx-vps/{id}" in podman.run("images")
    cluster.client.stop_vps(id)
    cluster.wait_task(id, "Cancelled")
    home = cluster.folder / "n1" / "vps" / id
    wait_until(lambda: not home.exists(), 30.0, "its files are gone")
    wait_until(lambda: not containers(), 30.0, "its container is gone")
    wait_until(lambda: f"phalanx-vps/{id}" not in podman.run("images"), 30.0, "its snapshots are gone")
