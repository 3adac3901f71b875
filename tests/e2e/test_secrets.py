"""Secrets planted in a full run with failures are nowhere but in their own files (S9).

Searched: every file that the cluster wrote (logs, the database with its log of events and its images, the audit,
journals), every answer of REST, every command line of every process while the run lasts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.server.routes.table import ROUTES
from phalanx.coordinator.secret import ClusterSecret
from phalanx.errors import PhalanxError
from tests.support.browser_connection import Browser
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODES = {"n1": "cpus=4,ram=4GiB"}
FLOOD = "for i in 1 2 3; do echo $i; done; exit 3"


class Eyes(threading.Thread):
    """Reads every command line of the machine, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.secrets: dict[str, bytes] = {}
        self.seen: set[str] = set()
        self.looks = 0
        self._leaving = threading.Event()

    def run(self) -> None:
        while not self._leaving.wait(0.02):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    words = (folder / "cmdline").read_bytes()
                except OSError:
                    continue
                self.seen |= {name for name, secret in list(self.secrets.items()) if secret in words}
            self.looks += 1

    def leave(self) -> None:
        self._leaving.set()
        self.join()


@contextmanager
def looking() -> Iterator[Eyes]:
    eyes = Eyes()
    eyes.start()
    try:
        yield eyes
    finally:
        eyes.leave()


