"""`phalanx workflow` as typed: submit and wait, look, draw, retry, cancel; plan and apply take the same files."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.api.schema.workflows import StageView
from phalanx.errors import BadRequest
from tests.support.forked import run_command
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import a_terminal, run_phalanx
from tests.support.waiting import wait_until

FLOW = """
apiVersion: flowmesh/v1
metadata: {name: demo}
spec:
  graph:
    nodes:
      - {name: a, spec: {shell: 'echo "{\\"n\\": 4}" > $PHALANX_RESULT; PYTHON -m phalanx version > version'}}
      - {name: b, dependsOn: [a], spec: {command: [test, "${a.result.n}", -eq, "LIMIT"], max_attempts: 1}}
      - {name: c, dependsOn: [a, b], spec: {taskType: echo}}
"""

GATED = """
metadata: {name: gated}
spec:
  stages:
    - {name: a, spec: {shell: 'echo 7 > $PHALANX_RESULT'}}
    - {name: b, spec: {env: {A: "${a.result}"}, shell: 'read line < gate; echo "$line $A" > told'}}
    - {name: c, spec: {taskType: echo}}
"""
SHAPES = {
    "one.yaml": "spec: {taskType: echo, n: 1, resources: {hardware: {gpu: {type: A6000, count: 1, memory: 40GB}}}}",
    "chain.yml": "spec: {stages: [{spec: {shell: 'echo 3 > $PHALANX_RESULT; echo here > chain'}},"
    " {spec: {taskType: echo, n: '${stage-1.result}'}}]}",
    "graph.json": json.dumps(
        {"spec": {"graph": {"nodes": [{"name": "x", "spec": {"taskType": "echo", "n": 3}}]}}}
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    nodes = {"n1": "gpus=1,type=rtx-a6000,memory=48GiB,cpus=4,ram=8GiB"}
    with a_real_cluster(tmp_path_factory.mktemp("cluster"), nodes) as cluster:
        yield cluster


def run_cli(cluster: RealCluster, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN_FILE": str(cluster.folder / "token"),
    }
    done = run_command(argv, environment, cwd=folder)
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_example_runs_as_it_is(cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(run_cli(cluster, tmp_path, "workflow", "example").stdout)
    done = run_cli(cluster, tmp_path, "workflow", "submit", "-f", "flow.yaml", "--wait")
    assert (done.returncode, "3 Completed" in done.stderr) == (0, True), done.stderr
    number = done.stdout.strip()
    assert run_cli(cluster, tmp_path, "logs", f"{number}:train").stdout == "training on 100 rows\n"
    assert run_cli(cluster, tmp_path, "logs", f"{number}:report").stdout == "loss: 0.25\n"
    plan = run_cli(cluster, tmp_path, "plan", "-f", "flow.yaml")
    assert (plan.returncode, "example" in plan.stdout) == (0, True), plan.stdout + plan.stderr
    again = cluster.client.submit_workflow_file(tmp_path / "flow.yaml")  # the coordinator reads it
    assert again.wait(timeout=60).status == "Completed"
    (tmp_path / "wrong.yaml").write_text("stages: [{name: a, command: [x], needs: [b]}]")
    with pytest.raises(BadRequest, match=r"stages\[0\]\.needs: there is no stage 'b'"):
        cluster.client.submit_workflow_file(tmp_path / "wrong.yaml")


def test_show_takes_workflows_and_nodes_and_cancel_takes_workflows(
    cluster: RealCluster, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text(
        "stages: [{name: a, command: [sleep, '600']}, {name: b, command: [x]}]"
    )
    number = run_cli(cluster, tmp_path, "workflow", "submit", "-f", "flow.yaml").stdout.strip()
    assert "Waiting" in run_cli(cluster, tmp_path, "show", number).stdout
    assert (
        run_cli(cluster, tmp_path, "show", "n1").stdout
        == run_cli(cluster, tmp_path, "node", "show", "n1").stdout
    )
    missing = run_cli(cluster, tmp_path, "show", "n9")
    assert (missing.returncode, "no job 'n9'" in missing.stderr) == (5, True)
    done = run_cli(cluster, tmp_path, "cancel", number)
    assert (done.returncode, f"{number} cancelled (2 stages" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )
    assert cluster.client.workflow_view(number).status == "Cancelled"


def test_a_workflow_is_planned(cluster: RealCluster, tmp_path: Path) -> None:
    flow = FLOW.replace("PYTHON", sys.executable)
    (tmp_path / "flow.yaml").write_text(flow.replace("LIMIT", "5"))
    (tmp_path / "unknown.yaml").write_text(flow.replace("echo}}", "ecco}}"))
    (tmp_path / "large.yaml").write_text(flow.replace("echo}}", "echo, cores: 9999}}"))

    def phalanx(*argv: str) -> subprocess.CompletedProcess[str]:
        return run_cli(cluster, tmp_path, *argv)

    planned = phalanx("plan", "-f", "flow.yaml")
    assert planned.returncode == 0
    assert "demo:a would start now" in planned.stdout
    assert "demo: 3 stages, 2 of them after others; " in planned.stdout
    (tmp_path / "new.yaml").write_text(
        GATED.replace("gated", "new").replace("taskType: echo", "command: [x]")
    )
    assert (
        "new: 3 stages, 2 of them after others; no earlier run of it is known"
        in phalanx("plan", "-f", "new.yaml").stdout
    )
    unknown_type = phalanx("plan", "-f", "unknown.yaml")
    assert unknown_type.returncode not in (0, 3, 4)
    assert "unknown.yaml:" in unknown_type.stderr and "stages[2] (c)" in unknown_type.stderr
    assert "no executor is declared for 'ecco'" in unknown_type.stderr
    large = phalanx("plan", "-f", "large.yaml")
    assert large.returncode == 4
    assert "demo:c can never run here" in large.stdout
    assert "would start now" not in large.stdout, "a submission refuses all of it"


def test_a_workflow_from_the_command_line(cluster: RealCluster, tmp_path: Path) -> None:
    flow = FLOW.replace("PYTHON", sys.executable)
    (tmp_path / "flow.yaml").write_text(flow.replace("LIMIT", "5"))
    (tmp_path / "good.yaml").write_text(flow.replace("LIMIT", "4"))

    def phalanx(*argv: str) -> subprocess.CompletedProcess[str]:
        return run_cli(cluster, tmp_path, *argv)

    failed = phalanx("workflow", "submit", "-f", "flow.yaml", "--wait")
    assert failed.returncode == 1
    assert "b failed: exited with code 1" in failed.stderr
    listed = json.loads(phalanx("workflow", "list", "-o", "json").stdout)
    [view] = [each for each in listed if each["name"] == "demo"]
    assert view["counts"] == {"Completed": 1, "Failed": 2}
    shown = phalanx("workflow", "show", view["id"]).stdout
    assert "it depends on stage b, which failed" in shown
    assert "c is Failed: It depends on stage b, which failed (EndedFailed)" in phalanx(
        "why", f"{view['id']}:c"
    ).stdout.replace(f"{view['id']}:", "")
    whole = json.loads(phalanx("why", view["id"], "-o", "json").stdout)
    assert (whole["status"], whole["dominant"]["text"]) == ("Failed", "1 of 3 stages completed")
    for unknown, told in ((f"{view['id']}:z", "has no stage 'z'"), ("7" * 26, "no job")):
        refused = phalanx("why", unknown)
        assert refused.returncode != 0
        assert told in refused.stderr
    tree = phalanx("workflow", "graph", view["id"]).stdout
    assert "✔ a" in tree and "✘ b" in tree and "(and after b)" in tree
    assert '"a" -> "b";' in phalanx("workflow", "graph", view["id"], "--format", "dot").stdout
    assert "s0 --> s1" in phalanx("workflow", "graph", view["id"], "--format", "mermaid").stdout
    retried = phalanx("workflow", "retry", view["id"])
    assert "2 stages run again: b, c" in retried.stdout
    assert phalanx("workflow", "wait", view["id"]).returncode == 1
    assert "NotFound" not in phalanx("story", view["id"]).stderr
    applied = phalanx("apply", "-f", "good.yaml", "--wait")
    assert (applied.returncode, applied.stdout.strip().isdigit()) == (0, True)
    assert "Completed" in applied.stderr
    mistaken = phalanx("workflow", "cancel", view["id"])
    assert mistaken.returncode != 0
    assert "has already ended" in mistaken.stderr
    assert (tmp_path / "version").read_text().startswith("phalanx ")


def stages(cluster: RealCluster, id: str) -> dict[str, StageView]:
    return {stage.name: stage for stage in cluster.client.workflow_view(id).stages}


def gated(cluster: RealCluster, folder: Path) -> str:
    """A workflow whose second stage runs until something is written to the pipe `gate`; it runs now."""
    (folder / "gated.yaml").write_text(GATED)
    os.mkfifo(folder / "gate")
    submitted = run_cli(cluster, folder, "workflow", "submit", "-f", "gated.yaml", "-o", "json")
    assert submitted.returncode == 0, submitted.stderr
    id = str(json.loads(submitted.stdout)[0]["id"])
    wait_until(lambda: stages(cluster, id)["b"].status == "Running", 30, "stage b runs")
    return id


def test_a_graph_is_watched_and_stages_run_again_from_one_on(cluster: RealCluster, tmp_path: Path) -> None:
    id = gated(cluster, tmp_path)
    with a_terminal(cluster, "workflow", "graph", id, "--watch") as terminal:
        terminal.expect("gated  Running  1/3")
        terminal.expect("✔ a")
        terminal.expect("▶ b on n1")
        terminal.expect("· c")
        (tmp_path / "gate").write_text("first\n")
        terminal.expect("gated  Completed  3/3")
        terminal.expect("✔ c")
        assert terminal.exit_code() == 0
    assert (tmp_path / "told").read_text() == "first 7\n"
    before = stages(cluster, id)

    again = run_cli(cluster, tmp_path, "workflow", "retry", id, "--from-stage", "b")
    assert (again.returncode, again.stdout.partition(": ")[2]) == (0, "2 stages run again: b, c\n")
    wait_until(lambda: stages(cluster, id)["b"].status == "Running", 30, "stage b runs again")
    with ThreadPoolExecutor(1) as beside:  # without a terminal the end is drawn, once
        drawn = beside.submit(run_phalanx, cluster, "workflow", "graph", id, "--watch")
        (tmp_path / "gate").write_text("second\n")
        shown = drawn.result(60).stdout.decode()
    assert shown.startswith("gated  Completed  3/3") and shown.count("✔ c") == 1
    assert (tmp_path / "told").read_text() == "second 7\n"
    after = stages(cluster, id)
    assert {name: after[name].job_id == before[name].job_id for name in after} == {
        "a": True,
        "b": False,
        "c": False,
    }
    assert after["b"].retries == 1 and after["a"].result == 7


def test_a_running_workflow_is_cancelled(cluster: RealCluster, tmp_path: Path) -> None:
    id = gated(cluster, tmp_path)
    cancelled = run_cli(cluster, tmp_path, "workflow", "cancel", id)
    assert cancelled.returncode == 0
    assert cancelled.stdout.endswith("cancelled (2 stages, 1 task being stopped)\n"), cancelled.stdout
    ended = run_cli(cluster, tmp_path, "workflow", "wait", id, "--timeout", "30s")
    assert ended.returncode == 1
    assert {name: stage.status for name, stage in stages(cluster, id).items()} == {
        "a": "Completed",
        "b": "Cancelled",
        "c": "Cancelled",
    }


@pytest.mark.parametrize("is_async", [False, True])
def test_files_of_all_shapes_from_python(
    cluster: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in SHAPES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "two.yaml").write_text(f"{SHAPES['one.yaml']}\n---\n{SHAPES['chain.yml']}\n")
    (tmp_path / "wrong.yaml").write_text("spec:\n  stages:\n  - {name: a, spec: {taskType: ecco}}\n")
    found = asyncio.run(submitted_async(cluster)) if is_async else submitted(cluster)
    assert [[*each.values()][-1]["n"] for each in found] == [1, 3, 3]
    assert (tmp_path / "chain").read_text() == "here\n", "commands run in the folder of the client"


def submitted(cluster: RealCluster) -> list[dict[str, Any]]:
    client = cluster.client
    runs = [client.submit_workflow_file(name, deadline="1h") for name in SHAPES]
    for run in runs:
        assert run.wait(timeout=30, check=True).deadline_at is not None
    for name, told in (
        ("two.yaml", "there are 2 workflows in them, expected one"),
        ("wrong.yaml", "wrong.yaml:"),
    ):
        with pytest.raises(BadRequest, match=told):
            client.submit_workflow_file(name)
    return [run.results() for run in runs]


async def submitted_async(cluster: RealCluster) -> list[dict[str, Any]]:
    token = (cluster.folder / "token").read_text().strip()
    async with phalanx.AsyncClient(cluster.address("coordinator"), token=token) as client:
        runs = [await client.submit_workflow_file(Path(name)) for name in SHAPES]
        for run in runs:
            await run.wait(timeout=30, check=True)
        return [await run.results() for run in runs]
