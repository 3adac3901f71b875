"""Nodes that join a real cluster: by a join token, once; and every way in which that must fail (S5)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.runner.keeper.lookup import is_keeper
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.requests import answer, put, told
from tests.support.waiting import wait_until


def start_runner(cluster: RealCluster, name: str, token_file: Path | None, **more: object) -> None:
    cluster.pretends[name] = "cpus=4,ram=4GiB"
    settings = {
        "runner.name": name,
        "runner.state_dir": str(cluster.folder / name),
        "runner.join": f"127.0.0.1:{cluster.link_port}",
        "runner.pretend": cluster.pretends[name],
    }
    if token_file is not None:
        settings["runner.token_file"] = str(token_file)
    cluster._start(name, "runner", settings | more)


def join_token(cluster: RealCluster, path: Path, node: str | None = None, expires: str = "1h") -> str:
    made = cluster.client.create_token(TokenRequest("join", node=node, expires=expires))
    put(path, made.token)
    return made.record.id


def keepers(folder: Path) -> list[str]:
    """The keepers of the runner of a folder."""
    return [path.name for path in Path("/proc").glob("[0-9]*") if is_keeper(int(path.name), str(folder))]


def test_a_node_joins_with_a_join_token_and_comes_back_without_it(tmp_path: Path):
    with a_real_cluster(tmp_path, {}) as cluster:
        id = join_token(cluster, tmp_path / "join")
        start_runner(cluster, "n1", tmp_path / "join")
        cluster.wait_online("n1")
        kept = tmp_path / "n1" / "credential"
        wait_until(kept.exists, 5.0, "the credential is kept")
        assert oct(kept.stat().st_mode & 0o777) == "0o600"
        by_id = {token.id: token for token in cluster.client.tokens()}
        assert (by_id[id].kind, by_id[id].node) == ("join", "n1")
        task = cluster.client.submit(command=["echo", "here"]).task_ids[0]
        cluster.wait_task(task, "Completed")
        assert cluster.output(task) == "here\n"
        cluster.kill("n1", signal.SIGTERM)
        (tmp_path / "join").unlink()
        start_runner(cluster, "n1", tmp_path / "join")
        wait_until(lambda: told(cluster, "n1").count("joined ") == 2, 15.0, "the node came back by itself")
        cluster.wait_online("n1")

        # The token is used up, and the credential is this node's alone.
        put(tmp_path / "stolen", json.loads(kept.read_text())["token"])
        start_runner(cluster, "n2", tmp_path / "stolen")
        assert cluster.processes["n2"].wait(20) == 77
        assert "this credential is for node 'n1', not for 'n2'" in told(cluster, "n2")
        wait_until(lambda: keepers(tmp_path / "n2") == [], 10.0, "no keeper is left")
        assert keepers(tmp_path / "n1")
        for path in ("/v1/jobs", "/v1/nodes", "/v1/cluster", "/v1/tokens"):
            assert answer(cluster, "GET", path, (tmp_path / "stolen").read_text()) == 403


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("replayed", "was used by node 'n1'"),
        ("expired", "has expired"),
        ("revoked", "was revoked"),
        ("truncated", "not one of this cluster's"),
        ("a user's", "cannot speak for a node"),
    ],
)
def test_a_runner_with_a_token_that_is_no_good_is_told_why_and_ends(tmp_path: Path, fault: str, why: str):
    with a_real_cluster(tmp_path, {}) as cluster:
        file = tmp_path / "join"
        id = join_token(cluster, file, expires="1s" if fault == "expired" else "1h")
        if fault == "replayed":
            start_runner(cluster, "n1", file)
            cluster.wait_online("n1")
        elif fault == "expired":
            wait_until(lambda: not cluster.client.tokens()[0].is_valid, 5.0, "it has expired")
        elif fault == "revoked":
            cluster.client.revoke_token(id)
        elif fault == "truncated":
            put(file, file.read_text()[:-1])
        else:
            put(file, cluster.client.create_token(TokenRequest(role="admin")).token)
        start_runner(cluster, "n2", file)
        assert cluster.processes["n2"].wait(20) == 77
        assert why in told(cluster, "n2")
        assert "n2" not in {node.name for node in cluster.client.nodes()}
        refused = [line for line in cluster.client.audit() if line.method == "HELLO" and line.status != 200]
        assert [(line.id, line.status) for line in refused] == [("n2", 401)]


def test_a_revoked_node_loses_its_connection(tmp_path: Path):
    with a_real_cluster(tmp_path, {}) as cluster:
        join_token(cluster, tmp_path / "join")
        start_runner(cluster, "n1", tmp_path / "join")
        cluster.wait_online("n1")
        own = next(token for token in cluster.client.tokens() if token.kind == "node")
        assert own.name == "n1"
        cluster.client.revoke_token(own.id)
        assert cluster.processes["n1"].wait(30) == 77
        assert "credential was revoked" in told(cluster, "n1")
