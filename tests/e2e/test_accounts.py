"""Tasks run as the account of the user who submitted them; other users' files, tokens and processes are out of reach.

Shown by trying: the tasks here try what a hostile user would.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.errors import ConfigError
from phalanx.runner.accounts import Accounts
from tests.e2e.test_vps import new_key, running, ssh
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import run_phalanx
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give tasks other accounts")
# Accounts that every Debian has, with folders of their own.
ALICE, BOB = ("daemon", 1), ("bin", 2)
WHO = "id -u; id -g; id -G; grep -E '^(NoNewPrivs|CapEff|CapPrm)' /proc/self/status; echo $HOME $USER"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other accounts can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="phalanx-accounts-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    path = Path(tempfile.mkdtemp(prefix="phalanx-accounts-"))
    path.chmod(0o711)
    accounts = f"alice={ALICE[0]};bob={BOB[0]};carol=no-such-account;dave=root"
    with a_real_cluster(path, {}) as cluster:
        cluster.node_settings["n1"] = {"runner.accounts": accounts}
        cluster.start_runner("n1", "cpus=4,ram=4GiB")
        cluster.wait_online("n1")
        yield cluster
    shutil.rmtree(path)


def client_of(cluster: RealCluster, user: str) -> phalanx.Client:
    if user in cluster.clients:
        return cluster.clients[user]
    made = cluster.client.create_token(TokenRequest(role="user", name=user))
    client = phalanx.Client(cluster.address("coordinator"), made.token)
    cluster.clients[user] = client
    return client


def output(client: phalanx.Client, script: str, **fields: object) -> str:
    """What a task printed, on both streams."""
    task = client.submit(command=["sh", "-c", f"({script}) 2>&1"], **fields).task_ids[0]  # type: ignore[arg-type]
    client.wait(task, timeout=30.0)
    return b"".join(client.logs(task)).decode()


@pytest.mark.parametrize(("user", "account"), [("alice", ALICE), ("bob", BOB)])
def test_a_task_has_the_account_of_its_user_and_no_rights_beyond_it(
    cluster: RealCluster, user: str, account: tuple[str, int]
) -> None:
    name, uid = account
    said = output(client_of(cluster, user), WHO).splitlines()
    assert said[:3] == [str(uid), str(uid), str(uid)]
    assert [line.split()[1].strip("0") for line in said[3:6]] == ["", "", "1"]
    assert said[6].split() == [pwd.getpwnam(name).pw_dir, name]


def test_a_node_says_whether_its_tasks_have_accounts_of_their_own(cluster: RealCluster) -> None:
    has = cluster.client.node("n1").accounts
    assert has is not None and (has.mapped, has.root, has.shared) == (True, False, "")
    assert "never as root" in run_phalanx(cluster, "node", "show", "n1").stdout.decode()


def test_a_session_has_the_account_of_the_tasks_user_from_the_first_moment_on(cluster: RealCluster) -> None:
    """Also an operator's: it is the task's account, not the caller's. A task that is just starting is still root."""
    alice = client_of(cluster, "alice")
    for _ in range(5):
        task = alice.submit(command=["sleep", "1000"]).task_ids[0]
        cluster.wait_task(task, "Running")
        said = alice.exec(task, ["sh", "-c", f"{WHO}"]).stdout
        alice_of = cluster.client.exec(task, ["id", "-u"]).stdout
        lines = said.decode().splitlines()
        assert lines[:3] == [str(ALICE[1])] * 3
        assert [line.split()[1].strip("0") for line in lines[3:6]] == ["", "", "1"]
        assert alice_of == f"{ALICE[1]}\n".encode()
        with pytest.raises(phalanx.Forbidden):
            client_of(cluster, "bob").exec(task, ["true"])
        cluster.client.cancel(task)


