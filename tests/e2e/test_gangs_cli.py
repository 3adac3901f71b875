"""Gangs from the command line on a real cluster: submitted, looked at while they wait, evicted, applied from files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx import local
from phalanx.api.schema.jobs import WhyReply
from tests.support.forked import run_command
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

RACKS = {f"n{number}": f"cpus=4,ram=8GiB,gpus=2,type=h100,labels=rack=r{number // 2}" for number in range(4)}
PEERS = 'echo "$PHALANX_RANK of $PHALANX_WORLD_SIZE on $PHALANX_NODE"; echo "$PHALANX_NODE_NAMES"'
MANIFEST = """\
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ClusterNetworkTopology
metadata: {name: default}
spec:
  networkTopologySpec:
    - {labelKey: [rack], topologyLayer: RackLayer}
    - {parentTopologyLayer: RackLayer, topologyLayer: NodeTopologyLayer}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: gang-example
  namespace: default
  annotations:
    gang.scheduling.koordinator.sh/network-topology-spec: |
      {"gatherStrategy": [{"layer": "RackLayer", "strategy": "MustGather"}]}
spec:
  minMember: 2
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata:
  name: pod-example{number}
  namespace: default
  labels: {{pod-group.scheduling.sigs.k8s.io: gang-example}}
  annotations: {{gang.scheduling.koordinator.sh/network-topology-index: "{number}"}}
spec:
  schedulerName: koord-scheduler
  containers:
    - name: main
      command: [/bin/sh, -c, 'echo "$PHALANX_RANK on $PHALANX_NODE"']
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path, RACKS) as cluster:
        yield cluster


def phalanx(cluster: RealCluster, *words: str, code: int = 0, text: str = "") -> str:
    """Run a command line; returns its output, once its exit code is the one expected."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    leader = cluster.coordinators[0] if len(cluster.coordinators) == 1 else cluster.leader()
    where = ("--address", cluster.address(leader), "--token-file", str(cluster.folder / "token"))
    done = run_command([*where, *words], env, stdin=text.encode(), cwd=cluster.folder)
    assert done.returncode == code, done.stderr.decode()
    return (done.stdout if code == 0 else done.stderr).decode()


def told(cluster: RealCluster, *words: str) -> Any:
    return json.loads(phalanx(cluster, *words, "-o", "json"))


def submit(cluster: RealCluster, *words: str) -> str:
    return phalanx(cluster, "submit", *words).strip()


def until_running(cluster: RealCluster, id: str) -> list[str]:
    """The nodes of a gang's members once all of them run."""
    members = wait_until(
        lambda: (
            [task for task in cluster.client.tasks(id).items if task.status == "Running"][3:]
            and cluster.client.tasks(id).items
        ),
        what=f"four members of {id} run",
    )
    return [task.node or "" for task in members]


def test_a_gang_of_four_starts_together_and_each_knows_its_peers(cluster: RealCluster) -> None:
    id = submit(cluster, "--tasks", "4", "--gpus", "2", "--name", "peers", "--", "/bin/sh", "-c", PEERS)
    assert phalanx(cluster, "wait", id) == ""
    said = [cluster.output(f"{id}.{number}").splitlines() for number in range(4)]
    assert [lines[0] for lines in said] == [f"{rank} of 4 on n{rank}" for rank in range(4)]
    assert {lines[1] for lines in said} == {"n0,n1,n2,n3"}
    shown = phalanx(cluster, "gang", "show", id)
    assert "Finished" in shown
    row = phalanx(cluster, "ps", "-a", "-n", "peers").splitlines()[1].split()
    assert row[3] == "4/4"


def test_run_shows_the_lines_of_every_member(cluster: RealCluster) -> None:
    out = phalanx(
        cluster, "run", "--tasks", "3", "--gpus", "2", "--", "/bin/sh", "-c", "echo hello $PHALANX_RANK"
    )
    assert sorted(out.splitlines()) == [f"{number}: hello {number}" for number in range(3)]


