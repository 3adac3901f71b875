"""Tasks in the environment and the folder of whoever submits them, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import Forbidden
from tests.support.real_cluster import RealCluster, a_real_cluster

SAYS = "import os, sys; e = os.environ; print(sys.executable, os.getcwd(), e['MYVAR'], e['CUDA_VISIBLE_DEVICES'])"
PHALANX = str(Path(sys.executable).with_name("phalanx"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("environments")
    settings = {"coordinator.not_exported": "VAULT_*"}
    with a_real_cluster(folder, {"n1": "cpus=8"}, settings=settings) as cluster:
        yield cluster


def cli(cluster: RealCluster, *words: str, env: dict[str, str], cwd: Path) -> str:
    """The output of a command, typed in this folder with this environment."""
    given = {
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN_FILE": str(cluster.folder / "token"),
    }
    done = subprocess.run(
        [PHALANX, *words], env=env | given, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_in_a_virtual_environment_uses_its_python(cluster: RealCluster, tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    home = {"HOME": str(tmp_path), "MYVAR": "two words", "CUDA_VISIBLE_DEVICES": "7"}
    active = home | {"PATH": f"{tmp_path}/v/bin:/usr/bin:/bin", "VIRTUAL_ENV": f"{tmp_path}/v"}
    told = cli(cluster, "run", "--", "python", "-c", SAYS, env=active, cwd=tmp_path)
    assert told == f"{tmp_path}/v/bin/python {tmp_path} two words \n"
    shell = ["run", "--shell", "--", 'python -c "import sys; print(sys.prefix)"']
    assert cli(cluster, *shell, env=active, cwd=tmp_path) == f"{tmp_path}/v\n"
    (tmp_path / "vars.env").write_text("LR=0.1\nMYVAR\n")
    script = 'echo "$LR,$MYVAR,$HOME,$VAULT_TOKEN,$OTHER"'
    named = ["run", "--export", "NONE", "--env-file", "vars.env", "-e", "OTHER=x", "--", "sh", "-c", script]
    assert cli(cluster, *named, env=active, cwd=tmp_path) == f"0.1,two words,{os.environ['HOME']},,x\n"
    secret = active | {"VAULT_TOKEN": "t", "OTHER": "o"}
    whole = ["run", "--", "sh", "-c", script]
    assert cli(cluster, *whole, env=secret, cwd=tmp_path) == f",two words,{os.environ['HOME']},,o\n"


def test_the_python_client_runs_here_with_its_own_environment(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYVAR", "of the client")
    monkeypatch.setenv("API_KEY", "tops3cret-key")
    for fields, expected in (
        ({}, "of the client"),
        ({"export": "NONE"}, ""),
        ({"export": ["MYVAR"]}, "of the client"),
    ):
        id = cluster.client.submit(shell='echo "$MYVAR in $PWD"', **fields).task_ids[0]
        cluster.wait_task(id, "Completed")
        assert cluster.output(id) == f"{expected} in {tmp_path}\n"


FLOW = """
name: ft
stages:
  - {name: a, retries: 0, command: [python, -c, "import sys; print(sys.prefix)"]}
  - {name: b, retries: 0, needs: [a], env: {LR: "0.1"}, command: 'echo "$VIRTUAL_ENV,$MYVAR,$LR in $PWD"'}
"""
FOREIGN = """
apiVersion: flowmesh/v1
metadata: {name: theirs}
spec: {stages: [{name: a, spec: {shell: 'echo "$MYVAR."'}}]}
"""


def test_stages_of_workflows_run_in_the_environment_of_their_user(cluster, tmp_path, monkeypatch):
    venv = tmp_path / "v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "theirs.yaml").write_text(FOREIGN)
    active = {
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": str(venv),
        "MYVAR": "mine",
        "HOME": str(tmp_path),
    }

    def outputs(id: str) -> list[str]:
        flow = cluster.client.wait_workflow(id, timeout=60)
        assert flow.status == "Completed", flow
        return [cluster.output(f"{stage.job_id}.0").strip() for stage in flow.stages]

    def typed(*words: str) -> list[str]:
        return outputs(cli(cluster, *words, env=active, cwd=tmp_path).strip())

    submit = ("workflow", "submit", "-f")
    assert typed(*submit, "flow.yaml") == [str(venv), f"{venv},mine,0.1 in {tmp_path}"]
    assert typed(*submit, "flow.yaml", "--export", "PATH")[1] == f",,0.1 in {tmp_path}"
    assert typed(*submit, "theirs.yaml") == ["."]
    assert typed(*submit, "theirs.yaml", "--export", "ALL") == ["mine."]
    assert typed("apply", "-f", "flow.yaml", "--export", "ALL") == [
        str(venv),
        f"{venv},mine,0.1 in {tmp_path}",
    ]

    monkeypatch.chdir(tmp_path)
    for name, value in active.items():
        monkeypatch.setenv(name, value)
    for export, expected in ((None, "mine"), ("NONE", ""), (["MYVAR"], "mine")):
        built = cluster.client.workflow("built", export=export)
        built.stage("a", shell='echo "$MYVAR"')
        assert outputs(built.submit().id) == [expected]
    assert outputs(cluster.client.submit_workflow_file("flow.yaml").id)[0] == str(venv)
    assert outputs(cluster.client.submit_workflow_file("theirs.yaml").id) == ["."]


def test_an_environment_outlives_a_coordinator_that_is_killed_and_is_hidden_from_others(cluster, monkeypatch):
    monkeypatch.setenv("API_KEY", "tops3cret-key")
    made = cluster.client.create_token(phalanx.TokenRequest(role="user", name="bob"))
    other = phalanx.Client(cluster.address("coordinator"), made.token)
    id = cluster.client.submit(shell='echo "$API_KEY $LR"', env={"LR": "0.1"}).task_ids[0]
    cluster.kill("coordinator")
    cluster.start_coordinator()
    cluster.wait_ready("coordinator")
    cluster.wait_task(id, "Completed", within_s=40.0)
    assert cluster.output(id) == "tops3cret-key 0.1\n"
    assert cluster.client.environment(id).exported["API_KEY"] == "tops3cret-key"
    assert "API_KEY" in cluster.client.job(id).exported
    seen = other.job(id)
    assert (seen.exported, seen.env) == ([], {"LR": "(hidden)"})
    with pytest.raises(Forbidden):
        other.environment(id)
    other.close()
    for path in (cluster.folder / "coordinator").rglob("*"):
        if path.is_file() and "files" not in path.parts:  # where the task's own output is kept
            assert b"tops3cret-key" not in path.read_bytes(), path


def test_a_folder_or_a_program_that_a_node_lacks_is_said_with_its_name(cluster, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    task = cluster.client.submit(command=["true"], cwd=str(gone)).task_ids[0]
    view = cluster.wait_task(task, "Failed")
    assert view.message == f"working directory {gone}: No such file or directory, on node n1"
    assert view.attempt == 1
    monkeypatch.setenv("PATH", f"{tmp_path}/s3cr3t/bin")
    task = cluster.client.submit(command=["no-such-program"]).task_ids[0]
    view = cluster.wait_task(task, "Failed")
    assert view.message == "no program 'no-such-program' in its PATH, on node n1"
    assert (view.attempt, view.exit_code) == (1, 127)
    why = cluster.client.why(task)
    assert why.fix is not None
    assert "PATH it was submitted with" in why.fix.text