def test_a_task_of_another_account_has_standard_input_and_may_open_it_again(cluster: RealCluster) -> None:
    alice = client_of(cluster, "alice")
    task = alice.submit(command=["sh", "-c", "read line; cat /dev/stdin; echo $line"], stdin=True).task_ids[0]
    cluster.wait_task(task, "Running")
    with pytest.raises(phalanx.Forbidden):
        client_of(cluster, "bob").stdin_session(task, 1)
    with alice.stdin_session(task, 1) as session:
        assert session.input_at() == 0
        session.write(b"first\n" + bytes(100_000) + b"last\n")
        session.end_input()
        assert session.wait() == 0
    alice.wait(task, timeout=30.0)
    assert b"".join(alice.logs(task)).endswith(b"last\nfirst\n")


def test_a_session_is_entered_after_a_restart_of_the_runner_with_the_same_account(
    cluster: RealCluster,
) -> None:
    alice = client_of(cluster, "alice")
    task = alice.submit(command=["sleep", "1000"]).task_ids[0]
    cluster.wait_task(task, "Running")
    cluster.kill("n1")
    cluster.start_runner("n1")
    cluster.wait_online("n1")

    def entered() -> bytes | None:
        try:
            return alice.exec(task, ["id", "-u"]).stdout
        except phalanx.Unavailable:  # its connections come one after another
            return None

    assert wait_until(entered, 20, "the session is opened") == f"{ALICE[1]}\n".encode()
    with alice.exec_session(
        task, ["sh", "-c", "id -u; tty; test -w $(tty) && echo writable"], tty=True
    ) as session:
        shown = b"".join(piece for _, piece in session)
    assert shown.split()[0] == str(ALICE[1]).encode()
    assert b"writable" in shown
    cluster.client.cancel(task)


def test_a_scratch_folder_is_its_users_alone(cluster: RealCluster) -> None:
    script = "stat -c '%u %a' $PHALANX_SCRATCH_DIR; touch $PHALANX_SCRATCH_DIR/x && echo written"
    assert output(client_of(cluster, "alice"), script).split() == [str(ALICE[1]), "700", "written"]
    listing = output(client_of(cluster, "bob"), "ls $PHALANX_SCRATCH_DIR/.. || echo refused")
    assert listing.split()[-1] == "refused"


def test_files_sockets_tokens_and_environments_of_others_are_out_of_reach(cluster: RealCluster) -> None:
    alice, bob, folder = client_of(cluster, "alice"), client_of(cluster, "bob"), cluster.folder
    secret = alice.submit(command=["sh", "-c", "echo hidden; sleep 60"], env={"KEY": "planted"}).task_ids[0]
    cluster.wait_task(secret, "Running")
    state = f"{folder}/n1"
    wait_until(lambda: b"".join(alice.logs(secret)) == b"hidden\n", 10.0, "her log")
    pids = [each for each in Path("/proc").glob("[0-9]*") if _owner(each) == ALICE[1]]
    assert pids, "her task runs as her account"
    theirs = " ".join(f"{pid}/environ {pid}/root {pid}/cwd/" for pid in pids)
    tries = [
        f"ls {state}",
        f"ls {state}/logs",
        f"ls {state}/logs/results",
        f"ls {state}/logs/hosts",
        f"cat {state}/keeper.journal",
        f"cat {state}/origin",
        f"cat {folder}/node-token {folder}/token {folder}/cluster-secret",
        *(f"cat {log}" for log in Path(state, "logs").rglob("*.stdout")),
        f"cat {theirs}",
        f"kill -9 {' '.join(pid.name for pid in pids)}",
        f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{state}/keeper.sock\")'",
        "cat /etc/shadow",
    ]
    parts = output(bob, "; ".join(f"echo @@; {attempt} && echo GOT IT" for attempt in tries)).split("@@\n")
    assert len(parts) == len(tries) + 1
    for attempt, said in zip(tries, parts[1:], strict=True):
        assert "GOT IT" not in said and "planted" not in said and "hidden\n" not in said, (attempt, said)
        assert "ermitted" in said or "denied" in said or "No such file" in said, (attempt, said)
    assert alice.task(secret).status == "Running"
    alice.cancel(secret)


