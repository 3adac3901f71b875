"""Large results and artifacts of one stage, used by another on another node, over failures of the place for files."""

from __future__ import annotations

import sys
from pathlib import Path

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODES = {"n1": "cpus=2,ram=1GiB", "n2": "cpus=2,ram=1GiB"}
TRAIN = """
import json, os, pathlib
folder = pathlib.Path(os.environ["PHALANX_ARTIFACTS"])
(folder / "v1.0").mkdir()
(folder / "v1.0" / "model.pt").write_bytes(b"weights" * 1000)
json.dump({"notes": "n" * 9000, "loss": 0.5}, open(os.environ["PHALANX_RESULT"], "w"))
"""
USE = """
import json, os, pathlib, subprocess, sys
cp = [sys.executable, "-m", "phalanx", "cp"]
subprocess.run([*cp, sys.argv[1], "copy.pt"], check=True)
subprocess.run([*cp, "-r", sys.argv[2], "all"], check=True)
import phalanx
client = phalanx.Client()
upstream = sys.argv[2].rstrip(":")
try:
    client.task(sys.argv[4])
    refused = ""
except phalanx.PhalanxError as error:
    refused = error.reason
json.dump({
    "same": pathlib.Path("copy.pt").read_bytes() == pathlib.Path("all/v1.0/model.pt").read_bytes() == b"weights" * 1000,
    "loss": client.result(upstream)["loss"],
    "refused": refused,
    "given": sys.argv[3],
    "node": [os.environ["PHALANX_NODE"], client.task(upstream).node],
}, open(os.environ["PHALANX_RESULT"], "w"))
"""


def test_a_stage_on_another_node_uses_the_artifacts_and_the_large_result_of_one_before_it(tmp_path: Path):
    with a_real_cluster(tmp_path / "cluster", NODES) as cluster:
        other = cluster.client.submit(command=["true"]).task_ids[0]  # of no workflow
        flow = cluster.client.workflow("files")
        train = flow.stage("train", [sys.executable, "-c", TRAIN], target="n1")
        model, loss = train.artifact("v1.0/model.pt"), train.result["loss"]
        (tmp_path / "work").mkdir()
        env = {"HOME": str(tmp_path)}  # no cluster of this machine is found there
        flow.stage(
            "use",
            [sys.executable, "-c", USE, model, train.artifact(), loss, other],
            target="n2",
            env=dict(env),
            cwd=str(tmp_path / "work"),
        )
        run = flow.submit()
        view = run.wait(timeout=60)
        reasons = {stage.name: stage.reason for stage in view.stages}
        assert view.status == "Completed", (reasons, cluster.output(run.jobs["use"]))
        found = run.results()["use"]
        assert found == {
            "same": True,
            "loss": 0.5,
            "refused": "RoleForbids",
            "given": "0.5",
            "node": ["n2", "n1"],
        }


def test_a_stage_waits_for_a_place_that_does_not_answer_and_fails_for_a_changed_file(tmp_path: Path):
    """The file cannot be read at first, which is said; after that, and a kill of the coordinator, the stage begins."""
    with a_real_cluster(tmp_path / "cluster", {"n1": "cpus=2,ram=1GiB"}, lost_after_s=20.0) as cluster:
        gates = {name: tmp_path / name for name in ("one", "two")}
        runs = {name: _gated(cluster, name, gate) for name, gate in gates.items()}
        places = {name: _finished(cluster, run, gates[name]) for name, run in runs.items()}

        cluster.wait_task(runs["one"].jobs["gate"], "Running")
        eve = cluster.client.create_token(TokenRequest(role="user", name="eve")).token
        with phalanx.Client(cluster.address("coordinator"), eve) as other:
            waits = other.why(f"{runs['one'].id}:use").dominant
            assert (waits.code, waits.text) == ("WaitingDependency", "Waits for gate (Running)")
            assert other.why(runs["one"].id).dominant.code == "StagesRunning"

        # A link to itself: looking at it fails, and yet nobody can say that the file is gone.
        kept = places["one"].read_bytes()
        places["one"].unlink()
        places["one"].symlink_to(places["one"].name)
        (gates["one"].parent / "one-go").touch()
        wait_until(
            lambda: "place for files: " in _stage(cluster, runs["one"], "use").reason,
            what="it is said that the place does not answer",
        )
        reason = _stage(cluster, runs["one"], "use").reason
        assert reason.startswith("waits for the result of big from the place for files: ")
        assert _stage(cluster, runs["one"], "use").status == "Waiting"
        cluster.kill("coordinator")
        places["one"].unlink()
        places["one"].write_bytes(kept)
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        view = cluster.client.wait_workflow(runs["one"].id, timeout=60)
        assert view.status == "Completed", view
        assert cluster.output(runs["one"].jobs["use"]) == "x" * 9000 + "\n"

        places["two"].write_bytes(kept.replace(b"x", b"y"))
        (gates["two"].parent / "two-go").touch()
        view = cluster.client.wait_workflow(runs["two"].id, timeout=60)
        use = _stage(cluster, runs["two"], "use")
        assert (use.status, use.attempts) == ("Failed", 0)
        assert "is not what the task wrote" in use.reason
        last = _stage(cluster, runs["two"], "last")
        assert (last.status, last.parent) == ("Failed", "use")


def _gated(cluster: RealCluster, name: str, gate: Path) -> phalanx.WorkflowHandle:
    """A stage with a large result, one that uses it once a gate opened, and one after that."""
    flow = cluster.client.workflow(name)
    big = flow.stage("big", shell="""printf '["%09000d"]' 0 | tr 0 x > $PHALANX_RESULT""")
    gated = flow.stage("gate", shell=f"while [ ! -e {gate}-go ]; do sleep 0.05; done", after=[big])
    use = flow.stage("use", ["/bin/echo", big.result[0]], after=[gated])
    flow.stage("last", ["/bin/true"], after=[use])
    return flow.submit()


def _finished(cluster: RealCluster, run: phalanx.WorkflowHandle, gate: Path) -> Path:
    """Where the large result of a workflow stands, once it does."""
    cluster.wait_task(run.jobs["big"], "Completed")
    [found] = (cluster.folder / "coordinator" / "files").rglob(f"{run.jobs['big']}/*/result/result.json")
    return found


def _stage(cluster: RealCluster, run: phalanx.WorkflowHandle, name: str) -> phalanx.StageView:
    return next(each for each in cluster.client.workflow_view(run.id).stages if each.name == name)
