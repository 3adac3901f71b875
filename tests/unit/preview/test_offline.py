"""Files become a real state: what runs holds its place, what waits waits, and closed nodes take nothing."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.cluster.invariants import check
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest
from phalanx.manifests.cluster import ClusterSpec
from phalanx.manifests.found import ParsedJob, Placed
from phalanx.manifests.nodes import NodeSpec
from phalanx.manifests.read import Manifests
from phalanx.preview.offline import Offline
from tests.support.builders import a_capacity
from tests.unit.preview.files import EXAMPLES, NOW, evicted, offline, places, plan, reading


def files() -> list[str]:
    """Every example that describes a cluster."""
    return sorted(path.name for path in EXAMPLES.glob("*.yaml") if "kind: Node\n" in path.read_text())


@pytest.mark.parametrize("file", files())
def test_the_state_keeps_every_invariant(file: str):
    assert check(offline(file).state) == []


def test_running_tasks_hold_what_they_were_given():
    state = offline(
        "nodes: [{name: n1, cores: 8, gpus: 4}]\nrunning: [{name: a, gpus: 2, cores: 3, places: [n1]}]\n"
    ).state
    ledger = state.table.ledger("n1")
    assert (ledger.cores_free, len(ledger.devices_free)) == (5, 2)
    (job,) = state.jobs.values()
    assert job.status[0] == Status.RUNNING


def test_a_gang_with_running_members_has_started_whole():
    text = 'nodes: [{name: "n[1-2]", cores: 1}]\nrunning: [{name: a, gang: true, places: [n1, n2]}]\n'
    (job,) = offline(text).state.jobs.values()
    assert (job.satisfied, job.forming) == (True, None)


def test_a_closed_node_keeps_its_reason():
    text = """
    nodes: [{name: n1, cores: 8}, {name: n2, cores: 8, closed: a fan is broken}]
    running: [{name: busy, cores: 8, priority: 9, places: [n1]}]
    """
    reply = plan(text, job="name: a\ncores: 8\n")
    assert reply.exit == 3
    assert "n2 is drained: a fan is broken" in [each.reason.text for each in reply.reasons[0].nodes]
    assert reply.reasons[0].fix is not None
    assert reply.reasons[0].fix.command == "phalanx node resume n2"


def test_more_than_a_node_has_is_told_and_counted_as_far_as_it_goes():
    spec = JobSpec([GroupSpec(command=["x"], cores=6)])
    found = ParsedJob(spec, "text.yaml:1", "a", placed=(Placed(0, "n1", 6, 0, 0),), asked=False)
    there = ClusterSpec([NodeSpec("n1", a_capacity(cores=8))], [found, found])
    cluster = Offline(Manifests([], [], None, {}, there, []), NOW)
    assert cluster.state.table.ledger("n1").cores_free == 0
    assert [text.partition(": ")[2][:34] for text in cluster.warnings] == [
        "more is held on n1 than it has: In"
    ]


def test_those_who_wait_are_planned_if_nobody_else_is_asked_about():
    text = "nodes: [{name: n1, cores: 2}]\nwaiting: [{name: a}, {name: b}]\n"
    assert places(plan(text)) == {"a": "n1", "b": "n1"}


def test_those_who_wait_go_first_and_are_not_told():
    text = "nodes: [{name: n1, cores: 2}]\nwaiting: [{name: a, cores: 2, time_limit: 60}]\n"
    reply = plan(text, job="name: b\ncores: 2\n")
    assert (reply.exit, reply.placements) == (3, [])
    assert {each.job for each in reply.reasons} == {"b"}


def test_a_taint_keeps_away_whoever_does_not_tolerate_it():
    reply = plan("tainted.yaml", job="tolerating.yaml")
    assert places(reply) == {"tolerates": "gpu-1", "does-not": "cpu-1"}
    assert reply.exit == 3  # the third finds no room, for all that gpu-1 has
    assert reply.reasons[1].text == "gpu-1 has a taint that it does not tolerate: gpu:NoSchedule"
    assert reply.reasons[1].numbers == {"host": "gpu-1", "lacking": [], "taints": ["gpu:NoSchedule"]}
    assert "only-tolerated-taints" not in msgspec.json.encode(reply).decode()


def test_a_command_tolerates_no_taint():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  tolerations: [{key: gpu, operator: Exists}]\n"
    made = reading("tainted.yaml", job=pod + "  containers: [{name: m, command: [x]}]\n")
    reply = Offline(made, NOW, SubmitRequest(command=["x"], cores=7)).plan()
    assert "x" not in places(reply)
    assert "a" in places(reply)


def test_members_of_a_gang_tolerate_each_for_itself():
    nodes = """