def _owner(process: Path) -> int:
    try:
        return process.stat().st_uid
    except OSError:
        return -1


def test_results_artifacts_logs_and_checkpoints_work_as_ever(cluster: RealCluster) -> None:
    script = """
        echo zero
        echo one >/dev/stdout
        echo '{"loss": 0.5}' > "$PHALANX_RESULT.new" && mv "$PHALANX_RESULT.new" "$PHALANX_RESULT"
        echo weights > "$PHALANX_ARTIFACTS/model"
        echo state > "$PHALANX_CHECKPOINT_DIR/step"
        echo two
    """
    alice = client_of(cluster, "alice")
    task = alice.submit(command=["sh", "-ec", script]).task_ids[0]
    view = alice.wait(task, timeout=30.0)
    assert view.status == "Completed", view
    assert b"".join(alice.logs(task)) == b"zero\none\ntwo\n"
    assert alice.result(task) == {"loss": 0.5}
    assert [each.path for each in alice.files(task).files] == ["model"]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("carol", "which this node does not have"),
        ("dave", "its operator allows that by runner.allow_root"),
        ("erin", "its operator names one in runner.accounts"),
    ],
)
def test_one_without_an_account_is_refused_with_what_to_do(
    cluster: RealCluster, user: str, words: str
) -> None:
    client = client_of(cluster, user)
    task = client.submit(command=["id"]).task_ids[0]
    client.wait(task, timeout=30.0)
    view = client.task(task)
    assert (view.status, view.reason) == ("Failed", "refused")
    assert words in (view.message or "")


def test_what_the_account_may_not_run_or_enter_is_refused_before_it_starts(cluster: RealCluster) -> None:
    closed = cluster.folder / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    alice = client_of(cluster, "alice")
    for fields, words in (
        ({"command": [str(program)]}, "Permission denied"),
        ({"command": ["pwd"], "cwd": str(closed)}, "Permission denied"),
    ):
        task = alice.submit(**fields).task_ids[0]
        alice.wait(task, timeout=30.0)
        assert alice.task(task).status == "Failed"
        assert words in (alice.task(task).message or "")


def test_what_a_job_says_to_loaders_is_heard_by_its_program_and_by_none_with_roots_rights(
    cluster: RealCluster,
) -> None:
    """LD_PRELOAD would do worse; what LD_DEBUG_OUTPUT names is written by whoever loads a program."""
    folder = cluster.folder / "loaded"
    folder.mkdir()
    folder.chmod(0o777)
    env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/by", "PHALANX_LATER_X": "its own"}
    said = output(
        client_of(cluster, "alice"), "echo $LD_DEBUG $PHALANX_LATER_X; env | grep -c ^PHALANX_LATER_", env=env
    )
    assert said.splitlines() == ["files its own", "1"]
    assert {each.stat().st_uid for each in folder.iterdir()} == {ALICE[1]}


@pytest.fixture
def behind_a_closed_folder() -> Iterator[Path]:
    """An open folder that only bob can reach."""
    closed = Path(tempfile.mkdtemp(prefix="phalanx-closed-"))
    inside = closed / "project"
    inside.mkdir(mode=0o755)
    (inside / "key").write_text("planted\n")
    os.chown(closed, BOB[1], BOB[1])
    yield inside
    shutil.rmtree(closed)


def test_a_session_goes_to_its_folder_with_the_rights_of_the_account(
    cluster: RealCluster, behind_a_closed_folder: Path, folder: Path
) -> None:
    alice, work = client_of(cluster, "alice"), folder / "work"
    folder.chmod(0o777)
    work.mkdir(mode=0o755)
    swap = f"mv {work} {work}.before && ln -s {behind_a_closed_folder} {work} && echo up; sleep 60"
    task = alice.submit(command=["sh", "-c", swap], cwd=str(work)).task_ids[0]
    cluster.wait_task(task, "Running")
    wait_until(lambda: b"".join(alice.logs(task)) == b"up\n", 20.0, "the link is there")
    done = alice.exec(task, ["sh", "-c", "pwd -P; cat key"])
    assert done.stdout == b"/\n" and b"Permission denied; this is /" in done.stderr
    alice.cancel(task)