def found_in(folder: Path, secrets: dict[str, bytes]) -> set[tuple[str, str]]:
    """Which secret is in which file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    bodies = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {
        (name, file) for name, secret in secrets.items() for file, body in bodies.items() if secret in body
    }


def ask(cluster: RealCluster, path: str, token: str, method: str = "GET", body: bytes | None = None) -> bytes:
    request = urllib.request.Request(cluster.address("coordinator") + path, method=method, data=body)
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answered:
            is_stream = path.partition("?")[0].endswith(("/events", "/changes"))
            return bytes(answered.read1(1 << 16) if is_stream else answered.read(1 << 20))
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


def everything_told(cluster: RealCluster, task: str) -> bytes:
    """Everything that REST shows to an admin."""
    told = []
    for route in (each for each in ROUTES if each.method == "GET"):
        noun = route.path.split("/")[2] if route.path.startswith("/v1/") else ""
        id = {"nodes": "n1", "queues": "default"}.get(noun, task)
        query = (
            "?after=1"
            if route.path == "/v1/events"
            else "?timeout_s=0"
            if route.path.endswith("/wait")
            else ""
        )
        told.append(ask(cluster, route.path.replace("{id}", id) + query, cluster.user_token))
    return b"\n".join(told)


def a_run_with_failures(cluster: RealCluster, stray: str) -> str:
    """Jobs that work and jobs that fail, strangers, bad requests, killed parts; a task that is still running."""
    client = cluster.client
    env = {"PASSWORD": "planted-env"}
    task = client.submit(command=["sh", "-c", "echo started; sleep 60"], env=env).task_ids[0]
    failing = client.submit(shell=FLOOD, env=env, max_retries=1, array="1-3").task_ids[0]
    cluster.wait_task(task, "Running")
    client.wait(failing, 20)
    for path in ("/v1/jobs", f"/v1/jobs?token={stray}", f"/v1/jobs/{stray}", "/v1/nodes/x/drain"):
        ask(cluster, path, stray)
        ask(cluster, path, stray, "POST", b'{"command": ["%b"]}' % stray.encode())
    ask(cluster, "/v1/jobs", cluster.user_token, "POST", b'{"env": {"A": "planted-env"}, "nonsense": 1}')
    for part in ("coordinator", "n1"):
        cluster.kill(part, signal.SIGKILL)
        cluster.start_coordinator() if part == "coordinator" else cluster.start_runner("n1")
        wait_until(cluster.is_ready, 20.0, "it serves again")
    cluster.wait_online("n1")
    cluster.wait_task(task, "Running")
    return task


def a_browser_logs_in(cluster: RealCluster) -> dict[str, bytes]:
    """What it shows: the ticket, twice, another one that nobody uses, its cookie and what follows from that."""
    used, unused = (cluster.client.dashboard().url.partition("#ticket=")[2] for _ in range(2))
    page = Browser(cluster.address("coordinator"))
    assert [page.log_in(used).status, Browser(cluster.address("coordinator")).log_in(used).status] == [
        201,
        403,
    ]
    assert page.ask("POST", "/v1/jobs", {"command": ["true"]}).status == 202
    ask(cluster, f"/v1/jobs?ticket={used}", cluster.user_token)
    cookie = page.cookie.partition("=")[2]
    shown = {"ticket": used, "unused": unused, "cookie": cookie, "csrf": page.csrf, "next": page.next_ticket}
    return {name: each.encode() for name, each in shown.items()}


def join_and_fail(cluster: RealCluster, folder: Path) -> str:
    """A node that joins, and one that tries the same token again."""
    made = cluster.client.create_token(TokenRequest("join"))
    file = folder / "join"
    file.touch(0o600)
    file.write_text(made.token)
    for name, is_welcome in (("n2", True), ("n3", False)):
        cluster.pretends[name] = "cpus=1"
        words = {
            "runner.name": name,
            "runner.state_dir": str(folder / name),
            "runner.token_file": str(file),
            "runner.join": f"127.0.0.1:{cluster.link_port}",
            "runner.pretend": "cpus=1",
        }
        cluster._start(name, "runner", words)
        if is_welcome:
            wait_until((folder / name / "credential").exists, 20.0, "it has a credential of its own")
        else:
            assert cluster.processes[name].wait(20) == 77
    return made.token


def by_command_line(cluster: RealCluster, folder: Path, token: str) -> None:
    """What a person would type, with a token in a variable and with one in a file."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PHALANX_ADDRESS": cluster.address("coordinator")}
    for words in (
        ["ps", "--all"],
        ["nodes"],
        ["token", "list"],
        ["audit"],
        ["run", "--", "false"],
        ["config", "show"],
    ):
        for more in ({"PHALANX_TOKEN": token}, {"PHALANX_TOKEN_FILE": str(folder / "token")}):
            done = subprocess.run(
                [sys.executable, "-m", "phalanx", *words],
                env=env | more,
                capture_output=True,
                timeout=40,
                check=False,
            )
            assert token.encode() not in done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_planted_secrets_stand_nowhere_but_in_their_own_files(tmp_path: Path):
    with looking() as eyes, a_real_cluster(tmp_path, NODES) as cluster:
        stray = "phx_planted_by_a_stranger"
        created = cluster.client.create_token(TokenRequest(role="admin", name="ada")).token
        eyes.secrets = {"user": cluster.user_token.encode(), "node": cluster.node_token.encode()}
        eyes.secrets |= {"created": created.encode(), "stray": stray.encode(), "env": b"planted-env"}
        eyes.secrets |= a_browser_logs_in(cluster)
        task = a_run_with_failures(cluster, stray)
        eyes.secrets["join"] = join_and_fail(cluster, tmp_path).encode()
        by_command_line(cluster, tmp_path, created)
        secret = (tmp_path / "cluster-secret").read_text().strip()
        eyes.secrets["secret"] = secret.encode()
        eyes.secrets["task"] = ClusterSecret(secret).task_token(task).encode()
        eyes.secrets["own"] = json.loads((tmp_path / "n2" / "credential").read_text())["token"].encode()
        told = everything_told(cluster, task)
        assert {name for name, each in eyes.secrets.items() if each in told} <= {"env"}  # an admin sees it
        environ = Path(f"/proc/{pid_of(task)}/environ").read_bytes()
        assert eyes.secrets["task"] in environ  # it is where it should be, so the search can find it
        eyes.secrets.pop("env")
        assert eyes.looks > 20
        assert eyes.seen == set()
        cluster.client.cancel(task)
        with pytest.raises(PhalanxError):
            cluster.client.pause(task)
    found = found_in(tmp_path, eyes.secrets)
    own = {
        ("user", "token"),
        ("node", "node-token"),
        ("join", "join"),
        ("secret", "cluster-secret"),
        ("own", "n2/credential"),
    }
    assert found == own
    places = {file for _, file in found_in(tmp_path, {"env": b"planted-env"})}
    assert places == set(), "a job's environment is sealed, also in the database"


def pid_of(task: str) -> int:
    """The process of a task, found by its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"PHALANX_JOB_ID={task}".encode() in words:
            return int(folder.name)
    raise AssertionError(f"no process of {task}")


def test_the_search_would_find_a_secret(tmp_path: Path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "x.log").write_bytes(b"... phx_planted ...")
    assert found_in(tmp_path, {"a": b"phx_planted", "b": b"other"}) == {("a", "log/x.log")}
    with looking() as eyes:
        eyes.secrets = {"a": b"planted-word"}
        process = subprocess.Popen([sys.executable, "-c", "input()", "planted-word"], stdin=subprocess.PIPE)
        try:
            wait_until(lambda: eyes.seen == {"a"}, 10.0, "it was seen")
        finally:
            process.communicate(b"\n")