apiVersion: v1
kind: Node
metadata: {name: t1}
spec: {taints: [{key: k, value: v, effect: NoSchedule}]}
status: {allocatable: {cpu: "4"}}
---
apiVersion: v1
kind: Node
metadata: {name: t2}
status: {allocatable: {cpu: "4"}}
"""
    pod = """
---
apiVersion: v1
kind: Pod
metadata: {name: m-%d, labels: {pod-group.scheduling.sigs.k8s.io: g}}
spec: {containers: [{name: m, command: [x], resources: {requests: {cpu: 4}}}]%s}
"""
    gang = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g}
spec: {minMember: 2}
"""
    job = gang + pod % (0, ", tolerations: [{key: k, operator: Exists}]") + pod % (1, "")
    reply = plan(nodes, job=job)
    assert places(reply) == {"m-0": "t1", "m-1": "t2"}


def test_a_command_is_planned_like_a_file():
    made = reading("nodes: [{name: n1, cores: 8}]\n")
    reply = Offline(made, NOW, SubmitRequest(command=["/usr/bin/train"], tasks=2, cores=4)).plan()
    assert places(reply) == {"train.0": "n1", "train.1": "n1"}


def test_a_layer_that_a_command_names_is_understood_as_in_files():
    cluster = Offline(
        reading("spine-block.yaml"),
        NOW,
        SubmitRequest(
            command=["train"],
            tasks=2,
            gpus=8,
            gather=reading("spine-block.yaml", job="must-gather.yaml").jobs[0].gather,
        ),
    )
    assert cluster.plan().exit == 0


def test_a_target_that_cannot_be_read_is_refused():
    with pytest.raises(BadRequest):
        Offline(
            reading("nodes: [{name: n1, cores: 8}]\n"), NOW, SubmitRequest(command=["x"], targets=["N1!"])
        )


def test_times_of_the_file_count():
    text = """
    nodes: [{name: n1, cores: 1}]
    running: [{name: old, places: [n1], min_run: 1h, started_at: 0}]
    now: 3601
    """
    job = "name: urgent\npriority: 1\n"
    assert evicted(plan(text, job=job)) == [("old", "n1")]
    assert evicted(plan(text.replace("3601", "3599"), job=job)) == []


def test_parts_of_cores_are_shared():
    pods = "".join(
        f"""---
apiVersion: v1
kind: Pod
metadata: {{name: p{number}}}
spec:
  nodeName: n1
  containers: [{{name: m, resources: {{requests: {{cpu: 500m}}}}}}]
status: {{phase: Running}}
"""
        for number in range(4)
    )
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: '4'}}\n"
    assert plan(node + pods, job="name: a\ncores: 2\n").exit == 0
    assert plan(node + pods, job="name: a\ncores: 3\n").exit in (3, 4)


def test_a_job_file_that_is_held_waits():
    reply = plan("nodes: [{name: n1, cores: 4}]\n", job="name: a\nhold: true\n")
    assert (reply.exit, [(no.code, no.numbers) for no in reply.reasons]) == (
        3,
        [("Held", {"because": "by its user"})],
    )