def test_a_member_with_several_gpus_that_lacks_rank_is_told_what_it_has(cluster: RealCluster) -> None:
    lacking = ("-c", "import os; os.environ['RANK']")
    gang = phalanx(
        cluster,
        "submit",
        "-n",
        "ppo",
        "--tasks",
        "2",
        "--gpus",
        "2",
        "--retries",
        "0",
        "--",
        "python3",
        *lacking,
    )
    id = gang.strip()
    phalanx(cluster, "wait", id, code=1)
    why = phalanx(cluster, "why", id)
    assert "start it with torchrun, which needs no options and sets RANK" in why
    assert "PHALANX_RANK, PHALANX_WORLD_SIZE, MASTER_ADDR" in why
    failed = [task.rank for task in cluster.client.tasks(id).items if task.reason == "exited"]
    (message,) = [
        line for line in phalanx(cluster, "show", f"{id}.{failed[0]}").splitlines() if "Message" in line
    ]
    assert "exited with code 1; start it with torchrun" in message
    shown = phalanx(cluster, "gang", "show", id)
    assert "PET_* for torchrun, which sets RANK" in shown
    ran_on = sorted(task.node or "" for task in cluster.client.tasks(id).items)
    (line,) = [line for line in shown.splitlines() if line.startswith("Ran on:")]
    assert sorted(line.removeprefix("Ran on:").replace(",", "").split()) == ran_on
    assert "0 of 2 placed" not in shown and "2 failed" in shown
    assert (
        phalanx(cluster, "ps", "-a", "--node", ran_on[0], "-n", "p*", "-o", "csv", "--columns", "id")
        == "ID\n1\n"
    )
    assert phalanx(cluster, "ps", "-a", "--node", ran_on[0], "-n", "x*", "-o", "name") == ""
    alone = phalanx(cluster, "submit", "--retries", "0", "--", "python3", *lacking).strip()
    phalanx(cluster, "wait", alone, code=1)
    assert "sets RANK; a task has PET_* for it" in phalanx(cluster, "why", alone)


