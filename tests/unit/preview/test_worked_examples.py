"""Every worked example of seed 003, planned offline by the scheduler's own code.

Where Koordinator's documentation and its program differ, the documentation is what is asked for here.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.preview.detail import cluster_network_topology
from phalanx.preview.topology import topology_view
from tests.unit.preview.files import EXAMPLES, domains, dominant, evicted, offline, places, plan, reading

BUSY = """
apiVersion: v1
kind: Pod
metadata: {{name: busy-{node}, namespace: default}}
spec:
  nodeName: {node}
  priority: 1000000
  containers: [{{name: main, resources: {{requests: {{nvidia.com/gpu: "8"}}}}}}]
status: {{phase: Running}}
"""


def busy(*numbers: int) -> str:
    """A cluster file in which no other job finds room on these nodes."""
    return "\n---\n".join(BUSY.format(node=f"node-{number}") for number in numbers)


# PodGroup and GangGroup


def test_a_pod_group_starts_with_its_minimum():
    reply = plan("two-nodes.yaml", job="podgroup.yaml")
    assert reply.exit == 0
    assert places(reply) == {"pod-example1": "node-1", "pod-example2": "node-2"}


def test_a_pod_group_that_has_room_for_one_member_only_starts_none():
    taken = busy(2).replace('nvidia.com/gpu: "8"', 'cpu: "4"')
    reply = plan("two-nodes.yaml", taken, job="podgroup.yaml")
    assert (reply.exit, reply.placements) == (3, [])
    assert dominant(reply) == ("GangIncomplete", "capacity")


def test_a_pod_group_with_fewer_members_than_its_minimum_waits_for_them():
    text = (EXAMPLES / "podgroup.yaml").read_text()
    reply = plan("two-nodes.yaml", job=text.rpartition("---")[0])
    assert (reply.exit, reply.placements) == (3, [])
    assert dominant(reply) == ("GangIncomplete", "capacity")
    assert "needs 2 members and has 1" in reply.reasons[0].text


def test_the_groups_of_a_gang_group_start_together():
    reply = plan("two-nodes.yaml", job="ganggroup.yaml")
    assert reply.exit == 0
    assert sorted(places(reply)) == ["pod-a1", "pod-b1", "pod-b2"]
    assert [each.group for each in reply.placements] == ["gang-example1", "gang-example2", "gang-example2"]


def test_a_gang_group_waits_for_the_minimum_of_each_of_its_groups():
    text = (EXAMPLES / "ganggroup.yaml").read_text().rpartition("---")[0]
    reply = plan("two-nodes.yaml", job=text)
    assert (reply.exit, reply.placements) == (3, [])
    assert "default/gang-example2 needs 2 members and has 1" in reply.reasons[0].text


def test_a_gang_group_that_names_a_missing_group_waits_for_it():
    first = (EXAMPLES / "ganggroup.yaml").read_text().split("---\n")
    reply = plan("two-nodes.yaml", job="---\n".join([first[0], first[2]]))
    assert (reply.exit, reply.placements) == (3, [])
    assert "default/gang-example2, which is in none of these files" in reply.reasons[0].text


# Job-level preemption


def test_preemption_makes_room_for_the_whole_job():
    reply = plan("preemption-cluster.yaml", job="preemptor.yaml")
    assert reply.exit == 0
    assert evicted(reply) == [("victim-1", "example-node")]
    assert places(reply) == {"preemptor-pod-1": "example-node", "preemptor-pod-2": "example-node"}
    assert all(each.nominated for each in reply.placements)


def test_the_victim_is_told_for_whom_it_leaves():
    (eviction,) = plan("preemption-cluster.yaml", job="preemptor.yaml").evictions
    assert eviction.why == (
        "phalanx: preempting to accommodate higher priority pods, preemptor: default/hello-job, "
        "triggerpod: default/preemptor-pod-2"
    )
    assert (eviction.job, eviction.preemptor) == ("default/victim-1", "default/hello-job")


def test_a_job_that_never_preempts_waits():
    reply = plan("preemption-cluster.yaml", job="preemptor-never.yaml")
    assert (reply.exit, reply.evictions, reply.placements) == (3, [], [])
    assert "EvictionForbidden" in [each.code for each in reply.reasons]


def test_there_is_no_second_preemption_while_the_victims_of_the_first_end():
    reply = plan("preemption-under-way.yaml")
    assert (reply.exit, reply.evictions) == (3, [])
    assert dominant(reply) == ("WaitingVictims", "progress")
    assert places(reply) == {"preemptor-pod-1": "example-node", "preemptor-pod-2": "example-node"}


def test_nobody_takes_the_room_that_is_kept_for_nominated_members():
    small = """
    name: small
    cores: 2
    """
    reply = plan("preemption-under-way.yaml", job=small)
    assert (reply.exit, reply.placements) == (3, [])


def test_preemption_that_would_not_place_the_whole_job_evicts_nobody():
    job = (EXAMPLES / "preemptor.yaml").read_text().replace('cpu: "2"', 'cpu: "3"')
    reply = plan("preemption-cluster.yaml", job=job)
    assert (reply.evictions, reply.placements) == ([], [])
    assert reply.exit in (3, 4)


# Network topology


def test_the_detail_status_is_that_of_the_seed():
    """The seed lists b2 before b1; ours stand in order of name, as the contract has it."""
    written = cluster_network_topology(topology_view(offline("spine-block.yaml").state))
    assert written == yaml.safe_load((EXAMPLES / "detail-status.yaml").read_text())


def test_the_detail_status_names_the_same_domains_as_the_seed():
    def known(document: dict[str, Any]) -> set[tuple[str, str, str, int, tuple[str, ...]]]:
        return {
            (
                each["topologyInfo"]["topologyLayer"],
                each["topologyInfo"]["topologyName"],
                each.get("parentTopologyInfo", {}).get("topologyName", "none"),
                each["nodeNum"],
                tuple(sorted(each.get("childTopologyNames", ()))),
            )
            for each in document["status"]["detailStatus"]
        }

    written = cluster_network_topology(topology_view(offline("spine-block.yaml").state))
    seed = yaml.safe_load((EXAMPLES / "detail-status-seed.yaml").read_text())
    assert known(written) == known(seed)
    assert written["spec"] == seed["spec"]


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ((), [["s2", "b3", "nvl-b3-1"]]),  # the only accelerator domain with room for three
        ((9,), [["s1", "b1", "nvl-b1-1"], ["s1", "b1", "nvl-b1-2"]]),  # no such domain: one block
        (
            (1, 4, 5, 8, 9, 12, 13, 16, 10),
            [["s1", "b1", "nvl-b1-1"], ["s1", "b1", "nvl-b1-2"], ["s1", "b2", "nvl-b2-1"]],
        ),  # no block with room for three: one spine
    ],
)
def test_members_gather_as_close_as_they_can(full: tuple[int, ...], expected: list[list[str]]):
    files = ["accelerators.yaml", *([busy(*full)] if full else [])]
    reply = plan(*files, job="prefer-gather.yaml")
    assert reply.exit == 0
    assert domains(reply) == expected


def test_members_that_only_prefer_to_gather_start_apart_if_they_must():
    reply = plan("accelerators.yaml", busy(*range(1, 8), *range(10, 17)), job="prefer-gather.yaml")
    assert reply.exit == 0
    assert {path[0] for path in domains(reply)} == {"s1", "s2"}


def test_members_that_must_gather_in_a_spine_do():
    reply = plan("spine-block.yaml", busy(1, 2), job="must-gather.yaml")
    assert reply.exit == 0
    assert {path[0] for path in domains(reply)} == {"s2"}


def test_the_spelling_of_the_layer_in_the_seed_is_understood_and_told():
    (caution,) = reading("spine-block.yaml", job="must-gather.yaml").warnings
    assert "'spineLayer': it is read as SpineLayer" in str(caution)


def test_members_that_must_gather_wait_rather_than_stand_in_two_spines():
    reply = plan("spine-block.yaml", busy(1, 2, 5, 6), job="must-gather.yaml")
    assert (reply.exit, reply.placements) == (3, [])
    assert dominant(reply) == ("TopologyFragmented", "capacity")
    slots = {"/".join(each.domain): each.slots for each in reply.reasons[0].domains}
    assert slots == {"s1": 2, "s2": 2}


def test_the_index_says_who_stands_where():
    reply = plan("spine-block.yaml", job="pod-index.yaml")
    assert [(each.task, each.index, each.node) for each in reply.placements] == [
        ("default/pod-example1", 1, "node-1"),
        ("default/pod-example2", 2, "node-2"),
    ]


def test_the_index_is_a_number_and_wins_over_the_name():
    reply = plan("spine-block.yaml", job="ranks.yaml")
    assert [each.index for each in reply.placements] == list(range(12))
    assert [each.node for each in reply.placements] == [f"node-{1 + rank // 2}" for rank in range(12)]


def test_the_tightest_of_the_lowest_domains_wins():
    """The figures of the seed: Node5 to Node8 are the final result."""
    reply = plan("figure.yaml", job="figure-job.yaml")
    assert sorted(places(reply).values()) == ["node5", "node6", "node7", "node8"]


# Match policies (contract 1.2)


def test_a_gang_that_was_satisfied_once_stays_so_when_all_who_ran_have_finished():
    text = (
        (EXAMPLES / "elastic-once-satisfied.yaml").read_text().replace("phase: Running", "phase: Succeeded")
    )
    assert places(plan(text)) == {"member-4": "node-1"}


@pytest.mark.parametrize(
    ("policy", "exit", "placed"),
    [
        ("once-satisfied", 0, {"member-4": "node-1"}),
        ("waiting-and-running", 3, {}),
        ("only-waiting", 3, {}),
    ],
)
def test_a_fourth_member_joins_as_the_match_policy_says(policy: str, exit: int, placed: dict[str, str]):
    reply = plan(f"elastic-{policy}.yaml")
    assert (reply.exit, places(reply)) == (exit, placed)
    if exit:
        assert dominant(reply)[0] == "GangIncomplete"
