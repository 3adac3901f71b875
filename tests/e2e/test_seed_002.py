"""Seed 002 on a real cluster: an experiment outlives the evictions it allows, a batch drains by its parallelism."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.test_gangs_cli import phalanx
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODES = {"n1": "cpus=4,ram=8GiB", "n2": "cpus=4,ram=8GiB"}
EXPERIMENT = """\
kind: AIchorManifest
apiVersion: 0.2.3
spec:
  operator: jobset
  command: {command}
  restartPolicy:
    backoffLimit: 5
  types:
    worker:
      count: 1
      completions: {completions}
      parallelisms: {parallelisms}
      resources: {{cpus: 1}}
"""


def applied(cluster: RealCluster, text: str, *words: str) -> str:
    reply = json.loads(phalanx(cluster, "apply", "-f", "-", "-o", "json", *words, text=text))
    (job,) = reply["jobs"]
    return str(job["id"])


def test_five_evictions_are_survived_and_the_sixth_fails_the_experiment(tmp_path: Path) -> None:
    text = EXPERIMENT.format(command="sleep 300", completions=1, parallelisms=1)
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = applied(cluster, text)
        for number in range(1, 7):
            wait_until(lambda: cluster.client.job(id).status == "Running", 60.0, f"attempt {number} runs")
            assert cluster.client.task(id).attempt == number
            cluster.client.evict(id)
            wait_until(lambda: cluster.client.job(id).status != "Running", 20.0, "it has left")
        assert cluster.client.job(id).status == "Failed"
        assert cluster.client.task(id).reason == "evicted"


def test_ten_completions_drain_two_at_a_time(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    # Each part counts the others while it runs.
    inside = f"touch {marks}/in.$JOB_COMPLETION_INDEX; ls {marks} | grep -c in. > {marks}/saw.$JOB_COMPLETION_INDEX"
    script = tmp_path / "part.sh"
    script.write_text(f"{inside}; sleep 0.2; rm {marks}/in.$JOB_COMPLETION_INDEX\n")
    text = EXPERIMENT.format(command=f"sh {script}", completions=10, parallelisms=2)
    with a_real_cluster(tmp_path / "c", NODES) as cluster:
        id = applied(cluster, text)
        wait_until(lambda: cluster.client.job(id).status == "Completed", 60.0, "all ten are done")
        seen = [int(mark.read_text()) for mark in marks.glob("saw.*")]
        assert len(seen) == 10
        assert max(seen) == 2