def test_while_it_waits_it_says_why_and_the_fix_starts_it(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n0"], gpus=2, command=["/bin/sleep", "300"])
    cluster.client.submit(targets=["n2"], gpus=2, command=["/bin/sleep", "300"])
    gang = ("--tasks", "2", "--gpus", "2", "--", "/bin/sleep", "300")
    id = submit(cluster, "--gather", "rack:must", *gang)
    why = told(cluster, "why", id)
    assert (why["dominant"]["code"], why["needed"]) == ("TopologyFragmented", 2)
    assert [(each["domain"], each["slots"]) for each in why["domains"]] == [(["r0"], 1), (["r1"], 1)]
    assert "rack r0: room for 1 of 2" in phalanx(cluster, "why", id)
    assert why["fix"]["change"] == {"gather": []}
    phalanx(cluster, "cancel", id)
    cluster.wait_task(f"{submit(cluster, *gang)}.0", "Running")


def test_what_can_never_start_whole_exits_with_4(cluster: RealCluster) -> None:
    said = phalanx(
        cluster, "submit", "--tasks", "3", "--gpus", "2", "--gather", "rack:must", "--", "true", code=4
    )
    assert "rack" in said and "hint:" in said
    assert cluster.client.jobs().items == []


def test_a_gang_that_is_evicted_starts_anew_whole(cluster: RealCluster) -> None:
    deaf = "trap '' TERM; while :; do sleep 1; done"  # it stays visible as leaving, for as long as its grace
    id = submit(cluster, "--tasks", "4", "--gpus", "2", "--grace", "2s", "--", "/bin/sh", "-c", deaf)
    until_running(cluster, id)
    assert "1 task being evicted" in phalanx(cluster, "evict", f"{id}.2")
    condition = cluster.client.task(f"{id}.2").conditions[0]
    assert (condition.type, condition.message) == ("DisruptionTarget", "phalanx: evicted by user admin")
    wait_until(lambda: cluster.client.task(f"{id}.0").attempt == 2, what="the others start anew, too")
    until_running(cluster, id)
    job = cluster.client.job(id)
    assert (job.restarts, job.setbacks) == (0, 1)
    assert {task.attempt for task in cluster.client.tasks(id).items} == {2}


def test_the_manifests_of_seed_003_run_as_they_are(cluster: RealCluster) -> None:
    manifests = MANIFEST + "".join(POD.format(number=number) for number in (1, 2))
    reply = json.loads(phalanx(cluster, "apply", "-f", "-", "-o", "json", text=manifests))
    assert reply["topology_changed"]
    (job,) = reply["jobs"]
    assert (job["name"], job["tasks"]) == ("gang-example", 2)
    phalanx(cluster, "wait", "default/gang-example")
    assert f"default/gang-example ({job['number']}) is Completed" in phalanx(
        cluster, "why", "default/gang-example"
    )
    assert "default/pod-example2" in phalanx(cluster, "gang", "show", "default/gang-example")
    assert (
        json.loads(phalanx(cluster, "show", "default/pod-example2", "-o", "json"))["id"] == f"{job['id']}.1"
    )
    assert phalanx(cluster, "logs", "default/pod-example2").split()[0] == "1"
    tasks = cluster.client.tasks(job["id"]).items
    assert {task.node for task in tasks} in ({"n0", "n1"}, {"n2", "n3"})
    assert [cluster.output(task.id).split()[0] for task in tasks] == ["0", "1"]


def test_a_podgroup_may_come_before_its_pods_and_they_one_by_one(cluster: RealCluster) -> None:
    """M11: seed 003's manifests in three calls; a pod that is given twice is one pod."""
    (job,) = json.loads(phalanx(cluster, "apply", "-f", "-", "-o", "json", text=MANIFEST))["jobs"]
    assert "needs 2 members and has 0" in phalanx(cluster, "why", "default/gang-example")
    phalanx(cluster, "apply", "-f", "-", text=POD.format(number=1))
    reply = cluster.client.why("default/gang-example")
    assert (reply.id, reply.dominant.code) == (job["id"], "GangIncomplete")
    assert "needs 2 members and has 1" in reply.dominant.text
    assert cluster.client.job(job["id"]).status == "Pending"
    both = POD.format(number=1) + POD.format(number=2)
    (whole,) = json.loads(phalanx(cluster, "apply", "-f", "-", "-o", "json", text=both))["jobs"]
    assert whole["id"] == job["id"]
    phalanx(cluster, "wait", "default/gang-example")
    assert [task.object for task in cluster.client.tasks(job["id"]).items] == [
        "default/pod-example1",
        "default/pod-example2",
    ]


def test_an_urgent_gang_takes_the_place_of_another_and_both_say_so(cluster: RealCluster) -> None:
    words = ("--tasks", "4", "--gpus", "2", "--grace", "5s", "--", "/bin/sh", "-c", "trap '' TERM; sleep 300")
    victim = submit(cluster, *words)
    until_running(cluster, victim)
    gang = ("--tasks", "2", "--gpus", "2", "--", "/bin/sleep", "300")
    urgent = submit(cluster, "--priority", "10", "--name", "urgent", *gang)

    def waits_for_victims() -> WhyReply | None:
        reply = cluster.client.why(urgent)
        return reply if reply.dominant.code == "WaitingVictims" else None

    assert wait_until(waits_for_victims).dominant.numbers["nominated"]
    assert cluster.client.task(f"{urgent}.0").nominated_node
    condition = next(task.conditions[0] for task in cluster.client.tasks(victim).items if task.conditions)
    assert condition.reason == "PreemptionByScheduler"
    assert "preempted to make room for urgent (job " in condition.message
    cluster.wait_task(f"{urgent}.0", "Running", within_s=30.0)
    assert any(line.event == "RoomPromised" for line in cluster.client.story(victim).items)


def test_a_quota_holds_a_gang_back(cluster: RealCluster) -> None:
    phalanx(cluster, "queue", "set", "lab", "--gpus", "4")
    first = submit(cluster, "-q", "lab", "--tasks", "2", "--gpus", "2", "--", "/bin/sleep", "300")
    cluster.wait_task(f"{first}.0", "Running")
    second = submit(cluster, "-q", "lab", "--tasks", "2", "--gpus", "2", "--", "/bin/sleep", "300")
    assert told(cluster, "why", second)["dominant"]["code"] == "QuotaExhausted"
    assert "4/4" in phalanx(cluster, "queue", "list")
    phalanx(cluster, "queue", "unset", "lab")
    cluster.wait_task(f"{second}.0", "Running")


def test_a_cluster_inside_this_process_runs_a_gang() -> None:
    with local(nodes=2, pretend="cpus=4,ram=8GiB,gpus=1,type=h100") as inside:
        (id,) = inside.gang(["/bin/sh", "-c", "echo $PHALANX_RANK"], 2, gpus=1, gather=["rack"]).task_ids
        assert inside.wait(id, 30).status == "Completed"
        assert [b"".join(inside.logs(f"{id}.{number}")) for number in (0, 1)] == [b"0\n", b"1\n"]
