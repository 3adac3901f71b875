"""Tokens in a real cluster: changed under load, revoked, and what users and tasks may do with theirs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.core.model.credential import Role
from phalanx.errors import Forbidden, PhalanxError
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.requests import answer, put, told
from tests.support.waiting import wait_until

ONE_NODE = {"n1": "cpus=4,ram=4GiB"}
SOON = {"coordinator.auth_reload_interval_s": 0.2}


def client_of(cluster: RealCluster, token: str) -> phalanx.Client:
    client = phalanx.Client(cluster.address("coordinator"), token)
    cluster.clients[str(len(cluster.clients))] = client  # closed with the cluster
    return client


def is_accepted(cluster: RealCluster, token: str) -> bool:
    return answer(cluster, "GET", "/v1/jobs?limit=1", token) == 200


class Holder(threading.Thread):
    """A client that asks and submits all the time with one token, and counts what went wrong."""

    def __init__(self, cluster: RealCluster, token: str) -> None:
        super().__init__()
        self._client = client_of(cluster, token)
        self._leaving = threading.Event()
        self.asked = 0
        self.failed: list[str] = []

    def run(self) -> None:
        with self._client as client:
            while not self._leaving.is_set():
                try:
                    client.jobs(limit=1)
                    client.submit(command=["true"])
                except PhalanxError as error:
                    self.failed.append(repr(error))
                self.asked += 2

    def leave(self) -> None:
        self._leaving.set()
        self.join()


@contextmanager
def holding(cluster: RealCluster, token: str) -> Iterator[Holder]:
    holder = Holder(cluster, token)
    holder.start()
    try:
        yield holder
    finally:
        holder.leave()


@pytest.mark.timeout(120)
def test_tokens_change_under_load_and_nobody_with_a_valid_one_is_refused(tmp_path: Path):
    with a_real_cluster(tmp_path, ONE_NODE, settings=SOON) as cluster:
        file = tmp_path / "token"
        task = cluster.client.submit(command=["sh", "-c", "while :; do echo tick; sleep 0.2; done"]).task_ids[
            0
        ]
        cluster.wait_task(task, "Running")
        made = cluster.client.create_token(TokenRequest(role="operator", name="ada"))
        put(file, f"{cluster.user_token},token-b")
        wait_until(lambda: is_accepted(cluster, "token-b"), 5.0, "the second token is accepted")
        followed: list[bytes] = []
        follower = threading.Thread(
            target=lambda: followed.extend(client_of(cluster, "token-b").logs(task, follow=True))
        )
        with holding(cluster, "token-b") as second, holding(cluster, made.token) as created:
            with holding(cluster, cluster.user_token) as first:
                follower.start()
                wait_until(
                    lambda: first.asked > 50 and followed, 20.0, "the first holder asks, the log flows"
                )
            put(file, "token-b\n")
            wait_until(
                lambda: not is_accepted(cluster, cluster.user_token), 5.0, "the first is accepted no more"
            )
            new = client_of(cluster, "token-b").rotate_token(made.record.id, "1h")
            with holding(cluster, new.token) as rotated:
                seen = len(followed)
                wait_until(lambda: rotated.asked > 50 and len(followed) > seen, 20.0, "the new token works")
        assert min(first.asked, second.asked, created.asked, rotated.asked) > 50
        assert first.failed + second.failed + created.failed + rotated.failed == []
        client_of(cluster, "token-b").cancel(task)
        follower.join(20)
        assert not follower.is_alive()


@pytest.mark.timeout(90)
def test_streams_of_a_revoked_token_end_within_30_s_and_others_go_on(tmp_path: Path):
    with a_real_cluster(tmp_path, ONE_NODE, settings=SOON) as cluster:
        task = cluster.client.submit(command=["sleep", "60"]).task_ids[0]
        cluster.wait_task(task, "Running")
        ada, bob = (
            cluster.client.create_token(TokenRequest(role="operator", name=name)) for name in ("ada", "bob")
        )
        ends: dict[str, str] = {}

        def watch(name: str, token: str) -> None:
            try:
                for _ in client_of(cluster, token).watch():
                    pass
            except PhalanxError as error:
                ends[name] = type(error).__name__

        for name, made in (("ada", ada), ("bob", bob)):
            threading.Thread(target=watch, args=(name, made.token), daemon=True).start()
        wait_until(lambda: all(token.used_at for token in cluster.client.tokens()), 10.0, "both have come")
        cluster.client.revoke_token(ada.record.id)
        assert not is_accepted(cluster, ada.token)
        wait_until(lambda: "ada" in ends, 30.0, "the watch of the revoked one ended")
        assert ends == {"ada": "Unauthorized"}
        assert is_accepted(cluster, bob.token)


def test_a_hangup_reads_the_file_at_once_and_an_emptied_one_refuses_all(tmp_path: Path):
    with a_real_cluster(tmp_path, {}, settings={"coordinator.auth_reload_interval_s": 3600}) as cluster:
        put(tmp_path / "token", "token-b")
        assert is_accepted(cluster, cluster.user_token)
        cluster.processes["coordinator"].send_signal(signal.SIGHUP)
        wait_until(lambda: is_accepted(cluster, "token-b"), 5.0, "the new token is accepted")
        assert not is_accepted(cluster, cluster.user_token)
        put(tmp_path / "token", "")
        cluster.processes["coordinator"].send_signal(signal.SIGHUP)
        wait_until(lambda: not is_accepted(cluster, "token-b"), 5.0, "no token is accepted")
        put(tmp_path / "token", "token-c")
        (tmp_path / "token").chmod(0o646)
        cluster.processes["coordinator"].send_signal(signal.SIGHUP)
        wait_until(lambda: "others may use" in told(cluster, "coordinator"), 5.0, "a warning")
        assert not is_accepted(cluster, "token-c")


@pytest.mark.parametrize("fault", ["missing", "empty", "readable"])
def test_a_token_file_that_cannot_be_used_ends_the_start(tmp_path: Path, fault: str):
    cluster = RealCluster(tmp_path)
    try:
        file = tmp_path / "token"
        if fault == "missing":
            file.unlink()
        elif fault == "empty":
            put(file, "\n")
        else:
            file.chmod(0o660)
        cluster.start_coordinator()
        assert cluster.processes["coordinator"].wait(20) != 0
        assert "token file" in told(cluster, "coordinator") or "others may use" in told(
            cluster, "coordinator"
        )
    finally:
        cluster.stop()


def test_node_tokens_change_and_the_task_keeps_its_process(tmp_path: Path):
    with a_real_cluster(tmp_path, ONE_NODE, settings=SOON) as cluster:
        task = cluster.client.submit(command=["sh", "-c", "echo $$; sleep 60"]).task_ids[0]
        cluster.wait_task(task, "Running")
        pid = int(str(wait_until(lambda: cluster.output(task).strip())))
        both, new = f"{cluster.node_token},node-b", "node-b"
        before = cluster.client.node("n1").incarnation
        put(tmp_path / "node-token", both)  # the file of the coordinator and of the runner
        wait_until(lambda: "added=" in told(cluster, "coordinator"), 5.0, "the coordinator accepts both")
        put(tmp_path / "node-token", new)
        wait_until(
            lambda: told(cluster, "n1").count("joined ") > 1, 15.0, "the runner came back with the new one"
        )
        cluster.wait_online("n1")
        assert cluster.client.node("n1").incarnation == before
        os.kill(pid, 0)
        view = cluster.client.task(task)
        assert (view.status, view.attempt) == ("Running", 1)
        cluster.client.cancel(task)


ASK = """
import os, sys, time, urllib.request, urllib.error
address, other = sys.argv[1:]
own = os.environ["PHALANX_JOB_ID"]
def ask(method, path):
    request = urllib.request.Request(address + path, method=method, data=b"{}" if method != "GET" else None)
    request.add_header("Authorization", "Bearer " + os.environ["PHALANX_TASK_TOKEN"])
    request.add_header("Content-Type", "application/json")
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
paths = ["/v1/jobs/OWN", "/v1/jobs/OWN/tasks", "/v1/jobs/OWN/story", "/v1/tasks/OWN", "/v1/tasks/OWN/logs"]
print(*[ask("GET", path.replace("OWN", own)) for path in paths])
print(*[ask("GET", path.replace("OWN", other)) for path in paths])
print(*[ask("GET", path) for path in ("/v1/jobs", "/v1/nodes", "/v1/events", "/v1/tokens", "/v1/audit", "/v1/cluster")])
print(*[ask("POST", path) for path in ("/v1/jobs", f"/v1/jobs/{own}/cancel", f"/v1/tasks/{own}/pause", "/v1/tokens")])
print(os.environ["PHALANX_TASK_TOKEN"], flush=True)
"""


def test_a_tasks_token_reads_its_own_job_while_that_lives_and_nothing_else(tmp_path: Path):
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        other = cluster.client.submit(command=["sleep", "60"]).task_ids[0]
        address = cluster.address("coordinator")
        task = cluster.client.submit(command=[sys.executable, "-c", ASK, address, other]).task_ids[0]
        cluster.wait_task(task, "Completed", "Failed")
        *lines, token = cluster.output(task).split("\n")[:-1]
        assert lines == [
            "200 200 200 200 200",
            "403 403 403 403 403",
            "403 403 403 403 403 403",
            "403 403 403 403",
        ]
        assert token.startswith(f"phx_task_{task}_")
        assert answer(cluster, "GET", f"/v1/jobs/{task}", token) == 401  # the job has ended
        shown = json.dumps(cluster.client.job(task).env)
        assert token not in shown


def test_owners_control_their_own_jobs_and_operators_all(tmp_path: Path):
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        roles: dict[str, Role] = {"ada": "user", "bob": "user", "eve": "viewer", "op": "operator"}
        tokens = {
            name: cluster.client.create_token(TokenRequest(role=role, name=name)).token
            for name, role in roles.items()
        }
        ada, bob, eve, op = (client_of(cluster, tokens[name]) for name in ("ada", "bob", "eve", "op"))
        task = ada.submit(command=["sh", "-c", "echo planted; sleep 60"], env={"KEY": "planted"}).task_ids[0]
        cluster.wait_task(task, "Running")
        wait_until(lambda: b"".join(ada.logs(task)) == b"planted\n", 10.0, "her own log")
        for stranger in (bob, eve):
            assert stranger.job(task).env == {"KEY": "(hidden)"}
            for forbidden in (
                lambda who=stranger: list(who.logs(task)),
                lambda who=stranger: who.cancel(task),
            ):
                with pytest.raises(Forbidden, match="role"):
                    forbidden()
        with pytest.raises(Forbidden):
            eve.submit(command=["true"])
        assert (ada.job(task).env, op.job(task).env) == ({"KEY": "planted"}, {"KEY": "planted"})
        assert op.cancel(task).cancelled == 1
        changes = [
            (line.name, line.action, line.number or line.made, line.status)
            for line in cluster.client.audit()
            if line.name != "admin"
        ]
        number = str(ada.job(task).number)
        assert changes[0] == ("ada", "submit", number, 202)
        assert ("op", "cancel", number, 200) in changes
        assert ("bob", "cancel", number, 403) in changes


def test_a_coordinator_with_another_secret_refuses_to_serve(tmp_path: Path):
    with a_real_cluster(tmp_path, {}) as cluster:
        cluster.kill("coordinator", signal.SIGTERM)
        put(tmp_path / "cluster-secret", "phx_another")
        cluster.start_coordinator()
        assert cluster.processes["coordinator"].wait(20) == 1
        said = told(cluster, "coordinator")
        assert f"coordinator.secret_file {tmp_path / 'cluster-secret'}" in said
        assert "copy that file from a coordinator of this cluster" in said


def test_a_created_token_counts_on_every_coordinator_and_after_a_failover(tmp_path: Path):
    settings: dict[str, object] = {"coordinator.lease_s": 2.0}
    with a_real_cluster(tmp_path, {}, coordinators=("c1", "c2"), settings=settings) as cluster:
        made = cluster.client.create_token(TokenRequest(role="viewer", name="ada"))
        ended = cluster.client.create_token(TokenRequest(role="viewer", name="bob"))
        cluster.client.revoke_token(ended.record.id)

        def seen(name: str) -> list[int]:
            return [answer(cluster, "GET", "/v1/jobs", each.token, at=name) for each in (made, ended)]

        for name in cluster.coordinators:
            wait_until(lambda name=name: seen(name) == [200, 401], 5.0, f"{name} knows both")  # type: ignore[misc]
        leader = cluster.leader()
        (standby,) = cluster.standbys()
        for number in range(10):  # a standby reads the log before it refuses a token that is a moment old
            fresh = cluster.client.create_token(TokenRequest(role="viewer", name=f"new{number}"))
            assert answer(cluster, "GET", "/v1/jobs", fresh.token, at=standby) == 200
        cluster.kill(leader)
        wait_until(lambda: cluster.status_of(standby, "/leaderz") == 200, 20.0, "the standby took over")
        assert seen(standby) == [200, 401]
        cluster.client.revoke_token(made.record.id)
        assert seen(standby) == [401, 401]


def test_every_variable_of_seed_001_works(tmp_path: Path):
    cluster = RealCluster(tmp_path)
    put(tmp_path / "krishiv-tokens", "from-file")
    seed = {
        "KRISHIV_COORDINATOR": f"127.0.0.1:{cluster.port}",
        "KRISHIV_COORDINATOR_BEARER_TOKEN": "from-value",
        "KRISHIV_COORDINATOR_BEARER_TOKENS": "from-list-1,from-list-2",
        "KRISHIV_COORDINATOR_BEARER_TOKEN_FILE": str(tmp_path / "krishiv-tokens"),
        "KRISHIV_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS": "0.2",
        "KRISHIV_EXECUTOR_TASK_BEARER_TOKEN": "of-the-executors",
        "KRISHIV_MAX_TASK_RETRIES": "0",
        "KRISHIV_HEARTBEAT_TIMEOUT_SECS": "12",
    }
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "none")} | seed
    ports = ["--port", str(cluster.port), "--link-port", str(cluster.link_port)]
    words = {
        "coordinator": ["coordinator", *ports],
        "n1": ["runner", "--name", "n1", "--join", f"127.0.0.1:{cluster.link_port}", "--pretend", "cpus=2"],
    }
    try:
        for name, argv in words.items():
            with (tmp_path / f"{name}.log").open("ab") as log:
                cluster.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "phalanx", *argv], env=env, stdout=log, stderr=log
                )
        cluster.pretends["n1"] = "cpus=2"
        wait_until(lambda: answer_or_none(cluster, "from-value") == 200, 20.0, "the coordinator serves")
        accepted = [
            answer_or_none(cluster, token) for token in ("from-list-1", "from-list-2", "from-file", "other")
        ]
        assert accepted == [200, 200, 200, 401]
        put(tmp_path / "krishiv-tokens", "from-file-2")
        wait_until(lambda: answer_or_none(cluster, "from-file-2") == 200, 5.0, "the file was read again")
        put(tmp_path / "krishiv-tokens", "from-file-2")
        cluster.client = client_of(cluster, "from-value")
        cluster.wait_online("n1")
        run = subprocess.run(
            [sys.executable, "-m", "phalanx", "run", "--", "sh", "-c", "exit 3"],
            env=env,
            timeout=40,
            check=False,
        )
        assert run.returncode == 3
        (job,) = cluster.client.jobs().items
        assert (job.max_retries, job.status, job.user) == (0, "Failed", "admin")
    except BaseException:
        for path in tmp_path.glob("*.log"):
            sys.stderr.write(f"--- {path.name}\n{path.read_text()[-3000:]}\n")
        raise
    finally:
        cluster.stop()


def answer_or_none(cluster: RealCluster, token: str) -> int | None:
    try:
        return answer(cluster, "GET", "/v1/jobs", token)
    except OSError:
        return None