def test_a_task_cannot_begin_in_the_folder_of_another_users_process(
    cluster: RealCluster, behind_a_closed_folder: Path
) -> None:
    alice, bob = client_of(cluster, "alice"), client_of(cluster, "bob")
    task = bob.submit(command=["sleep", "60"], cwd=str(behind_a_closed_folder)).task_ids[0]
    cluster.wait_task(task, "Running")
    pid = wait_until(
        lambda: next((each for each in Path("/proc").glob("[0-9]*") if _owner(each) == BOB[1]), None),
        10.0,
        "bob's process",
    )
    tried = alice.submit(command=["cat", "key"], cwd=f"{pid}/cwd").task_ids[0]
    alice.wait(tried, timeout=30.0)
    assert "Permission denied" in (alice.task(tried).message or "")
    bob.cancel(task)


def test_a_task_that_ignores_sigterm_is_gone_with_its_tree(cluster: RealCluster) -> None:
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    script = f'(setsid sh -c "{stubborn}" &); echo up; {stubborn}'
    alice = client_of(cluster, "alice")
    task = alice.submit(command=["sh", "-c", script], grace=0.2).task_ids[0]
    wait_until(lambda: b"".join(alice.logs(task)) == b"up\n", 20.0, "it runs")
    alice.cancel(task)
    cluster.wait_task(task, "Cancelled")
    wait_until(
        lambda: not [each for each in Path("/proc").glob("[0-9]*") if _owner(each) == ALICE[1]],
        10.0,
        "nothing of it is left",
    )


def test_same_names_are_a_mapping(folder: Path) -> None:
    found = Accounts.read("same-name", False, folder).of("daemon")
    assert found is not None and (found.name, found.uid) == ALICE


def test_a_folder_that_others_cannot_reach_is_refused_at_the_start(folder: Path) -> None:
    folder.chmod(0o700)
    (folder / "state").mkdir()
    with pytest.raises(ConfigError, match="is closed to them"):
        Accounts.read("same-name", False, folder / "state")


@pytest.mark.parametrize("text", ["alice", "alice=", "=daemon", "alice=daemon;alice=bin", ";"])
def test_a_mapping_that_cannot_be_read_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"runner\.accounts"):
        Accounts.read(text, False, folder)


def test_a_vps_has_the_account_of_its_user_and_its_server_none_of_its_variables_while_it_is_root(
    cluster: RealCluster, folder: Path
) -> None:
    key = new_key(folder / "key")
    public = key.with_suffix(".pub").read_text()
    made = client_of(cluster, "alice").create_vps(public_key=public, env={"LD_PRELOAD": "/nowhere.so"})
    view = running(cluster, made.id)
    script = f"{WHO}; pwd; env | grep PRELOAD; cat {cluster.folder}/n1/vps/{made.id}/server.json"
    done = ssh(view, key, script)
    said = done.stdout.decode().splitlines()
    home = f"{cluster.folder}/n1/vps/{made.id}/home"
    assert said[:3] == [str(ALICE[1])] * 3
    assert [line.split()[1].strip("0") for line in said[3:6]] == ["", "", "1"]
    assert said[6:] == [f"{home} {ALICE[0]}", home, "LD_PRELOAD=/nowhere.so"]
    assert b"server.json: Permission denied" in done.stderr
    assert b"error" not in b"".join(cluster.client.logs(made.id)).lower()
    server = client_of(cluster, "alice").exec(made.id, ["sh", "-c", "grep Uid: /proc/*/status"]).stdout
    assert b"Uid:\t1\t1\t1\t1" in server
    cluster.client.stop_vps(made.id)
