"""Members of a job know each other by name: seed 002's two scripts as they are, on two runners.

The scripts in `seeds/` have their indentation restored and nothing else changed. Tasks have a host name and a hosts
file of their own only where the runner is root.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.test_seed_002 import applied
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

SEEDS = Path(__file__).parent / "seeds"
NODES = {"n1": "cpus=2,ram=8GiB", "n2": "cpus=2,ram=8GiB"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a host name of its own takes root")


def finished(cluster: RealCluster, id: str, within_s: float = 60.0) -> list[str]:
    """What each task wrote, once all are done."""
    wait_until(
        lambda: cluster.client.job(id).status in ("Completed", "Failed"), within_s, "the job has ended"
    )
    job = cluster.client.job(id)
    tasks = range(job.tasks)
    written = [cluster.output(f"{id}.{position}") for position in tasks]
    assert job.status == "Completed", written
    return written


# Of each script as the seed has it, without the white space around its lines: the seed's page has lost its indentation.
OF_THE_SEED = {
    "002-decentralized.txt": "9cdec46ca2037193a5b3ad4388be7ed56c40fe9e2b290b7b2e493ae92582c6ea",
    "002-coordinator.txt": "2b505e5f581e1b2a85dffeb0ec602f325c0878cb8c4e78e967c32c11f7944054",
}


@pytest.mark.parametrize("name", OF_THE_SEED)
def test_the_scripts_are_the_seeds_but_for_their_indentation(name: str) -> None:
    lines = (SEEDS / name).read_text().strip().splitlines()
    text = "\n".join(line.strip() for line in lines)
    assert hashlib.sha256(text.encode()).hexdigest() == OF_THE_SEED[name]


@as_root
def test_the_decentralised_script_runs_as_a_gang_on_two_nodes(tmp_path: Path) -> None:
    spec = {
        "name": "exp",
        "gang": True,
        "groups": [
            {
                "name": "worker",
                "tasks": 4,
                "replicas": 4,
                "command": [sys.executable, str(SEEDS / "002-decentralized.txt")],
            }
        ],
    }
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = cluster.client.apply(spec).jobs[0].id
        wait_until(lambda: cluster.client.job(id).status == "Running", 30.0, "it runs")
        assert {task.node for task in cluster.client.tasks(id).items} == {"n1", "n2"}
        written = finished(cluster, id)
        for index, text in enumerate(written):
            others = [other for other in range(4) if other != index]
            assert f"I am exp-worker-{index}-0 (job_index={index}); waiting for 3 peers" in text
            assert all(f"[peers] exp-worker-{other}-0.exp ready" in text for other in others)
            assert text.endswith("[peers] done\n")
        hosts = list(tmp_path.glob("n*/logs/hosts/*"))
        assert hosts == [], "hosts files go with their tasks"


@as_root
def test_the_coordinator_script_runs_from_an_aichor_manifest(tmp_path: Path) -> None:
    text = f"""\
kind: AIchorManifest
apiVersion: 0.2.3
name: exp
spec:
  operator: jobset
  command: {sys.executable} {SEEDS / "002-coordinator.txt"}
  types:
    coordinator:
      count: 1
      resources: {{cpus: 1}}
    worker:
      count: 3
      resources: {{cpus: 1}}
"""
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = applied(cluster, text)
        written = finished(cluster, id)
        assert "I am exp-coordinator-0-0; waiting for 3 workers" in written[0]
        assert "all workers up, begin coordination" in written[0]
        for index, text in enumerate(written[1:]):
            assert f"I am exp-worker-{index}-0; waiting for coordinator exp-coordinator-0-0.exp" in text
            assert "coordinator is up, proceed" in text


@as_root
def test_the_coordinator_script_runs_as_a_gang_on_two_nodes(tmp_path: Path) -> None:
    command = [sys.executable, str(SEEDS / "002-coordinator.txt")]
    groups = [
        {"name": name, "tasks": tasks, "replicas": tasks, "command": command}
        for name, tasks in (("coordinator", 1), ("worker", 3))
    ]
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = cluster.client.apply({"name": "exp", "gang": True, "groups": groups}).jobs[0].id
        written = finished(cluster, id)
        assert {task.node for task in cluster.client.tasks(id).items} == {"n1", "n2"}
        assert "I am exp-coordinator-0-0; waiting for 3 workers" in written[0]
        assert "all workers up, begin coordination" in written[0]
        assert all("coordinator is up, proceed" in text for text in written[1:])


@as_root
def test_tasks_of_an_array_that_start_later_are_found_by_those_before_them(tmp_path: Path) -> None:
    look = "until getent hosts sweep-sweep-0-1.lab; do sleep 0.1; done; hostname"
    with a_real_cluster(tmp_path, {"n1": "cpus=2,ram=8GiB"}) as cluster:
        first = cluster.client.submit(command=["/bin/sleep", "300"], cores=1)
        id = cluster.client.submit(
            shell=look, array="0-1", names=True, name="sweep", subdomain="lab", cores=1
        ).task_ids[0]
        cluster.wait_task(f"{id}.0", "Running")
        assert cluster.client.task(f"{id}.1").status == "Pending"
        cluster.client.cancel(first.task_ids[0])
        written = finished(cluster, id)
        assert [text.splitlines()[-1] for text in written] == ["sweep-sweep-0-0", "sweep-sweep-0-1"]


@as_root
def test_the_machine_keeps_its_own_name_and_hosts(tmp_path: Path) -> None:
    before = (os.uname().nodename, Path("/etc/hosts").read_bytes())
    show = ["/bin/sh", "-c", "hostname; grep -c exp /etc/hosts; cat $PHALANX_HOSTS | grep -c exp"]
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = cluster.client.gang(show, 2, name="exp").task_ids[0]
        written = finished(cluster, id)
        assert [text.split() for text in written] == [["exp-exp-0-0", "2", "2"], ["exp-exp-0-1", "2", "2"]]
        alone = cluster.client.submit(command=["/bin/hostname"], name="solo").task_ids[0]
        cluster.wait_task(alone, "Completed")
        assert cluster.output(alone).strip() == before[0], "a task that is alone has the machine's"
    assert (os.uname().nodename, Path("/etc/hosts").read_bytes()) == before
