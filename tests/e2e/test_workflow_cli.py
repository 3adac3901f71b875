"""`phalanx workflow` as typed: submit and wait, look, draw, retry, cancel; plan and apply take the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.forked import run_command
from tests.support.real_cluster import RealCluster, a_real_cluster

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


def run_cli(cluster: RealCluster, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN_FILE": str(cluster.folder / "token"),
    }
    done = run_command(argv, environment, cwd=folder)
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_workflow_from_the_command_line(tmp_path: Path) -> None:
    flow = FLOW.replace("PYTHON", sys.executable)
    (tmp_path / "flow.yaml").write_text(flow.replace("LIMIT", "5"))
    (tmp_path / "good.yaml").write_text(flow.replace("LIMIT", "4"))
    (tmp_path / "unknown.yaml").write_text(flow.replace("echo}}", "ecco}}"))
    (tmp_path / "large.yaml").write_text(flow.replace("echo}}", "echo, cores: 9999}}"))
    with a_real_cluster(tmp_path / "cluster") as cluster:

        def phalanx(*argv: str) -> subprocess.CompletedProcess[str]:
            return run_cli(cluster, tmp_path, *argv)

        planned = phalanx("plan", "-f", "flow.yaml")
        assert planned.returncode == 0
        assert "demo:a would start now" in planned.stdout
        assert "demo: 3 stages, 2 of them after others; no earlier run of it is known" in planned.stdout
        unknown_type = phalanx("plan", "-f", "unknown.yaml")
        assert unknown_type.returncode not in (0, 3, 4)
        assert "unknown.yaml:" in unknown_type.stderr and "stages[2] (c)" in unknown_type.stderr
        assert "no executor is declared for 'ecco'" in unknown_type.stderr
        large = phalanx("plan", "-f", "large.yaml")
        assert large.returncode == 4
        assert "demo:c can never run here" in large.stdout
        assert "would start now" not in large.stdout, "a submission refuses all of it"
        failed = phalanx("workflow", "submit", "-f", "flow.yaml", "--wait")
        assert failed.returncode == 1
        assert "b failed: exited with code 1" in failed.stderr
        [view] = json.loads(phalanx("workflow", "list", "-o", "json").stdout)
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
