"""VPSs, end to end: OpenSSH's own programs against a real server in a real task."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import phalanx
from phalanx.api.schema.vps import NewVps, VpsView
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import command_environment, phalanx_words, run_phalanx
from tests.support.waiting import wait_until

REFUSED = 255  # ssh's own exit code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("vps")
    nodes = {"n1": "cpus=8,gpus=2,type=h100,memory=80GiB,ram=16GiB", "n2": "cpus=4,ram=4GiB"}
    with a_real_cluster(folder, nodes, heartbeat_s=0.5) as found:
        yield found


@pytest.fixture(scope="module")
def key(cluster: RealCluster) -> Path:
    """A user's own key; its public part has .pub."""
    return new_key(cluster.folder / "id_ed25519")


@pytest.fixture(scope="module")
def uploaded(cluster: RealCluster, key: Path) -> str:
    """A VPS that lets the user's own key in."""
    made = cluster.client.create_vps(
        public_key=key.with_suffix(".pub").read_text(), targets=["n1"], name="lab"
    )
    assert (made.ssh, made.private_key) == ("upload", None)
    return running(cluster, made.id).id


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def running(cluster: RealCluster, id: str, attempt: int = 1) -> VpsView:
    """A VPS whose server listens."""
    cluster.wait_task(id, "Running")

    def listens() -> VpsView | None:
        view = cluster.client.vps(id)
        if view.attempt < attempt or view.ssh_port is None:
            return None
        try:
            socket.create_connection(("127.0.0.1", view.ssh_port), 1.0).close()
        except OSError:
            return None
        return view

    return wait_until(listens, 30.0, f"the server of {id} listens")


def direct(view: VpsView, key: Path, program: str = "ssh") -> list[str]:
    """The words of an SSH program that goes straight to the port, and knows the host key from the record."""
    known = key.with_name(f"known-{view.id}")
    known.write_text(f"[127.0.0.1]:{view.ssh_port} {view.host_key}\n")
    options = {
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentityFile": str(key),
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
    }
    words = [program, "-F", "none", "-P" if program != "ssh" else "-p", str(view.ssh_port)]
    return words + [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def ssh(view: VpsView, key: Path, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [*direct(view, key), "anybody@127.0.0.1", command]
    return subprocess.run(words, input=stdin, capture_output=True, timeout=30, check=False)


def processes_in(folder: Path) -> list[int]:
    """Processes whose working folder is somewhere below this one."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                where = str((each / "cwd").readlink())
            except OSError:
                continue
            if where.startswith(str(folder)):
                found.append(int(each.name))
    return found


def test_an_uploaded_key_opens_a_shell_in_the_task_and_another_key_does_not(
    cluster: RealCluster, uploaded: str, key: Path
):
    view = cluster.client.vps(uploaded)
    assert {cluster.client.vps(each).id for each in ("lab", str(view.number))} == {uploaded}
    done = ssh(view, key, "cat; pwd; echo $PHALANX_TASK_ID $HOME; cat /proc/self/cgroup; exit 7", b"in\n")
    first, folder, marks, *groups = done.stdout.decode().splitlines()
    home = cluster.folder / "n1" / "vps" / uploaded / "home"
    assert (first, folder, marks, done.returncode) == ("in", str(home), f"{uploaded} {home}", 7)
    inside = cluster.client.exec(uploaded, ["cat", "/proc/self/cgroup"]).stdout.decode().splitlines()
    assert groups == inside
    wrong = ssh(view, new_key(cluster.folder / "wrong"), "true")
    assert wrong.returncode == REFUSED
    assert b"Permission denied (publickey)" in wrong.stderr


def test_files_go_over_sftp_and_scp_and_ports_through_the_vps(
    cluster: RealCluster, uploaded: str, key: Path, tmp_path: Path
):
    view = cluster.client.vps(uploaded)
    data = tmp_path / "data"
    data.write_bytes(os.urandom(300_000))
    for mode in ((), ("-O",)):  # SFTP, and the protocol of older clients
        words = [*direct(view, key, "scp"), *mode, "-q"]
        back = tmp_path / f"back{len(mode)}"
        subprocess.run([*words, data, "x@127.0.0.1:sent"], check=True, timeout=30)
        subprocess.run([*words, "x@127.0.0.1:sent", back], check=True, timeout=30)
        assert back.read_bytes() == data.read_bytes()
    batch = subprocess.run(
        [*direct(view, key, "sftp"), "x@127.0.0.1"],
        input=b"ls\n",
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert b"sent" in batch.stdout
    through = [*direct(view, key), "-W", f"127.0.0.1:{view.ssh_port}", "x@127.0.0.1"]
    hello = subprocess.run(through, input=b"", capture_output=True, check=False, timeout=30).stdout
    assert hello.startswith(b"SSH-2.0-Phalanx_VPS")


def test_a_session_has_a_terminal_and_what_it_leaves_behind_holds_nobody_up(
    cluster: RealCluster, uploaded: str, key: Path
):
    view = cluster.client.vps(uploaded)
    words = [*direct(view, key), "-tt", "x@127.0.0.1", "test -t 0 && tty; exit 3"]
    done = subprocess.run(words, input=b"", capture_output=True, check=False, timeout=30)
    assert (done.returncode, b"/dev/pts/" in done.stdout) == (3, True), done.stderr
    left = ssh(view, key, "sleep 987 & echo $!; kill -TERM $$")
    pid = int(left.stdout)
    assert left.returncode == REFUSED  # as with sshd, after a signal
    assert Path(f"/proc/{pid}").exists()
    os.kill(pid, signal.SIGKILL)


def test_a_generated_key_is_shown_once_and_connect_needs_no_route(cluster: RealCluster):
    file = cluster.folder / "generated"
    words = ("vps", "create", "-t", "n2", "-n", "box", "--key-out", str(file), "-o", "json")
    done = run_phalanx(cluster, *words)
    made = msgspec.json.decode(done.stdout, type=NewVps)
    assert (made.ssh, made.private_key, file.stat().st_mode & 0o777) == ("generate", None, 0o600)
    secret = file.read_text().splitlines()[2].encode()
    running(cluster, made.id)
    assert secret not in msgspec.json.encode(cluster.client.vps(made.id))
    for log in [*cluster.folder.rglob("*.db*"), *cluster.folder.glob("*.log")]:
        assert secret not in log.read_bytes(), log
    inside = ("vps", "connect", made.id, "-i", str(file), "--", "pwd")
    assert b"/n2/vps/" in run_phalanx(cluster, *inside).stdout
    written = run_phalanx(cluster, "vps", "ssh-config", made.id, "-i", str(file)).stdout
    config = cluster.folder / "config"
    config.write_bytes(written)
    env = command_environment(cluster)
    done = subprocess.run(
        ["ssh", "-F", config, "box", "echo $PHALANX_NODE"],
        capture_output=True,
        env=env,
        check=True,
        timeout=30,
    )
    assert done.stdout == b"n2\n"
    config.write_bytes(written.replace(b"ssh-ed25519 AAAA", b"ssh-ed25519 AAAB"))
    done = subprocess.run(
        ["ssh", "-F", config, "box", "true"], capture_output=True, env=env, check=False, timeout=30
    )
    assert (done.returncode, b"Host key verification failed" in done.stderr) == (REFUSED, True)
    assert run_phalanx(cluster, *words).returncode == Conflict.exit_code  # the file is there
    assert [each.id for each in cluster.client.list_vps() if each.name == "box"] == [made.id]
    cluster.client.stop_vps(made.id)


def test_a_restart_keeps_mode_keys_host_key_port_node_and_files(
    cluster: RealCluster, uploaded: str, key: Path
):
    before = cluster.client.vps(uploaded)
    assert ssh(before, key, "echo kept > kept").returncode == 0
    cluster.client.restart_vps(uploaded)
    after = running(cluster, uploaded, before.attempt + 1)
    same = ("ssh", "host_key", "key_fingerprints", "ssh_port", "node")
    assert [getattr(after, each) for each in same] == [getattr(before, each) for each in same]
    assert ssh(after, key, "cat kept").stdout == b"kept\n"
    assert cluster.client.job(uploaded).kind == "vps"
    with pytest.raises(Conflict) as told:
        cluster.client.snapshot_vps(uploaded)
    assert told.value.reason == "NotAContainer"


def test_a_server_that_is_killed_is_started_again(cluster: RealCluster, uploaded: str, key: Path):
    before = running(cluster, uploaded)
    assert ssh(before, key, "echo kept > kept").returncode == 0
    used = cluster.client.task(uploaded).retries_used
    ssh(before, key, "kill -9 $PPID")
    after = running(cluster, uploaded, before.attempt + 1)
    assert (after.host_key, after.node) == (before.host_key, "n1")
    assert ssh(after, key, "cat kept").stdout == b"kept\n"
    assert cluster.client.task(uploaded).retries_used == used + 1


def test_an_open_connection_goes_on_while_runner_and_coordinator_are_killed(
    cluster: RealCluster, uploaded: str, key: Path
):
    view = running(cluster, uploaded)
    session = subprocess.Popen(
        [*direct(view, key), "x@127.0.0.1", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert session.stdin is not None
    assert session.stdout is not None
    session.stdin.write(b"before\n")
    session.stdin.flush()
    assert session.stdout.readline() == b"before\n"
    cluster.kill("n1")
    cluster.start_runner("n1")
    cluster.wait_online("n1")
    cluster.kill("coordinator")
    cluster.start_coordinator()
    wait_until(cluster.is_ready, 30.0, "the coordinator is back")
    cluster.wait_online("n1")
    session.stdin.write(b"after\n")
    session.stdin.flush()
    assert session.stdout.readline() == b"after\n"
    session.stdin.close()
    assert session.wait(20) == 0
    session.stdout.close()
    now = cluster.client.vps(uploaded)
    assert (now.status, now.attempt, now.host_key) == ("Running", view.attempt, view.host_key)


def test_a_vps_without_ssh_has_no_port_and_can_still_be_entered(cluster: RealCluster):
    made = cluster.client.create_vps(ssh="disabled", targets=["n1"])
    cluster.wait_task(made.id, "Running")
    view = cluster.client.vps(made.id)
    assert (view.ssh, view.ssh_port, view.host_key, view.key_fingerprints) == ("disabled", None, None, [])
    done = run_phalanx(cluster, "vps", "connect", made.id, "--", "sh", "-c", "echo $HOME")
    assert done.stdout.decode().strip().endswith(f"{made.id}/home")
    first = cluster.client.submit(
        kind="vps", targets=["n1"]
    )  # KohakuRiver's way: no SSH unless it is asked for
    assert cluster.client.vps(first.task_ids[0]).ssh == "disabled"
    listed = run_phalanx(cluster, "vps", "list").stdout.decode()
    assert made.number
    assert f"\n{made.number} " in listed and made.id not in listed
    for id in (made.id, first.task_ids[0]):
        cluster.client.stop_vps(id)
    done = run_phalanx(cluster, "vps", "connect", str(made.number))
    assert done.returncode == Conflict.exit_code
    assert f"VPS {made.number} has ended".encode() in done.stderr


def test_what_is_wrong_with_a_request_is_said(cluster: RealCluster):
    refusals = {
        "SshModeUnknown": {"ssh": "sometimes"},
        "KeyMissing": {"ssh": "upload"},
        "VpsTargets": {"targets": ["n1", "n2"]},
    }
    for reason, fields in refusals.items():
        with pytest.raises(BadRequest) as told:
            cluster.client.create_vps(**fields)  # type: ignore[arg-type]
        assert told.value.reason == reason
    with pytest.raises(BadRequest, match="without a key, does not exist here"):
        cluster.client.create_vps(ssh="none")
    with pytest.raises(BadRequest, match="VPS tasks cannot be submitted to multiple targets"):
        cluster.client.submit(kind="vps", targets=["n1", "n2"])
    job = cluster.client.submit(command=["true"]).task_ids[0]
    with pytest.raises(NotFound):
        cluster.client.vps(job)


def test_a_vps_is_its_users_alone(cluster: RealCluster, uploaded: str):
    token = cluster.client.create_token(phalanx.TokenRequest(role="user", name="eve")).token
    with phalanx.Client(cluster.address("coordinator"), token) as eve:
        assert eve.list_vps() == []
        for refused in (eve.vps, eve.stop_vps, eve.restart_vps):
            with pytest.raises(Forbidden):
                refused(uploaded)
        with pytest.raises(Forbidden):
            eve.forward_session(uploaded, 22)


def test_stop_removes_the_processes_the_port_and_the_files(cluster: RealCluster, key: Path):
    public = key.with_suffix(".pub").read_text()
    view = running(cluster, cluster.client.create_vps(public_key=public, targets=["n1"]).id)
    assert ssh(view, key, "setsid sleep 986 >/dev/null 2>&1 & mkdir -p a/b; touch a/b/c").returncode == 0
    home = cluster.folder / "n1" / "vps" / view.id
    assert len(processes_in(home)) >= 2
    words = phalanx_words(cluster, "vps", "stop", view.id)
    subprocess.run(words, env=command_environment(cluster), check=True, capture_output=True, timeout=60)
    cluster.wait_task(view.id, "Cancelled")
    wait_until(lambda: not home.exists(), 30.0, "its files are gone")
    wait_until(lambda: not processes_in(home), 30.0, "its processes are gone")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", view.ssh_port or 0), 1.0)
    assert view.id not in [each.id for each in cluster.client.list_vps()]
    with pytest.raises(Conflict):
        cluster.client.restart_vps(view.id)
